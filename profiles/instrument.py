"""Puts a `QuantizationProfile` node on every floating-point activation.

The node is a model-local ONNX function whose body is written in standard operators, so an instrumented model
runs wherever the model runs, and what it computes can be read in any viewer. One run of it gives the same
numbers as the runner, which takes a faster way to them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from .errors import ModelError
from .histogram import Histogram
from .profile import Dim, TensorProfile, merged_shape
from .profiling_function import DOMAIN, OP_TYPE, OUTPUTS, profiling_function
from .session import runtime_dtypes

MIN_OPSET = 13
"""Oldest opset of the default domain that the function's body is written for."""

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


def instrument(model: ir.Model) -> ir.Model:
    """Return a copy of `model` with a `QuantizationProfile` node on each activation of `observed`.

    The function's outputs are graph outputs, called "qprof:<output>:<tensor>" (with underscores after "qprof"
    where the model has such names). Attributes say, as in Glow, which node and output is profiled; for a
    graph input its own name and 0.

    The original nodes, names and outputs stay: a runtime that fuses nothing gives the original outputs bit
    for bit. One that fuses nodes cannot fuse across a tensor that is observed, so its outputs may differ
    by rounding from those of the original model, which it did fuse.

    Raises:
        ModelError: the opset is older than MIN_OPSET, the model is instrumented already, or an element type
            is unknown and onnxruntime cannot load the model.
    """
    opset = model.opset_imports.get("", 0)
    if opset < MIN_OPSET:
        raise ModelError(
            f"model '{model.graph.name}': has opset {opset}, profiling needs {MIN_OPSET} or newer; "
            "convert it with onnx.version_converter"
        )
    if DOMAIN in model.opset_imports or any(key[0] == DOMAIN for key in model.functions):
        raise ModelError(
            f"model '{model.graph.name}': uses the operator domain '{DOMAIN}': it is instrumented already; "
            "give the original model"
        )
    dtypes = {str(value.name): dtype for value, dtype in resolved(model)}
    copy = model.clone()
    names = _names(copy)
    prefix = _free_prefix(names)
    taken = {str(node.name) for node in copy.graph.all_nodes() if node.name}
    for value in observed(copy):
        dtype = dtypes.get(str(value.name))
        if dtype is not None:
            value.dtype = dtype
            node = _profiling_node(value, prefix, _unique(f"{OP_TYPE}/{_escaped(str(value.name))}", taken))
            copy.graph.append(node)
            copy.graph.outputs.extend(node.outputs)
    function = profiling_function(opset)
    copy.functions[function.identifier()] = function
    copy.opset_imports[DOMAIN] = 1
    copy.ir_version = max(copy.ir_version, 8)  # the first with model-local functions
    return copy


def _profiling_node(value: ir.Value, prefix: str, name: str) -> ir.Node:
    producer = value.producer()
    profiled = str(value.name) if producer is None else str(producer.name or "")
    outputs = [
        ir.Value(
            name=f"{prefix}:{output}:{value.name}", type=ir.TensorType(dtype), shape=ir.Shape([None] * rank)
        )
        for output, (dtype, rank) in OUTPUTS.items()
    ]
    attributes = [
        ir.AttrString("profiled_node_name", profiled),
        ir.AttrInt64("profiled_output_number", (value.index() or 0) if producer is not None else 0),
    ]
    return ir.Node(DOMAIN, OP_TYPE, [value], attributes, outputs=outputs, name=name)


def _names(model: ir.Model) -> set[str]:
    """Return the names of all values, those of subgraphs included."""
    values: list[ir.Value] = []
    for graph in model.graphs():
        values += [*graph.inputs, *graph.initializers.values()]
        values += [v for node in graph for v in node.outputs]
    return {v.name for v in values if v.name}


def _free_prefix(names: Iterable[str]) -> str:
    prefix = DOMAIN
    while any(name.startswith(f"{prefix}:") for name in names):
        prefix += "_"
    return prefix


def _escaped(name: str) -> str:
    """Return `name` with every character that viewers or tools may trip over as %XX of its UTF-8 bytes."""
    return re.sub(r"[^A-Za-z0-9_./:-]", lambda m: "".join(f"%{b:02X}" for b in m[0].encode()), name)


def _unique(name: str, taken: set[str]) -> str:
    free, number = name, 1
    while free in taken:
        free, number = f"{name}#{number}", number + 1
    taken.add(free)
    return free


def profile_from_outputs(
    instrumented: ir.Model, outputs: Mapping[str, npt.NDArray[Any]]
) -> dict[str, TensorProfile]:
    """Return what one run of an instrumented model found, by tensor name in graph order.

    Profiles of several runs are merged with `TensorProfile.merged`.

    Args:
        instrumented: the result of `instrument`.
        outputs: the graph outputs of one run by name; others than the profiling outputs may be missing.

    Raises:
        ModelError: the model is not instrumented.
    """
    nodes = [node for node in instrumented.graph if (node.domain, node.op_type) == (DOMAIN, OP_TYPE)]
    if not nodes:
        raise ModelError(f"model '{instrumented.graph.name}': has no {OP_TYPE} nodes; instrument it first")
    profiles = {}
    for node in nodes:
        found = {key: outputs[str(v.name)] for key, v in zip(OUTPUTS, node.outputs, strict=True)}
        value = node.inputs[0]
        if value is None or value.dtype is None:
            raise ModelError(f"node '{node.name}': its input has no element type; instrument the model anew")
        shape = tuple(int(d) for d in found["shape"])
        profiles[str(value.name)] = TensorProfile(
            dtype=dtype_name(value.dtype),
            shape=recorded_shape(value.shape, shape),
            minimum=float(found["minimum"]),
            maximum=float(found["maximum"]),
            count=int(found["count"]),
            zeros=int(found["zeros"]),
            nan=int(found["nan"]),
            inf=int(found["inf"]),
            histogram=_histogram(int(found["exponent"]), found["bins"], found["counts"]),
        )
    return profiles


def _histogram(exponent: int, bins: npt.NDArray[np.int64], counts: npt.NDArray[np.int64]) -> Histogram:
    if bins.size == 0:
        return Histogram.empty()
    dense = np.zeros(int(bins[-1] - bins[0]) + 1, np.int64)
    dense[bins - bins[0]] = counts
    return Histogram(exponent, int(bins[0]), dense)


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
