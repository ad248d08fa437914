"""The floating-point activations of a model: names, element types, declared shapes."""

from __future__ import annotations

import onnx_ir as ir

from ..records.profile import Dim, merged_shape
from ..runtime.profiling_session import runtime_dtypes

FLOATS = (ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.BFLOAT16, ir.DataType.DOUBLE)
"""Element types that are profiled."""


def observed(model: ir.Model) -> tuple[ir.Value, ...]:
    """Return the activations of the main graph that are profiled: graph inputs, then node outputs in order.

    These are the tensors of type float, float16, bfloat16 and double. A value whose `dtype` is None, because
    shape inference does not know its operator, is among them: `resolved` finds out. Initialisers, inputs
    that only replace an initialiser and the outputs of Constant nodes are no activations.
    """
    inputs = [v for v in model.graph.inputs if v.name not in model.graph.initializers]
    made = [v for node in model.graph if not _is_constant(node) for v in node.outputs if v.name]
    return tuple(v for v in (*inputs, *made) if _may_be_float(v))


def resolved(model: ir.Model) -> tuple[tuple[ir.Value, ir.DataType], ...]:
    """Return `observed(model)` with element types: unknown ones from onnxruntime, those not float left out.

    Raises:
        ModelError: a type is unknown, and onnxruntime cannot load the model.
    """
    values = observed(model)
    unknown = tuple(str(v.name) for v in values if v.dtype is None)
    found = runtime_dtypes(model, unknown) if unknown else {}
    typed = ((v, v.dtype if v.dtype is not None else found[str(v.name)]) for v in values)
    return tuple((v, dtype) for v, dtype in typed if dtype is not None and dtype in FLOATS)


def _is_constant(node: ir.Node) -> bool:
    return node.op_type == "Constant" and node.domain in ("", "ai.onnx")


def _may_be_float(value: ir.Value) -> bool:
    return value.type is None or (isinstance(value.type, ir.TensorType) and value.dtype in FLOATS)


def dtype_name(dtype: ir.DataType) -> str:
    """Return the name of an element type as profiles have it: "float", "float16", "bfloat16", "double"."""
    return dtype.name.lower()


def recorded_shape(declared: ir.Shape | None, seen: tuple[int, ...]) -> tuple[Dim, ...] | None:
    """Return the shape that a profile records: None where the model leaves a dimension free.

    So the batch size of the samples does not show. Where the model declares nothing, the shape seen.
    """
    if declared is None:
        return seen
    return merged_shape(declared_shape(declared), seen)


def declared_shape(declared: ir.Shape | None) -> tuple[Dim, ...] | None:
    """Return a shape of the model as profiles have it: None for a dimension that is left free."""
    return None if declared is None else tuple(d if isinstance(d, int) else None for d in declared)
