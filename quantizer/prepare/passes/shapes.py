"""Shapes and types of all values, inferred afresh from the graph inputs.

onnx_ir's ShapeInferencePass replaces the declared shapes of outputs, and leaves the rank of a Reshape to a
computed shape unknown. ONNX's own inference (1.23) counts the windows of a pool with `ceil_mode` that begin
beyond the tensor, which the operator leaves out: such a pool is written without `ceil_mode`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import cast

import onnx
import onnx_ir as ir

from ....profiles.runtime.typed_graphs import has_map
from ...model.editing import is_in_onnx, is_standard, static_shape
from ...model.graph import name_of
from .contrib_shapes import set_contrib_shapes, write_as_standard

SMALL = 1024
"""Bytes up to which the values of a constant enter inference (shapes, axes, pads)."""


POOLS = ("AveragePool", "MaxPool", "LpPool")
"""Operators with `ceil_mode`."""


def clean_shapes(model: ir.Model) -> int:
    """Remove what the file says about intermediate values, and negative dimensions, which have no meaning.

    Value info of exporters can be stale; decisions must depend on the graph alone. Types of outputs of
    custom operators stay, because they cannot be inferred.
    """
    for graph in model.graphs():
        for value in (*graph.inputs, *graph.outputs):
            if value.shape is not None and any(isinstance(dim, int) and dim < 0 for dim in value.shape):
                dims = (None if isinstance(dim, int) and dim < 0 else dim for dim in value.shape)
                value.shape = ir.Shape(dims)
    for node in model.graph.all_nodes():
        for value in node.outputs:
            if is_in_onnx(node) and not value.is_graph_output():
                value.shape = None
                value.type = None
    return 0


def infer_shapes(model: ir.Model) -> int:
    """Infer types and shapes of all values, of subgraphs too; return how many became known or better known.

    Names have to be unique over all graphs. What cannot be inferred stays unknown; an inconsistent graph
    gets no shapes. Large constants enter with their type and shape only, so models of any size can be
    inferred.
    """
    changed = _infer(model)
    while _set_ranks(model) + set_contrib_shapes(model):
        changed += 1 + _infer(model)
    return changed


def _set_ranks(model: ir.Model) -> int:
    """Give the output of a Reshape to a computed shape its rank, the length of it; return how many.

    An output of unknown type is left: a shape without a type cannot be written.
    """
    changed = 0
    for node in model.graph:
        if not is_standard(node, "Reshape", "ConstantOfShape") or node.outputs[0].shape is not None:
            continue
        if node.outputs[0].type is None:
            continue
        target = static_shape(node.inputs[-1])
        if target is not None and len(target) == 1:
            node.outputs[0].shape = ir.Shape([None] * target[0])
            changed += 1
    return changed


def _infer(model: ir.Model) -> int:
    inferred, changed = _inferred(model), 0
    while _drop_ceil_mode(model, inferred):
        inferred, changed = _inferred(model), changed + 1
    for graph in model.graphs():
        inputs = () if graph is model.graph else graph.inputs
        for value in (*inputs, *(value for node in graph for value in node.outputs)):
            info = inferred.get(name_of(value))
            if info is not None and not _is_known(value, info):
                changed += _refine(value, ir.serde.deserialize_value_info_proto(info, None))
    return changed


def _inferred(model: ir.Model) -> dict[str, onnx.ValueInfoProto]:
    """Return what is inferred, by name; nothing of an inconsistent graph."""
    proto = skeleton(model)
    write_as_standard(proto)
    try:
        inferred = onnx.shape_inference.infer_shapes(proto, data_prop=True)
    except (onnx.shape_inference.InferenceError, RuntimeError, ValueError):
        return {}
    return {info.name: info for info in _infos(inferred.graph) if not has_map(info.type)}


def _drop_ceil_mode(model: ir.Model, inferred: Mapping[str, onnx.ValueInfoProto]) -> bool:
    """Take `ceil_mode` from the first pool where it adds empty windows alone; return whether there is one.

    What was inferred of tensors after that pool is wrong until shapes are inferred again.
    """
    for node in model.graph.all_nodes():
        if not is_standard(node, *POOLS) or not node.attributes.get_int("ceil_mode", 0):
            continue
        info = inferred.get(name_of(node.inputs[0]))
        dims = () if info is None else info.type.tensor_type.shape.dim[2:]
        known = [d.dim_value for d in dims if d.HasField("dim_value")]
        if len(known) == len(dims) and _adds_empty_windows(node, known):
            node.attributes.pop("ceil_mode")
            return True
    return False


def _adds_empty_windows(node: ir.Node, sizes: list[int]) -> bool:
    """Whether all windows that `ceil_mode` adds to a pool begin beyond the tensor and its padding before it.

    Args:
        node: a pool with `ceil_mode`.
        sizes: of its input along the axes of the kernel.
    """
    kernel, axes, ones = node.attributes.get_ints("kernel_shape", ()), len(sizes), (1,) * len(sizes)
    if node.attributes.get_string("auto_pad", "NOTSET") != "NOTSET" or not axes or len(kernel) != axes:
        return False
    strides, dilations = (node.attributes.get_ints(name, ones) for name in ("strides", "dilations"))
    pads = node.attributes.get_ints("pads", (0,) * 2 * axes)
    if not len(strides) == len(dilations) == len(pads) / 2 == axes or min(strides) < 1:
        return False
    empty = []
    for axis, size in enumerate(sizes):
        room = size + pads[axis] + pads[axes + axis] - dilations[axis] * (kernel[axis] - 1) - 1
        if room % strides[axis]:
            begin = (room // strides[axis] + 1) * strides[axis]
            empty.append(begin >= size + pads[axis])
    return bool(empty) and all(empty)


def _infos(graph: onnx.GraphProto) -> Iterator[onnx.ValueInfoProto]:
    """Yield the inferred types and shapes, those of subgraphs too."""
    yield from graph.value_info
    yield from graph.input
    yield from graph.output
    for node in graph.node:
        for attribute in node.attribute:
            for subgraph in (*((attribute.g,) if attribute.HasField("g") else ()), *attribute.graphs):
                yield from _infos(subgraph)


def _is_known(value: ir.Value, info: onnx.ValueInfoProto) -> bool:
    """Whether a value has all that was inferred: a type, and these very dimensions.

    Where a model was inferred before, this holds of nearly every value, and takes less time than `_refine`.
    """
    if value.type is None or value.shape is None or not info.type.HasField("tensor_type"):
        return False
    dims = info.type.tensor_type.shape.dim
    return len(dims) == len(value.shape) and all(
        dim.HasField("dim_value") and dim.dim_value == known
        for dim, known in zip(dims, value.shape, strict=True)
    )


def _refine(value: ir.Value, inferred: ir.Value) -> int:
    """Take what was inferred; no shape without a type, which cannot be written."""
    changed = 0
    if value.type is None and inferred.type is not None:
        value.type = inferred.type
        changed = 1
    if inferred.shape is None or value.type is None or (value.is_graph_output() and value.shape is not None):
        return changed
    if value.shape is None or len(value.shape) != len(inferred.shape):
        value.shape = inferred.shape
        return 1
    dims = [
        new if isinstance(new, int) else old for old, new in zip(value.shape, inferred.shape, strict=True)
    ]
    if dims != list(value.shape):
        value.shape = ir.Shape(dims)
        changed = 1
    return changed


def skeleton(model: ir.Model) -> onnx.ModelProto:
    """Return the model as a protobuf in which large constants are inputs, without their values."""
    graph = model.graph
    small: list[ir.Value] = []
    large: list[ir.Value] = []
    for value in graph.initializers.values():
        known = value.const_value
        (large if known is not None and known.nbytes > SMALL else small).append(value)
    bare = ir.GraphView(
        [*graph.inputs, *(value for value in large if not value.is_graph_input())],
        graph.outputs,
        nodes=graph,
        initializers=small,
        doc_string=graph.doc_string,
        opset_imports=graph.opset_imports,
        name=graph.name,
        metadata_props=graph.metadata_props,
    )
    view = cast(ir.Graph, bare)  # documented, but not in its signature
    return ir.to_proto(ir.Model(view, ir_version=model.ir_version, functions=tuple(model.functions.values())))
