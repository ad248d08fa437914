"""What a report says of each node: what it costs, what int8 would bring, why it stays float. Pure."""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from ..costs.predicted import price_of
from ..model.graph import Graph, name_of, output_name
from ..operators.operands import activation_names
from ..operators.table import rule_of
from ..plan.plan import Kind, NodePlan, QuantPlan
from ..plan.reasons import FloatReason, ReasonCode, summary
from ..scoring.objectives import multiplications
from .analysis import Analysis
from .records import FloatGroupRecord, NodeRecord, NoiseBudget

NO_PRICE = (
    *(ReasonCode.SHAPE_ARITHMETIC, ReasonCode.ONLY_CONSTANTS, ReasonCode.EQUALIZATION_MUL),
    *(ReasonCode.NO_KERNEL, ReasonCode.UNSUPPORTED_OPERATOR, ReasonCode.UNSUPPORTED_USE),
)
"""Reasons of nodes that int8 is no choice for."""


def node_records(analysis: Analysis, budget: NoiseBudget | None) -> tuple[NodeRecord, ...]:
    """Return a record of each node, in graph order.

    Args:
        analysis: of the plan.
        budget: of the output with the lowest SQNR; None for no estimate.
    """
    noise = {} if budget is None else {part.node: part.share for part in budget.parts}
    return tuple(_record(node, analysis, noise.get(name_of(node))) for node in analysis.graph.nodes)


def _record(node: ir.Node, analysis: Analysis, noise: float | None) -> NodeRecord:
    name, graph = name_of(node), analysis.graph
    entry = analysis.plan.nodes[name]
    floating, planned, quantized, conversions = _times(node, entry, analysis)
    return NodeRecord(
        name=name,
        operator=node.op_type,
        kind=entry.kind.value,
        reason=entry.reason,
        code=entry.float_reason.code.value if entry.stays_float else "",
        inputs=tuple(dict.fromkeys(n for n in graph.inputs_of(node) if n and not graph.is_constant(n))),
        outputs=tuple(value.name for value in node.outputs if value.name),
        float_us=floating,
        planned_us=planned,
        quantized_us=quantized,
        conversions_us=conversions,
        multiply_adds=_multiply_adds(node, analysis),
        noise=noise,
    )


def _times(
    node: ir.Node, entry: NodePlan, analysis: Analysis
) -> tuple[float | None, float | None, float | None, float | None]:
    """Return microseconds: in float, as planned, and of a float node in int8 and for its conversions."""
    if analysis.costs is None:
        return None, None, None, None
    model, costs = analysis.costs
    name = name_of(node)
    floating, planned = costs.floating.get(name, 0.0), costs.integer.get(name, 0.0)
    reason = entry.because
    rule = rule_of(node)
    priced = isinstance(reason, FloatReason) and reason.code not in NO_PRICE and rule is not None
    if not entry.stays_float or not priced or not _reads_floats(node, analysis.graph):
        return floating, planned, None, None
    price = price_of(node, analysis.plan, model, costs)
    return floating, planned, price.integer, price.conversions


def _reads_floats(node: ir.Node, graph: Graph) -> bool:
    """Whether a node reads a float activation, as those do that int8 is a choice for."""
    rule = rule_of(node)
    return rule is not None and any(graph.is_float(name) for name in activation_names(node, rule, graph))


def _multiply_adds(node: ir.Node, analysis: Analysis) -> float:
    """Return the multiply-adds of a node in one sample; those of the elements for all but products."""
    name = output_name(node)
    if name not in analysis.profile:
        return 0.0
    elements = analysis.profile[name].count / max(analysis.profile.data.samples, 1)
    return elements * multiplications(node, analysis.graph)


def int8_share(nodes: tuple[NodeRecord, ...]) -> float | None:
    """Return the share of the multiply-adds that are done in integers, 0 to 1; None without any."""
    total = sum(node.multiply_adds for node in nodes)
    kinds = {kind.value for kind in Kind if kind.counts_as_quantized}
    done = sum(node.multiply_adds for node in nodes if node.kind in kinds)
    return done / total if total else None


def float_groups(plan: QuantPlan, nodes: tuple[NodeRecord, ...]) -> tuple[FloatGroupRecord, ...]:
    """Return why nodes stay float, the reason that takes most time first, then the most frequent.

    Args:
        plan: with the reasons.
        nodes: with the prices; those that are missing are not priced.
    """
    records = {node.name: node for node in nodes}
    reasons: dict[tuple[str, str], list[str]] = {}
    for name, entry in plan.nodes.items():
        if entry.stays_float:
            reason = entry.float_reason
            words = str(reason) if reason.code is ReasonCode.UNKNOWN else ""
            reasons.setdefault((reason.code.value, words), []).append(name)
    total = sum(node.multiply_adds for node in nodes) or 1.0
    groups = [
        FloatGroupRecord(
            code=code,
            reason=summary([plan.nodes[name].float_reason for name in names]),
            nodes=tuple(names),
            float_us=_sum(records[name].planned_us for name in names if name in records),
            gain_us=_sum(gain_of(records[name]) for name in names if name in records),
            multiply_adds=sum(records[name].multiply_adds for name in names if name in records) / total,
        )
        for (code, _), names in reasons.items()
    ]
    return tuple(sorted(groups, key=lambda g: (-(g.float_us or 0.0), -len(g.nodes))))


def gain_of(node: NodeRecord) -> float | None:
    """Return the microseconds that int8 would save at one float node alone, conversions included: 0 or
    more; None where that is not known."""
    if node.planned_us is None or node.quantized_us is None or node.conversions_us is None:
        return None
    return max(0.0, node.planned_us - node.quantized_us - node.conversions_us)


def _sum(values: Iterator[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None
