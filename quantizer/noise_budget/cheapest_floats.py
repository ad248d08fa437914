"""Which nodes to leave in float so that an output is within its noise limit, at the least time. Pure.

A tensor is rounded as long as the node that makes it, or one that reads it, is quantized. So the noise of one
node alone says little: a float node between quantized ones has saved nothing, and at an output the last nodes
count most, since nothing after them averages. The nodes are chosen together: time, conversions included, plus
noise at a price for its unit, is least for a minimum cut of the graph, and the lowest price at which the
output is within its limit is found by bisection (Lagrange). Any other choice that is as fast has more noise.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace

import onnx_ir as ir

from ...profiles.records.profile import Profile
from ..costs.float_regions import Crossing, Prices, cheapest_with
from ..costs.min_cut import NEVER
from ..model.graph import Graph, input_name, name_of
from ..operators.operands import outputs_of
from ..operators.table import rule_of
from ..plan.plan import Kind, QuantPlan

PRODUCT_US = 13.5e-6
"""Microseconds that int8 saves for each multiplication of a product (DECISIONS.md, 13)."""

ELEMENT_US = 0.5e-3
"""Microseconds of converting one element (DECISIONS.md, 13)."""

STEPS = 12
"""Bisections of the price of noise: it is found to 1 in 2 to the power of this, over the range below."""

CHEAP, DEAR = 1e-6, 1e9
"""Prices between which the right one lies: of noise as much as the limit, over the time of all nodes."""


@dataclass(frozen=True)
class Rounding:
    """Noise at an output that there is as long as one of some nodes is quantized.

    Attributes:
        share: noise over the most that the output may have.
        nodes: their names.
    """

    share: float
    nodes: frozenset[str]


def cheapest_floats(prices: Prices, roundings: Collection[Rounding]) -> set[str]:
    """Return the nodes without whose noise an output is within its limit, at the least time.

    Args:
        prices: microseconds of the nodes that are quantized now, and of conversions.
        roundings: the noise at the output; those of a share of 1 in all are within the limit.
    """
    names = {name for rounding in roundings for name in rounding.nodes}
    known = replace(
        prices,
        integer=dict.fromkeys(names, 0.0) | dict(prices.integer),
        floating={
            name: max(prices.floating.get(name, 0.0), prices.integer.get(name, 0.0))
            for name in sorted(names | prices.integer.keys())
        },
    )
    unit = sum(known.floating.values()) or 1.0
    low, high = CHEAP, DEAR
    best = names
    for _ in range(STEPS):
        price = (low * high) ** 0.5
        kept = cheapest_with(known, [(price * unit * r.share, r.nodes) for r in roundings])
        if left_over(roundings, kept) <= 1.0:
            best, high = known.integer.keys() - kept, price
        else:
            low = price
    return _with_more_quantized(set(best), known, roundings)


def _with_more_quantized(floats: set[str], prices: Prices, roundings: Collection[Rounding]) -> set[str]:
    """Return float nodes without those that can be quantized with the output still within its limit.

    Minimum cuts for all prices of noise are the corners of a convex hull: where many nodes are alike, they
    all go to float at one price. Those with the least noise for the time that they save go back one by one.
    """
    at_node: dict[str, list[Rounding]] = {name: [] for name in floats}
    for rounding in roundings:
        for name in rounding.nodes & floats:
            at_node[name].append(rounding)
    crossings: dict[str, list[Crossing]] = {name: [] for name in floats}
    for crossing in prices.crossings:
        for name in floats & {crossing.maker, *crossing.readers}:
            crossings[name].append(crossing)
    together = {name: [c for c in found if c.microseconds == NEVER] for name, found in crossings.items()}
    noise = left_over(roundings, prices.integer.keys() - floats)

    def added(name: str) -> float:
        return sum(r.share for r in at_node[name] if r.nodes <= floats)

    def saved(name: str) -> float:
        border = sum(_saved(crossing, name, prices, floats) for crossing in crossings[name])
        return prices.floating[name] - prices.integer[name] + border

    while True:
        free = [name for name in sorted(floats) if not together[name] and saved(name) > 0.0]
        returned = False
        for name in sorted(free, key=lambda name: added(name) / saved(name)):
            if noise + added(name) <= 1.0 and saved(name) > 0.0:
                noise += added(name)
                floats.discard(name)
                returned = True
        if not returned:
            return floats


def _saved(crossing: Crossing, name: str, prices: Prices, floats: Collection[str]) -> float:
    """Return what a conversion saves where a float node is quantized; below 0 where it takes one more."""
    others = {
        n in prices.integer and n not in floats for n in (crossing.maker, *crossing.readers) if n != name
    }
    before, after = len(others | {False}) > 1, len(others | {True}) > 1
    return crossing.microseconds * (before - after)


def left_over(roundings: Iterable[Rounding], quantized: Collection[str]) -> float:
    """Return the noise of an assignment, over the most that the output may have."""
    return sum(r.share for r in roundings if not r.nodes.isdisjoint(quantized))


def affected(graph: Graph, plan: QuantPlan, tensor: str, reader: str) -> Iterator[str]:
    """Yield a reader of a tensor that is quantized and, where it passes quantized values on, who reads
    these."""
    entry = plan.nodes.get(reader)
    if entry is None or entry.kind is Kind.FLOAT:
        return
    yield reader
    node = next((n for n, _ in graph.consumers(tensor) if name_of(n) == reader), None)
    for name in () if node is None or entry.kind is not Kind.PASS_THROUGH else outputs_of(node):
        for further, _ in graph.consumers(name):
            yield from affected(graph, plan, name, name_of(further))


def estimated_prices(graph: Graph, plan: QuantPlan, profile: Profile) -> Prices:
    """Return what int8 saves and conversions cost on a target without measured kernels, by multiplications.

    Args:
        graph: what the plan is of.
        plan: its quantized nodes are priced.
        profile: for the number of elements.
    """
    samples = max(profile.data.samples, 1)
    quantized = [node for node in graph.nodes if plan.nodes[name_of(node)].kind is not Kind.FLOAT]
    floating = {}
    for node in quantized:
        elements = max((profile[n].count for n in outputs_of(node) if n in profile), default=0) / samples
        floating[name_of(node)] = PRODUCT_US * elements * _products(graph, node)
    names = floating.keys()
    crossings = tuple(
        Crossing(name, name_of(graph.producer(name)), readers, ELEMENT_US * profile[name].count / samples)
        for name in profile
        if name in graph.values
        and (readers := tuple(dict.fromkeys(name_of(n) for n, _ in graph.consumers(name))))
        and names & {name_of(graph.producer(name)), *readers}
    )
    return Prices(dict.fromkeys(floating, 0.0), floating, crossings, {})


def _products(graph: Graph, node: ir.Node) -> float:
    """Return the multiplications for each element of a node's result; 1 for a node without weights."""
    rule = rule_of(node)
    layout = None if rule is None else rule.weight
    weight = None if layout is None else graph.constant(input_name(node, layout.index))
    if layout is None or weight is None or weight.ndim < 2:
        return 1.0
    axis = layout.axis(node, weight.ndim)
    return float(weight.size / max(1 if axis is None else weight.shape[axis], 1))
