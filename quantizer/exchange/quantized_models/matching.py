"""Which nodes and tensors of a quantized model are those of the float model.

Nodes are matched one by one, in graph order, on three grounds: the name, the name of what they make, and
where they stand: the same operator, reading the same matched tensors at the same places. Nothing is taken
from how names end. A clip that a tool left out, because saturation does it, is matched with nothing: its
result is the tensor that it reads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import onnx_ir as ir

from ...model.graph import Graph, input_name, name_of
from ...operators.table import is_clip


@dataclass(frozen=True)
class Matched:
    """What was found in the quantized model.

    Attributes:
        nodes: node of the float model -> node of the quantized one.
        tensors: tensor of the float model -> tensor of the quantized one.
        absorbed: clips of the float model that the quantized one leaves to saturation.
        missing: nodes of the float model that the quantized one does not have.
        unmatched: nodes of the quantized model that the float one does not have.
    """

    nodes: Mapping[str, ir.Node]
    tensors: Mapping[str, str]
    absorbed: tuple[str, ...]
    missing: tuple[str, ...]
    unmatched: tuple[str, ...]


@dataclass
class _Search:
    """What is matched so far."""

    graph: Graph
    other: Graph
    names: Mapping[str, str]
    by_name: Mapping[str, ir.Node]
    tensors: dict[str, str] = field(default_factory=dict)
    nodes: dict[str, ir.Node] = field(default_factory=dict)
    taken: set[ir.Node] = field(default_factory=set)

    def tensor(self, name: str) -> str | None:
        """Return the tensor of the quantized model that has a name or is a form of one with it."""
        if name in self.other.values:
            return name
        found = self.names.get(name)
        return found if found in self.other.values else None


def match(graph: Graph, other: Graph, names: Mapping[str, str]) -> Matched:
    """Return which nodes and tensors of two prepared models are the same.

    Args:
        graph: the float model.
        other: the quantized model without its quantization.
        names: further names of tensors of `other`.
    """
    search = _Search(graph, other, names, {name_of(node): node for node in other.nodes})
    _match_inputs(search)
    absorbed: list[str] = []
    for node in graph.nodes:
        found = next((n for n in _candidates(node, search) if _fits(node, n, search)), None)
        if found is not None:
            search.nodes[name_of(node)] = found
            search.taken.add(found)
            for own, theirs in zip(node.outputs, found.outputs, strict=False):
                if own.name and theirs.name:
                    search.tensors[own.name] = theirs.name
        elif is_clip(node) and input_name(node, 0) in search.tensors:
            search.tensors[name_of(node.outputs[0])] = search.tensors[input_name(node, 0)]
            absorbed.append(name_of(node))
        else:
            _match_results(node, search)
    missing = (name_of(n) for n in graph.nodes if name_of(n) not in search.nodes)
    return Matched(
        search.nodes,
        search.tensors,
        tuple(absorbed),
        tuple(name for name in missing if name not in absorbed),
        tuple(name_of(node) for node in other.nodes if node not in search.taken),
    )


def _match_inputs(search: _Search) -> None:
    """Match the inputs: by name, the others in their order."""
    for own, theirs in zip(search.graph.inputs, search.other.inputs, strict=False):
        same = own in search.other.inputs
        search.tensors[own] = own if same else theirs


def _match_results(node: ir.Node, search: _Search) -> None:
    """Match what a node makes that the quantized model does not have: several nodes there may make it."""
    for value in node.outputs:
        found = search.tensor(name_of(value)) if value.name else None
        if found is not None and found not in search.tensors.values():
            search.tensors[name_of(value)] = found


def _candidates(node: ir.Node, search: _Search) -> Iterator[ir.Node]:
    """Yield the nodes of the quantized model that may be this one, the likeliest first."""
    named = search.by_name.get(name_of(node))
    if named is not None:
        yield named
    result = search.tensor(name_of(node.outputs[0])) if node.outputs and node.outputs[0].name else None
    maker = None if result is None else search.other.producer(result)
    if maker is not None:
        yield maker
    for position in range(len(node.inputs)):
        source = search.tensors.get(input_name(node, position))
        if source is not None:
            yield from (reader for reader, index in search.other.consumers(source) if index == position)


def _fits(node: ir.Node, found: ir.Node, search: _Search) -> bool:
    """Whether a node of the quantized model is the same operator, reads the same and is still free."""
    if found in search.taken or (found.op_type, found.domain) != (node.op_type, node.domain):
        return False
    for position in range(max(len(node.inputs), len(found.inputs))):
        own, theirs = input_name(node, position), input_name(found, position)
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


def is_turned(node: ir.Node, other: ir.Node) -> bool:
    """Whether the weights of two products are each other's transpose: MatMulNBits is written for either."""
    if node.op_type != "Gemm" or other.op_type != "Gemm":
        return False
    return node.attributes.get_int("transB", 0) != other.attributes.get_int("transB", 0)


def _same_shape(own: str, theirs: str, turned: bool, search: _Search) -> bool:
    a, b = search.graph.values[own].shape, search.other.values[theirs].shape
    return a is None or b is None or tuple(a) == (tuple(b)[::-1] if turned else tuple(b))
