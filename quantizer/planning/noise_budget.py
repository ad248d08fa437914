"""A plan within the noise budget: nodes that bring an output above its noise limit go back to float. Pure.

Four steps, in this order (`plan_within_noise_budget`):

1. What leads to a step inside of the model stays float (`noise.steps`).
2. While an output is above its limit, the nodes without whose noise it is within go to float, those that
   cost the least time: a minimum cut of the graph (`cheapest_floats`).
3. Products at the head of the model that are cheap in float and add much noise stay float (`cheap_nodes`).
4. What is left of the budget is for int8 weights of float nodes, which save no time
   (`plan_with_int8_weights`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import numpy.typing as npt

from ...profiles.records.profile import Profile
from ..costs.float_regions import NEVER, Crossing, Prices, cheapest
from ..noise.activation_ranges import ActivationRanges
from ..noise.estimate_check import band_of
from ..noise.estimator import NoiseEstimator, NoiseSource, decibels_of
from ..noise.moved_probability import deciding_inputs, expected_moves, moved_texts
from ..noise.output_limits import NoiseLimits
from ..noise.propagation import NoiseFlow, measured_gains, noise_flow
from ..noise.steps import Step, before_steps, find_steps
from ..noise.value_paths import upstream
from ..numerics.density import density, mean_of
from ..operators.graph import Graph, Node
from ..plan.plan import Kind, QuantPlan
from ..plan.reasons import FloatReason, FloatReasons, ReasonCode, because

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class PlanMaker:
    """How plans of one model are made while its noise is brought within budget.

    Attributes:
        make: makes a plan in which the given nodes stay float, each with its reason.
        store: returns a plan with int8 weights for its float nodes, but for those given.
        prices: returns what a plan's quantized nodes and conversions cost.
    """

    make: Callable[[FloatReasons], QuantPlan]
    store: Callable[[QuantPlan, Collection[str]], QuantPlan]
    prices: Callable[[QuantPlan], Prices]


def plan_within_noise_budget(
    maker: PlanMaker, activations: ActivationRanges, limits: NoiseLimits, left: Mapping[str, float]
) -> QuantPlan:
    """Make a plan, and make it again with nodes in float until each output and each step is within its limit.

    Args:
        maker: makes the plans.
        activations: of the model.
        limits: how much noise its outputs and steps can bear, as estimated by `noise_flow`.
        left: what equalization leaves of noise, see `NoiseEstimator`.

    Returns:
        The plan, with the estimates of its outputs as part of its origin.
    """
    plan = maker.make({})
    graph, profile = activations.graph, activations.profile
    if not any(tensor.histogram.total for tensor in profile.values()):
        return plan
    gains = measured_gains(graph, profile, activations.opset, profile.noise)
    estimator = NoiseEstimator(activations, gains, left)
    unlimited = limits.least == 0.0
    plan = maker.store(plan, ()) if unlimited else _within_budget(maker, plan, estimator, limits)
    steps = [step for step in find_steps(graph) if estimator.gains.powers.get(step.tensor)]
    logits = [name for name in deciding_inputs(graph) if estimator.gains.powers.get(name)]
    found = estimator.estimated_sqnr(plan, [*(step.tensor for step in steps), *logits])
    estimated = {name: db for name, db in found.items() if name in graph.outputs}
    bands = {
        name: band_of(
            db, limits.kinds.get(name) == "decision", _least_before_steps(graph, name, steps, found)
        )
        for name, db in estimated.items()
        if profile.noise
    }
    moves = expected_moves(activations, found) if profile.noise and limits.least is None else {}
    origin = replace(plan.origin, estimated_sqnr=estimated, sqnr_bands=bands, moves=moves)
    return replace(plan, origin=origin, notes=(*plan.notes, *moved_texts(moves)))


def _least_before_steps(
    graph: Graph, output: str, steps: Collection[Step], estimated: Mapping[str, float]
) -> float:
    """Return the lowest SQNR (dB) of what becomes steps on the way to an output; infinite without noise."""
    before = {node.name for node in upstream(graph, [output])}
    return min((estimated.get(s.tensor, math.inf) for s in steps if s.node in before), default=math.inf)


def _within_budget(
    maker: PlanMaker, plan: QuantPlan, estimator: NoiseEstimator, limits: NoiseLimits
) -> QuantPlan:
    """Return the plan, or one with more nodes in float; see `plan_within_noise_budget`."""
    graph, profile = estimator.activations.graph, estimator.activations.profile
    compared = [name for name in limits.compared if estimator.gains.powers.get(name)]
    judged = tuple(dict.fromkeys([*estimator.gains.judged_tensors(), *compared]))
    allowed = np.array([limits.allowed(name) for name in judged])
    noisy: dict[str, FloatReason] = {
        name: because(ReasonCode.BEFORE_STEP, tensor=step.tensor, operator=step.operator)
        for name, step in before_steps(graph, limits.steps).items()
        if plan.nodes[name].kind is not Kind.FLOAT
    }
    plan = maker.make(noisy) if noisy else plan
    decibels = [limits.quieter.get(limits.output_of(name), 0.0) for name in judged]
    quieter = 10.0 ** (-np.array(decibels) / 10.0)
    allowed, quieter = allowed * np.maximum(quieter, 1.0), np.minimum(quieter, 1.0)
    while True:
        flow = noise_flow(estimator.gains_of(plan), judged)
        if not judged:
            break
        noise = estimator.by_node(flow, plan)
        total = sum(noise.values(), np.zeros(len(flow.outputs)))
        if (total <= allowed).all() and (quieter < 1.0).any():
            allowed = np.where((quieter < 1.0) & (total > 0.0), total * quieter, allowed)
            quieter = np.ones_like(quieter)
        order = np.argsort(-total / allowed, kind="stable")
        excesses = (Excess(flow, int(at), float(allowed[at]), limits) for at in order)
        tries = (_too_noisy(maker, plan, estimator, excess, noisy) for excess in excesses)
        more = next((found for found in tries if found), None)
        if not more:
            cheap = cheap_nodes(graph, profile, flow, plan, noise)
            plan = maker.make(noisy | cheap) if cheap else plan
            break
        noisy |= more
        plan = maker.make(noisy)
    return plan_with_int8_weights(
        plan,
        partial(maker.store, plan),
        lambda trial: estimator.by_node(flow, trial),
        trusted=plan.nodes.keys() if flow.weight_reach else flow.node_gains.recurrences.keys(),
        varying=varying_part(profile, flow),
        allowed=allowed,
    )


@dataclass(frozen=True, eq=False)
class Excess:
    """An output, or another tensor at which noise is judged, that may be above its limit.

    Attributes:
        flow: how noise reaches it.
        output: its place in the flow.
        allowed: most noise power over its signal power.
        limits: those of the model.
    """

    flow: NoiseFlow
    output: int
    allowed: float
    limits: NoiseLimits

    @property
    def tensor(self) -> str:
        """Its name."""
        return self.flow.outputs[self.output]


def _too_noisy(
    maker: PlanMaker, plan: QuantPlan, estimator: NoiseEstimator, excess: Excess, floats: FloatReasons
) -> dict[str, FloatReason]:
    """Return the nodes to leave float so that a tensor is within its limit, each with the figures."""
    noise = {n: float(s[excess.output]) for n, s in estimator.by_node(excess.flow, plan).items()}
    total = sum(noise.values())
    if total <= excess.allowed:
        return {}
    prices = maker.prices(plan)
    chosen = cheapest_floats(prices, tuple(roundings(estimator, plan, excess)))
    found = [n for n in plan.nodes if n in chosen and n not in floats and noise.get(n, 0.0) > 0.0]
    output = excess.limits.output_of(excess.tensor) if excess.tensor not in excess.limits.compared else ""
    of_output = excess.limits.least is not None or excess.limits.kinds.get(output) == "decision"
    reasons = {}
    for name in found:
        figures = {
            "sqnr": decibels_of(noise[name]),
            "total_sqnr": decibels_of(total),
            "limit": decibels_of(excess.allowed),
        }
        if of_output:
            reasons[name] = because(ReasonCode.NOISE_BUDGET, output=excess.tensor, **figures)
        else:
            what = excess.limits.words(excess.tensor)
            reasons[name] = because(ReasonCode.NOISE_LIMIT, tensor=excess.tensor, what=what, **figures)
    return reasons


def roundings(estimator: NoiseEstimator, plan: QuantPlan, excess: Excess) -> Iterator[Rounding]:
    """Yield what is rounded, with the nodes of which one has to be quantized for it."""
    graph = estimator.activations.graph
    for source in estimator.sources(excess.flow, plan):
        maker = graph.producer(source.tensor)
        if source.is_inner or graph.is_constant(source.tensor):
            parts = {frozenset([source.node]): 1.0}
        elif maker is None or maker.name != source.node:
            parts = {frozenset(affected(graph, plan, source.tensor, source.node)): 1.0}
        else:
            parts = _by_reader(graph, plan, source, excess)
        share = float(source.share[excess.output]) / excess.allowed
        yield from (Rounding(share * part, nodes) for nodes, part in parts.items() if share * part > 0.0)


def _by_reader(
    graph: Graph, plan: QuantPlan, source: NoiseSource, excess: Excess
) -> dict[frozenset[str], float]:
    """Return which part the rounding of a node's result has through each of its readers, and directly."""
    whole, rest = float(excess.flow.reach_of(source.tensor)[excess.output]), 1.0
    found: dict[frozenset[str], float] = {}
    for reader, index in graph.consumers(source.tensor):
        gain = float(excess.flow.gain_of(reader.name, index)[excess.output])
        part = gain / whole if whole > 0.0 else 0.0
        if part > 0.0:
            nodes = frozenset([source.node, *affected(graph, plan, source.tensor, reader.name)])
            found[nodes] = found.get(nodes, 0.0) + part
            rest -= part
    own = frozenset([source.node])
    found[own] = found.get(own, 0.0) + max(rest, 0.0)
    return found


def affected(graph: Graph, plan: QuantPlan, tensor: str, reader: str) -> Iterator[str]:
    """Yield a reader of a tensor that is quantized and, where it passes quantized values on, who reads
    these."""
    entry = plan.nodes.get(reader)
    if entry is None or entry.kind is Kind.FLOAT:
        return
    yield reader
    node = next((n for n, _ in graph.consumers(tensor) if n.name == reader), None)
    for name in () if node is None or entry.kind is not Kind.PASS_THROUGH else node.results:
        for further, _ in graph.consumers(name):
            yield from affected(graph, plan, name, further.name)


# The nodes that go to float at the least time -------------------------------------------------------------


PRODUCT_US = 13.5e-6
"""Microseconds that int8 saves for each multiplication of a product (DECISIONS.md, 13)."""


ELEMENT_US = 0.5e-3
"""Microseconds of converting one element (DECISIONS.md, 13)."""


def estimated_prices(graph: Graph, plan: QuantPlan, profile: Profile) -> Prices:
    """Return what int8 saves and conversions cost on a target without measured kernels, by multiplications.

    Args:
        graph: what the plan is of.
        plan: its quantized nodes are priced.
        profile: for the number of elements.
    """
    samples = max(profile.data.samples, 1)
    quantized = [node for node in graph.nodes if plan.nodes[node.name].kind is not Kind.FLOAT]
    floating = {}
    for node in quantized:
        elements = max((profile[n].count for n in node.results if n in profile), default=0) / samples
        floating[node.name] = PRODUCT_US * elements * _multiplications_per_element(graph, node)
    names = floating.keys()
    crossings = tuple(
        Crossing(name, graph.maker(name), readers, ELEMENT_US * profile[name].count / samples)
        for name in profile
        if name in graph.values
        and (readers := tuple(dict.fromkeys(n.name for n, _ in graph.consumers(name))))
        and names & {graph.maker(name), *readers}
    )
    return Prices(dict.fromkeys(floating, 0.0), floating, crossings, {})


def _multiplications_per_element(graph: Graph, node: Node) -> float:
    """Return the multiplications for each element of a node's result; 1 for a node without weights."""
    rule = node.rule
    layout = None if rule is None else rule.weight
    weight = None if layout is None else graph.constant(node.input(layout.index))
    if layout is None or weight is None or weight.ndim < 2:
        return 1.0
    axis = layout.axis(node, weight.ndim)
    return float(weight.size / max(1 if axis is None else weight.shape[axis], 1))


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

    A tensor is rounded as long as the node that makes it, or one that reads it, is quantized. So the noise of
    one node alone says little: a float node between quantized ones has saved nothing, and at an output the
    last nodes count most, since nothing after them averages. The nodes are chosen together: time, conversions
    included, plus noise at a price for its unit, is least for a minimum cut of the graph, and the lowest
    price at which the output is within its limit is found by bisection (Lagrange). Any other choice that is
    as fast has more noise.

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
        kept = cheapest(known, [(price * unit * r.share, r.nodes) for r in roundings])
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


# First layers ---------------------------------------------------------------------------------------------


LOW_NOISE_DB = 36.0
"""Variance of an output over its noise, as estimated, from which nothing is gained by less noise. nudenet,
whose scores are few and decided at rare places, has 28 to 31 with all its layers in int8 and loses 1.9
points, and 0.3 with its first layer in float, at the same speed (tuning split)."""


TIMES_ITS_COST = 2.0
"""Least ratio of a node's part of the noise to its part of the multiplications. At 4 one of two profiles of
nudenet left its first layer in int8; at 2 no other model changed (tuning splits)."""


MOST_PRODUCTS = 0.05
"""Part of all quantized multiplications that may go back to float in all."""


def cheap_nodes(
    graph: Graph, profile: Profile, flow: NoiseFlow, plan: QuantPlan, noise: Mapping[str, Floats]
) -> dict[str, FloatReason]:
    """Return products at the head of the model that are better in float, each with the figures.

    Where a model begins with few channels, a product takes little of the time and may add much of the noise:
    what it loses is lost to all that follows. Only the outermost products are considered, those before which
    all is float already: one of them in float moves the border and adds no conversions. Noise is compared
    with the variance of an output, not with its power: a constant offset, such as an image's mean brightness,
    carries no information.

    Args:
        graph, profile: of the model.
        flow: how its noise travels.
        plan: its plan.
        noise: by node, its noise power over signal power at each output of the flow.
    """
    total = sum(noise.values(), np.zeros(len(flow.outputs)))
    varying = varying_part(profile, flow)
    level = np.divide(total, varying, out=np.zeros_like(total), where=varying > 0.0)
    if not level.size or level.max() <= 10.0 ** (-LOW_NOISE_DB / 10.0):
        return {}
    worst = int(np.argmax(level))
    products = _multiplications_of_products(graph, profile, plan)
    all_products = sum(products.values())
    found: dict[str, FloatReason] = {}
    spent = 0.0
    after = _after_quantized(graph, products, found)
    for name in products:
        part = float(noise[name][worst] / total[worst]) if name in noise else 0.0
        cost = products[name] / all_products
        if name in after or part < TIMES_ITS_COST * cost or spent + cost > MOST_PRODUCTS:
            continue
        spent += cost
        found[name] = because(
            ReasonCode.CHEAP_FIRST_LAYER,
            noise_share=100.0 * part,
            output=flow.outputs[worst],
            level=-10.0 * math.log10(level[worst]),
            cost_share=100.0 * cost,
        )
        after = _after_quantized(graph, products, found)
    return found


def varying_part(profile: Profile, flow: NoiseFlow) -> Floats:
    """Return the variance of each output of a flow over its power."""
    densities = {name: density(profile[name]) for name in flow.outputs}
    variances = {n: mean_of(d, np.square) - mean_of(d, lambda x: x) ** 2 for n, d in densities.items()}
    return np.array([variances[name] / flow.node_gains.powers[name] for name in flow.outputs])


def _multiplications_of_products(graph: Graph, profile: Profile, plan: QuantPlan) -> dict[str, float]:
    """Return the number of multiplications of each quantized node with a constant weight, in graph order."""
    found = {}
    for node in graph.nodes:
        rule, name = node.rule, node.output
        if plan.nodes[node.name].kind is not Kind.QUANTIZED or rule is None or rule.weight is None:
            continue
        weight = node.constant(rule.weight.index)
        if weight is not None and name in profile:
            axis = rule.weight.axis(node, weight.ndim)
            outputs = 1 if axis is None else weight.shape[axis]
            found[node.name] = float(profile[name].count) * weight.size / max(outputs, 1)
    return found


def _after_quantized(graph: Graph, products: Collection[str], floats: Collection[str]) -> set[str]:
    """Return the nodes after a quantized product."""
    after: set[str] = set()
    reached: set[str] = set()
    for node in graph.nodes:
        name = node.name
        if not reached.isdisjoint(node.inputs):
            after.add(name)
        if name in after or (name in products and name not in floats):
            reached.update(name for name in node.outputs if name)
    return after


# Int8 weights of float nodes ------------------------------------------------------------------------------


UNNOTICED_DB = 30.0
"""Variance of an output over the noise of all weights that are rounded without saving time."""


TOO_GOOD_DB = 15.0
"""By how much the estimate for a product may be too good. The error of a weight is the same at each place and
in each sample: means do not take it away as they do the rounding of activations. In a text recogniser the
weights of depthwise convolutions were estimated 12.4 dB below the noise of the quantized nodes, and measured
to equal it (tuning split). Recurrent cells are run with such errors; what is estimated of them is near."""


def plan_with_int8_weights(
    plan: QuantPlan,
    store: Callable[[Collection[str]], QuantPlan],
    noise_of: Callable[[QuantPlan], Mapping[str, Floats]],
    *,
    trusted: Collection[str],
    varying: Floats,
    allowed: Floats,
) -> QuantPlan:
    """Return a plan in which float nodes have int8 weights as far as the noise budget allows.

    A weight that is dequantized when the model is loaded makes the file smaller, and saves no time. So its
    noise may only use what the quantized nodes left of the budget, and no more of that than goes unnoticed.

    Args:
        plan: within the budget; its float nodes have float weights.
        store: returns the plan in which all float nodes have int8 weights that can, but for those given.
        noise_of: returns what each node of a plan adds to the noise over the signal at every output.
        trusted: nodes whose noise was measured, or simulated (`recurrence`), and not only calculated.
        varying: variance over power of each output.
        allowed: most noise over signal at each output.
    """
    float_weights: set[str] = set()
    trial = store(float_weights)
    noise = noise_of(trial)
    stored = _stored(plan, trial)
    none = np.zeros(len(varying))
    quantized = sum((share for name, share in noise.items() if name not in stored), none)
    limits = np.maximum(np.minimum(10.0 ** (-UNNOTICED_DB / 10.0) * varying, allowed - quantized), 0.0)
    margins = {name: 1.0 if name in trusted else 10.0 ** (TOO_GOOD_DB / 10.0) for name in stored}
    while stored:
        unknown = stored - noise.keys()
        # Nodes of subgraphs, and what leads to no output that is judged: nobody knows what their noise does.
        found = unknown or _noisiest({name: margins[name] * noise[name] for name in sorted(stored)}, limits)
        if not found:
            break
        float_weights |= found
        trial = store(float_weights)
        stored = _stored(plan, trial)
    return trial


def _stored(plan: QuantPlan, trial: QuantPlan) -> set[str]:
    """Return the nodes whose weights are float in one plan and int8 in another."""
    return {
        name
        for name, entry in trial.nodes.items()
        if entry.kind is Kind.WEIGHT_ONLY and plan.nodes[name].kind is Kind.FLOAT
    }


def _noisiest(noise: Mapping[str, Floats], limits: Floats) -> set[str]:
    """Return the fewest nodes without which the output that is farthest above its limit is within it."""
    total = sum(noise.values(), np.zeros(len(limits)))
    above = np.divide(total, limits, out=np.where(total > 0.0, np.inf, 0.0), where=limits > 0.0)
    if not above.size or above.max() <= 1.0:
        return set()
    worst = int(np.argmax(above))
    found: set[str] = set()
    rest = float(total[worst])
    for name in sorted(noise, key=lambda name: -noise[name][worst]):
        if rest <= limits[worst]:
            break
        found.add(name)
        rest -= float(noise[name][worst])
    return found
