"""Which nodes and tensors of a dequantized model are those of the float model that it was made from. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import onnx_ir as ir

from ...operators.graph import Graph, Node
from ...operators.table import is_clip

DISTINGUISHING = ("axis", "kernel_shape", "strides", "group", "dilations", "perm", "to")
"""Attributes that tell nodes of one operator apart."""


def match(graph: Graph, other: Graph, names: Mapping[str, str]) -> Match:
    """Return the nodes and tensors that two prepared models share, by name, name of results, or place.

    A place is the same operator that reads the same matched tensors. A clip that a tool left out is matched
    with nothing: its result is the tensor that it reads. `names` are further names of tensors of `other`.
    """
    found = Match(graph, other, names)
    for own_input, other_input in zip(graph.inputs, other.inputs, strict=False):  # by name, else in order
        found.tensors[own_input] = own_input if own_input in other.inputs else other_input
    for node in graph.nodes:
        partner = next((n for n in found.candidates(node) if found.fits(node, n)), None)
        if partner is not None:
            found.nodes[node.name] = partner
            found.taken.add(partner)
            for own, theirs in zip(node.outputs, partner.outputs, strict=False):
                if own and theirs:
                    found.tensors[own] = theirs
        elif is_clip(node) and node.input(0) in found.tensors and not found.makes(node):
            found.tensors[node.outputs[0]] = found.tensors[node.input(0)]
            found.absorbed.append(node)
        else:  # several nodes of the quantized model may make what this one makes
            found.tensors.update(found.makes(node))
    return found


@dataclass
class Match:
    """Which nodes and tensors of a float model and a quantized one are the same."""

    graph: Graph  # of the float model
    other: Graph  # of the quantized one
    names: Mapping[str, str]  # further names of tensors of `other`
    tensors: dict[str, str] = field(default_factory=dict)  # tensor of the float model -> of the other
    nodes: dict[str, Node] = field(default_factory=dict)  # node of the float model -> of the other
    absorbed: list[Node] = field(default_factory=list)  # clips that the other does not have
    taken: set[Node] = field(default_factory=set)  # nodes of the other that are matched

    @property
    def missing(self) -> list[str]:
        """Nodes of the float model that the quantized one does not have."""
        return [n.name for n in self.graph.nodes if n.name not in self.nodes and n not in self.absorbed]

    @property
    def unmatched(self) -> list[str]:
        """Nodes of the quantized model that the float one does not have."""
        return [n.name for n in self.other.nodes if n not in self.taken]

    def tensor_named(self, name: str) -> str | None:
        """Return the tensor of the quantized model that has a name or is a form of one with it."""
        if name in self.other.values:
            return name
        alias = self.names.get(name)
        return alias if alias in self.other.values else None

    def makes(self, node: Node) -> dict[str, str]:
        """Return the results of a node that no matched node makes in the quantized model, with theirs."""
        named = {name: self.tensor_named(name) for name in node.outputs if name}
        taken = {*self.tensors.values()}
        return {name: tensor for name, tensor in named.items() if tensor is not None and tensor not in taken}

    def candidates(self, node: Node) -> Iterator[Node]:
        """Yield the nodes of the quantized model that may be this one, the likeliest first."""
        if node.name in self.other.by_name:
            yield self.other.by_name[node.name]
        result = self.tensor_named(node.outputs[0]) if node.outputs and node.output else None
        maker = None if result is None else self.other.producer(result)
        if maker is not None:
            yield maker
        for position in range(len(node.inputs)):
            source = self.tensors.get(node.input(position))
            if source is not None:
                yield from (reader for reader, index in self.other.consumers(source) if index == position)

    def fits(self, node: Node, candidate: Node) -> bool:
        """Whether a node of the quantized model is the same operator, reads the same and is still free."""
        if candidate in self.taken:
            return False
        if (candidate.op_type, candidate.domain) != (node.op_type, node.domain):
            return False
        kinds = [
            graph.is_float(view.outputs[0])
            for graph, view in ((self.graph, node), (self.other, candidate))
            if view.outputs and graph.dtype(view.outputs[0]) is not None
        ]
        if len(kinds) == 2 and kinds[0] != kinds[1]:  # the same operator on quantized values
            return False
        for position in range(max(len(node.inputs), len(candidate.inputs))):
            own, theirs = node.input(position), candidate.input(position)
            if self.graph.is_constant(own) or self.other.is_constant(theirs):
                turned = position == 1 and is_turned(node, candidate)
                if own and theirs and not self._same_shape(own, theirs, turned):
                    return False
            elif own in self.tensors and theirs and self.tensors[own] != theirs:
                return False
        return all(
            name in candidate.attributes and candidate.attributes[name].value == attribute.value
            for name, attribute in node.attributes.items()
            if attribute.type in (ir.AttributeType.INT, ir.AttributeType.INTS) and name in DISTINGUISHING
        )

    def _same_shape(self, own: str, theirs: str, turned: bool) -> bool:
        a, b = self.graph.values[own].shape, self.other.values[theirs].shape
        return a is None or b is None or tuple(a) == (tuple(b)[::-1] if turned else tuple(b))


def is_turned(node: Node, other: Node) -> bool:
    """Whether the weights of two products are each other's transpose: MatMulNBits is written for either."""
    if node.op_type != "Gemm" or other.op_type != "Gemm":
        return False
    return node.attributes.get_int("transB", 0) != other.attributes.get_int("transB", 0)
