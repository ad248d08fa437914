"""Puts a `QuantizationProfile` node on every floating-point activation.

The node is a model-local ONNX function whose body is written in standard operators, so an instrumented model
runs wherever the model runs, and any viewer shows what it computes. One run of it gives the same numbers as
the calibration runner, which computes them faster.
"""

from __future__ import annotations

import re
from collections.abc import Container, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from ..base.errors import ModelError
from ..base.names import free_name
from ..records.histogram import Histogram
from ..records.profile import TensorProfile
from ..samples.model_title import title_of
from .activations import dtype_name, observed, recorded_shape, resolved
from .profiling_function import DOMAIN, OP_TYPE, OUTPUTS, is_instrumented, profiling_function
from .subgraphs import value_names

MIN_OPSET = 13
"""Oldest opset of the default domain that the function's body is written for."""


def instrument(model: ir.Model) -> ir.Model:
    """Return a copy of `model` with a `QuantizationProfile` node on each activation of `observed`.

    The function's outputs are graph outputs, called "qprof:<output>:<tensor>" (with underscores after "qprof"
    where the model has such names). Attributes name, as in Glow, the node and output that is profiled; for
    a graph input its own name and 0.

    The original nodes, names and outputs stay: a runtime that fuses nothing gives the original outputs bit
    for bit. One that fuses nodes cannot fuse across an observed tensor, so its outputs may differ by
    rounding from those of the original model, which it did fuse.

    Raises:
        ModelError: the opset is older than MIN_OPSET, the model is instrumented already, or an element type
            is unknown and onnxruntime cannot load the model.
    """
    opset = model.opset_imports.get("", 0)
    if opset < MIN_OPSET:
        raise ModelError(
            f"{title_of(model)}: has opset {opset}, profiling needs {MIN_OPSET} or newer; "
            "convert it with onnx.version_converter"
        )
    if is_instrumented(model):
        raise ModelError(f"{title_of(model)}: is instrumented already; give the original model")
    dtypes = {str(value.name): dtype for value, dtype in resolved(model)}
    copy = model.clone()
    heads = {name.partition(":")[0] for name in value_names(copy) if ":" in name}
    prefix = free_name(DOMAIN, heads, lambda number: DOMAIN + "_" * number)
    taken = {str(node.name) for node in copy.graph.all_nodes() if node.name}
    for value in observed(copy):
        dtype = dtypes.get(str(value.name))
        if dtype is not None:
            value.dtype = dtype
            node = _profiling_node(value, prefix, _node_name(str(value.name), taken))
            taken.add(str(node.name))
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


def _node_name(tensor: str, taken: Container[str]) -> str:
    name = f"{OP_TYPE}/{_escaped(tensor)}"
    return free_name(name, taken, lambda number: f"{name}#{number}")


def _escaped(name: str) -> str:
    """Return `name` with other characters than A-Z a-z 0-9 _ . / : - as %XX of their UTF-8 bytes."""
    return re.sub(r"[^A-Za-z0-9_./:-]", lambda m: "".join(f"%{b:02X}" for b in m[0].encode()), name)


def profile_from_outputs(
    instrumented: ir.Model, outputs: Mapping[str, npt.NDArray[Any]]
) -> dict[str, TensorProfile]:
    """Return the profiles that one run of an instrumented model has computed, by tensor name in graph order.

    Profiles of several runs are merged with `TensorProfile.merged`.

    Args:
        instrumented: the result of `instrument`.
        outputs: the graph outputs of one run by name; others than the profiling outputs may be missing.

    Raises:
        ModelError: the model is not instrumented.
    """
    nodes = [node for node in instrumented.graph if (node.domain, node.op_type) == (DOMAIN, OP_TYPE)]
    if not nodes:
        raise ModelError(f"{title_of(instrumented)}: has no {OP_TYPE} nodes; instrument it first")
    profiles = {}
    for node in nodes:
        statistics = {key: outputs[str(v.name)] for key, v in zip(OUTPUTS, node.outputs, strict=True)}
        value = node.inputs[0]
        if value is None or value.dtype is None:
            raise ModelError(f"node '{node.name}': its input has no element type; instrument the model anew")
        shape = tuple(int(d) for d in statistics["shape"])
        profiles[str(value.name)] = TensorProfile(
            dtype=dtype_name(value.dtype),
            shape=recorded_shape(value.shape, shape),
            minimum=float(statistics["minimum"]),
            maximum=float(statistics["maximum"]),
            count=int(statistics["count"]),
            zeros=int(statistics["zeros"]),
            nan=int(statistics["nan"]),
            inf=int(statistics["inf"]),
            histogram=_histogram(int(statistics["exponent"]), statistics["bins"], statistics["counts"]),
        )
    return profiles


def _histogram(exponent: int, bins: npt.NDArray[np.int64], counts: npt.NDArray[np.int64]) -> Histogram:
    if bins.size == 0:
        return Histogram.empty()
    dense = np.zeros(int(bins[-1] - bins[0]) + 1, np.int64)
    dense[bins - bins[0]] = counts
    return Histogram(exponent, int(bins[0]), dense)
