"""Which nodes of a plan are predicted to be slower in int8 than in float, and why. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ...profiles.records.profile import Profile
from ..model.graph import Graph, name_of
from ..plan.plan import Kind, QuantPlan
from ..plan.reasons import FloatReason, FloatReasons, ReasonCode, because, price_in_words
from .float_regions import FloatRegion, find_float_regions, find_prices, region_of
from .predicted import CostModel, price_of
from .records import Costs

MARGIN = 1.3
"""How many times as long as in float a region is predicted to take before it stays float: predictions of
whole models are off by 10 % in the median and by 30 % at most, and within that int8 is the user's wish."""

LEAST_MS = 0.005
"""Milliseconds that float has to save in a region: the clock of the times that a table is made of has whole
microseconds, and a region has several of them."""


def _gain(region: FloatRegion) -> float:
    """Return the milliseconds that float saves, without the margin."""
    return region.integer_ms - region.float_ms / MARGIN


def slower_nodes(graph: Graph, plan: QuantPlan, profile: Profile, costs: Costs) -> FloatReasons:
    """Return the nodes that cost less in float, conversions included, each with the figures of its region.

    Args:
        graph: what the plan is of.
        plan: a plan; nodes that are float in it stay float.
        profile: of the activations of `graph`.
        costs: microseconds, as `predicted_costs` makes them of a table.
    """
    floating, border = ({n: t * MARGIN for n, t in found.items()} for found in (costs.floating, costs.border))
    dearer = replace(costs, floating=floating, border=border)
    found = find_float_regions(graph, plan, profile, dearer)
    regions = [region for region in found if region.gain_ms > 0.0 and _gain(region) >= LEAST_MS]
    if not regions:
        return {}
    # In the figures for people nothing is dearer than it is predicted to be.
    prices = find_prices(graph, plan, profile, costs)
    return reasons_of((region_of(region.nodes, prices) for region in regions), ReasonCode.PREDICTED_SLOWER)


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
