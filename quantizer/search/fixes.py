"""What costs most in a model that is not good, and fixes that are tried on the held-out samples.

Noise is measured for groups of nodes (`ranked_nodes`), fixes follow from that (`proposals`), and as
many of them are made and measured as a budget of seconds allows. What they are, their order, and which is
best depends on what was measured; the machine decides how many there is time for, and the last digit of the
noise.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from ...profiles.base.errors import WritingError
from ...profiles.base.improvement import improvement
from ...profiles.base.tool import Progress
from ...profiles.runtime.providers import check_provider
from ...profiles.samples.objects import DataLike
from ..evaluation.evaluate import evaluate
from ..evaluation.metrics.truth import Labels
from ..evaluation.options import EvaluationOptions, LatencySettings
from ..evaluation.runtimes import open_session
from ..noise.estimator import decibels_of
from ..noise.output_limits import NoiseLimits
from ..planning.facts import PlanningFacts
from ..planning.plan_model import PlannedModel
from ..prepare.prepare import ModelFile
from ..targets.config import DATA_FREE, WITH_SAMPLES
from ..targets.loading import load_recipe
from ..targets.packaged import target_names
from .candidates import Base, Candidate, RankedNode
from .engine import Engine
from .grades import grade_of, output_grades
from .options import TuningData
from .proposals import MIN_GAIN_DB, Fix, QualityGap, fix_order, proposals, stricter_limit
from .ranking import RANKING_SAMPLES, ranked_nodes
from .tuning_data import read_samples
from .verdict import Cost, Verdict, composition_of, is_no_gain

MOST_LIMITS = 2
"""Noise limits that are tried after one that did not reach what is needed."""

FEW_ROUNDS = LatencySettings(rounds=9, seconds=1.5, samples=2)
"""For a trial: enough to tell 5 %."""


def find_fixes(search: FixSearch, verdict: Verdict) -> tuple[str, tuple[Fix, ...]]:
    """Return what costs most in a model, and what to try.

    Args:
        search: tries the fixes.
        verdict: on the model.

    Returns:
        The cause, a sentence, "" where nothing stands out; and the fixes, what was measured first.
    """
    config = search.facts.config
    can_be_planned = config.rounding not in WITH_SAMPLES and config.mode not in DATA_FREE
    if not verdict.composition.uses_integers:
        if can_be_planned:
            search.try_fixes((Fix({"mode": "weight-only"}),))
        return "", tuple(search.fixes.values())
    faster = (Fix(check_speed=True),) if verdict.cost.is_slower else ()
    if search.saturates and can_be_planned and "int7" in search.facts.target.weight_types:
        search.try_fixes((Fix({"weight_type": "int7"}),))
        exact = [fix for fix in search.fixes.values() if _is_better(fix, verdict.sqnr)]
        if verdict.grade == "good" or any(fix.grade == "good" for fix in exact):
            return "", (*exact, *faster)
    gap = _quality_gap(search, verdict) if can_be_planned and verdict.grade in ("fair", "poor") else None
    if gap is None:
        return "", faster
    search.try_fixes(proposals(gap, ()))
    ranking: tuple[RankedNode, ...] = ()
    with improvement("ranking of the nodes by their noise"):
        ranking = search.ranking() if search.has_time() else ()
    search.try_fixes(proposals(gap, ranking))
    for _ in range(MOST_LIMITS):
        stricter = stricter_limit(gap, search.fixes.values())
        if stricter is None:
            break
        search.try_fixes((stricter,))
    order = sorted(search.fixes.values(), key=lambda fix: (not fix.is_measured, *fix_order(fix)))
    useful = [fix for fix in order if _is_better(fix, gap.sqnr)]
    return _cause(ranking, gap, order), (*useful, *faster)


def _is_better(fix: Fix, sqnr: float | None) -> bool:
    """Whether a fix is worth mentioning: it was not tried, or makes the worst output better."""
    return not fix.is_measured or sqnr is None or (fix.sqnr or 0.0) >= sqnr + MIN_GAIN_DB


@dataclass(eq=False)
class FixSearch:
    """Fixes of one quantized model that are tried one after the other, as long as there is time.

    Attributes:
        model: file of the float model.
        planned, facts: the plan of the quantized model, and what it was made from.
        samples, labels: the held-out samples, and the labels of these.
        measuring: how the quantized model was compared with float; a trial has fewer rounds of latency.
        limits: how much noise the outputs can bear.
        seconds: for all trials together.
        spent: what making and comparing the model took: no trial begins that would not fit.
        progress: called after each trial.
        saturates: whether what is measured here suffers from kernels that saturate with 8-bit weights.
        fixes: the fixes so far, those that there was no time for as they were proposed, by their options.
    """

    model: ModelFile
    planned: PlannedModel
    facts: PlanningFacts
    samples: DataLike
    labels: Path | Labels | None
    measuring: EvaluationOptions
    limits: NoiseLimits
    seconds: float
    spent: float
    progress: Progress | None = None
    saturates: bool = False
    fixes: dict[tuple[str, ...], Fix] = field(default_factory=dict)

    def __post_init__(self) -> None:
        facts = self.facts
        self._engine = Engine(self.model.path, facts.prepared, facts.measured, facts.recipe, facts.unfit)
        self._speed = self._engine.predicted(self.planned, "latency")
        self._known: dict[str, Fix | None] = {}
        self._vain: set[tuple[str, ...]] = set()
        self._start = time.perf_counter()
        self._longest = self.spent / 2.0  # which has more rounds of latency
        self._done = 0

    def has_time(self) -> bool:
        """Whether another trial is expected to be done in time."""
        return time.perf_counter() - self._start + self._longest <= self.seconds

    def try_fixes(self, offered: Sequence[Fix]) -> None:
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
            before = time.perf_counter()
            tried = self._tried(fix)
            if tried is None:
                self._vain.add(fix.options)
                self.fixes.pop(fix.options, None)
            else:
                self.fixes[fix.options] = tried
            spent = time.perf_counter() - before
            self._longest = max(self._longest, spent) if self._done else spent
            self._done += 1
            if self.progress is not None:
                self.progress(self._done, None)

    def _tried(self, fix: Fix) -> Fix | None:
        """Return a fix with what it brings as measured; None for one that cannot be made, or is none."""
        candidate = Candidate(Base(" ".join(fix.options), fix.settings))
        try:
            (attempt,) = self._engine.attempts([candidate], self._measured, self._known)
        except WritingError:  # no room for a trial is no reason to lose the model that is written
            return None
        return None if attempt.result is None else replace(attempt.result, settings=fix.settings)

    def _measured(self, _: Candidate, planned: PlannedModel, path: Path) -> Fix | None:
        """Return what a quantized model brings; None for nothing over float."""
        measuring = replace(self.measuring, latency=self.measuring.latency and FEW_ROUNDS)
        result = evaluate(
            self.model, path, self.samples, labels=self.labels, measuring=measuring, limits=self.limits
        )
        composition = composition_of(planned.plan, planned.graph, self.facts.profile)
        if is_no_gain(composition, Cost(result.float_bytes, result.quantized_bytes, result.latency)):
            return None
        outputs = output_grades(result.outputs, self.limits, result.shifts)
        scored = result.score or result.accuracy
        return Fix(
            sqnr=outputs[0].sqnr if outputs else None,
            speedup=None if result.latency is None else result.latency.speedup,
            is_measured=True,
            grade=grade_of(outputs, scored),
            drop=None if scored is None else scored.drop,
            drop_unit=Fix.drop_unit if result.score is None else result.score.drop_unit,
            predicted=self._speed / max(self._engine.predicted(planned, "latency"), 1e-9),
        )

    def ranking(self) -> tuple[RankedNode, ...]:
        """Return the noise that nodes add, measured for groups of them."""
        how = self.measuring
        provider = check_provider(how.provider if how.runtime == "onnxruntime" else "cpu")
        session = open_session(str(self.model), self.model.name, provider=provider)
        samples = read_samples(session, self.planned.model, TuningData(self.samples, limit=RANKING_SAMPLES))
        return ranked_nodes(self.planned, samples, provider=provider, goes_on=self.has_time)


def _quality_gap(search: FixSearch, verdict: Verdict) -> QualityGap | None:
    """Return what the worst output lacks; None where it could not be compared."""
    worst, facts = verdict.worst, search.facts
    if worst is None or worst.sqnr is None:
        return None
    target = facts.config.target if facts.config.target in target_names() else None
    allowed = search.limits.allowed(worst.output)
    nodes = search.planned.graph.nodes
    return QualityGap(
        sqnr=worst.sqnr,
        needed=worst.needed,
        calibrator=facts.config.calibrator,
        usual_calibrator=load_recipe(target).config.calibrator,
        limit=decibels_of(allowed) if 0.0 < allowed < float("inf") else worst.needed,
        in_16_bits=frozenset(n.name for n in nodes if facts.target.has_16bit_kernel(n.op_type)),
    )


def _cause(ranking: Sequence[RankedNode], gap: QualityGap, tried: Sequence[Fix]) -> str:
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
    if kept.sqnr < gap.sqnr + MIN_GAIN_DB:
        return f"{worst.nodes[-1]} adds {share}, and its neighbours round the same values"
    return f"{worst.nodes[-1]} alone costs {kept.sqnr - gap.sqnr:.1f} dB ({share})"
