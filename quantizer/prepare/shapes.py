"""Shapes and types of all values, inferred afresh from the graph inputs.

onnx_ir's ShapeInferencePass replaces the declared shapes of outputs, and does not infer the rank of a Reshape
to a computed shape. ONNX's own inference (1.23) counts windows of a pool with `ceil_mode` that begin beyond
the tensor, but the operator skips them. So these pools are written without `ceil_mode`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy

import onnx
import onnx_ir as ir

from ...profiles.instrumentation.subgraphs import graph_attributes
from ...profiles.runtime.session import has_map
from ..model.editing import has_input, is_in_onnx, is_standard, rank, static_shape
from ..model.graph import name_of
from ..model.protobuf import graphs_in
from ..operators.table import MICROSOFT

SMALL = 1024
"""Bytes up to which the values of a constant enter inference (shapes, axes, pads)."""

POOLS = ("AveragePool", "MaxPool", "LpPool")
"""Operators with `ceil_mode`."""


def clean_shapes(model: ir.Model) -> int:
    """Remove the file's intermediate types, which can be stale, but of custom operators; negative sizes."""
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
    """Infer types and shapes of all values, without large constants; return how many became known."""
    changed = _infer(model)
    while _set_ranks(model) + _set_contrib_shapes(model):
        changed += 1 + _infer(model)
    return changed


def _set_ranks(model: ir.Model) -> int:
    """Give the output of a Reshape to a computed shape its rank, the length of it; return how many."""
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
    read: dict[bytes, ir.Value | None] = {}  # many values have the same type and shape
    for graph in model.graphs():
        inputs = () if graph is model.graph else graph.inputs
        for value in (*inputs, *(value for node in graph for value in node.outputs)):
            info = inferred.get(name_of(value))
            if info is None:
                continue
            key = info.type.SerializeToString()
            if key not in read:
                known = not has_map(info.type)
                read[key] = ir.serde.deserialize_value_info_proto(info, None) if known else None
            if (like := read[key]) is not None:
                changed += _refine(value, like)
    return changed


def _inferred(model: ir.Model) -> dict[str, onnx.ValueInfoProto]:
    """Return the inferred types, by name; none of an inconsistent graph."""
    try:
        inferred = onnx.shape_inference.infer_shapes(skeleton(model), data_prop=True)
    except (onnx.shape_inference.InferenceError, RuntimeError, ValueError):
        return {}
    return {
        info.name: info
        for graph in graphs_in(inferred.graph)
        if isinstance(graph, onnx.GraphProto)
        for info in (*graph.value_info, *graph.input, *graph.output)
    }


def skeleton(model: ir.Model) -> onnx.ModelProto:
    """Return a model's message for inference; its large constants are inputs, without values."""
    graph, inputs, proto = model.graph, list(model.graph.inputs), onnx.ModelProto(ir_version=model.ir_version)
    for domain, version in model.opset_imports.items():
        proto.opset_import.add(domain=domain, version=version)
    proto.functions.extend(map(ir.serde.serialize_function, model.functions.values()))
    for value in graph.initializers.values():
        if value.const_value is not None and value.const_value.nbytes <= SMALL:
            ir.serde.serialize_tensor_into(proto.graph.initializer.add(), value.const_value)
            proto.graph.initializer[-1].name = name_of(value)
        elif not value.is_graph_input():
            inputs.append(value)
    for node in graph:
        ir.serde.serialize_node_into(proto.graph.node.add(), node)
        for value in node.outputs:
            if value.name and value.type is not None and not value.is_graph_output():
                ir.serde.serialize_value_into(proto.graph.value_info.add(), value)
    proto.graph.input.extend(map(ir.serde.serialize_value, inputs))
    proto.graph.output.extend(map(ir.serde.serialize_value, graph.outputs))
    if any(map(graph_attributes, graph)):
        _share_constants(proto.graph, {})
    return proto


def _share_constants(graph: onnx.GraphProto, outer: Mapping[str, onnx.TensorProto]) -> None:
    """Give subgraphs the constants around them that they read: inference gives them no values."""
    own = {tensor.name for tensor in graph.initializer}
    read = dict.fromkeys(name for node in graph.node for name in node.input if name in outer)
    graph.initializer.extend(outer[name] for name in read if name not in own)
    visible = {**outer, **{tensor.name: tensor for tensor in graph.initializer}}
    for attribute in (attribute for node in graph.node for attribute in node.attribute):
        for subgraph in (*attribute.graphs, *([attribute.g] if attribute.HasField("g") else [])):
            _share_constants(subgraph, visible)


def _drop_ceil_mode(model: ir.Model, inferred: Mapping[str, onnx.ValueInfoProto]) -> bool:
    """Remove `ceil_mode` from the first pool that it only gives empty windows; return if there is one."""
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
    """Whether all windows that `ceil_mode` adds begin beyond tensor and padding of axes of `sizes`."""
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


def _refine(value: ir.Value, inferred: ir.Value) -> int:
    """Take the type and shape of an inferred value; no shape without a type, which cannot be written."""
    changed = 0
    if value.type is None and inferred.type is not None:
        value.type = copy(inferred.type)
        changed = 1
    if value.shape == inferred.shape or inferred.shape is None or value.type is None:
        return changed
    if value.is_graph_output() and value.shape is not None:
        return changed
    if value.shape is None or len(value.shape) != len(inferred.shape):
        value.shape = inferred.shape.copy()
        return 1
    dims = [
        new if isinstance(new, int) else old for old, new in zip(value.shape, inferred.shape, strict=True)
    ]
    if dims != list(value.shape):
        value.shape = ir.Shape(dims)
        changed = 1
    return changed


# Outputs of onnxruntime's own operators, which ONNX's shape inference does not know -------------------------
#
# Source: onnxruntime's docs/ContribOperators.md. What is not here gets its type alone, from onnxruntime.

Dims = Sequence[int | ir.SymbolicDim]

IN_DEFAULT_DOMAIN = ("LayerNormalization", "SimplifiedLayerNormalization")
"""Operators that onnxruntime has in the default domain, in opsets in which ONNX does not have them."""

LIKE_FIRST_INPUT = (
    *("FastGelu", "GroupNorm", "Inverse", "RotaryEmbedding", "SkipGroupNorm", "Trilu"),
    *IN_DEFAULT_DOMAIN,
)
"""Operators whose output has type and shape of the first input."""


def _set_contrib_shapes(model: ir.Model) -> int:
    """Give outputs of onnxruntime's operators type and shape if these are unknown; return their number."""
    changed = 0
    for node in model.graph.all_nodes():
        source = _input(node, 0)
        is_contributed = node.domain == ("" if node.op_type in IN_DEFAULT_DOMAIN else MICROSOFT)
        if not is_contributed or source is None or not node.outputs[0].name:
            continue
        if node.op_type not in (*LIKE_FIRST_INPUT, *_RULES):
            continue
        dims = _dims(source) if node.op_type in LIKE_FIRST_INPUT else _RULES[node.op_type](node)
        output = node.outputs[0]
        if output.type is None and source.type is not None:
            output.type = source.type
            changed += 1
        if output.shape is None and dims is not None and output.type is not None:
            output.shape = ir.Shape(dims)
            changed += 1
    return changed


def _dims(value: ir.Value | None, wanted: int | None = None) -> list[int | ir.SymbolicDim] | None:
    """Return the dimensions; None when they are unknown, or not as many as wanted."""
    if value is None or value.shape is None or wanted not in (None, rank(value)):
        return None
    return list(value.shape)


def _input(node: ir.Node, index: int) -> ir.Value | None:
    return node.inputs[index] if index < len(node.inputs) else None


def _int(node: ir.Node, name: str) -> int:
    """Return an integer attribute; 0 if it is missing."""
    attribute = node.attributes.get(name)
    return attribute.as_int() if attribute is not None and attribute.type == ir.AttributeType.INT else 0


def _divided(dim: int | ir.SymbolicDim, count: int) -> int | ir.SymbolicDim:
    return dim // count if isinstance(dim, int) and count > 0 else ir.SymbolicDim(None)


def _multi_head_attention(node: ir.Node) -> Dims | None:
    """Query (batch, length, width), value likewise or by heads, or both (batch, length, heads, 3, width)."""
    query = _dims(node.inputs[0])
    if query is None or len(query) == 5:
        return None if query is None else [*query[:2], _product(query[2], query[4])]
    if not has_input(node, 2):
        return query
    value = _dims(_input(node, 2))
    if value is None or len(query) != 3 or len(value) not in (3, 4):
        return None
    return [*query[:2], value[2] if len(value) == 3 else _product(value[1], value[-1])]


def _product(left: int | ir.SymbolicDim, right: int | ir.SymbolicDim) -> int | ir.SymbolicDim:
    if isinstance(left, int) and isinstance(right, int) and min(left, right) >= 0:
        return left * right
    return ir.SymbolicDim(None)


def _group_query_attention(node: ir.Node) -> Dims | None:
    """Query (batch, length, width); without a key it holds the heads of keys and values too."""
    query = _dims(node.inputs[0], 3)
    if query is None or has_input(node, 1):
        return query
    heads = _int(node, "num_heads")
    head = _divided(query[2], heads + 2 * _int(node, "kv_num_heads"))
    return [*query[:2], _product(heads, head)]


def _packed_product(node: ir.Node) -> Dims | None:
    """Input (..., inner), packed weights of N columns."""
    source, columns = _dims(node.inputs[0]), _int(node, "N")
    return [*source[:-1], columns] if source and columns > 0 else None


_RULES: Mapping[str, Callable[[ir.Node], Dims | None]] = {
    "GroupQueryAttention": _group_query_attention,
    "MatMulNBits": _packed_product,
    "MultiHeadAttention": _multi_head_attention,
}
"""Operator to the dimensions of its first output, which has the type of the first input."""
