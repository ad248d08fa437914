"""What costs most in a model that is not good, and fixes that are tried on the held-out samples.

Noise is measured for groups of nodes (`ranked_nodes`), fixes follow from that, and as many of them are made
and measured as a budget of seconds allows. What they are, their order, and which is best depends on what was
measured; the machine decides how many there is time for, and the last digit of the noise.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ...profiles.base.errors import ConfigError, ModelError, PlanError
from ...profiles.base.tool import Progress
from ...profiles.runtime.providers import check_provider
from ...profiles.samples.objects import DataLike
from ..evaluation.evaluate import evaluate
from ..evaluation.metrics.truth import Labels
from ..evaluation.options import EvaluationOptions, LatencySettings
from ..evaluation.runtimes import open_session
from ..lowering.lower import lower
from ..model.files import model_bytes
from ..model.saving import save_model
from ..noise.activation_ranges import RangeCache
from ..noise.output_limits import NoiseLimits
from ..noise.sources import decibels_of
from ..plan.plan import Kind
from ..planning.facts import PlanningFacts
from ..planning.plan_model import PlannedModel, plan_from
from ..search.quality import int8_share, predicted_objective
from ..search.ranking import SAMPLES, ranked_nodes
from ..search.tuning_data import TuningData, read_samples
from ..search.verdict import (
    WORTH_DB,
    Composition,
    Cost,
    Fix,
    NodeNoise,
    QualityGap,
    Verdict,
    grade_of,
    is_no_gain,
    output_grades,
    proposals,
    stricter_limits,
    worth,
)
from ..targets.config import DATA_FREE, WITH_SAMPLES, QuantConfig, with_limit
from ..targets.conformance import check_config
from ..targets.loading import load_recipe
from ..targets.packaged import target_names
from ..targets.target import Recipe
from .quantization import Made

MOST_LIMITS = 2
"""Noise limits that are tried after one that did not reach what is needed."""

FEW_ROUNDS = LatencySettings(rounds=9, seconds=1.5, samples=2)
"""For a trial: enough to tell 5 %."""

CANNOT = (ConfigError, PlanError, ModelError)
"""What says that a fix cannot be made or run."""


@dataclass(frozen=True, eq=False)
class Trials:
    """What fixes are tried with.

    Attributes:
        model: file of the float model.
        made: what the quantized model was written from.
        judged: the held-out samples.
        labels: of these.
        measuring: how models are compared.
        seconds: for all trials together.
        limits: how much noise the outputs can bear.
        spent: what making and comparing the model took: no trial begins that would not fit.
        clock: monotonic seconds.
    """

    model: Path
    made: Made
    judged: DataLike
    labels: Path | Labels | None
    measuring: EvaluationOptions
    seconds: float
    limits: NoiseLimits
    spent: float
    clock: Callable[[], float] = time.perf_counter


@dataclass(frozen=True)
class Found:
    """What was found.

    Attributes:
        cause: what costs most, in a sentence; "" where nothing stands out.
        fixes: what to try, what was measured first.
    """

    cause: str
    fixes: tuple[Fix, ...]


def find_fixes(trials: Trials, verdict: Verdict, progress: Progress | None = None) -> Found:
    """Return what costs most in a model, and what to try.

    Args:
        trials: what they are tried with.
        verdict: on the model.
        progress: called after each trial.
    """
    facts = trials.made.facts
    quick = () if facts is None else _quick_fixes(verdict, trials, facts, progress)
    if (
        facts is None
        or verdict.composition.is_float
        or verdict.grade not in ("fair", "poor")
        or not _can_be_tried(facts.config)
    ):
        return Found("", quick)
    gap = _quality_gap(facts, trials, verdict)
    if gap is None:
        return Found("", quick)
    attempts = _Attempts(trials, facts, progress)
    attempts.make(proposals(gap, ()))
    ranking = _ranking(trials, attempts.has_time) if attempts.has_time() else ()
    attempts.make(proposals(gap, ranking))
    for _ in range(MOST_LIMITS):
        attempts.make(stricter_limits(gap, tuple(attempts.fixes.values())))
    order = sorted(attempts.fixes.values(), key=lambda fix: (not fix.is_measured, *worth(fix)))
    useful = [fix for fix in order if not fix.is_measured or (fix.sqnr or 0.0) >= gap.sqnr + WORTH_DB]
    return Found(_cause(ranking, gap, order), (*useful, *quick))


class _Attempts:
    """Fixes that are tried one after the other, as long as there is time.

    Args:
        trials: what they are tried with.
        facts: what the plan of the model was made from.
        progress: called after each.
    """

    def __init__(self, trials: Trials, facts: PlanningFacts, progress: Progress | None) -> None:
        self._trials, self._facts, self._progress = trials, facts, progress
        self._start = trials.clock()
        self._longest = trials.spent / 2.0  # which has more rounds of latency
        self._done = 0
        self._vain: set[tuple[str, ...]] = set()
        self.fixes: dict[tuple[str, ...], Fix] = {}

    def has_time(self) -> bool:
        """Whether another trial is expected to be done in time."""
        return self._trials.clock() - self._start + self._longest <= self._trials.seconds

    def make(self, offered: Sequence[Fix]) -> None:
        """Try fixes that were not tried before; keep the others as they are when the time is up.

        What cannot be made, or brings nothing over float, is no fix.
        """
        for fix in offered:
            known = self.fixes.get(fix.options)
            if fix.options in self._vain or (known is not None and known.is_measured):
                continue
            if not self.has_time():
                self.fixes.setdefault(fix.options, fix)
                continue
            before = self._trials.clock()
            tried = _tried(self._trials, self._facts, fix)
            if tried is None:
                self._vain.add(fix.options)
                self.fixes.pop(fix.options, None)
            else:
                self.fixes[fix.options] = tried
            spent = self._trials.clock() - before
            self._longest = max(self._longest, spent) if self._done else spent
            self._done += 1
            if self._progress is not None:
                self._progress(self._done, None)


def _quick_fixes(
    verdict: Verdict, trials: Trials, facts: PlanningFacts, progress: Progress | None
) -> tuple[Fix, ...]:
    """Return what helps against being slow or not quantized, which needs no noise to be told."""
    if not verdict.composition.is_float:
        return (Fix(check_speed=True),) if verdict.cost.is_slower else ()
    if facts.config.mode == "weight-only" or not _can_be_tried(facts.config):
        return ()
    attempts = _Attempts(trials, facts, progress)
    attempts.make((Fix({"mode": "weight-only"}),))
    return tuple(attempts.fixes.values())


def _can_be_tried(config: QuantConfig) -> bool:
    """Whether a plan is all that a model needs: nothing is rounded with samples."""
    return config.rounding not in WITH_SAMPLES and config.mode not in DATA_FREE


def _ranking(trials: Trials, goes_on: Callable[[], bool]) -> tuple[NodeNoise, ...]:
    """Return the noise that nodes add, measured for groups of them."""
    how = trials.measuring
    provider = check_provider(how.provider if how.runtime == "onnxruntime" else "cpu")
    session = open_session(str(trials.model), trials.model.name, provider=provider)
    planned = trials.made.planned
    samples = read_samples(session, planned.model, TuningData(trials.judged, limit=SAMPLES))
    ranked = ranked_nodes(planned, samples, provider=provider, goes_on=goes_on)
    return tuple(NodeNoise(one.nodes, one.noise, one.microseconds) for one in ranked)


def _quality_gap(facts: PlanningFacts, trials: Trials, verdict: Verdict) -> QualityGap | None:
    worst = verdict.worst
    if worst is None or worst.sqnr is None:
        return None
    usual = facts.config.target if facts.config.target in target_names() else None
    allowed = trials.limits.allowed(worst.output)
    limit = decibels_of(allowed) if 0.0 < allowed < float("inf") else worst.needed
    nodes = trials.made.planned.graph.nodes
    wide = frozenset(node.name for node in nodes if facts.target.has_16bit_kernel(node.op_type))
    calibrators = facts.config.calibrator, load_recipe(usual).config.calibrator
    return QualityGap(worst.sqnr, worst.needed, *calibrators, limit, wide)


def with_fix(recipe: Recipe, fix: Fix) -> Recipe:
    """Return settings with a fix; names of nodes are added to those that are given.

    Raises:
        ConfigError: they do not go together.
    """
    changes = dict(fix.settings)
    for name in ("keep_float", "keep_16bit"):
        if isinstance(names := changes.get(name), tuple):
            changes[name] = tuple(dict.fromkeys((*getattr(recipe.config, name), *names)))
    config = replace(recipe.config, **changes)  # type: ignore[arg-type]
    return replace(recipe, config=check_config(config, recipe.target, "fix"))


def _tried(trials: Trials, facts: PlanningFacts, fix: Fix) -> Fix | None:
    """Return a fix with what it brings as measured; None for one that cannot be made, or is none."""
    try:
        recipe = with_fix(facts.recipe, fix)
        known = facts.cache
        cache = RangeCache(known.profiles, known.densities, {}, known.functions)
        changed = replace(facts, recipe=recipe, config=with_limit(recipe.config), cache=cache)
        planned = plan_from(changed)
        with tempfile.TemporaryDirectory(prefix="qprof-", ignore_cleanup_errors=True) as folder:
            path = Path(folder) / "fixed.onnx"
            save_model(lower(planned.model, planned.plan).model, path)
            result = evaluate(
                trials.model, path, trials.judged, labels=trials.labels, measuring=_quicker(trials.measuring)
            )
    except CANNOT:
        return None
    cost = Cost(result.float_bytes, result.quantized_bytes, result.latency)
    if is_no_gain(_composition(planned, facts), cost):
        return None
    outputs = output_grades(result.outputs, trials.limits)
    scored = result.score or result.accuracy
    return replace(
        fix,
        sqnr=outputs[0].sqnr if outputs else None,
        speedup=None if result.latency is None else result.latency.speedup,
        is_measured=True,
        grade=grade_of(outputs, scored),
        drop=None if scored is None else scored.drop,
        drop_unit=Fix.drop_unit if result.score is None else result.score.drop_unit,
        predicted=_speed(trials.made.planned, trials) / max(_speed(planned, trials), 1e-9),
    )


def _composition(planned: PlannedModel, facts: PlanningFacts) -> Composition:
    """Return what a plan that was tried consists of."""
    kinds = [node.kind for node in planned.plan.nodes.values()]
    share = int8_share(planned.plan, planned.graph, facts.profile)
    quantized = len(kinds) - kinds.count(Kind.FLOAT)
    return Composition(share, quantized, (), kinds.count(Kind.WEIGHT_ONLY))


def _quicker(measuring: EvaluationOptions) -> EvaluationOptions:
    """Return how trials are compared: as the model was, with fewer rounds of latency."""
    return replace(measuring, latency=None if measuring.latency is None else FEW_ROUNDS)


def _speed(planned: PlannedModel, trials: Trials) -> float:
    """Return how many times as fast as float a plan is predicted to be."""
    facts = planned.facts
    if facts is None:
        return 1.0
    return predicted_objective(planned, "latency", facts.measured, model_bytes(trials.model))


def _cause(ranking: tuple[NodeNoise, ...], gap: QualityGap, tried: Sequence[Fix]) -> str:
    """Return what the worst node costs, as measured where it was kept float."""
    total = sum(one.noise for one in ranking)
    if not ranking or not 0.0 < total < float("inf"):
        return ""
    worst = max(ranking, key=lambda one: (one.noise, one.nodes))
    kept = next((fix for fix in tried if fix.settings == {"keep_float": worst.nodes}), None)
    share = f"{100 * worst.noise / total:.0f} % of the noise"
    if kept is None or not kept.is_measured or kept.sqnr is None:
        return f"{worst.nodes[-1]} adds {share}"
    if kept.sqnr <= gap.sqnr:  # without it the model is no better
        return ""
    if kept.sqnr < gap.sqnr + WORTH_DB:
        return f"{worst.nodes[-1]} adds {share}, and its neighbours round the same values"
    return f"{worst.nodes[-1]} alone costs {kept.sqnr - gap.sqnr:.1f} dB ({share})"
