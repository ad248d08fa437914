"""A model split into submodels of consecutive nodes; each is lowered and run separately.

A submodel reads tensors of earlier nodes and returns those that later nodes, or the caller, read. All tensors
are passed as float values: a submodel dequantizes a quantized tensor, and the next one quantizes it to the
same integers. So the submodels of a plan, run one after the other, compute the same as the whole quantized
model, and any of them can be run under another plan.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import onnx_ir as ir

from ...profiles.instrumentation.subgraphs import graph_attributes
from ...profiles.runtime.providers import CPU
from ..evaluation.runtimes import open_model, run
from ..lowering.lower import lower_part
from ..model.graph import name_of, output_name
from ..plan.plan import Kind, NodePlan, QuantPlan
from ..planning.chains import planned_chains

Values = Mapping[str, Any]
"""Arrays by tensor name."""

Submodel = Callable[[Values, str], Mapping[str, Any]]
"""Runs consecutive nodes on arrays, of a sample with a name, and returns their outputs."""

FLOAT_HERE = NodePlan(Kind.FLOAT, "float in this variant of the plan")


@dataclass(frozen=True, eq=False)
class SplittableModel:
    """A prepared model with the first and last use of each tensor."""

    model: ir.Model
    nodes: tuple[ir.Node, ...]  # of the main graph
    producers: Mapping[str, int]  # tensor -> index of its node; -1 for graph inputs
    # tensor -> index of its last reader; the number of nodes for what the caller reads
    last_uses: Mapping[str, int]
    cuts: Sequence[int]  # nodes before which a submodel may begin or end: all tensors that cross have a type

    @property
    def constant_outputs(self) -> dict[str, Any]:
        """The graph outputs that are constants, which no run gives."""
        outputs = self.model.graph.outputs
        return {name_of(v): v.const_value.numpy() for v in outputs if v.const_value is not None}

    def inputs_of(self, start: int, end: int) -> list[str]:
        """Return the earlier tensors that the nodes from `start` to before `end` read."""
        read = {str(value.name): None for i in range(start, end) for value in _reads(self.nodes[i])}
        return [name for name in read if self.producers.get(name, start) < start]

    def outputs_of(self, start: int, end: int) -> list[str]:
        """Return the tensors of nodes `start` to `end` - 1 that later nodes or the caller read."""
        names = (value.name for i in range(start, end) for value in self.nodes[i].outputs if value.name)
        return [name for name in names if self.last_uses.get(name, -1) >= end]


def splittable_model(model: ir.Model) -> SplittableModel:
    """Return the index of a prepared model, not edited afterwards."""
    nodes = tuple(model.graph)
    producers = {str(v.name): -1 for v in model.graph.inputs if not v.is_initializer()}
    last_uses: dict[str, int] = {}
    for index, node in enumerate(nodes):
        producers.update((value.name, index) for value in node.outputs if value.name)
        last_uses.update((str(value.name), index) for value in _reads(node))
    last_uses.update(dict.fromkeys((str(v.name) for v in model.graph.outputs), len(nodes)))
    inside = set[int]()  # of the uses of a tensor without a type, as operators of other domains may make
    for value in (value for node in nodes for value in node.outputs if value.name and value.type is None):
        name = str(value.name)
        inside.update(range(producers[name] + 1, last_uses.get(name, 0) + 1))
    cuts = [index for index in range(len(nodes) + 1) if index in (0, len(nodes)) or index not in inside]
    return SplittableModel(model, nodes, producers, last_uses, cuts)


def _reads(node: ir.Node) -> Iterator[ir.Value]:
    """Yield the inputs of a node, those of its subgraphs included."""
    outer = [v for g in graph_attributes(node) for v in g.outputs]
    for reader in (node, *_inner_nodes(node)):
        yield from (value for value in reader.inputs if value is not None)
    yield from outer


def only_quantized(plan: QuantPlan, group: Collection[str]) -> QuantPlan:
    """Return the plan with all nodes float except those of a group (see `node_groups`)."""
    return replace(plan, nodes={n: entry if n in group else FLOAT_HERE for n, entry in plan.nodes.items()})


def left_float(plan: QuantPlan, group: Collection[str]) -> QuantPlan:
    """Return the plan with the nodes of a group float; tensors that neighbours quantize stay quantized."""
    return replace(plan, nodes={**plan.nodes, **dict.fromkeys(group, FLOAT_HERE)})


def node_groups(nodes: Sequence[ir.Node], plan: QuantPlan) -> dict[tuple[str, ...], tuple[int, int]]:
    """Return quantized nodes that are measured together, as a look-up table, with their ends in the graph."""
    every = [(inner, place) for place, node in enumerate(nodes) for inner in (*_inner_nodes(node), node)]
    places, tables = dict(every), planned_chains((node for node, _ in every), plan)
    groups = {}
    for node, _ in every:
        entry = plan.nodes.get(name_of(node))
        if entry is None or entry.kind is Kind.FLOAT or plan.is_part(name_of(node), output_name(node)):
            continue
        parts = tables.get(name_of(node), (node,))
        own = [places[part] for part in parts]
        groups[tuple(map(name_of, parts))] = min(own), max(own)
    return dict(sorted(groups.items(), key=lambda group: group[1][0]))


def _inner_nodes(node: ir.Node) -> Iterator[ir.Node]:
    """Yield the nodes of the subgraphs that a node runs, of those within these too."""
    for graph in graph_attributes(node):
        yield from graph.all_nodes()


def segment_starts(groups: Sequence[tuple[int, int]], cuts: Sequence[int]) -> list[int]:
    """Return the index of the first node of each segment: one before each group, if that splits no group.

    A group is given by its first and its last node; `cuts` are the indices at which a segment may begin.
    """
    starts = {max(cut for cut in cuts if cut <= first) for first, _ in groups}
    return sorted({0, *(cut for cut in starts if not any(first < cut <= last for first, last in groups))})


def open_submodel(
    source: SplittableModel,
    start: int,
    end: int,
    plan: QuantPlan | None,
    *,
    provider: str = CPU,
    dequantized: bool = False,
) -> Submodel:
    """Return a function that runs the nodes from `start` to before `end`, in float if the plan is None."""
    inputs, outputs = source.inputs_of(start, end), source.outputs_of(start, end)
    if not outputs:
        return lambda values, sample: {}
    name = f"nodes '{source.nodes[start].name}' to '{source.nodes[end - 1].name}'"
    submodel = _submodel(source, start, end, inputs, outputs)
    submodel = (
        submodel if plan is None else lower_part(submodel, _whole_tables(source, start, end, plan)).model
    )
    session = open_model(submodel, name, provider=provider, dequantized=dequantized)

    def run_on(values: Values, sample: str) -> dict[str, Any]:
        feed = {n: values[n] for n in inputs}
        return dict(zip(outputs, run(session, outputs, feed, f"{name}, sample {sample}"), strict=True))

    return run_on


def _whole_tables(source: SplittableModel, start: int, end: int, plan: QuantPlan) -> QuantPlan:
    """Return the plan with float nodes in place of the look-up tables that a submodel splits."""
    nodes = source.nodes[start:end]
    tables, inside = planned_chains(nodes, plan), set(nodes)
    whole = {part for parts in tables.values() if inside.issuperset(parts) for part in parts}
    split = [
        name_of(node)
        for node in nodes
        if node not in whole and (node.name in tables or plan.is_part(name_of(node), output_name(node)))
    ]
    return left_float(plan, split) if split else plan


def _submodel(
    source: SplittableModel, start: int, end: int, inputs: Sequence[str], outputs: Sequence[str]
) -> ir.Model:
    """Return the nodes from `start` to before `end` as a model."""
    graph = source.model.graph
    nodes = source.nodes[start:end]
    by_name = {str(v.name): v for v in graph.inputs}
    by_name |= {str(v.name): v for node in source.nodes[:end] for v in node.outputs}
    constants = {v.name: v for node in nodes for v in _reads(node) if v.name in graph.initializers}
    view = ir.GraphView(
        [by_name[n] for n in inputs],
        [by_name[n] for n in outputs],
        nodes=nodes,
        initializers=tuple(constants.values()),
        opset_imports=graph.opset_imports,
        name=graph.name,
    )
    return ir.Model(view.clone(), ir_version=source.model.ir_version)
