"""The floating-point activations of a model: names, element types, declared shapes."""

from __future__ import annotations

import onnx_ir as ir

from ..records.profile import FLOAT_DTYPES, Dim, merged_shape
from ..runtime.profiling_session import runtime_dtypes
from .subgraphs import activations_of

FLOATS = tuple(ir.DataType[name.upper()] for name in FLOAT_DTYPES)
"""Element types of the tensors that are profiled."""


def observed(model: ir.Model) -> tuple[ir.Value, ...]:
    """Return the activations of the main graph that are profiled: graph inputs, then node outputs in order.

    These are the tensors of type float, float16, bfloat16 and double. A value whose `dtype` is None, because
    shape inference does not know its operator, is among them: `resolved` asks onnxruntime. Initialisers,
        inputs
    that only replace an initialiser and the outputs of Constant nodes are not activations.
    """
    return tuple(value for value in activations_of(model.graph) if value.name and _may_be_float(value))


def resolved(model: ir.Model) -> tuple[tuple[ir.Value, ir.DataType], ...]:
    """Return `observed(model)` with element types: unknown ones from onnxruntime; other types than `FLOATS`
    are left out.

    Raises:
        ModelError: a type is unknown, and onnxruntime cannot load the model.
    """
    values = observed(model)
    unknown = tuple(str(v.name) for v in values if v.dtype is None)
    dtypes = runtime_dtypes(model, unknown) if unknown else {}
    typed = ((v, v.dtype if v.dtype is not None else dtypes[str(v.name)]) for v in values)
    return tuple((v, dtype) for v, dtype in typed if dtype is not None and dtype in FLOATS)


def _may_be_float(value: ir.Value) -> bool:
    return value.type is None or (isinstance(value.type, ir.TensorType) and value.dtype in FLOATS)


def dtype_name(dtype: ir.DataType) -> str:
    """Return the name of an element type as profiles have it: "float", "float16", "bfloat16", "double"."""
    return dtype.name.lower()


def readable_dtype(dtype: ir.DataType) -> ir.DataType:
    """Return the element type in which a tensor is read: bfloat16, which numpy lacks, is read as float32."""
    return ir.DataType.FLOAT if dtype == ir.DataType.BFLOAT16 else dtype


def recorded_shape(declared: ir.Shape | None, observed_shape: tuple[int, ...]) -> tuple[Dim, ...] | None:
    """Return the shape that a profile records: None where the model leaves a dimension free.

    So it does not depend on the batch size of the samples. Where the model declares nothing, it is the
    observed shape.
    """
    if declared is None:
        return observed_shape
    return merged_shape(declared_shape(declared), observed_shape)


def declared_shape(declared: ir.Shape | None) -> tuple[Dim, ...] | None:
    """Return a shape of the model as profiles have it: None for a dimension that is left free."""
    return None if declared is None else tuple(d if isinstance(d, int) else None for d in declared)
