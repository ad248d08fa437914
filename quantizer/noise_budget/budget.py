"""A plan within the noise budget: nodes that bring an output above its noise limit go back to float. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from ...profiles.noise.measurements import pooled_noise
from ..costs.float_regions import Prices
from ..model.graph import Graph, name_of
from ..noise.estimate_check import band_of
from ..noise.measured_gains import measured_gains
from ..noise.propagation import NoiseFlow, NoiseGains, noise_flow
from ..noise.sources import NoiseEstimator, NoiseSource, WeightErrors, decibels_of
from ..outputs.limits import NoiseLimits
from ..outputs.steps import before_steps
from ..plan.plan import Kind, QuantPlan
from ..plan.reasons import FloatReason, FloatReasons, ReasonCode, because
from ..ranges.activation_ranges import ActivationRanges
from .cheapest_floats import Rounding, affected, cheapest_floats, estimated_prices
from .first_layers import cheap_nodes, varying_part
from .float_weights import plan_with_int8_weights


@dataclass(frozen=True)
class PlanMaker:
    """How plans of one model are made while its noise is brought within budget.

    Attributes:
        make: makes a plan in which the given nodes stay float, each with its reason.
        store: returns a plan with int8 weights for its float nodes, but for those given.
        prices: returns what a plan's quantized nodes and conversions cost; None where no times are known.
    """

    make: Callable[[FloatReasons], QuantPlan]
    store: Callable[[QuantPlan, Collection[str]], QuantPlan]
    prices: Callable[[QuantPlan], Prices] | None = None


def plan_within_noise_budget(
    maker: PlanMaker, activations: ActivationRanges, limits: NoiseLimits
) -> QuantPlan:
    """Make a plan, and make it again with nodes in float until each output and each step is within its limit.

    What leads to a step inside the model stays float, see `before_steps`; then the nodes without whose noise
    an output is within its limit at the least time, see `cheapest_floats`. Then products at the head of the
    model that are cheap in float and add much noise go back to float too, see `cheap_nodes`. What is left of
    the budget is for int8 weights of float nodes, see `float_weights`.

    Args:
        maker: makes the plans.
        activations: of the model.
        limits: how much noise its outputs and steps can bear, as estimated by `noise_flow`.

    Returns:
        The plan, with the estimates of its outputs as part of its origin.
    """
    plan = maker.make({})
    graph, profile = activations.graph, activations.profile
    if not any(tensor.histogram.total for tensor in profile.values()):
        return plan
    estimator = NoiseEstimator(
        activations,
        measured_gains(graph, profile, activations.opset, pooled_noise(profile.noise)),
        WeightErrors(graph),
    )
    unlimited = limits.least == 0.0
    plan = maker.store(plan, ()) if unlimited else _within_budget(maker, plan, estimator, limits)
    estimated = estimator.estimated_sqnr(plan)
    bands = {
        name: band_of(db, limits.kinds.get(name) == "decision")
        for name, db in estimated.items()
        if profile.noise
    }
    origin = replace(plan.origin, estimated_sqnr=estimated, sqnr_bands=bands)
    return replace(plan, origin=origin)


def _within_budget(
    maker: PlanMaker, plan: QuantPlan, estimator: NoiseEstimator, limits: NoiseLimits
) -> QuantPlan:
    """Return the plan, or one with more nodes in float; see `plan_within_noise_budget`."""
    graph, profile = estimator.activations.graph, estimator.activations.profile
    flow = noise_flow(estimator.gains, _judged(estimator.gains, limits))
    allowed = np.array([limits.allowed(name) for name in flow.outputs])
    noisy = _before_steps(graph, plan, limits)
    plan = maker.make(noisy) if noisy else plan
    while flow.outputs:
        noise = estimator.by_node(flow, plan)
        total = sum(noise.values(), np.zeros(len(flow.outputs)))
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
        trusted=plan.nodes.keys() if flow.weight_reach else flow.recurrences.keys(),
        varying=varying_part(profile, flow),
        allowed=allowed,
    )


def _judged(gains: NoiseGains, limits: NoiseLimits) -> tuple[str, ...]:
    """Return the tensors at which noise is judged: outputs, and what becomes steps."""
    inside = [name for name in limits.compared if gains.powers.get(name)]
    return tuple(dict.fromkeys([*gains.judged(), *inside]))


def _before_steps(graph: Graph, plan: QuantPlan, limits: NoiseLimits) -> dict[str, FloatReason]:
    """Return the quantized nodes that lead to steps, each with the reason to stay float."""
    return {
        name: because(ReasonCode.BEFORE_STEP, tensor=step.tensor, operator=step.operator)
        for name, step in before_steps(graph, limits.steps).items()
        if plan.nodes[name].kind is not Kind.FLOAT
    }


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
    graph, profile = estimator.activations.graph, estimator.activations.profile
    prices = estimated_prices(graph, plan, profile) if maker.prices is None else maker.prices(plan)
    chosen = cheapest_floats(prices, tuple(_roundings(estimator, plan, excess)))
    found = [n for n in plan.nodes if n in chosen and n not in floats and noise.get(n, 0.0) > 0.0]
    return {name: _reason(excess, noise[name], total) for name in found}


def _reason(excess: Excess, own: float, total: float) -> FloatReason:
    figures = {
        "sqnr": decibels_of(own),
        "total_sqnr": decibels_of(total),
        "limit": decibels_of(excess.allowed),
    }
    output = excess.limits.output_of(excess.tensor) if excess.tensor not in excess.limits.compared else ""
    what = excess.limits.words(excess.tensor)
    if excess.limits.least is not None or excess.limits.kinds.get(output) == "decision":
        return because(ReasonCode.NOISE_BUDGET, output=excess.tensor, **figures)
    return because(ReasonCode.NOISE_LIMIT, tensor=excess.tensor, what=what, **figures)


def _roundings(estimator: NoiseEstimator, plan: QuantPlan, excess: Excess) -> Iterator[Rounding]:
    """Yield what is rounded, with the nodes of which one has to be quantized for it."""
    graph = estimator.activations.graph
    for source in estimator.sources(excess.flow, plan):
        maker = graph.producer(source.tensor)
        if graph.is_constant(source.tensor):
            parts = {frozenset([source.node]): 1.0}
        elif maker is None or name_of(maker) != source.node:
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
        gain = float(excess.flow.gain_of(name_of(reader), index)[excess.output])
        part = gain / whole if whole > 0.0 else 0.0
        if part > 0.0:
            nodes = frozenset([source.node, *affected(graph, plan, source.tensor, name_of(reader))])
            found[nodes] = found.get(nodes, 0.0) + part
            rest -= part
    own = frozenset([source.node])
    found[own] = found.get(own, 0.0) + max(rest, 0.0)
    return found
