"""A read-only index of a model's graph, and the fingerprint by which a profile knows its model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from ...profiles.records.profile import FLOAT_DTYPES, Dim
from .subgraphs import bodies, inner_graphs

Use = tuple[ir.Node, int]
"""One use of a value: the node that reads it and the index of the input; -1 for a graph of its own."""

FLOAT_TYPES = tuple(ir.DataType[name.upper()] for name in FLOAT_DTYPES)
"""Element types of floating-point activations."""


@dataclass(frozen=True, eq=False)
class Graph:
    """A model's graph and the bodies in it (branches, loops) by names. Valid as long as nobody edits them.

    Attributes:
        nodes: in topological order, as in the model; those of a body come before the node that has it.
        inputs, outputs: names of the main graph's, in order; initialisers are no inputs.
        values: name to value, of inputs, initialisers and node outputs, of bodies too.
        uses: name to the uses by nodes of any graph, in the order of `nodes`.
    """

    nodes: tuple[ir.Node, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    values: Mapping[str, ir.Value]
    uses: Mapping[str, tuple[Use, ...]]

    def producer(self, name: str) -> ir.Node | None:
        """Return the node that makes the value, None for a graph input or an initialiser."""
        return self.values[name].producer()

    def consumers(self, name: str) -> tuple[Use, ...]:
        """Return the uses of the value by nodes, in bodies too; a node that reads it twice comes twice."""
        return self.uses.get(name, ())

    def constant(self, name: str) -> npt.NDArray[np.generic] | None:
        """Return the array of an initialiser, None for every other value. Not to be written to."""
        value = self.values.get(name)
        if value is None or not value.is_initializer() or value.is_graph_input() or value.const_value is None:
            return None
        return value.const_value.numpy()

    def is_constant(self, name: str) -> bool:
        """Tell whether the value is an initialiser, without reading it."""
        value = self.values.get(name)
        return value is not None and value.is_initializer() and not value.is_graph_input()

    def is_result(self, name: str) -> bool:
        """Tell whether the value is an output of the main graph, or what a body gives: a real number then."""
        return self.values[name].is_graph_output()

    def dtype(self, name: str) -> ir.DataType | None:
        """Return the element type, None when unknown or when the value is no tensor."""
        kind = self.values[name].type
        return kind.dtype if isinstance(kind, ir.TensorType) else None

    def is_float(self, name: str) -> bool:
        """Tell whether the value is a tensor of a floating-point type."""
        return self.dtype(name) in FLOAT_TYPES

    def shape(self, name: str) -> tuple[Dim, ...] | None:
        """Return the dimensions, None for a free one; None for an unknown rank."""
        shape = self.values[name].shape
        if shape is None:
            return None
        return tuple(dim if isinstance(dim, int) else None for dim in shape)


def input_name(node: ir.Node, position: int) -> str:
    """Return the name of what a node reads at a position, "" where there is nothing."""
    value = node.inputs[position] if position < len(node.inputs) else None
    return "" if value is None else value.name or ""


def index(model: ir.Model) -> Graph:
    """Return the index of a model. Nodes and values must have unique names (`prepare` gives them)."""
    graph = model.graph
    values: dict[str, ir.Value] = {}
    for inner in _graphs(graph):
        values.update((str(value.name), value) for value in inner.inputs)
        values.update(inner.initializers)
    nodes = tuple(_ordered(graph))
    uses: dict[str, list[Use]] = {}
    for node in nodes:
        values.update((value.name, value) for value in node.outputs if value.name)
        for position, value in _reads(node):
            if value.name:
                uses.setdefault(value.name, []).append((node, position))
    return Graph(
        nodes=nodes,
        inputs=tuple(str(v.name) for v in graph.inputs if not v.is_initializer()),
        outputs=tuple(str(v.name) for v in graph.outputs),
        values=values,
        uses={name: tuple(found) for name, found in uses.items()},
    )


def _reads(node: ir.Node) -> Iterator[tuple[int, ir.Value]]:
    """Yield what a node reads, with the index of the input; -1 for what graphs of it but bodies read."""
    yield from ((index, value) for index, value in enumerate(node.inputs) if value is not None)
    if not bodies(node):
        for graph in inner_graphs(node):
            for inner in graph.all_nodes():
                yield from ((-1, value) for value in inner.inputs if value is not None)


def _graphs(graph: ir.Graph) -> Iterator[ir.Graph]:
    yield graph
    for node in graph:
        for body in bodies(node):
            yield from _graphs(body)


def _ordered(graph: ir.Graph) -> Iterator[ir.Node]:
    for node in graph:
        for body in bodies(node):
            yield from _ordered(body)
        yield node


def in_main(graph: Graph, node: ir.Node) -> bool:
    """Whether a node is one of the main graph: what lies in bodies is left as it is."""
    return node.graph is graph.nodes[-1].graph
