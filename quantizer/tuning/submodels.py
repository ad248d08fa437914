"""A model cut into pieces of consecutive nodes, each of them lowered and run for itself.

A piece reads what earlier nodes made and gives what later nodes, or the caller, read. All of it crosses as
real numbers: a tensor that is stored in codes is dequantized where a piece ends, and the next piece finds the
same codes again, since rounding a rounded number changes nothing. So pieces of a plan, run one after the
other, compute what the whole quantized model computes, and any piece can be run under another plan.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import onnx_ir as ir

from ..lowering.lower import lower
from ..model.files import save_model
from ..plan.plan import Kind, NodePlan, QuantPlan
from ..planning.chains import planned_chains
from ..runtime.sessions import open_session, run

Values = Mapping[str, Any]
"""Arrays by tensor name."""

LEFT_OUT = NodePlan(Kind.FLOAT, "left out of this variant")


@dataclass(frozen=True, eq=False)
class Cuttable:
    """A prepared model whose tensors' first and last uses are known.

    Attributes:
        model: the prepared model.
        nodes: of its main graph, in order.
        made: tensor -> index of the node that makes it; -1 for graph inputs.
        last: tensor -> index of the last node that reads it, in its inner graphs too; the number of nodes for
            graph outputs and other tensors that are watched.
    """

    model: ir.Model
    nodes: tuple[ir.Node, ...]
    made: Mapping[str, int]
    last: Mapping[str, int]

    def needed(self, start: int, end: int) -> list[str]:
        """Return the tensors from before `start` that nodes from `start` to before `end` read."""
        read = {str(value.name): None for i in range(start, end) for value in _reads(self.nodes[i])}
        return [name for name in read if self.made.get(name, start) < start]

    def given(self, start: int, end: int) -> list[str]:
        """Return the tensors made from `start` to before `end` that later nodes or the caller read."""
        made = (value.name for i in range(start, end) for value in self.nodes[i].outputs if value.name)
        return [name for name in made if self.last.get(name, -1) >= end]


def cuttable(model: ir.Model, watched: Sequence[str] = ()) -> Cuttable:
    """Return the index that `open_piece` needs of a prepared model, which must not be edited afterwards.

    Args:
        model: the prepared model.
        watched: tensors that the caller reads besides the graph outputs.
    """
    nodes = tuple(model.graph)
    made = {str(v.name): -1 for v in model.graph.inputs if not v.is_initializer()}
    last: dict[str, int] = {}
    for index, node in enumerate(nodes):
        made.update((value.name, index) for value in node.outputs if value.name)
        last.update((str(value.name), index) for value in _reads(node))
    last.update(dict.fromkeys([*(str(v.name) for v in model.graph.outputs), *watched], len(nodes)))
    return Cuttable(model, nodes, made, last)


def _reads(node: ir.Node) -> Iterator[ir.Value]:
    """Yield what a node reads, its inner graphs included."""
    inner = [n for a in node.attributes.values() for g in _graphs(a) for n in g.all_nodes()]
    outer = [v for a in node.attributes.values() for g in _graphs(a) for v in g.outputs]
    for reader in (node, *inner):
        yield from (value for value in reader.inputs if value is not None)
    yield from outer


def _graphs(attribute: ir.Attr) -> Sequence[ir.Graph]:
    if attribute.type == ir.AttributeType.GRAPH:
        return (attribute.as_graph(),)
    return attribute.as_graphs() if attribute.type == ir.AttributeType.GRAPHS else ()


def only(plan: QuantPlan, unit: Collection[str]) -> QuantPlan:
    """Return the plan with every node float but those of a unit, which are one table or a single node."""
    return replace(plan, nodes={n: entry if n in unit else LEFT_OUT for n, entry in plan.nodes.items()})


def without(plan: QuantPlan, unit: Collection[str]) -> QuantPlan:
    """Return the plan with the nodes of a unit float; what its neighbours store in codes stays there."""
    return replace(plan, nodes={**plan.nodes, **dict.fromkeys(unit, LEFT_OUT)})


def open_piece(
    source: Cuttable, start: int, end: int, plan: QuantPlan | None, threads: int = 1
) -> Callable[[Values, str], dict[str, Any]]:
    """Return a function that runs the nodes from `start` to before `end`.

    Args:
        source: the prepared model.
        start, end: indices of nodes.
        plan: what the piece is lowered to; None for float.
        threads: inside an operator.

    Returns:
        A function of the arrays by name that the piece needs (others are ignored) and of the sample's name,
        for messages; gives the arrays that the piece makes.

    Raises:
        ModelError: onnxruntime refuses the piece, or, from the function, a run.
        PlanError: the plan cannot be lowered.
    """
    needed, given = source.needed(start, end), source.given(start, end)
    if not given:
        return lambda values, sample: {}
    name = f"nodes '{source.nodes[start].name}' to '{source.nodes[end - 1].name}'"
    piece = _piece(source, start, end, needed, given)
    piece = piece if plan is None else lower(piece, _whole_tables(source, start, end, plan)).model
    with tempfile.TemporaryDirectory(prefix="qprof-", ignore_cleanup_errors=True) as folder:
        save_model(piece, Path(folder) / "piece.onnx")
        session = open_session(str(Path(folder) / "piece.onnx"), name, threads)

    def run_on(values: Values, sample: str) -> dict[str, Any]:
        feed = {n: values[n] for n in needed}
        return dict(zip(given, run(session, given, feed, f"{name}, sample {sample}"), strict=True))

    return run_on


def _whole_tables(source: Cuttable, start: int, end: int, plan: QuantPlan) -> QuantPlan:
    """Return the plan without tables of which only some nodes are in a piece: those compute in float."""
    nodes = source.nodes[start:end]
    tables, inside = planned_chains(nodes, plan), set(nodes)
    whole = {part for parts in tables.values() if inside.issuperset(parts) for part in parts}
    cut = [
        node.name or ""
        for node in nodes
        if node not in whole
        and (node.name in tables or plan.is_part(node.name or "", node.outputs[0].name or ""))
    ]
    return without(plan, cut) if cut else plan


def _piece(source: Cuttable, start: int, end: int, needed: Sequence[str], given: Sequence[str]) -> ir.Model:
    """Return the nodes from `start` to before `end` as a model of their own."""
    whole = source.model.graph
    nodes = source.nodes[start:end]
    by_name = {str(v.name): v for v in whole.inputs}
    by_name |= {str(v.name): v for node in source.nodes[:end] for v in node.outputs}
    constants = {v.name: v for node in nodes for v in _reads(node) if v.name in whole.initializers}
    view = ir.GraphView(
        [by_name[n] for n in needed],
        [by_name[n] for n in given],
        nodes=nodes,
        initializers=tuple(constants.values()),
        opset_imports=whole.opset_imports,
        name=whole.name,
    )
    functions = [f.clone() for f in source.model.functions.values()]
    return ir.Model(view.clone(), ir_version=source.model.ir_version, functions=functions)
