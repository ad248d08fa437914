"""The search of `tune` for the plan that meets a quality target with the best objective: proposers of `Loop`.

    given      the settings that were asked for
    as_good    other settings whose prediction beats the best by `TIE`; where the best misses the target,
               those that are predicted to be as good, until one meets it
    halvings   where the best misses the target: its nodes float, those first whose noise is worth most time,
               as many as halve the noise, quarter it, ...; then fewer, by halving the step
    slower     where all miss it: the settings that are left

A plan is kept that meets the target while the best does not, or that meets it with a better objective. The
best is scored on the held-out samples. Where it misses the target there, it is kept no longer, and the loop
goes on. The order depends only on what trials return.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce

from ...evaluation.metrics.score import Score
from ...planning.plan_model import PlannedModel
from ...search.loop import Loop
from ...search.ranking import RankedNode
from .trial import Candidate, Trial, TuningRun

TIE = 0.05  # latencies that differ by less than this fraction count as equal

HALVINGS = 6  # steps in which nodes are left float, each with half the noise of the one before (3 dB)
LOOKS = 6  # plans that are scored on the held-out samples at most

MET, MISSED_HELD_OUT, MISSED, NONE = 3, 2, 1, 0
"""How near a trial is to the target: it meets it, on the held-out samples too where it was scored on them; on
the tuning samples alone; it does not; nothing is quantized, or cannot be run."""


def halvings(ranking: Sequence[RankedNode]) -> tuple[int, ...]:
    """Return how many ranked nodes are left float, step by step; the last step leaves one quantized."""
    noise = [ranked.noise for ranked in ranking]
    noise = noise if any(noise) else [1.0] * len(noise)
    before = rest = sum(noise)
    counts: list[int] = []
    for count, share in enumerate(noise[:-1], start=1):
        rest -= share
        if rest <= before / 2.0 and len(counts) < HALVINGS:
            counts.append(count)
            before = rest
    return tuple(dict.fromkeys([*counts, len(noise) - 1])) if len(noise) > 1 else ()


@dataclass(eq=False)
class PlanSearch:
    """The search for a plan, and the scores on the held-out samples."""

    run: TuningRun  # makes, runs and measures plans
    bases: Sequence[Candidate]  # settings to start from, those that were asked for first
    verified: dict[str, Score] = field(default_factory=dict)  # on held-out samples, by digest of the plan
    predictions: dict[str, float | None] = field(default_factory=dict)
    rankings: dict[str, tuple[RankedNode, ...]] = field(default_factory=dict)

    def find(self) -> Trial | None:
        """Return the best trial, which was scored on the held-out samples; None if nothing can be run."""
        run, best = self.run, Trial(self.bases[0], None, None, 0, None, None)
        loop: Loop[Candidate, PlannedModel, Trial] = Loop(run.make, run.digest, run.judge, run.goes_on)
        proposers = (self._given, self._as_good, self._halvings, self._slower)
        looked: list[Trial] = []
        while len(looked) < LOOKS:
            best = loop.best(best, proposers, self.keeps)
            if best.plan_digest in self.verified or not self.near(best):
                break
            looked.append(best)
            self.verified[best.plan_digest] = run.look(best.candidate)
            if self.near(best) in (MET, MISSED):
                break
            best = self._best_of([best, *loop.trials])
        return self._best_of(looked) if looked else None

    def near(self, trial: Trial) -> int:
        """Return how near a trial is to the target: `MET` and those below it."""
        max_drop, held_out = self.run.target.max_drop, self.verified.get(trial.plan_digest)
        if trial.score is None or not trial.quantized_nodes:
            return NONE
        if not trial.meets(max_drop):
            return MISSED
        return MET if held_out is None or held_out.drop <= max_drop else MISSED_HELD_OUT

    def keeps(self, trial: Trial, best: Trial) -> bool:
        """Return whether a trial takes the place of the best one: the rule of the loop."""
        near, before = self.near(trial), self.near(best)
        if near != before or near == NONE:
            return near > before
        if near == MISSED_HELD_OUT:
            return self.verified[trial.plan_digest].drop < self.verified[best.plan_digest].drop
        if near == MISSED or trial.value is None or best.value is None:
            return (trial.drop, trial.noise) < (best.drop, best.noise)
        tie = TIE if self.run.target.optimised == "latency" else 0.0  # of what is measured
        if trial.value != best.value or tie:
            return trial.value > best.value * (1.0 + tie)
        return trial.noise < best.noise

    def _best_of(self, trials: Sequence[Trial]) -> Trial:
        """Return the trial that the rule leaves, of at least one."""
        return reduce(lambda best, trial: trial if self.keeps(trial, best) else best, trials)

    # Proposers.

    def _given(self, best: Trial) -> Iterator[Candidate]:
        yield from self._new([self.bases[0]])

    def _as_good(self, best: Trial) -> Iterator[Candidate]:
        yield from self._settings(best, 1.0 - TIE)

    def _slower(self, best: Trial) -> Iterator[Candidate]:
        if not self._is_met(best):
            yield from self._settings(best, 0.0)

    def _settings(self, best: Trial, least: float) -> Iterator[Candidate]:
        """Yield other settings, the best prediction first."""
        for base in self.bases[1:]:
            if base.name not in self.predictions and self.run.goes_on():
                self.predictions[base.name] = self.run.prediction(base)
        met, usual = self._is_met(best), best.predicted or 0.0
        good: list[tuple[float, Candidate]] = []
        for base in self.bases[1:]:
            value = self.predictions.get(base.name)
            if value is not None and (value > usual * (1.0 + TIE) if met else value >= usual * least):
                good.append((value, base))
        good.sort(key=lambda pair: -pair[0])
        for candidate in self._new(candidate for _, candidate in good):
            yield candidate
            if not met and self._is_met(*self.run.trials):
                return

    def _halvings(self, best: Trial) -> Iterator[Candidate]:
        if self.near(best) == NONE or self._is_met(best) or not self.run.goes_on():
            return
        base = replace(best.candidate, keep_float=())
        if base.name not in self.rankings:
            self.rankings[base.name] = self.run.ranking(base)
        ranking, low = self.rankings[base.name], 0

        def floats(count: int) -> Candidate:
            names = (name for ranked in ranking[:count] for name in ranked.nodes)
            return replace(base, keep_float=tuple(names))

        for count in halvings(ranking):
            yield from self._new([floats(count)])
            if not self._is_met(*self.run.trials):
                low = count
                continue
            high = count
            while high - low > 1:
                middle = (low + high) // 2
                yield from self._new([floats(middle)])
                met = [one for one in self.run.trials if one.candidate == floats(middle)]
                low, high = (low, middle) if self._is_met(*met) else (middle, high)
            return

    def _new(self, candidates: Iterable[Candidate]) -> Iterator[Candidate]:
        """Yield the candidates that were not tried."""
        for candidate in candidates:
            if all(trial.candidate != candidate for trial in self.run.trials):
                yield candidate

    def _is_met(self, *trials: Trial) -> bool:
        """Return whether a trial meets the target, as far as is known."""
        return any(self.near(trial) == MET for trial in trials)
