"""The walk that every form shares: each node is written by the writer that its form has for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import onnx_ir as ir

from ...profiles.base.errors import PlanError
from ..model.graph import name_of, subgraphs
from ..model.opsets import in_opset
from ..operators.table import CONVERSIONS
from ..plan.plan import Kind, QuantPlan
from ..plan.reasons import ReasonCode, UnfitNodesError, because
from .embedding_tables import share_tied_tables
from .emitter import Emitter
from .task import Task
from .written import Lowered, with_record

OLDEST_OPSET = 13
"""The first with an axis in QuantizeLinear."""
WIDE_OPSET, WIDE_IR_VERSION = 21, 10
"""The first with 16 bits, 4 bits and blocks in QuantizeLinear."""

Writer = Callable[[Task], bool]
"""Writes one node, and returns whether the node itself is no longer needed."""
Writers = Mapping[tuple[Kind, str], Writer]
"""A form's writers, by kind and implementation."""

_FOUR_BITS = (ir.DataType.INT4, ir.DataType.UINT4)
_WIDE = (*_FOUR_BITS, ir.DataType.INT16, ir.DataType.UINT16)


def write(
    model: ir.Model, plan: QuantPlan, form: str, writers: Writers, new_emitter: Callable[[ir.Graph], Emitter]
) -> Lowered:
    """Return the model that `plan` describes, each node written by its writer.

    Args:
        model: the prepared float model; it is left as it was.
        plan: its plan.
        form: name of the form, for messages.
        writers: the form's writers.
        new_emitter: returns the form's emitter for a graph.

    Raises:
        UnfitNodesError: the form cannot write a node. PlanError: the plan has no entry for one, or the opset
            is too old.
    """
    opset = checked_opset(model, form)
    model = model.clone()
    emitter = new_emitter(model.graph)

    def write_node(node: ir.Node, emitter: Emitter) -> bool:
        task = task_of(node, plan, emitter, opset)
        with unfit_in_form(form, task):
            return writer_of(task, form, writers)(task)

    _write_graph(model.graph, emitter, write_node)
    share_tied_tables(model.graph, plan.nodes, emitter)
    names = emitter.written()
    if any(node.domain == "com.microsoft" for node in model.graph.all_nodes()):
        model.opset_imports.setdefault("com.microsoft", 1)
    if opset < WIDE_OPSET and any(needs_wide_types(g) for g in model.graphs()):
        note = f"opset raised from {opset} to {WIDE_OPSET} for its integer types"
        return with_record(Lowered(raised(model, form), (note,), names))
    return with_record(Lowered(model, (), names))


def _write_graph(graph: ir.Graph, emitter: Emitter, write_node: Callable[[ir.Node, Emitter], bool]) -> None:
    """Write the nodes of a graph, and before each its subgraphs."""
    replaced = []
    for node in list(graph):
        for subgraph in subgraphs(node):
            _write_graph(subgraph, emitter.inside(subgraph, node), write_node)
        if write_node(node, emitter):
            replaced.append(node)
    finish(graph, emitter, replaced)


def checked_opset(model: ir.Model, form: str) -> int:
    """Return the opset of a model.

    Raises:
        PlanError: it is older than what a form can be written in.
    """
    opset = model.opset_imports.get("", 0)
    if opset < OLDEST_OPSET:
        raise PlanError(
            f"form {form}: the model has opset {opset}; raise it to {OLDEST_OPSET} or later first"
        )
    return opset


@contextmanager
def unfit_in_form(form: str, task: Task) -> Iterator[None]:
    """Say of which node it is what goes wrong while a form writes it.

    Raises:
        UnfitNodesError: the form cannot write it.
    """
    try:
        yield
    except PlanError as error:
        name = name_of(task.node)
        reason = because(ReasonCode.NO_FORM, form=form, text=str(error))
        raise UnfitNodesError(str(error), {name: reason}) from error


def task_of(node: ir.Node, plan: QuantPlan, emitter: Emitter, opset: int) -> Task:
    """Return the task of writing one node.

    Raises:
        PlanError: the plan has no entry for the node.
    """
    if name_of(node) not in plan.nodes:
        raise PlanError(f"node '{node.name}': the plan has no entry for it; make a new plan for this model")
    return Task(node, plan.nodes[name_of(node)], plan.tensors, emitter, opset, plan.nodes)


def writer_of(task: Task, form: str, writers: Writers) -> Writer:
    """Return what writes a node.

    Raises:
        PlanError: the form has nothing for this kind and implementation.
    """
    kind, implementation = task.entry.kind, task.entry.implementation
    if (kind, implementation) not in writers:
        how = f" with implementation '{implementation}'" if implementation else ""
        raise task.error(f"{kind}{how} is not written in form {form}; plan this node otherwise")
    return writers[kind, implementation]


def finish(graph: ir.Graph, emitter: Emitter, replaced: list[ir.Node]) -> None:
    """Give the graph float outputs under their names, and drop what is no longer read."""
    for index, value in enumerate(graph.outputs):
        graph.outputs[index] = emitter.floating(value, None)
    remove(graph, emitter, replaced)


def remove(graph: ir.Graph, emitter: Emitter, replaced: list[ir.Node]) -> None:
    """Remove nodes that others were written for, and initialisers that are no longer read."""
    for node in reversed(replaced):
        graph.remove(node, safe=True)
    emitter.drop_unused()


def needs_wide_types(graph: ir.Graph) -> bool:
    """Return whether a graph needs a later opset: 4 bits, 16 bits in a conversion, blocks."""
    for node in graph:
        conversion = node.op_type in CONVERSIONS
        types = {value.dtype for value in (*node.inputs, *node.outputs) if value is not None}
        if types & set(_WIDE if conversion else _FOUR_BITS) or (
            conversion and "block_size" in node.attributes
        ):
            return True
    return False


def raised(model: ir.Model, form: str) -> ir.Model:
    """Return the model in the first opset with all integer types.

    Raises:
        PlanError: the converter cannot take it there.
    """
    try:
        later = in_opset(model, WIDE_OPSET)
    except RuntimeError as error:
        raise PlanError(
            f"form {form}: its integer types need opset {WIDE_OPSET}, and the model cannot be raised to it "
            f"({error}); export it again in that opset, or use 8-bit types"
        ) from error
    later.ir_version = max(later.ir_version, WIDE_IR_VERSION)
    return later
