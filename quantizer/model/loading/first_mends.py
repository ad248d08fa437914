"""Mends of what onnxruntime takes and the check of `soundness` refuses; they come before it.

As in `mends`, a mended model computes what onnxruntime computes with the model as it is. Of the message
it is known that it has a graph and that its text is UTF-8.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import onnx

from .protobuf import graphs_in

Notes = Iterator[str]

OPSET = 14
"""Opset that a model gets whose own is none, and whose standard operators are constants alone."""


def one_constant_per_name(proto: onnx.ModelProto) -> Notes:
    """Keep the last of several Constant nodes that make one name, and no initialiser or input of that name.

    So onnxruntime does in the main graph, where all are of one type and shape; it refuses others, and those
    of subgraphs and functions.
    """
    graph = proto.graph
    last: dict[str, onnx.NodeProto] = {}
    forms: dict[str, set[object]] = defaultdict(set)
    count = Counter(value.name for value in (*graph.initializer, *graph.input))
    for node in graph.node:
        if _is_constant(node) and len(node.output) == 1:
            last[node.output[0]] = node
            forms[node.output[0]].add(_form(node))
            count[node.output[0]] += 1
    for tensor in graph.initializer:
        forms[tensor.name].add(_tensor_form(tensor))
    twice = {name for name in last if count[name] > 1 and len(forms[name]) == 1}
    if not twice:
        return
    _keep(graph.node, lambda node: not _is_constant(node) or _is_last(node, last, twice))
    _keep(graph.initializer, lambda tensor: tensor.name not in twice)
    _keep(graph.input, lambda value: value.name not in twice)
    for name in sorted(twice):
        yield f"'{name}' is made more than once: its last Constant holds, as in onnxruntime"


def _keep(fields: Any, wanted: Callable[[Any], bool]) -> None:
    """Delete the entries of a repeated field that are not wanted."""
    for index in reversed(range(len(fields))):
        if not wanted(fields[index]):
            del fields[index]


def _is_last(node: onnx.NodeProto, last: Mapping[str, onnx.NodeProto], twice: Collection[str]) -> bool:
    name = node.output[0] if len(node.output) == 1 else ""
    return name not in twice or node is last[name]


def _is_constant(node: onnx.NodeProto) -> bool:
    return node.op_type == "Constant" and node.domain in ("", "ai.onnx")


def _form(node: onnx.NodeProto) -> object:
    """Return something that is equal for Constants of one type and shape."""
    for attribute in node.attribute:
        if attribute.HasField("t"):
            return _tensor_form(attribute.t)
        return attribute.name, len(attribute.floats), len(attribute.ints), len(attribute.strings)
    return ()


def _tensor_form(tensor: onnx.TensorProto) -> object:
    return tensor.data_type, tuple(tensor.dims)


def opset_of_constants(proto: onnx.ModelProto) -> Notes:
    """Give a model an opset whose own is below 1, if of the standard operators it has Constant alone."""
    nodes = [node for graph in graphs_in(proto.graph) for node in graph.node]
    if any(node.domain in ("", "ai.onnx") and not _is_constant(node) for node in nodes):
        return
    for entry in proto.opset_import:
        if entry.domain in ("", "ai.onnx") and entry.version < 1:
            yield f"there is no opset {entry.version}; opset {OPSET} is taken"
            entry.version = OPSET


def own_attribute_values(proto: onnx.ModelProto) -> Notes:
    """Take what an attribute holds where it refers to one of a function and its node is in none."""
    for node in (node for graph in graphs_in(proto.graph) for node in graph.node):
        for attribute in node.attribute:
            if attribute.ref_attr_name:
                attribute.ClearField("ref_attr_name")
                yield (
                    f"node '{node.name}' ({node.op_type}): attribute '{attribute.name}' is that of a "
                    "function, and the node is in none: the value in the node holds, as in onnxruntime"
                )


FIRST_MENDS: Sequence[Callable[[onnx.ModelProto], Notes]] = (
    one_constant_per_name,
    opset_of_constants,
    own_attribute_values,
)
