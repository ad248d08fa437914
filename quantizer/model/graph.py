"""A read-only index of a model's graph by names, and the names and constants of single nodes and values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from ...profiles.base.errors import PlanError
from ...profiles.instrumentation.subgraphs import graph_attributes
from ...profiles.records.profile import FLOAT_DTYPES, Dim

# Subgraphs of a node: those that If, Loop and Scan run, and other graph attributes.

CONTROL_FLOW = ("If", "Loop", "Scan")
"""Operators whose graph attributes are run as they are written."""


def subgraphs(node: ir.Node) -> tuple[ir.Graph, ...]:
    """Return the subgraphs that a node runs as written: the branches of an If, the body of a Loop or Scan."""
    return graph_attributes(node) if node.domain == "" and node.op_type in CONTROL_FLOW else ()


Use = tuple[ir.Node, int]
"""One use of a value: the node that reads it, and the index of the input. The index is -1 where a graph that
the node holds as an attribute reads the value."""

FLOAT_TYPES = tuple(ir.DataType[name.upper()] for name in FLOAT_DTYPES)
"""Element types of floating-point activations."""


@dataclass(frozen=True, eq=False)
class Graph:
    """A model's graph and its subgraphs (of If, Loop, Scan) by names. Valid until the model is edited.

    Attributes:
        nodes: in topological order, as in the model; the nodes of a subgraph come before the node that runs
            it.
        inputs, outputs: names of the main graph's inputs (without initialisers) and outputs, in order.
        values: name to value: inputs, initialisers and node outputs, those of subgraphs too.
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
        """Return the uses of the value by nodes, in subgraphs too; a node that reads it twice has two."""
        return self.uses.get(name, ())

    def inputs_of(self, node: ir.Node) -> tuple[str, ...]:
        """Return the names of the inputs of a node by position, "" for an input that is left out."""
        return tuple(name_of(value) for value in node.inputs)

    def constant(self, name: str) -> npt.NDArray[np.generic] | None:
        """Return the array of an initialiser, None for every other value. Must not be written to."""
        return constant_of(self.values.get(name))

    def is_constant(self, name: str) -> bool:
        """Tell whether the value is an initialiser, without reading it."""
        value = self.values.get(name)
        return value is not None and value.is_initializer() and not value.is_graph_input()

    def is_result(self, name: str) -> bool:
        """Tell whether the value is an output of the main graph or of a subgraph: such values stay float."""
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


def name_of(item: ir.Node | ir.Value | None) -> str:
    """Return the name of a node or value, "" for an input that is left out and an output without a name."""
    return "" if item is None else item.name or ""


def input_name(node: ir.Node, position: int) -> str:
    """Return the name of a node's input at a position, "" where the node has none there."""
    return name_of(node.inputs[position]) if position < len(node.inputs) else ""


def output_name(node: ir.Node, position: int = 0) -> str:
    """Return the name of a node's output, by default the first."""
    return name_of(node.outputs[position])


def constant_of(value: ir.Value | None) -> npt.NDArray[Any] | None:
    """Return the array of an initialiser, None for every other value. Must not be written to.

    An initialiser that the model lists as a graph input is only a default, not a constant.
    """
    if value is None or value.const_value is None or not value.is_initializer() or value.is_graph_input():
        return None
    return value.const_value.numpy()


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
        uses={name: tuple(users) for name, users in uses.items()},
    )


def _reads(node: ir.Node) -> Iterator[tuple[int, ir.Value]]:
    """Yield what a node reads with the index of the input; -1 for what a graph reads that it does not run
    as it is."""
    yield from ((index, value) for index, value in enumerate(node.inputs) if value is not None)
    if not subgraphs(node):
        for graph in graph_attributes(node):
            for inner in graph.all_nodes():
                yield from ((-1, value) for value in inner.inputs if value is not None)


def _graphs(graph: ir.Graph) -> Iterator[ir.Graph]:
    yield graph
    for node in graph:
        for subgraph in subgraphs(node):
            yield from _graphs(subgraph)


def _ordered(graph: ir.Graph) -> Iterator[ir.Node]:
    for node in graph:
        for subgraph in subgraphs(node):
            yield from _ordered(subgraph)
        yield node


def in_main_graph(graph: Graph, node: ir.Node) -> bool:
    """Tell whether a node is in the main graph. Subgraphs keep their weights as they are."""
    return node.graph is graph.nodes[-1].graph


# The check that every value which a node reads is visible to it, after a step that has edited a graph.


def check_scopes(model: ir.Model, where: str) -> ir.Model:
    """Return the model itself if every value that a node reads is made before it, in its or an outer graph.

    Args:
        model: a model that a step has edited.
        where: the step, for messages.

    Raises:
        PlanError: naming the first nodes and values of which this is not true.
    """
    errors = list(_errors(model.graph, set()))
    if errors:
        more = f"; and {len(errors) - 3} more" if len(errors) > 3 else ""
        raise PlanError(f"{where}: {'; '.join(errors[:3])}{more}; report this as a defect of qprof")
    return model


def _errors(graph: ir.Graph, visible: set[int]) -> Iterator[str]:
    """Yield a sentence for each read of what is not visible; `visible` has the ids of outer values."""
    visible = visible | {id(value) for value in (*graph.inputs, *graph.initializers.values())}
    for node in graph:
        for value in node.inputs:
            if value is not None and id(value) not in visible:
                yield (
                    f"node '{name_of(node)}' reads '{name_of(value)}', which is not made before it in its "
                    "own or an outer graph"
                )
        for subgraph in graph_attributes(node):
            yield from _errors(subgraph, visible)
        visible |= {id(value) for value in node.outputs}
    for value in graph.outputs:
        if id(value) not in visible:
            yield f"output '{name_of(value)}' of graph '{graph.name}' is not made in it or an outer graph"
