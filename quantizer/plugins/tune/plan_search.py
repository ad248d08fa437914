"""The search of `tune` for the plan that meets a quality target with the best objective: proposers of `Loop`.

    given      the given settings
    as_good    other settings whose prediction beats the best by `TIE`; if the best misses the target, those
               that are predicted to be as good, until one meets it
    halvings   if the best misses the target: its nodes float, those with the most noise for their time first,
               as many as halve the noise, quarter it, ...; then fewer, by halving the step
    slower     if all miss it: the remaining settings

A plan replaces the best if only it meets the target, or if it meets the target with a better objective. The
search does not use the held-out samples, which only judge the final plan. The order depends only on the
results of trials.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from ...planning.plan_model import PlannedModel
from ...search.loop import Loop
from ...search.ranking import RankedNode
from .trial import Candidate, Trial, TuningRun

TIE = 0.05  # latencies that differ by less than this fraction count as equal

HALVINGS = 6  # steps in which nodes are left float, each with half the noise of the one before (3 dB)

MET, MISSED, NONE = 2, 1, 0
"""How near a trial is to the target: it meets it; it does not; nothing is quantized, or cannot be run."""


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
    """The search for a plan."""

    run: TuningRun  # makes, runs and measures plans
    bases: Sequence[Candidate]  # settings to start from, those that were asked for first
    predictions: dict[str, float | None] = field(default_factory=dict)
    rankings: dict[str, tuple[RankedNode, ...]] = field(default_factory=dict)

    def find(self) -> Trial | None:
        """Return the best trial; None if nothing can be run."""
        run, first = self.run, Trial(self.bases[0], None, None, 0, None, None)
        loop: Loop[Candidate, PlannedModel, Trial] = Loop(run.make, run.digest, run.judge, run.goes_on)
        best = loop.best(first, (self._given, self._as_good, self._halvings, self._slower), self.keeps)
        return None if self.near(best) == NONE else best

    def near(self, trial: Trial) -> int:
        """Return how near a trial is to the target: `MET` and those below it."""
        if trial.score is None or not trial.quantized_nodes:
            return NONE
        return MET if trial.meets(self.run.target.max_drop) else MISSED

    def keeps(self, trial: Trial, best: Trial) -> bool:
        """Return whether a trial takes the place of the best one: the rule of the loop."""
        near, before = self.near(trial), self.near(best)
        if near != before or near == NONE:
            return near > before
        if near == MISSED or trial.value is None or best.value is None:
            return (trial.drop, trial.noise) < (best.drop, best.noise)
        tie = TIE if self.run.target.optimised == "latency" else 0.0  # of what is measured
        if trial.value != best.value or tie:
            return trial.value > best.value * (1.0 + tie)
        return trial.noise < best.noise

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
        """Return whether a trial meets the target."""
        return any(self.near(trial) == MET for trial in trials)
