"""A plan within the noise budget: nodes that bring an output above its noise limit go back to float. Pure.

Steps, in this order (`make_plan`):

1. Weights get formats, if they may differ.
2. Everything is decided, and again as long as a rule names nodes that are better in float (`planner.decide`).
   Rules about time come first, then those about noise, which are here: nodes that lead to a step function
   inside the model; while an output exceeds its limit, the nodes with the least time whose noise must go, by
   a minimum cut of the graph (`cheapest_floats`); products at the beginning of the model that are cheap in
   float and add much noise (`cheap_nodes`).
3. The rest of the budget is for int8 weights of float nodes, which save no time
   (`_with_int8_weights_in_budget`).
4. The plan gets the estimates of the outputs (`_with_estimates`).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial

import numpy as np
import numpy.typing as npt

from ...profiles.base.findings import Code, Finding
from ...profiles.base.tuned import tuned
from ...profiles.records.profile import Profile, has_histograms
from ..costs.float_regions import NEVER, Crossing, Prices, cheapest_with
from ..noise.estimate_check import band_of
from ..noise.estimator import NoiseEstimator, NoiseSource, decibels_of
from ..noise.propagation import NoiseFlow
from ..noise.steps import before_steps, find_steps
from ..noise.value_paths import upstream
from ..numerics.density import density, mean_of
from ..operators.graph import Graph
from ..plan.formats import SIZES
from ..plan.plan import Kind, QuantPlan
from ..plan.reasons import FloatReason, FloatReasons, ReasonCode, because
from ..targets.config import DATA_FREE, FEW_BITS
from .facts import PlanningFacts
from .hybrid import formats_of_ends, with_int8_weights
from .known import NOTHING, Known
from .planner import NO_FLOATS, Decision, FloatRule, decide, decision_of, rounded_outputs, unprofitable
from .selection import multiplications_per_output

Floats = npt.NDArray[np.float64]


def make_plan(facts: PlanningFacts, known: Known = NOTHING) -> QuantPlan:
    """Return the plan of one model, with the noise estimates of its outputs in its origin."""
    if facts.config.has_size:
        known = SIZES.load("fit_size").with_chosen_formats(facts, known)
    else:
        known = replace(known, formats=formats_of_ends(facts))
    rules: list[FloatRule] = [rounded_outputs, unprofitable]
    has_noise = any(tensor.histogram.total for tensor in facts.profile.values())
    # Without a limit nobody asked for more bits than 4: what is left of the outputs is told, and what to do.
    least = facts.noise_limits.min_output_sqnr
    is_limited = has_noise and least != 0.0 and not (facts.config.has_few_bits and least is None)
    if not is_limited:
        plan = decide(facts, known, rules)
        if not has_noise:
            return plan
        plan = with_int8_weights(facts, plan, without=known.unfit)
    else:
        allowed = _allowed(facts, known)
        rules += [leading_to_steps, partial(too_noisy, allowed), cheap_first_layers]
        plan = _with_int8_weights_in_budget(decision_of(facts, known, rules), known, allowed)
    if not has_histograms(facts.measured):
        return plan  # how values are spread is assumed: that chooses nodes, and is no estimate to be told
    return _with_estimates(facts, plan)


def _with_estimates(facts: PlanningFacts, plan: QuantPlan) -> QuantPlan:
    """Return a plan with the estimates of its outputs, and a finding for each below the requested SQNR."""
    graph, profile, limits = facts.graph, facts.profile, facts.noise_limits
    estimator, gains = facts.noise_estimator, facts.noise_gains
    steps = [step for step in find_steps(graph) if gains.powers.get(step.tensor)]
    scores = {name: of for name, of in limits.indices.items() if gains.powers.get(of)}
    sqnr = estimator.estimated_sqnr(plan, [*(step.tensor for step in steps), *scores.values()])
    estimated = {name: db for name, db in sqnr.items() if name in graph.outputs}
    estimated |= {name: sqnr[of] for name, of in scores.items() if of in sqnr}
    bands = {}
    for name, db in estimated.items() if profile.noise else ():
        before = {node.name for node in upstream(graph, [name])}
        at_steps = (sqnr.get(step.tensor, math.inf) for step in steps if step.node in before)
        bands[name] = band_of(db, limits.planned_kind(name) == "decision", min(at_steps, default=math.inf))
    least = limits.min_output_sqnr if facts.config.mode in DATA_FREE else None
    missed = [
        Finding(
            Code.BELOW_WISH,
            f"output '{name}' has an estimated SQNR of {db:.1f} dB, below the limit of {least:g}: weights of "
            "8 bits do not give more",
            name,
            {"estimated": db, "asked": least},
            "name nodes with keep_float, or take mode static or auto",
        )
        for name, db in estimated.items()
        if least and db < least
    ]
    origin = replace(plan.origin, estimated_sqnr=estimated, sqnr_bands=bands)
    return replace(plan, origin=origin, findings=(*missed, *plan.findings))


def _allowed(facts: PlanningFacts, known: Known) -> Floats:
    """Return the most noise over signal at each judged tensor."""
    limits = facts.noise_limits
    looser = np.array([known.looser.get(limits.output_of(name), 0.0) for name in facts.judged])
    return np.array([limits.allowed(name) for name in facts.judged]) * 10.0 ** (looser / 10.0)


def leading_to_steps(decision: Decision) -> FloatReasons:
    """Return the nodes that lead to a step inside of the model."""
    return {
        name: because(ReasonCode.BEFORE_STEP, tensor=step.tensor, operator=step.operator)
        for name, step in before_steps(decision.facts.graph, decision.facts.noise_limits.steps).items()
        if decision.plan.nodes[name].kind is not Kind.FLOAT
    }


def too_noisy(allowed: Floats, decision: Decision) -> FloatReasons:
    """Return the nodes without whose noise the tensor that is farthest above its limit is within it."""
    facts, plan, limits = decision.facts, decision.plan, decision.facts.noise_limits
    if not facts.judged:
        return NO_FLOATS
    flow, noise = decision.noise
    total = sum(noise.values(), np.zeros(len(allowed)))
    for place in np.argsort(-total / allowed, kind="stable").tolist():
        if total[place] <= allowed[place]:
            continue
        tensor, limit = flow.outputs[place], float(allowed[place])
        rounded = tuple(roundings(facts.noise_estimator, plan, flow, place, limit))
        chosen = cheapest_floats(_prices(decision), rounded)
        output = limits.output_of(tensor) if tensor not in limits.compared else ""
        of_output = limits.min_output_sqnr is not None or (
            output in limits.kinds and limits.planned_kind(output) == "decision"
        )
        reasons: dict[str, FloatReason] = {}
        for name in plan.nodes:
            share = float(noise[name][place]) if name in noise else 0.0
            if name not in chosen or name in decision.known.floats or share <= 0.0:
                continue
            figures = {
                "sqnr": decibels_of(share),
                "total_sqnr": decibels_of(float(total[place])),
                "limit": decibels_of(limit),
            }
            if of_output:
                reasons[name] = because(ReasonCode.NOISE_BUDGET, output=tensor, **figures)
            else:
                what = limits.words(tensor)
                reasons[name] = because(ReasonCode.NOISE_LIMIT, tensor=tensor, what=what, **figures)
        if reasons:
            return reasons
    return NO_FLOATS


def cheap_first_layers(decision: Decision) -> FloatReasons:
    """Return the products of `cheap_nodes`, once in a decision."""
    facts = decision.facts
    asked = any(reason.code is ReasonCode.CHEAP_FIRST_LAYER for reason in decision.known.floats.values())
    if asked or not facts.judged or not facts.config.regards_time:
        return NO_FLOATS
    flow, noise = decision.noise
    return cheap_nodes(facts.graph, facts.profile, flow, decision.plan, noise)


def _prices(decision: Decision) -> Prices:
    """Return the prices of noisy nodes: time, or, if their weights get 8 bits instead of 4, bytes."""
    facts, plan = decision.facts, decision.plan
    if not facts.config.has_few_bits:
        return decision.prices
    added = dict.fromkeys(plan.nodes, 0.0)
    for node in facts.graph.nodes:
        for weight in () if node.rule is None else node.rule.constants:
            params = plan.tensors.get(node.input(weight.index))
            if params is not None and params.qtype.name in FEW_BITS:
                array = node.constant(weight.index)
                added[node.name] += 0.0 if array is None else array.size / 2.0
    return Prices(dict.fromkeys(added, 0.0), added, (), {})


Rounding = tuple[float, frozenset[str]]
"""Noise at an output, over the most that it may have; the nodes of which one must be quantized for it."""


def roundings(
    estimator: NoiseEstimator, plan: QuantPlan, flow: NoiseFlow, place: int, allowed: float
) -> Iterator[Rounding]:
    """Yield the roundings at output number `place` of a flow, each with the nodes that activate it."""
    graph = estimator.activations.graph
    for source in estimator.sources(flow, plan):
        maker = graph.producer(source.tensor)
        if source.is_inner or graph.is_constant(source.tensor):
            parts = {frozenset([source.node]): 1.0}
        elif maker is None or maker.name != source.node:
            parts = {frozenset(affected(graph, plan, source.tensor, source.node)): 1.0}
        else:
            parts = _by_reader(graph, plan, source, flow, place)
        share = float(source.share[place]) / allowed
        yield from ((share * part, nodes) for nodes, part in parts.items() if share * part > 0.0)


def _by_reader(
    graph: Graph, plan: QuantPlan, source: NoiseSource, flow: NoiseFlow, place: int
) -> dict[frozenset[str], float]:
    """Return which part the rounding of a node's result has through each of its readers, and directly."""
    whole, rest = float(flow.reach_of(source.tensor)[place]), 1.0
    parts: dict[frozenset[str], float] = {}
    for reader, index in graph.consumers(source.tensor):
        gain = float(flow.gain_of(reader.name, index)[place])
        part = gain / whole if whole > 0.0 else 0.0
        if part > 0.0:
            nodes = frozenset([source.node, *affected(graph, plan, source.tensor, reader.name)])
            parts[nodes] = parts.get(nodes, 0.0) + part
            rest -= part
    own = frozenset([source.node])
    parts[own] = parts.get(own, 0.0) + max(rest, 0.0)
    return parts


def affected(graph: Graph, plan: QuantPlan, tensor: str, reader: str) -> Iterator[str]:
    """Yield a quantized reader of a tensor and, if it passes quantized values on, the readers of these."""
    entry = plan.nodes.get(reader)
    if entry is None or entry.kind is Kind.FLOAT:
        return
    yield reader
    if entry.kind is Kind.PASS_THROUGH:
        node = next((n for n, _ in graph.consumers(tensor) if n.name == reader), None)
        for name in () if node is None else node.results:
            for further, _ in graph.consumers(name):
                yield from affected(graph, plan, name, further.name)


# The nodes that go to float at the least time -------------------------------------------------------------


BISECTIONS = 12  # of the price of noise: it is found to 1 in 2 to the power of this, over the range below


MIN_NOISE_PRICE, MAX_NOISE_PRICE = 1e-6, 1e9
"""Prices between which the right one lies: of noise as much as the limit, over the time of all nodes."""


def cheapest_floats(prices: Prices, roundings: Collection[Rounding]) -> set[str]:
    """Return the nodes without whose noise an output is within its limit, at the least time.

    They are chosen together: noise at a price, and time with conversions, are least for a minimum cut. The
    lowest price at which the shares of `roundings` add up to 1 at most is found by bisection (Lagrange).
    """
    names = {name for _, nodes in roundings for name in nodes}
    # A node without a price takes no time, and none is taken to be faster in float: noise alone decides here.
    prices = replace(
        prices,
        integer=dict.fromkeys(names, 0.0) | dict(prices.integer),
        floating={
            name: max(prices.floating.get(name, 0.0), prices.integer.get(name, 0.0))
            for name in sorted(names | prices.integer.keys())
        },
    )
    unit = sum(prices.floating.values()) or 1.0
    low, high = MIN_NOISE_PRICE, MAX_NOISE_PRICE
    floats = names
    quantized_at = cheapest_with(prices, (nodes for _, nodes in roundings))
    for _ in range(BISECTIONS):
        price = (low * high) ** 0.5
        quantized = quantized_at(price * unit * share for share, _ in roundings)
        if left_over(roundings, quantized) <= 1.0:
            floats, high = prices.integer.keys() - quantized, price
        else:
            low = price
    return _with_more_quantized(set(floats), prices, roundings)


def _with_more_quantized(floats: set[str], prices: Prices, roundings: Collection[Rounding]) -> set[str]:
    """Return float nodes without those that can be quantized with the output still within its limit.

    Cuts are corners of a convex hull: if many nodes are alike, all go to float at one price.
    """
    at_node: dict[str, list[Rounding]] = {name: [] for name in floats}
    for share, nodes in roundings:
        for name in nodes & floats:
            at_node[name].append((share, nodes))
    crossings: dict[str, list[Crossing]] = {name: [] for name in floats}
    for crossing in prices.crossings:
        for name in floats & {crossing.maker, *crossing.readers}:
            crossings[name].append(crossing)
    tied = {name for name, own in crossings.items() if any(c.microseconds == NEVER for c in own)}
    noise = left_over(roundings, prices.integer.keys() - floats)

    def added(name: str) -> float:
        return sum(share for share, nodes in at_node[name] if nodes <= floats)

    def saved(name: str) -> float:  # conversions included: one more may be needed
        border = 0.0
        for crossing in crossings[name]:
            around = (n for n in (crossing.maker, *crossing.readers) if n != name)
            others = {n in prices.integer and n not in floats for n in around}
            border += crossing.microseconds * ((len(others | {False}) > 1) - (len(others | {True}) > 1))
        return prices.floating[name] - prices.integer[name] + border

    while True:
        free = [name for name in sorted(floats) if name not in tied and saved(name) > 0.0]
        returned = False
        for name in sorted(free, key=lambda name: added(name) / saved(name)):
            if noise + added(name) <= 1.0 and saved(name) > 0.0:
                noise += added(name)
                floats.discard(name)
                returned = True
        if not returned:
            return floats


def left_over(roundings: Iterable[Rounding], quantized: Collection[str]) -> float:
    """Return the noise of an assignment, over the most that the output may have."""
    return sum(share for share, nodes in roundings if not nodes.isdisjoint(quantized))


# First layers ---------------------------------------------------------------------------------------------


LOW_NOISE_DB = tuned(
    36.0,
    figure=(
        "28 to 31 dB with all layers in int8 lose 1.9 points, 0.3 with the first one in float "
        "(DECISIONS.md, 9)"
    ),
    chosen_on="a detector",
    holds=(28.8, 36.0),
)
"""Variance of an output over its noise, as estimated, from which nothing is gained by less noise."""


MIN_NOISE_TO_COST = tuned(
    2.0,
    figure="at 4 one of two profiles left the first layer in int8; at 2 no other model changed",
    chosen_on="a detector",
    holds=(1.6, 2.5),
)
"""Least ratio of a node's part of the noise to its part of the multiplications."""


MAX_FLOAT_PRODUCTS = tuned(0.05, figure="none", chosen_on="by hand", holds=(0.04, 0.0625))
"""Part of all quantized multiplications that may go back to float in all."""


def cheap_nodes(
    graph: Graph, profile: Profile, flow: NoiseFlow, plan: QuantPlan, noise: Mapping[str, Floats]
) -> dict[str, FloatReason]:
    """Return products at the head of the model that are better in float, each with the figures.

    Only nodes with only float nodes before them: they move the border and add no conversions. Noise is
    compared with the variance of an output: a constant offset carries no information.
    """
    total = sum(noise.values(), np.zeros(len(flow.outputs)))
    varying = varying_part(profile, flow)
    level = np.divide(total, varying, out=np.zeros_like(total), where=varying > 0.0)
    if not level.size or level.max() <= 10.0 ** (-LOW_NOISE_DB / 10.0):
        return {}
    worst = int(np.argmax(level))

    multiplications: dict[str, float] = {}  # of each quantized node with a constant weight, in graph order
    for node in graph.nodes:
        products = multiplications_per_output(node)
        if plan.nodes[node.name].kind is Kind.QUANTIZED and products is not None and node.output in profile:
            multiplications[node.name] = float(profile[node.output].count) * products

    floats: dict[str, FloatReason] = {}
    whole, spent = sum(multiplications.values()), 0.0
    after = _after_quantized(graph, multiplications.keys())
    for name, count in multiplications.items():
        part = float(noise[name][worst] / total[worst]) if name in noise else 0.0
        cost = count / whole
        if name in after or part < MIN_NOISE_TO_COST * cost or spent + cost > MAX_FLOAT_PRODUCTS:
            continue
        spent += cost
        floats[name] = because(
            ReasonCode.CHEAP_FIRST_LAYER,
            noise_share=100.0 * part,
            output=flow.outputs[worst],
            level=-10.0 * math.log10(level[worst]),
            cost_share=100.0 * cost,
        )
        after = _after_quantized(graph, multiplications.keys() - floats.keys())
    return floats


def varying_part(profile: Profile, flow: NoiseFlow) -> Floats:
    """Return the variance of each output of a flow over its power."""
    densities = {name: density(profile[name]) for name in flow.outputs}
    variances = {n: mean_of(d, np.square) - mean_of(d, lambda x: x) ** 2 for n, d in densities.items()}
    return np.array([variances[name] / flow.node_gains.powers[name] for name in flow.outputs])


def _after_quantized(graph: Graph, products: Collection[str]) -> set[str]:
    """Return the nodes after one of these products."""
    after: set[str] = set()
    reached: set[str] = set()
    for node in graph.nodes:
        if not reached.isdisjoint(node.inputs):
            after.add(node.name)
        if node.name in after or node.name in products:
            reached.update(name for name in node.outputs if name)
    return after


# Int8 weights of float nodes ------------------------------------------------------------------------------


UNNOTICED_DB = tuned(
    30.0,
    figure="none: a thousandth of the variation (DECISIONS.md, 27)",
    chosen_on="by hand",
    holds=(24.0, 37.5),
)
"""Variance of an output over the noise of all weights that are rounded without saving time."""


def _with_int8_weights_in_budget(decision: Decision, known: Known, allowed: Floats) -> QuantPlan:
    """Return a plan whose float nodes have int8 weights, as far as nodes leave budget, and unnoticed."""
    facts, plan, (flow, _) = decision.facts, decision.plan, decision.noise
    estimator = facts.noise_estimator

    def stored_in_int8(trial: QuantPlan) -> set[str]:
        return {
            name
            for name, entry in trial.nodes.items()
            if entry.kind is Kind.WEIGHT_ONLY and plan.nodes[name].kind is Kind.FLOAT
        }

    trial = with_int8_weights(facts, plan, without=known.unfit)
    noise = estimator.by_node(flow, trial)
    stored = stored_in_int8(trial)
    varying = varying_part(facts.profile, flow)
    none = np.zeros(len(varying))
    quantized = sum((share for name, share in noise.items() if name not in stored), none)
    limits = np.maximum(np.minimum(10.0 ** (-UNNOTICED_DB / 10.0) * varying, allowed - quantized), 0.0)
    float_weights: set[str] = set()
    while stored:
        # What leads to no output that is judged: nobody knows what its noise does.
        unknown = stored - noise.keys()
        noisy = unknown or _noisiest({name: noise[name] for name in sorted(stored)}, limits)
        if not noisy:
            break
        float_weights |= noisy
        trial = with_int8_weights(facts, plan, without={*known.unfit, *float_weights})
        stored = stored_in_int8(trial)
    return trial


def _noisiest(noise: Mapping[str, Floats], limits: Floats) -> set[str]:
    """Return the fewest nodes without which the output that is farthest above its limit is within it."""
    total = sum(noise.values(), np.zeros(len(limits)))
    above = np.divide(total, limits, out=np.where(total > 0.0, np.inf, 0.0), where=limits > 0.0)
    if not above.size or above.max() <= 1.0:
        return set()
    worst = int(np.argmax(above))
    names: set[str] = set()
    rest = float(total[worst])
    for name in sorted(noise, key=lambda name: -noise[name][worst]):
        if rest <= limits[worst]:
            break
        names.add(name)
        rest -= float(noise[name][worst])
    return names
