"""A read-only view of a model's graph by names; each node has one view."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from ...profiles.base.errors import ConfigError, nearest
from ...profiles.base.once import computed_once
from ...profiles.instrumentation.subgraphs import FLOAT_TYPES, graph_attributes
from ...profiles.records.profile import Dim
from ..model.graph import constant_of, is_constant, nodes_run_by, subgraphs
from .facts import Operator
from .table import Rule, facts_of

if TYPE_CHECKING:
    from onnx_ir._graph_containers import Attributes


@dataclass(frozen=True, eq=False)
class Node:
    """A node by names. A graph has one view of each node, so views can be compared by identity."""

    ir_node: ir.Node  # the node itself, for what edits or runs it
    name: str
    op_type: str
    domain: str
    attributes: Attributes
    inputs: tuple[str, ...]  # names by position, "" for an input that is left out
    outputs: tuple[str, ...]  # names by position, "" for an output that nothing reads
    facts: Operator  # what the table says of the operator
    rule: Rule | None  # the same where the operator can be quantized, else None

    def input(self, position: int) -> str:
        """Return the name of the input at a position, or ""."""
        return self.inputs[position] if position < len(self.inputs) else ""

    @property
    def output(self) -> str:
        """The name of the first output."""
        return self.outputs[0]

    def constant(self, position: int) -> npt.NDArray[Any] | None:
        """Return the array of an input that is an initialiser, None for any other. Must not be written to."""
        return constant_of(self.ir_node.inputs[position]) if position < len(self.inputs) else None

    def has_constant(self, position: int) -> bool:
        """Tell whether an input is an initialiser, without reading it."""
        return position < len(self.inputs) and is_constant(self.ir_node.inputs[position])

    @cached_property
    def activations(self) -> tuple[str, ...]:
        """The inputs that are activations: the rule's, and a weight that is no constant."""
        if self.rule is None:
            return ()
        indices = self.rule.activations(self)
        if self.rule.weight is not None:
            index = self.rule.weight.index
            if self.inputs[index] and not self.has_constant(index):
                indices = (*indices, index)
        return tuple(self.inputs[index] for index in indices)

    @cached_property
    def results(self) -> tuple[str, ...]:
        """The outputs that are used and can be quantized: no indices, as of TopK."""
        values = (value for value in self.ir_node.outputs if value.name)
        return tuple(str(v.name) for v in values if v.dtype is None or not v.dtype.is_integer())


Use = tuple[Node, int]
"""One use of a value: the node that reads it, and the index of the input. The index is -1 if a subgraph of
the node reads the value."""


def node_view(node: ir.Node) -> Node:
    """Return the current view of a node."""
    facts = facts_of(node)
    return Node(
        node,
        node.name or "",
        node.op_type,
        node.domain,
        node.attributes,
        tuple("" if value is None else value.name or "" for value in node.inputs),
        tuple(value.name or "" for value in node.outputs),
        facts,
        facts if isinstance(facts, Rule) else None,
    )


@dataclass(frozen=True, eq=False)
class Graph:
    """A model's graph and its subgraphs (of If, Loop, Scan) by names. Valid until the model is edited."""

    nodes: tuple[Node, ...]  # in topological order; those of a subgraph before the node that runs it
    inputs: tuple[str, ...]  # of the main graph, without initialisers
    outputs: tuple[str, ...]
    values: Mapping[str, ir.Value]  # those of subgraphs too
    uses: Mapping[str, tuple[Use, ...]]  # name to the uses by nodes of any graph, in the order of `nodes`
    producers: dict[str, Node]  # name to the node that makes the value
    holders: Mapping[str, Node]  # name of a node in a subgraph to the node of the main graph that runs it

    @cached_property
    def by_name(self) -> Mapping[str, Node]:
        """The nodes by name."""
        return {node.name: node for node in self.nodes}

    def node(self, name: str) -> Node:
        """Return the node of a name."""
        return self.by_name[name]

    @cached_property
    def places(self) -> Mapping[str, int]:
        """The numbers of the nodes in their order, by name."""
        return {node.name: place for place, node in enumerate(self.nodes)}

    @computed_once
    def beside(self, name: str) -> frozenset[str]:
        """Return the nodes that make or read an activation that a node makes or reads, itself too."""
        node = self.node(name)
        read = [name for name in node.inputs if name and not self.is_constant(name)]
        readers = {reader.name for name in (*read, *node.outputs) for reader, _ in self.consumers(name)}
        return frozenset({name, *filter(None, map(self.maker, read))} | readers)

    def part(self, names: Iterable[str]) -> Graph:
        """Return some of the nodes and the values that they make and read, with all makers and readers."""
        nodes = tuple(sorted(map(self.node, names), key=lambda node: self.places[node.name]))
        around = dict.fromkeys(name for node in nodes for name in (*node.inputs, *node.outputs) if name)
        return replace(self, nodes=nodes, values={name: self.values[name] for name in around})

    def holder(self, node: Node) -> Node:
        """Return the node of the main graph that runs a node of a subgraph; any other node itself."""
        return self.holders.get(node.name, node)

    @cached_property
    def runners(self) -> Mapping[ir.Graph, Node]:
        """The If, Loop or Scan that runs each subgraph."""
        return {body: node for node in self.nodes for body in subgraphs(node.ir_node)}

    def bodies_around(self, name: str) -> tuple[tuple[Node, ir.Graph], ...]:
        """Return the subgraphs around a value with the nodes that run them, the outermost first."""
        around: list[tuple[Node, ir.Graph]] = []
        body = self.values[name].graph
        while isinstance(body, ir.Graph) and body in self.runners:
            runner = self.runners[body]
            around.insert(0, (runner, body))
            body = runner.ir_node.graph
        return tuple(around)

    def producer(self, name: str) -> Node | None:
        """Return the node that makes the value, None for a graph input or an initialiser."""
        return self.producers.get(name)

    def maker(self, name: str) -> str:
        """Return the name of the node that makes the value, "" for a graph input or an initialiser."""
        node = self.producers.get(name)
        return "" if node is None else node.name

    def consumers(self, name: str) -> tuple[Use, ...]:
        """Return the uses of the value by nodes, in subgraphs too; a node that reads it twice has two."""
        return self.uses.get(name, ())

    def is_read_once(self, name: str) -> bool:
        """Tell whether the value has one use, by a node, and is no output of a graph."""
        return len(self.consumers(name)) == 1 and not self.is_result(name)

    def only_reader(self, name: str) -> Node | None:
        """Return the only node that reads the value, or None if several do, or none."""
        return self.consumers(name)[0][0] if self.is_read_once(name) else None

    def constant(self, name: str) -> npt.NDArray[np.generic] | None:
        """Return the array of an initialiser, None for every other value. Must not be written to."""
        return constant_of(self.values.get(name))

    def is_constant(self, name: str) -> bool:
        """Tell whether the value is an initialiser, without reading it."""
        return is_constant(self.values.get(name))

    def elements(self, name: str) -> int:
        """Return how many elements an initialiser has, without reading it; 0 for every other value."""
        value = self.values.get(name)
        tensor = value.const_value if value is not None and is_constant(value) else None
        return 0 if tensor is None else tensor.size

    def is_result(self, name: str) -> bool:
        """Tell whether the value is an output of the main graph or of a subgraph: such values stay float."""
        return self.values[name].is_graph_output()

    def dtype(self, name: str) -> ir.DataType | None:
        """Return the element type, None when unknown, when the value is no tensor, and for no value ("")."""
        kind = self.values[name].type if name else None
        return kind.dtype if isinstance(kind, ir.TensorType) else None

    def is_float(self, name: str) -> bool:
        """Tell whether the value is a tensor of a floating-point type."""
        return self.dtype(name) in FLOAT_TYPES

    def shape(self, name: str) -> tuple[Dim, ...] | None:
        """Return the dimensions, None for a free one; None for an unknown rank, and for no value ("")."""
        shape = self.values[name].shape if name else None
        if shape is None:
            return None
        return tuple(dim if isinstance(dim, int) else None for dim in shape)


def index(model: ir.Model) -> Graph:
    """Return the index of a model. Nodes and values must have unique names (`prepare` gives them)."""
    graph = model.graph
    values: dict[str, ir.Value] = {}
    for inner in _graphs(graph):
        values.update((str(value.name), value) for value in inner.inputs)
        values.update(inner.initializers)
    nodes = tuple(node_view(node) for node in _ordered(graph))
    by_node = {node.ir_node: node for node in nodes}
    holders = {
        by_node[inner].name: by_node[outer]
        for outer in graph
        for inner in nodes_run_by(outer)
        if inner is not outer
    }
    uses: dict[str, list[Use]] = {}
    producers: dict[str, Node] = {}
    for node in nodes:
        values.update((value.name, value) for value in node.ir_node.outputs if value.name)
        producers.update((name, node) for name in node.outputs if name)
        for position, name in _reads(node):
            uses.setdefault(name, []).append((node, position))
    return Graph(
        nodes=nodes,
        inputs=tuple(str(v.name) for v in graph.inputs if not v.is_initializer()),
        outputs=tuple(str(v.name) for v in graph.outputs),
        values=values,
        uses={name: tuple(users) for name, users in uses.items()},
        producers=producers,
        holders=holders,
    )


def _reads(node: Node) -> Iterator[tuple[int, str]]:
    """Yield the inputs of a node with their index, -1 for those of a graph that it does not run unchanged."""
    yield from ((position, name) for position, name in enumerate(node.inputs) if name)
    if not subgraphs(node.ir_node):
        for graph in graph_attributes(node.ir_node):
            for inner in graph.all_nodes():
                yield from ((-1, value.name) for value in inner.inputs if value is not None and value.name)


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


def in_main_graph(graph: Graph, node: Node) -> bool:
    """Return whether a node is in the main graph. Weights of subgraphs do not change."""
    return node.ir_node.graph is graph.nodes[-1].ir_node.graph


def match_nodes(graph: Graph, patterns: Iterable[str], setting: str = "keep_float") -> dict[str, str]:
    """Return node name -> the first name, operator type or glob pattern that names the node."""
    matched: dict[str, str] = {}
    names = {node.name: node.op_type for node in graph.nodes}
    for pattern in patterns:
        hits = [n for n, op in names.items() if pattern in (n, op)] or [
            n for n, op in names.items() if fnmatchcase(n, pattern) or fnmatchcase(op, pattern)
        ]
        if not hits:
            known = [*dict.fromkeys(names.values()), *names]
            raise ConfigError(
                f"{setting} '{pattern}': no node of the model has this name or operator type; correct it, "
                f"or leave it out.{nearest(pattern, known)}"
            )
        matched = dict.fromkeys(hits, pattern) | matched
    return matched
