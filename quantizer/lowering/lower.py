"""Lowering: a prepared float model and its plan become a quantized ONNX model, in one of several forms.

A form only rewrites; every decision is in the plan. Its entry of `targets.forms` names its module, with the
function `lower_model`. Before that, steps that all forms share rewrite the float model:

1. biases are corrected, and weights rounded to multiples of their scales (`compensated`);
2. channels are padded (`padded_channels`);
3. nodes are rewritten as the plan specifies (`plan.rewrites`);
4. the width of convolutions is folded into channels (`plan.rewrites`).

A form then writes node by node (most forms share `write`). Then folded constants are computed again by nodes.
Finally, number formats write caches, inputs and outputs in integers, and float nodes in float16
(`plan.formats`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import onnx_ir as ir

from ...profiles.base.errors import PlanError
from ...profiles.base.seconds import clocked
from ..adjustments.bias_correction import apply_biases
from ..adjustments.rounded_weights import round_weights
from ..model.graph import name_of, subgraphs
from ..model.opsets import in_opset
from ..operators.table import CONVERSIONS, MICROSOFT
from ..plan.formats import formats_of
from ..plan.plan import BIAS_CORRECTED, Kind, QuantPlan
from ..plan.provenance import provenance_of, write_provenance
from ..plan.reasons import ReasonCode, UnfitNodesError, because
from ..plan.rewrites import WIDTHS, float_rewrites, rewrites
from ..prepare.constant_folding import unfold_constants
from ..targets.forms import FORMS
from .embedding_tables import share_tied_tables
from .emitter import Emitter
from .lowered import LoweredModel, opset_raised, with_record, write_equalization
from .padded_channels import pad_channels
from .replacement import in_prepared_names, replaced
from .writers import Task, Writer, Writers

BLOCKS_OPSET = 21
"""The first with blocks in QuantizeLinear."""
TYPE_OPSETS: Mapping[ir.DataType, int] = {
    **dict.fromkeys((ir.DataType.INT4, ir.DataType.UINT4), 21),
    **dict.fromkeys((ir.DataType.FLOAT8E4M3FN, ir.DataType.FLOAT8E4M3FNUZ), 21),
    **dict.fromkeys((ir.DataType.FLOAT8E5M2, ir.DataType.FLOAT8E5M2FNUZ), 21),
    ir.DataType.FLOAT4E2M1: 23,
    ir.DataType.FLOAT8E8M0: 24,
}
"""The opset in which tensors of a type are written. Floating-point types of 8 bits came with 19; runtimes and
other tools take them from 21 on."""
CONVERSION_OPSETS: Mapping[ir.DataType, int] = {**TYPE_OPSETS, ir.DataType.INT16: 21, ir.DataType.UINT16: 21}
"""The same for inputs and outputs of QuantizeLinear and DequantizeLinear."""
IR_VERSIONS: Mapping[int, int] = {19: 9, 21: 10, 23: 11, 24: 11}
"""The IR version of each of these."""


def lower(model: ir.Model, plan: QuantPlan) -> LoweredModel:
    """Return the quantized model that a verified plan describes, in its form, with its provenance.

    The model is the prepared float model with the equalization of the plan applied; it does not change.
    """
    lowered = _lowered(model, plan, whole=True)
    unfold_constants(lowered.model)
    write_provenance(lowered.model, provenance_of(plan))
    write_equalization(lowered.model, plan.adjustments.equalization)
    for number_format in formats_of(plan.config):
        lowered = number_format.write(lowered, plan)
    return lowered


def lower_part(model: ir.Model, plan: QuantPlan) -> LoweredModel:
    """Return the quantized form of a part of a model, without provenance; the plan may have more nodes."""
    return _lowered(model, plan, whole=False)


@clocked("write")
def _lowered(model: ir.Model, plan: QuantPlan, *, whole: bool) -> LoweredModel:
    form = plan.config.form
    lower_model: Callable[[ir.Model, QuantPlan], LoweredModel]
    lower_model = FORMS[form].module.load().lower_model
    padded, padded_plan = pad_channels(compensated(model, plan), plan, whole=whole)
    rewritten, rewritten_plan, owners = rewritten_nodes(padded, padded_plan)
    if plan.adjustments.folded_widths:
        fold_widths = WIDTHS.load("plan: adjustments: folded_widths").fold_widths
        rewritten, rewritten_plan, more = fold_widths(rewritten, rewritten_plan, whole=whole)
        owners |= more
    lowered = in_prepared_names(lower_model(rewritten, rewritten_plan), padded, owners)
    for number_format in formats_of(plan.config):
        number_format.write_nodes(lowered.model, plan)
    return lowered


def rewritten_nodes(model: ir.Model, plan: QuantPlan) -> tuple[ir.Model, QuantPlan, dict[str, str]]:
    """Return the model and plan with the planned rewrites, and the added nodes' owners; see `replaced`."""

    def is_rewritten(node: ir.Node) -> bool:
        entry = plan.nodes.get(name_of(node))
        return entry is not None and entry.implementation in rewrites()

    return replaced(model, plan, is_rewritten, lambda new: rewrites()[new.entry.implementation][1](new))


def compensated(model: ir.Model, plan: QuantPlan) -> ir.Model:
    """Return the float model with corrected biases, and weights rounded to multiples of their scales."""
    rounded = {name for name, entry in plan.nodes.items() if entry.kind in BIAS_CORRECTED}
    biases = {name: delta for name, delta in plan.adjustments.biases.items() if name in rounded}
    return apply_biases(round_weights(model, plan), biases)


# The walk that forms share: each node is written by the writer that its form has for it --------------------


def write(
    model: ir.Model, plan: QuantPlan, form: str, writers: Writers, new_emitter: Callable[[ir.Graph], Emitter]
) -> LoweredModel:
    """Return the model that `plan` describes, each node written by its writer."""
    opset = model.opset_imports[""]
    model = model.clone()
    emitter = new_emitter(model.graph)

    def write_node(node: ir.Node, emitter: Emitter) -> bool:
        task = task_of(node, plan, emitter, opset)
        with unfit_in_form(form, task):
            return writer_of(task, form, writers)(task)

    _write_graph(model.graph, emitter, write_node)
    share_tied_tables(model.graph, plan.nodes, emitter)
    names = emitter.written_names()
    if any(node.domain == MICROSOFT for node in model.graph.all_nodes()):
        model.opset_imports.setdefault(MICROSOFT, 1)
    needed = max(map(opset_of_types, model.graphs()))
    if opset < needed:
        return with_record(LoweredModel(raised(model, form, needed), (opset_raised(opset, needed),), names))
    return with_record(LoweredModel(model, (), names))


def _write_graph(graph: ir.Graph, emitter: Emitter, write_node: Callable[[ir.Node, Emitter], bool]) -> None:
    """Write the nodes of a graph, and before each its subgraphs."""
    replaced = []
    for node in list(graph):
        for subgraph in subgraphs(node):
            _write_graph(subgraph, emitter.inside(subgraph, node), write_node)
        if write_node(node, emitter):
            replaced.append(node)
    finish(graph, emitter, replaced)


@contextmanager
def unfit_in_form(form: str, task: Task) -> Iterator[None]:
    """Raise an UnfitNodesError that names the node instead of a form's PlanError."""
    try:
        yield
    except PlanError as error:
        name = name_of(task.node)
        reason = because(ReasonCode.NO_FORM, form=form, text=str(error))
        raise UnfitNodesError(str(error), {name: reason}) from error


def task_of(node: ir.Node, plan: QuantPlan, emitter: Emitter, opset: int) -> Task:
    """Return the task of writing one node; raise PlanError if the plan has no entry for it."""
    if name_of(node) not in plan.nodes:
        raise PlanError(f"node '{node.name}': the plan has no entry for it; make a new plan for this model")
    return Task(node, plan, emitter, opset)


def writer_of(task: Task, form: str, writers: Writers) -> Writer:
    """Return the writer of a node; raise PlanError if the form has none for its kind and implementation."""
    kind, implementation = task.entry.kind, task.entry.implementation
    if kind is Kind.FLOAT and implementation in float_rewrites():
        return float_rewrites()[implementation].write
    if (kind, implementation) not in writers:
        how = f" with implementation '{implementation}'" if implementation else ""
        raise task.error(f"{kind}{how} is not written in form {form}; change this node in the plan")
    return writers[kind, implementation]


def finish(graph: ir.Graph, emitter: Emitter, replaced: list[ir.Node]) -> None:
    """Give the graph float outputs under their names, and drop nodes that nobody reads any more."""
    for index, value in enumerate(graph.outputs):
        graph.outputs[index] = emitter.floating(value, None)
    remove(graph, emitter, replaced)


def remove(graph: ir.Graph, emitter: Emitter, replaced: list[ir.Node]) -> None:
    """Remove nodes that others were written for, and initialisers that are no longer read."""
    for node in reversed(replaced):
        graph.remove(node, safe=True)
    emitter.drop_unused()


def opset_of_types(graph: ir.Graph) -> int:
    """Return the opset that the types of a graph's tensors and its blocks need, 0 for any."""
    needed = 0
    for node in graph:
        opsets = CONVERSION_OPSETS if node.op_type in CONVERSIONS else TYPE_OPSETS
        if node.op_type in CONVERSIONS and "block_size" in node.attributes:
            needed = max(needed, BLOCKS_OPSET)
        for value in (*node.inputs, *node.outputs):
            if value is not None and value.dtype is not None:
                needed = max(needed, opsets.get(value.dtype, 0))
    return needed


def raised(model: ir.Model, form: str, opset: int) -> ir.Model:
    """Return the model in the given opset; raise PlanError if the converter cannot raise it."""
    try:
        later = in_opset(model, opset)
    except RuntimeError as error:
        raise PlanError(
            f"form {form}: its types need opset {opset}, and the model cannot be raised to it ({error}); "
            "export it again in that opset, or use 8-bit integers"
        ) from error
    later.ir_version = max(later.ir_version, IR_VERSIONS[opset])
    return later
