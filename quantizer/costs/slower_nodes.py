"""Which nodes of a plan are predicted to be slower in int8 than in float, and why. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ...profiles.records.profile import Profile
from ..model.graph import Graph, name_of
from ..plan.plan import Kind, QuantPlan
from ..plan.reasons import FloatReason, FloatReasons, ReasonCode, because, price_in_words
from .float_regions import FloatRegion, find_float_regions
from .predicted import CostModel, price_of
from .records import Costs


def slower_nodes(graph: Graph, plan: QuantPlan, profile: Profile, costs: Costs) -> FloatReasons:
    """Return the nodes that cost less in float, conversions included, each with the figures of its region.

    Args:
        graph: what the plan is of.
        plan: a plan; nodes that are float in it stay float.
        profile: of the activations of `graph`.
        costs: microseconds, as `predicted_costs` makes them of a table.
    """
    regions = find_float_regions(graph, plan, profile, costs)
    gainful = [region for region in regions if region.gain_ms > 0.0]
    return reasons_of(gainful, ReasonCode.PREDICTED_SLOWER)


def reasons_of(regions: Iterable[FloatRegion], code: ReasonCode) -> FloatReasons:
    """Return why the nodes of regions stay float: with a code whose details are the two times."""
    return {
        name: because(
            code,
            int8_ms=region.integer_ms,
            float_ms=region.float_ms,
            region=f", with its {len(region.nodes) - 1} neighbours" if len(region.nodes) > 1 else "",
        )
        for region in regions
        for name in region.nodes
    }


PRICED = (ReasonCode.CONVERSION_COST, ReasonCode.MIXED_INPUTS, ReasonCode.NO_INT8_CONSUMER)
"""Reasons that are about time."""


def with_prices(plan: QuantPlan, model: CostModel) -> QuantPlan:
    """Return a plan in which nodes that are float for reasons of time have what int8 would save and cost."""
    costs = model.costs(plan)
    nodes = dict(plan.nodes)
    for node in model.graph.nodes:
        entry = nodes[name_of(node)]
        reason = entry.because
        if entry.kind is Kind.FLOAT and isinstance(reason, FloatReason) and reason.code in PRICED:
            price = price_of(node, plan, model, costs)
            words = price_in_words(price.floating, price.integer, price.conversions)
            nodes[name_of(node)] = replace(entry, because=replace(reason, price=words))
    return replace(plan, nodes=nodes)
