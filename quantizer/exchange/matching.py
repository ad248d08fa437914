"""Which nodes and tensors of a dequantized model are those of the float model that it was made from. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import onnx_ir as ir

from ..operators.graph import Graph, Node
from ..operators.table import is_clip


@dataclass(frozen=True)
class Matched:
    """What was found in the quantized model.

    Attributes:
        nodes: node of the float model -> node of the quantized one.
        tensors: tensor of the float model -> tensor of the quantized one.
        absorbed: clips of the float model that the quantized one does not have.
        missing: nodes of the float model that the quantized one does not have.
        unmatched: nodes of the quantized model that the float one does not have.
    """

    nodes: Mapping[str, Node]
    tensors: Mapping[str, str]
    absorbed: tuple[Node, ...]
    missing: tuple[str, ...]
    unmatched: tuple[str, ...]


@dataclass
class _Search:
    """What is matched so far."""

    graph: Graph
    other: Graph
    names: Mapping[str, str]
    by_name: Mapping[str, Node]
    tensors: dict[str, str] = field(default_factory=dict)
    nodes: dict[str, Node] = field(default_factory=dict)
    taken: set[Node] = field(default_factory=set)

    def tensor(self, name: str) -> str | None:
        """Return the tensor of the quantized model that has a name or is a form of one with it."""
        if name in self.other.values:
            return name
        found = self.names.get(name)
        return found if found in self.other.values else None


def match(graph: Graph, other: Graph, names: Mapping[str, str]) -> Matched:
    """Return which nodes and tensors of two prepared models are the same.

    Nodes are matched one by one, in graph order, on three grounds: the name, the name of what they make, and
    where they stand: the same operator, reading the same matched tensors at the same places. Nothing is taken
    from how names end. A clip that a tool left out is matched with nothing: its result is the tensor that it
    reads.

    Args:
        graph: the float model.
        other: the quantized model without its quantization.
        names: further names of tensors of `other`.
    """
    search = _Search(graph, other, names, {node.name: node for node in other.nodes})
    for own_input, other_input in zip(graph.inputs, other.inputs, strict=False):  # by name, else in order
        search.tensors[own_input] = own_input if own_input in other.inputs else other_input
    absorbed: list[Node] = []
    for node in graph.nodes:
        found = next((n for n in _candidates(node, search) if _fits(node, n, search)), None)
        if found is not None:
            search.nodes[node.name] = found
            search.taken.add(found)
            for own, theirs in zip(node.outputs, found.outputs, strict=False):
                if own and theirs:
                    search.tensors[own] = theirs
        elif is_clip(node) and node.input(0) in search.tensors:
            search.tensors[node.outputs[0]] = search.tensors[node.input(0)]
            absorbed.append(node)
        else:
            _match_results(node, search)
    missing = (n for n in graph.nodes if n.name not in search.nodes)
    return Matched(
        search.nodes,
        search.tensors,
        tuple(absorbed),
        tuple(node.name for node in missing if node not in absorbed),
        tuple(node.name for node in other.nodes if node not in search.taken),
    )


def _match_results(node: Node, search: _Search) -> None:
    """Match what a node makes that the quantized model does not have: several nodes there may make it."""
    for name in node.outputs:
        found = search.tensor(name) if name else None
        if found is not None and found not in search.tensors.values():
            search.tensors[name] = found


def _candidates(node: Node, search: _Search) -> Iterator[Node]:
    """Yield the nodes of the quantized model that may be this one, the likeliest first."""
    named = search.by_name.get(node.name)
    if named is not None:
        yield named
    result = search.tensor(node.outputs[0]) if node.outputs and node.output else None
    maker = None if result is None else search.other.producer(result)
    if maker is not None:
        yield maker
    for position in range(len(node.inputs)):
        source = search.tensors.get(node.input(position))
        if source is not None:
            yield from (reader for reader, index in search.other.consumers(source) if index == position)


def _fits(node: Node, found: Node, search: _Search) -> bool:
    """Whether a node of the quantized model is the same operator, reads the same and is still free."""
    if found in search.taken or (found.op_type, found.domain) != (node.op_type, node.domain):
        return False
    for position in range(max(len(node.inputs), len(found.inputs))):
        own, theirs = node.input(position), found.input(position)
        if (search.graph.is_constant(own) and own) or (search.other.is_constant(theirs) and theirs):
            turned = position == 1 and is_turned(node, found)
            if own and theirs and not _same_shape(own, theirs, turned, search):
                return False
        elif own in search.tensors and theirs and search.tensors[own] != theirs:
            return False
    return all(
        name in found.attributes and found.attributes[name].value == attribute.value
        for name, attribute in node.attributes.items()
        if attribute.type in (ir.AttributeType.INT, ir.AttributeType.INTS) and name in _TELLING
    )


_TELLING = ("axis", "kernel_shape", "strides", "group", "dilations", "perm", "to")
"""Attributes that tell nodes of one operator apart."""


def is_turned(node: Node, other: Node) -> bool:
    """Whether the weights of two products are each other's transpose: MatMulNBits is written for either."""
    if node.op_type != "Gemm" or other.op_type != "Gemm":
        return False
    return node.attributes.get_int("transB", 0) != other.attributes.get_int("transB", 0)


def _same_shape(own: str, theirs: str, turned: bool, search: _Search) -> bool:
    a, b = search.graph.values[own].shape, search.other.values[theirs].shape
    return a is None or b is None or tuple(a) == (tuple(b)[::-1] if turned else tuple(b))
