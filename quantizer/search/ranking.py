"""The quantized nodes of a plan, those first whose noise at the outputs is worth most of the time that float
takes. Measured for groups of neighbours, estimated within a group.

The estimate of a node's noise can be wrong by orders of magnitude if the energy of an output does not reflect
its use. Measuring each node separately would need a session for each. So groups of neighbouring nodes are
measured, one group quantized at a time, in the worst group of channels of the worst output. The groups with
the most noise are split and measured again; within a group the estimate distributes the measured noise. Nodes
inside an If, a Loop or a Scan are measured in the node that runs them.

    16 groups of all nodes; twice: the worst 6 of those with a tenth of the noise or more in 4 parts each

This needs 32 to 80 submodels of about a sixteenth of the model (`NodesAlone`), on 2 samples.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
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
from ..planning.plan_model import PlannedModel
from ..targets.machine import runs_here
from .integer_share import assumed_prices
from .run_samples import RunSamples
from .submodels import (
    Submodel,
    node_groups,
    only_quantized,
    open_submodel,
    segment_starts,
    splittable_model,
)

V = TypeVar("V")


@dataclass(frozen=True)
class RankedNode:
    """A node, or several that are left float together, with a rank by worth in time."""

    nodes: tuple[str, ...]
    noise: float  # that they add at the outputs, over the signal
    microseconds: float  # that float takes longer; without times the share of float's time that is assumed


RANKING_SAMPLES = 2
"""Samples that noise is measured on, the first (DECISIONS.md, 91)."""

GROUPS, FEW_GROUPS, PARTS, ROUNDS, MAX_SPLIT, MIN_NOISE_SHARE = 16, 8, 4, 2, 6, 0.1
"""Groups at first, and for one cause; parts of a split one; rounds of splitting; groups split in a round;
their least share of the noise."""
LEAST_PRICE = 1e-4
"""Least additional fraction of float's time of a node, if it is estimated from its arithmetic."""

NoiseOf = Callable[[Sequence[Outputs], Sequence[Outputs]], float]
"""Noise power over its limit, or over the signal, of the outputs of both models."""

Group = tuple[tuple[str, ...], ...]
"""Neighbouring units, each the names of nodes that are left float together."""


def ranked_nodes(
    planned: PlannedModel, samples: RunSamples, *, provider: str = CPU, noise: NoiseOf | None = None
) -> tuple[RankedNode, ...]:
    """Return the quantized nodes of a plan, those first whose noise is worth most time.

    `noise` of None is that of the worst group of channels of the worst output.
    """
    few = samples.subset(range(min(RANKING_SAMPLES, len(samples.samples))))
    power = noise or partial(noise_share, axes=class_axes(planned.model))
    alone = NodesAlone(planned, few, provider)

    def measure(groups: Sequence[Group]) -> dict[Group, float]:
        """Return the noise of each group, 0 if it cannot be run."""
        ran = alone.outputs(groups)
        return {group: min(power(few.float_outputs, of), 1e300) if of else 0.0 for group, of in ran}

    measured = measured_groups(alone.units, measure, lambda own: own)

    # Within a group the estimate shares out what was measured.
    estimated, prices = estimated_shares(planned), prices_of(planned)
    ranked = [
        RankedNode(unit, part, sum(prices[name] for name in unit))
        for group, total in measured.items()
        for unit, part in zip(group, shared_out(total, group, estimated), strict=True)
    ]
    return tuple(sorted(ranked, key=lambda one: (-one.noise / one.microseconds, one.nodes)))


class NodesAlone:
    """Runs a model in segments, with some of a plan's nodes quantized and all others float.

    One segment at a time has the plan; the sessions of the float ones are opened once.
    """

    def __init__(self, planned: PlannedModel, samples: RunSamples, provider: str = CPU) -> None:
        """`units` are the quantized nodes, in graph order; those of one look-up table are one."""
        self._plan, self._samples = planned.plan, samples
        self._source = splittable_model(planned.model)
        dequantized = not runs_here(planned.plan.config.target, provider=provider)
        self._open = partial(open_submodel, self._source, provider=provider, dequantized=dequantized)
        self._float = cache(lambda start: self._open(start, self._segments[start], None))
        self._places = node_groups(self._source.nodes, planned.plan)
        self._segments: dict[int, int] = {}  # first node of each -> that of the next one
        self._running = 0.0  # processor seconds
        self.units = list(self._places)

    def outputs(
        self, groups: Sequence[Group], count: int | None = None
    ) -> Iterator[tuple[Group, list[Outputs] | None]]:
        """Yield the outputs with only each group quantized, with its own state; None if that fails."""
        ends = {group: self._ends(group) for group in groups}
        in_order = sorted(groups, key=lambda group: ends[group])
        if not self._segments:  # later groups are parts of the first ones
            starts = segment_starts([ends[group] for group in in_order], self._source.cuts)
            starts = [0] if self._samples.state else starts  # which keeps tensors of steps apart
            self._segments = dict(pairwise([*starts, len(self._source.nodes)]))
        constants = self._source.constant_outputs
        live = [replace(one, arrays={**constants, **one.arrays}) for one in self._samples.samples[:count]]
        at = 0
        for group in in_order:
            plan = only_quantized(self._plan, {name for unit in group for name in unit})
            try:
                while self._segments[at] <= ends[group][0]:
                    live, at = self._after(at, self._float(at), live), self._segments[at]
                after = self._after(at, self._open(at, self._segments[at], plan), live)
                for start in (start for start in self._segments if start > at):
                    after = self._after(start, self._float(start), after)
                names = self._samples.float_outputs[0]
                outputs: list[Outputs] = [{name: one.arrays[name] for name in names} for one in after]
            except (ModelError, PlanError):
                yield group, None
            else:
                yield group, outputs

    def samples_within(self, seconds: float) -> int:
        """Return on how many samples a cause is found in processor seconds, by a run on the first one."""
        start = time.process_time()
        next(self.outputs(parts_of(self.units, FEW_GROUPS), 1), None)
        rounds = math.ceil(math.log(max(1.0, len(self.units) / FEW_GROUPS), PARTS))
        opening = 2.0 * (time.process_time() - start)  # all submodels: most are smaller than the model
        runs = (FEW_GROUPS + PARTS * rounds) * max(self._running, 1e-9)
        return max(0, int((seconds - opening) / runs))

    def _after(self, start: int, part: Submodel, samples: Sequence[Sample]) -> list[Sample]:
        """Return samples of the tensors that are read after a segment, which a submodel runs."""
        end, last_uses, begin = self._segments[start], self._source.last_uses, time.process_time()

        def run(sample: Sample) -> Outputs:
            after = {**sample.arrays, **part(sample.arrays, sample.name)}
            return {name: value for name, value in after.items() if last_uses.get(name, -1) >= end}

        found = list(runs_with_own_state(samples, self._samples.state, run))
        self._running += time.process_time() - begin
        return [replace(one, arrays=arrays) for one, arrays in zip(samples, found, strict=True)]

    def _ends(self, group: Group) -> tuple[int, int]:
        """Return the first and the last node of a group."""
        places = [self._places[unit] for unit in group]
        return min(first for first, _ in places), max(last for _, last in places)


@clocked("rank")
def measured_groups(
    units: Sequence[tuple[str, ...]],
    measure: Callable[[Sequence[Group]], Mapping[Group, V]],
    noise_of: Callable[[V], float],
    *,
    cause: float = 0.0,
) -> dict[Group, V]:
    """Return the measurements of all units, in groups of neighbours: the more noise, the smaller ones.

    With `cause` only the worst group is split, until it is one unit or adds a smaller share of the noise.
    """
    measured = dict(measure(parts_of(units, FEW_GROUPS if cause else GROUPS)))
    for _ in range(len(units) if cause else ROUNDS):
        noises = {group: noise_of(own) for group, own in measured.items()}
        order = sorted(noises, key=lambda group: -noises[group])[: 1 if cause else None]
        least = (cause or MIN_NOISE_SHARE) * sum(noises.values())
        noisy = [group for group in order if noises[group] >= least and noises[group] > 0.0]
        large = [group for group in noisy if len(group) > 1][:MAX_SPLIT]
        if not large:
            break
        for group in large:
            del measured[group]
        measured.update(measure([part for group in large for part in parts_of(group, PARTS)]))
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
