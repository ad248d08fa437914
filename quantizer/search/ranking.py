"""The quantized nodes of a plan, those first whose noise at the outputs is worth most of the time that float
takes. Measured for groups of neighbours, estimated within a group.

The estimate of a node's noise can be wrong by orders of magnitude if the energy of an output does not reflect
its use. Measuring each node separately would need a session for each. So groups of neighbouring nodes are
measured, one group quantized at a time, in the worst group of channels of the worst output. The groups with
the most noise are split and measured again; within a group the estimate distributes the measured noise. Nodes
inside an If, a Loop or a Scan are measured in the node that runs them.

    16 groups of all nodes; twice: the worst 6 of those with a tenth of the noise or more in 4 parts each

This needs 16 to 64 submodels and a few large ones (`SampleWalk`), on 4 samples, for any size of the model.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar

import numpy as np

from ...profiles.base.errors import ModelError, PlanError
from ...profiles.base.seconds import clocked
from ...profiles.runtime.providers import CPU
from ...profiles.samples.states import runs_with_own_state
from ...profiles.samples.values import Sample
from ..costs.predicted import CostModel
from ..evaluation.metrics.metric import Outputs
from ..evaluation.metrics.relative import noise_share
from ..noise.class_axes import class_axes
from ..noise.estimator import NoiseEstimator
from ..noise.propagation import NoiseGains, noise_flow
from ..plan.plan import QuantPlan
from ..planning.plan_model import PlannedModel
from ..targets.machine import runs_here
from .integer_share import assumed_prices
from .run_samples import RunSamples
from .submodels import (
    SampleWalk,
    node_groups,
    only_quantized,
    open_submodel,
    segment_ends,
    splittable_model,
)

V = TypeVar("V")


@dataclass(frozen=True)
class RankedNode:
    """A node, or several that are left float together, with a rank by worth in time."""

    nodes: tuple[str, ...]
    noise: float  # that they add at the outputs, over the signal
    microseconds: float  # that float takes longer; without times the share of float's time that is assumed


RANKING_SAMPLES = 4
"""Samples that noise is measured on, the first."""

GROUPS, PARTS, ROUNDS, MAX_SPLIT, MIN_NOISE_SHARE = 16, 4, 2, 6, 0.1
"""Groups at first; parts of a split one; rounds of splitting; groups split in a round; their least share of
the noise."""

LEAST_PRICE = 1e-4
"""Least additional fraction of float's time of a node, if it is estimated from its arithmetic."""

NoiseOf = Callable[[Sequence[Outputs], Sequence[Outputs]], float]
"""Noise power over its limit, or over the signal, of the outputs of both models."""

Group = tuple[tuple[str, ...], ...]
"""Neighbouring units, each the names of nodes that are left float together."""


def ranked_nodes(
    planned: PlannedModel,
    samples: RunSamples,
    *,
    provider: str = CPU,
    noise: NoiseOf | None = None,
) -> tuple[RankedNode, ...]:
    """Return the quantized nodes of a plan, those first whose noise is worth most time.

    `noise` of None is that of the worst group of channels of the worst output.
    """
    few = samples.subset(range(min(RANKING_SAMPLES, len(samples.samples))))
    axes = class_axes(planned.model)

    def noise_of(quantized: Sequence[Outputs] | None) -> float:
        """Return the noise over signal, 0 if it cannot be run."""
        if quantized is None:
            return 0.0
        if noise is not None:
            return min(noise(few.float_outputs, quantized), 1e300)
        return min(noise_share(few.float_outputs, quantized, axes), 1e300)

    alone = NodesAlone(planned, few, provider)
    measured = measured_groups(
        alone.units,
        lambda groups: {group: noise_of(outputs) for group, outputs in alone.outputs(groups)},
        lambda own: own,
    )

    # Within a group the estimate shares out what was measured.
    estimated, prices = estimated_shares(planned), prices_of(planned)
    ranked = [
        RankedNode(unit, part, sum(prices[name] for name in unit))
        for group, total in measured.items()
        for unit, part in zip(group, shared_out(total, group, estimated), strict=True)
    ]
    return tuple(sorted(ranked, key=lambda one: (-one.noise / one.microseconds, one.nodes)))


class NodesAlone:
    """Runs a model with some of a plan's nodes quantized, and all others float."""

    def __init__(self, planned: PlannedModel, samples: RunSamples, provider: str = CPU) -> None:
        """`units` are the quantized nodes, in graph order; those of one look-up table are one."""
        self._planned, self._samples = planned, samples
        self._source = splittable_model(planned.model)
        self._provider = provider
        self._dequantized = not runs_here(planned.plan.config.target, provider=provider)
        self._places = node_groups(self._source.nodes, planned.plan)
        self.units = list(self._places)

    def outputs(self, groups: Sequence[Group]) -> Iterator[tuple[Group, list[Outputs] | None]]:
        """Yield the outputs on all samples with only each group quantized, with its own state; None if that
        fails."""
        names = tuple(self._samples.float_outputs[0])
        run = self._walked if not self._samples.state else self._with_own_state
        yield from run(groups, names)

    def _walked(
        self, groups: Sequence[Group], names: tuple[str, ...]
    ) -> Iterator[tuple[Group, list[Outputs] | None]]:
        """Run the nodes before a group once for all groups: a sample's tensors wait there."""
        walk = SampleWalk(
            self._source, self._samples.samples, provider=self._provider, dequantized=self._dequantized
        )
        indices = {
            group: tuple(sorted(place for unit in group for place in self._places[unit])) for group in groups
        }
        in_order = sorted(groups, key=lambda group: indices[group])
        ends = segment_ends([indices[group] for group in in_order], len(self._source.nodes))
        for group, end in zip(in_order, ends, strict=True):
            try:
                arrays = list(walk.outputs(indices[group][0], end, self._alone(group), names))
            except (ModelError, PlanError):
                yield group, None
                continue
            yield group, [dict(zip(names, of_sample, strict=True)) for of_sample in arrays]

    def _with_own_state(
        self, groups: Sequence[Group], names: tuple[str, ...]
    ) -> Iterator[tuple[Group, list[Outputs] | None]]:
        """Run the whole model for each group: a separate state keeps their tensors apart."""
        for group in groups:
            try:
                outputs = self._in_steps(self._alone(group))
            except (ModelError, PlanError):
                yield group, None
                continue
            yield group, [{name: of_sample[name] for name in names} for of_sample in outputs]

    def _in_steps(self, plan: QuantPlan) -> list[Outputs]:
        whole = open_submodel(
            self._source,
            0,
            len(self._source.nodes),
            plan,
            provider=self._provider,
            dequantized=self._dequantized,
        )
        constants = self._source.constant_outputs

        def run(sample: Sample) -> Outputs:
            return {**constants, **sample.arrays, **whole(sample.arrays, sample.name)}

        return list(runs_with_own_state(self._samples.samples, self._samples.state, run))

    def _alone(self, group: Group) -> QuantPlan:
        return only_quantized(self._planned.plan, {name for unit in group for name in unit})


@clocked("rank")
def measured_groups(
    units: Sequence[tuple[str, ...]],
    measure: Callable[[Sequence[Group]], Mapping[Group, V]],
    noise_of: Callable[[V], float],
    *,
    worst_alone: bool = False,
) -> dict[Group, V]:
    """Return the measurements of all units, in groups of neighbours: the more noise, the smaller ones.

    `worst_alone` splits the worst group down to one unit.
    """

    def split(groups: Sequence[Group]) -> None:
        for group in groups:
            del measured[group]
        measured.update(measure([part for group in groups for part in parts_of(group, PARTS)]))

    # All groups, and then parts of those with the most noise.
    measured = dict(measure(parts_of(units, GROUPS)))
    for _ in range(ROUNDS):
        noises = {group: noise_of(own) for group, own in measured.items()}
        least = MIN_NOISE_SHARE * sum(noises.values())
        large = [group for group, own in noises.items() if len(group) > 1 and own >= least > 0.0]
        split(sorted(large, key=lambda group: -noises[group])[:MAX_SPLIT])
    while worst_alone and measured:
        worst = max(measured, key=lambda group: noise_of(measured[group]))
        if len(worst) == 1 or not noise_of(measured[worst]) > 0.0:
            break
        split([worst])
    return measured


def parts_of(units: Sequence[tuple[str, ...]], count: int) -> list[Group]:
    """Return at most `count` parts of a sequence, of equal length as far as possible."""
    count = min(count, len(units))
    cuts = [place * len(units) // count for place in range(count + 1)] if count else [0]
    return [tuple(units[begin:end]) for begin, end in pairwise(cuts)]


def shared_out(total: float, group: Group, estimated: Mapping[str, float]) -> list[float]:
    """Return the noise of each unit of a group: the measured total in estimated or equal parts."""
    estimates = [sum(estimated.get(name, 0.0) for name in unit) for unit in group]
    whole = sum(estimates)
    if not 0.0 < whole < math.inf:
        estimates, whole = [1.0] * len(group), float(len(group))
    return [total * estimate / whole for estimate in estimates]


def estimated_shares(planned: PlannedModel) -> dict[str, float]:
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


def prices_of(planned: PlannedModel) -> dict[str, float]:
    """Return the additional microseconds of each node in float, or assumed fractions of float's time."""
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
