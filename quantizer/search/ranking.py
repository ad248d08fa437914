"""The quantized nodes of a plan, those first whose noise at the outputs is worth most of the time that float
takes. Measured for groups of neighbours, estimated within a group.

How much noise a node adds is known from the estimate, which can be wrong by orders of magnitude where the
energy of an output says nothing about its use. To measure each node takes a model for each (`sensitivity`): a
minute for 200 nodes. So groups of neighbouring nodes are measured, each quantized alone, in the worst group
of channels of the worst output; those with the most noise are split and measured again. Within a group the
estimate shares out what was measured.

    16 groups of all nodes; twice: the worst 6 of those with a tenth of the noise or more in 4 parts each

That is 16 to 64 small models, on 4 samples, whatever the size of the model.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from ...profiles.base.errors import ModelError, PlanError
from ...profiles.runner.sample_pass import map_in_threads
from ...profiles.runtime.providers import CPU
from ..costs.predicted import CostModel
from ..evaluation.compare import class_axes
from ..evaluation.metrics.metric import Outputs
from ..evaluation.metrics.relative import noise_share
from ..evaluation.runtimes import dequantized_options, open_session
from ..lowering.lower import lower
from ..model.graph import name_of
from ..model.saving import save_model
from ..noise.estimator import NoiseEstimator
from ..noise.propagation import NoiseGains, noise_flow
from ..planning.plan_model import PlannedModel
from .candidates import RankedNode
from .submodels import node_groups, only_quantized, splittable_model
from .tuning_data import ScoringSamples
from .tuning_data import outputs_of as model_outputs

RANKING_SAMPLES = 4
"""Samples that noise is measured on, the first."""

GROUPS, PARTS, ROUNDS, WORST, LEAST = 16, 4, 2, 6, 0.1
"""Groups at first; parts of a split one; rounds of splitting; groups split in a round; their least share of
the noise."""

NoiseOf = Callable[[Sequence[Outputs], Sequence[Outputs]], float]
"""Noise power over its limit, or over the signal, of the outputs of both models."""

Group = tuple[tuple[str, ...], ...]
"""Neighbouring units, each the names of nodes that are left float together."""


@dataclass(frozen=True, eq=False)
class _Bench:
    """What groups are measured with."""

    planned: PlannedModel
    samples: ScoringSamples
    folder: Path
    side_by_side: int
    provider: str
    noise: NoiseOf | None
    dequantized: bool

    def measured(self, groups: Sequence[Group]) -> list[float]:
        """Return the noise over signal of each group, quantized alone; 0 for one that cannot be run so."""
        written = (self._written(place, group) for place, group in enumerate(groups))
        return [noise for noise, _ in map_in_threads(self._noise, written, self.side_by_side, lambda: False)]

    def _written(self, place: int, group: Group) -> Path | None:
        path = self.folder / f"group-{place}.onnx"
        plan = only_quantized(self.planned.plan, {name for unit in group for name in unit})
        try:
            save_model(lower(self.planned.model, plan).model, path)
        except PlanError:
            return None
        return path

    def _noise(self, path: Path | None) -> float:
        if path is None:
            return 0.0
        try:
            options = dequantized_options() if self.dequantized else None
            session = open_session(str(path), "group of nodes", options=options, provider=self.provider)
            outputs = model_outputs(session, self.samples.samples, "group of nodes")
        except ModelError:
            return 0.0
        if self.noise is not None:
            return min(self.noise(self.samples.float_outputs, outputs), 1e300)
        axes = class_axes(self.planned.model, None, None)
        return min(noise_share(self.samples.float_outputs, outputs, axes), 1e300)


def ranked_nodes(
    planned: PlannedModel,
    samples: ScoringSamples,
    side_by_side: int = 1,
    provider: str = CPU,
    *,
    goes_on: Callable[[], bool] = lambda: True,
    noise: NoiseOf | None = None,
    dequantized: bool = False,
) -> tuple[RankedNode, ...]:
    """Return the quantized nodes of a plan, those first whose noise is worth most time.

    Args:
        planned: the plan, with the facts that it was made from.
        samples: of which the first `RANKING_SAMPLES` are run.
        side_by_side: models that run at the same time.
        provider: full name of the execution provider.
        goes_on: whether there is time to split groups once more, asked before each round.
        noise: of outputs; None for that of the worst group of channels of the worst output.
        dequantized: whether int8 kernels saturate here: models of form qdq are then run as they are written.
    """
    source = splittable_model(planned.model)
    units = [
        tuple(name_of(source.nodes[i]) for i in found) for found in node_groups(source, planned.plan).values()
    ]
    few = samples.subset(range(min(RANKING_SAMPLES, len(samples.samples))))
    with tempfile.TemporaryDirectory(prefix="qprof-", ignore_cleanup_errors=True) as folder:
        bench = _Bench(planned, few, Path(folder), side_by_side, provider, noise, dequantized)
        measured = _split(bench, units, goes_on)
    estimated = _estimated_shares(planned)
    prices = _prices(planned)
    found = []
    for group, total in measured.items():
        estimates = [sum(estimated.get(name, 0.0) for name in unit) for unit in group]
        for unit, share in zip(group, _shared(total, estimates), strict=True):
            found.append(RankedNode(unit, share, sum(prices.get(name, 1.0) for name in unit)))
    return tuple(sorted(found, key=lambda ranked: (-ranked.noise / ranked.microseconds, ranked.nodes)))


def _split(
    bench: _Bench, units: Sequence[tuple[str, ...]], goes_on: Callable[[], bool]
) -> dict[Group, float]:
    """Return the noise of groups of units, that with the most noise in small groups."""
    groups = parts_of(units, GROUPS)
    noise = dict(zip(groups, bench.measured(groups), strict=True))
    for _ in range(ROUNDS):
        if not goes_on():
            break
        total = sum(noise.values())
        split = [group for group, found in noise.items() if len(group) > 1 and found >= LEAST * total > 0.0]
        worst = sorted(split, key=lambda group: -noise[group])[:WORST]
        parts = [part for group in worst for part in parts_of(group, PARTS)]
        for group in worst:
            del noise[group]
        noise |= zip(parts, bench.measured(parts), strict=True)
    return noise


def parts_of(units: Sequence[tuple[str, ...]], count: int) -> list[Group]:
    """Return at most `count` parts of a sequence, of equal length as far as possible."""
    count = min(count, len(units))
    cuts = [place * len(units) // count for place in range(count + 1)] if count else [0]
    return [tuple(units[begin:end]) for begin, end in pairwise(cuts)]


def _shared(total: float, estimates: Sequence[float]) -> list[float]:
    """Return a total shared out as the estimates say; in equal parts where they say nothing."""
    whole = sum(estimates)
    if not 0.0 < whole < math.inf:
        return [total / len(estimates)] * len(estimates)
    return [total * estimate / whole for estimate in estimates]


def _estimated_shares(planned: PlannedModel) -> dict[str, float]:
    """Return the noise over signal that each node of a plan is estimated to add at its worst output."""
    facts = planned.facts
    if facts is None or not any(t.histogram.total for t in facts.profile.values()):
        return {}
    gains = NoiseGains(facts.graph, facts.profile, facts.activations.opset)
    flow = noise_flow(gains, gains.judged_tensors())
    estimator = NoiseEstimator(facts.activations, gains)
    found: dict[str, float] = {}
    for noise in estimator.sources(flow, planned.plan):
        found[noise.node] = found.get(noise.node, 0.0) + float(np.max(noise.share, initial=0.0))
    return found


def _prices(planned: PlannedModel) -> dict[str, float]:
    """Return the microseconds that each node takes longer alone in float.

    Its readers are quantized then, so its input and its output are converted.
    """
    facts, graph = planned.facts, planned.graph
    if facts is None or facts.recipe.costs is None:
        return {}
    costs = CostModel(graph, facts.profile, facts.recipe.costs).costs(planned.plan)
    prices: dict[str, float] = {}
    for node in graph.nodes:
        longer = costs.floating.get(node.name, 0.0) - costs.integer.get(node.name, 0.0)
        converted = sum(costs.border.get(name, 0.0) for name in node.results if not graph.is_result(name))
        prices[node.name] = max(1.0, longer + 2.0 * converted)
    return prices
