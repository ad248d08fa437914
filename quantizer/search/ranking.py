"""The quantized nodes of a plan, those first whose noise at the outputs is worth most of the time that float
takes. Measured for groups of neighbours, estimated within a group.

How much noise a node adds is known from the estimate, which can be wrong by orders of magnitude where the
energy of an output says nothing about its use. To measure each node by itself takes a session for each. So
groups of neighbouring nodes are measured, each quantized alone, in the worst group of channels of the worst
output; those with the most noise are split and measured again. Within a group the estimate shares out the
measured noise. Nodes inside an If, a Loop or a Scan are measured as all others, in the node that runs them.

    16 groups of all nodes; twice: the worst 6 of those with a tenth of the noise or more in 4 parts each

That is 16 to 64 submodels and a few large ones (`SampleWalk`), on 4 samples, whatever the size of the model.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from itertools import pairwise

import numpy as np

from ...profiles.base.errors import ModelError, PlanError
from ...profiles.runtime.providers import CPU
from ..costs.predicted import CostModel
from ..evaluation.compare import class_axes
from ..evaluation.metrics.metric import Outputs
from ..evaluation.metrics.relative import noise_share
from ..noise.estimator import NoiseEstimator
from ..noise.propagation import NoiseGains, noise_flow
from ..planning.plan_model import PlannedModel
from .candidates import RankedNode
from .integer_share import assumed_prices
from .submodels import SampleWalk, node_groups, only_quantized, segment_ends, splittable_model
from .tuning_data import RunSamples

RANKING_SAMPLES = 4
"""Samples that noise is measured on, the first."""

GROUPS, PARTS, ROUNDS, MAX_SPLIT, MIN_NOISE_SHARE = 16, 4, 2, 6, 0.1
"""Groups at first; parts of a split one; rounds of splitting; groups split in a round; their least share of
the noise."""

LEAST_PRICE = 1e-4
"""Share of float's time that a node takes longer at least, where it is assumed by its arithmetic."""

NoiseOf = Callable[[Sequence[Outputs], Sequence[Outputs]], float]
"""Noise power over its limit, or over the signal, of the outputs of both models."""

Group = tuple[tuple[str, ...], ...]
"""Neighbouring units, each the names of nodes that are left float together."""


def ranked_nodes(
    planned: PlannedModel,
    samples: RunSamples,
    *,
    most: int = RANKING_SAMPLES,
    provider: str = CPU,
    goes_on: Callable[[], bool] = lambda: True,
    noise: NoiseOf | None = None,
    dequantized: bool = False,
) -> tuple[RankedNode, ...]:
    """Return the quantized nodes of a plan, those first whose noise is worth most time.

    Args:
        planned: the plan, with the facts that it was made from.
        samples: of which the first are run.
        most: of them.
        provider: full name of the execution provider.
        goes_on: whether there is time to split groups once more, asked before each round.
        noise: of outputs; None for that of the worst group of channels of the worst output.
        dequantized: whether int8 kernels saturate here: models of form qdq are then run as they are written.
    """
    source = splittable_model(planned.model)
    nodes = source.nodes
    found = node_groups(nodes, planned.plan)
    units = [group.names for group in found]
    spans = {group.names: group.places for group in found}
    few = samples.subset(range(min(most, len(samples.samples))))
    axes, outputs = class_axes(planned.model), tuple(few.float_outputs[0])

    def noise_of(walk: SampleWalk, first: int, end: int, names: Collection[str]) -> float:
        """Return the noise over signal where some nodes alone are quantized; 0 where that cannot be run."""
        try:
            arrays = list(walk.outputs(first, end, only_quantized(planned.plan, names), outputs))
        except (ModelError, PlanError):
            return 0.0
        quantized = [dict(zip(outputs, of_sample, strict=True)) for of_sample in arrays]
        if noise is not None:
            return min(noise(few.float_outputs, quantized), 1e300)
        return min(noise_share(few.float_outputs, quantized, axes), 1e300)

    def measure(groups: Sequence[Group]) -> dict[Group, float]:
        walk = SampleWalk(source, few.samples, None, provider=provider, dequantized=dequantized)
        indices = {group: tuple(sorted(place for unit in group for place in spans[unit])) for group in groups}
        in_order = sorted(groups, key=lambda group: indices[group])
        ends = segment_ends([indices[group] for group in in_order], len(nodes))
        noises = {
            group: noise_of(walk, indices[group][0], end, {name for unit in group for name in unit})
            for group, end in zip(in_order, ends, strict=True)
        }
        return {group: noises[group] for group in groups}

    # All groups, and then parts of those with the most noise.
    measured = measure(parts_of(units, GROUPS))
    for _ in range(ROUNDS):
        if not goes_on():
            break
        least = MIN_NOISE_SHARE * sum(measured.values())
        split = [group for group, own in measured.items() if len(group) > 1 and own >= least > 0.0]
        worst = sorted(split, key=lambda group: -measured[group])[:MAX_SPLIT]
        for group in worst:
            del measured[group]
        measured |= measure([part for group in worst for part in parts_of(group, PARTS)])

    # Within a group the estimate shares out what was measured.
    estimated, prices = _estimated_shares(planned), _prices(planned)
    ranked: list[RankedNode] = []
    for group, total in measured.items():
        estimates = [sum(estimated.get(name, 0.0) for name in unit) for unit in group]
        whole = sum(estimates)
        if not 0.0 < whole < math.inf:  # in equal parts, where the estimate says nothing
            estimates, whole = [1.0] * len(group), float(len(group))
        for unit, estimate in zip(group, estimates, strict=True):
            price = sum(prices[name] for name in unit)
            ranked.append(RankedNode(unit, total * estimate / whole, price))
    return tuple(sorted(ranked, key=lambda one: (-one.noise / one.microseconds, one.nodes)))


def parts_of(units: Sequence[tuple[str, ...]], count: int) -> list[Group]:
    """Return at most `count` parts of a sequence, of equal length as far as possible."""
    count = min(count, len(units))
    cuts = [place * len(units) // count for place in range(count + 1)] if count else [0]
    return [tuple(units[begin:end]) for begin, end in pairwise(cuts)]


def _estimated_shares(planned: PlannedModel) -> dict[str, float]:
    """Return the noise over signal that each node of a plan is estimated to add at its worst output."""
    facts = planned.facts
    if facts is None or not any(t.histogram.total for t in facts.profile.values()):
        return {}
    gains = NoiseGains(facts.graph, facts.profile, facts.activations.opset)
    flow = noise_flow(gains, gains.judged_tensors())
    estimator = NoiseEstimator(facts.activations, gains)
    shares: dict[str, float] = {}
    for noise in estimator.sources(flow, planned.plan):
        shares[noise.node] = shares.get(noise.node, 0.0) + float(np.max(noise.share, initial=0.0))
    return shares


def _prices(planned: PlannedModel) -> dict[str, float]:
    """Return the microseconds that each node takes longer alone in float; without times of the target's
    kernels the shares of float's time that are assumed.

    Its readers are quantized then, so its input and its output are converted.
    """
    facts, graph = planned.facts, planned.graph
    if facts is None:
        return {node.name: 1.0 for node in graph.nodes}
    if facts.recipe.costs is None:
        assumed = assumed_prices(graph, facts.profile)
        return {node.name: max(LEAST_PRICE, assumed.get(node.name, 0.0)) for node in graph.nodes}
    costs = CostModel(graph, facts.profile, facts.recipe.costs).costs(planned.plan)
    prices: dict[str, float] = {}
    for node in graph.nodes:
        longer = costs.floating.get(node.name, 0.0) - costs.integer.get(node.name, 0.0)
        converted = sum(costs.border.get(name, 0.0) for name in node.results if not graph.is_result(name))
        prices[node.name] = max(1.0, longer + 2.0 * converted)
    return prices
