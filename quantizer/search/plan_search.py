"""The search strategy of `tune`: which plans are tried, in which order, and when the search ends.

1. The default plan is tried. All settings (`Base`) are forecast: their plans are made, and not run. When the
   default meets the target, only settings whose prediction is better by more than `TIE` are tried besides.
2. Else the settings that are predicted to be as good are tried. When none meets the target, the nodes of
   the best are ranked by the noise that each microsecond of float would save, and left float rung by rung:
   as many as halve the noise, quarter it, ... (`rungs`). On each rung all these settings are tried, side by
   side, until one meets the target: the score of few samples jumps, so the second and third chance are
   worth their time. Settings that are `BEHIND` in noise after `FAIR` rungs are left behind. What is
   predicted to be better than a rung (other modes) is tried before the next.
3. Where that costs more than `TIE` against the default, finer steps below the rung are tried, and each
   quarter of the nodes is quantized again.
4. Of the plans that meet the target the `FINALISTS` with the best prediction are measured. The best is scored
   on the held-out samples. When it misses the target there, plans with less noise are scored on both halves,
   and then higher rungs, until one meets the target on both.

Plans are made, run and measured by a `TuningRun`. The order depends only on what it returns, so an
interrupted tuning can be resumed, and it is the same however many trials run side by side.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from ..evaluation.metrics.score import Score
from .candidates import TIE, Base, Candidate, RankedNode, Trial, best_of, meets
from .trial import TimeUpError, TuningRun

FINALISTS = 3
"""Plans whose objective is measured, besides the default: predictions are off by 10 % in the median."""

HALVINGS = 6
"""Rungs of the ladder, each with half the noise of the one before (3 dB)."""

FINER = 8
"""Steps between two rungs at most."""

QUARTERS = 4
"""Groups of the nodes left float that are quantized again."""

FAIR, BEHIND = 2, 2.0
"""Rungs on which all settings are tried; noise, over the least on a rung, with which one is left behind
(3 dB)."""

LOOKS = 6
"""Plans that are scored on the held-out samples at most."""


def rungs(ranking: Sequence[RankedNode]) -> tuple[int, ...]:
    """Return how many ranked nodes are left float, rung by rung; the last leaves one quantized.

    Each rung has at most half the noise of the one before; nodes without any count as equal.
    """
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


def thirds(low: int, high: int) -> tuple[int, ...]:
    """Return the one or two places that divide those between `low` and `high` into equal parts."""
    step = max(1, (high - low) // 3)
    return tuple(sorted({place for place in (low + step, high - step) if low < place < high}))


def between(low: int, high: int) -> tuple[int, ...]:
    """Return at most `FINER` numbers between two, evenly spread."""
    step = max(1, -(-(high - low) // (FINER + 1)))
    return tuple(range(low + step, high, step))


def quarters(names: Sequence[RankedNode]) -> list[tuple[RankedNode, ...]]:
    """Return what is left of ranked nodes without each of (at most) `QUARTERS` groups of them."""
    size = max(1, -(-len(names) // QUARTERS))
    return [(*names[:begin], *names[begin + size :]) for begin in range(0, len(names), size)]


def _names(ranking: Iterable[RankedNode]) -> tuple[str, ...]:
    return tuple(name for ranked in ranking for name in ranked.nodes)


@dataclass(eq=False)
class PlanSearch:
    """The search for a plan, and what it found.

    Attributes:
        run: makes, runs and measures plans.
        max_drop: percentage points that the score may drop.
        is_measured: whether the objective has to be measured, and is predicted until then.
        trials: all of them, in order.
        alike: the default, and the settings that are predicted to be as good.
        others: further settings with what is predicted of them, the best first.
        verified: scores on the held-out samples, by base name and nodes left float.
        chosen: the best trial; None when no plan could be run.
        holdout: its score on the held-out samples.
        looks_at_holdout: whether a plan has to meet the target on the held-out samples too.
    """

    run: TuningRun
    max_drop: float
    is_measured: bool = False
    trials: list[Trial] = field(default_factory=list)
    alike: list[Candidate] = field(default_factory=list)
    others: list[tuple[float, Candidate]] = field(default_factory=list)
    verified: dict[tuple[str, tuple[str, ...]], Score] = field(default_factory=dict)
    chosen: Trial | None = None
    holdout: Score | None = None
    looks_at_holdout: bool = False

    def find(self, bases: Sequence[Base]) -> None:
        """Search for the best plan that meets the target, from these settings, the default first."""
        with suppress(TimeUpError):
            self._explore(bases)
        self._choose()

    def _explore(self, bases: Sequence[Base]) -> None:
        """Steps 1 to 3."""
        default = Candidate(bases[0])
        (first,) = self._tried([default])
        forecasts = self.run.forecasts([Candidate(base) for base in bases])
        usual = forecasts[0].objective

        # The other settings whose plans differ, the best first.
        digests, distinct = {forecasts[0].plan_digest, ""}, list[tuple[float, Candidate]]()
        for base, forecast in zip(bases[1:], forecasts[1:], strict=True):
            if forecast.plan_digest not in digests:
                digests.add(forecast.plan_digest)
                distinct.append((forecast.objective, Candidate(base)))
        distinct.sort(key=lambda pair: -pair[0])
        self.alike = [default, *(c for value, c in distinct if value >= usual * (1.0 - TIE))]
        self.others = [(value, c) for value, c in distinct if value < usual * (1.0 - TIE)]

        if self._meets(first):
            self._tried([c for value, c in distinct if value > usual * (1.0 + TIE)])
        elif not any(self._passed(self.alike)):
            rung = self._climb()
            if rung is not None and (rung.predicted or 0.0) < usual * (1.0 - TIE):
                self._refine(rung)

    def _climb(self, above: int = 0) -> Trial | None:
        """Leave nodes float, rung by rung, until the target is met; return the trial that meets it.

        Only rungs with more names than `above` are tried. None where no rung meets the target, or other
        settings do before.
        """
        ranking = self._ranking()
        group = self.alike
        floats = [_names(ranking[:count]) for count in rungs(ranking)]
        for place, names in enumerate(names for names in floats if len(names) > above):
            if self.looks_at_holdout and len(self.verified) >= LOOKS:
                return None
            group = [replace(c, keep_float=names) for c in group]
            passed = self._passed(group)
            trials = [trial for c in group if (trial := self._trial(c)) is not None]
            if any(passed):
                met = [trial for trial, good in zip(trials, passed, strict=True) if good]
                return min(met, key=lambda t: (-(t.predicted or 0.0), t.noise))
            if place + 1 >= FAIR:
                least = min(trial.noise for trial in trials)
                group = [t.candidate for t in trials if t.noise <= BEHIND * least]
            predicted = max(trial.predicted or 0.0 for trial in trials)
            if self._try_others(predicted):
                return None
        self._try_others(0.0)
        return None

    def _ranking(self) -> tuple[RankedNode, ...]:
        """Return the ranked nodes of the settings with the least drop."""
        trials = [trial for c in self.alike if (trial := self._trial(c)) is not None]
        start = best_of(trials, self.max_drop)
        return () if start is None else self.run.ranking(start.candidate)

    def _try_others(self, predicted: float) -> bool:
        """Try the settings with a better prediction, the best first; return whether one meets the target."""
        while self.others and self.others[0][0] >= predicted:
            _, candidate = self.others.pop(0)
            if all(self._passed([candidate])):
                return True
        return False

    def _refine(self, rung: Trial) -> None:
        """Step 3."""
        ranking = self._ranking()
        start, count = replace(rung.candidate, keep_float=()), len(rung.candidate.keep_float)
        counts = rungs(ranking)
        high = next(place for place in counts if len(_names(ranking[:place])) == count)
        low = max((place for place in counts if place < high), default=0)

        # Finer steps below the rung.
        finer = between(low, high)
        low, high = -1, len(finer)
        while high - low > 1:
            places = thirds(low, high)
            steps = [replace(start, keep_float=_names(ranking[: finer[place]])) for place in places]
            met = [place for place, good in zip(places, self._passed(steps), strict=True) if good]
            low, high = max([low, *(p for p in places if not met or p < met[0])]), min([high, *met])
        if high < len(finer):
            floats = list(ranking[: finer[high]])
        else:
            floats = [ranked for ranked in ranking if ranked.nodes[0] in rung.candidate.keep_float]

        # Each quarter of the nodes is quantized again, and then all quarters that may be.
        if len(floats) < 2:
            return
        groups = quarters(floats)
        passed = self._passed([replace(start, keep_float=_names(group)) for group in groups])
        allowed = [group for group, met_target in zip(groups, passed, strict=True) if met_target]
        left = [ranked for ranked in floats if all(ranked in group for group in allowed)]
        if len(allowed) > 1 and left:
            self._passed([replace(start, keep_float=_names(left))])

    def _choose(self) -> None:
        """Step 4."""
        if self.is_measured:
            # One of each plan that meets the target, the best predictions, and the default.
            met = list({t.plan_digest: t for t in reversed(self.trials) if self._meets(t)}.values())
            finalists = sorted(met, key=lambda t: (-(t.predicted or 0.0), t.noise))[:FINALISTS]
            default = self.trials[0] if self.trials else None
            if default is not None and self._meets(default):
                digests = {trial.plan_digest for trial in finalists}
                finalists += [default] if default.plan_digest not in digests else []
            for trial in finalists:
                self._measure(trial)
        self.chosen = best_of(self.trials, self.max_drop, TIE if self.is_measured else 0.0)
        if self.chosen is None:
            return
        self.holdout = self._verify(self.chosen.candidate)
        if not self._meets(self.chosen) or self._holds(self.chosen.candidate):
            return
        self.looks_at_holdout = True
        try:
            careful = self._more_careful(self.chosen)
        except TimeUpError:
            return
        if careful is not None:
            self._measure(careful)
            self.chosen = self._trial(careful.candidate)
            self.holdout = self._verify(careful.candidate)

    def _more_careful(self, before: Trial) -> Trial | None:
        """Return a trial with less noise that meets the target on both halves; None where there is none."""
        quieter = [t for t in self.trials if self._meets(t) and t.noise < before.noise]
        for trial in sorted(quieter, key=lambda t: (-(t.predicted or 0.0), t.noise))[: LOOKS // 2]:
            if all(self._passed([trial.candidate])):
                return trial
        above = len(before.candidate.keep_float)
        if above or not any(self._passed(self.alike)):
            rung = self._climb(above)
            if rung is not None:
                return rung
        return next((t for t in self.trials if self._is_verified(t)), None)

    def _is_verified(self, trial: Trial) -> bool:
        """Whether a trial meets the target on both halves."""
        is_scored = _key(trial.candidate) in self.verified
        return is_scored and self._meets(trial) and self._holds(trial.candidate)

    def _measure(self, trial: Trial) -> None:
        """Measure the objective of a trial, where it has to be."""
        if self.is_measured and trial.value is None:
            value = self.run.measured_objective(trial.candidate)
            self.trials[self.trials.index(trial)] = replace(trial, value=value)

    def _tried(self, candidates: Sequence[Candidate]) -> list[Trial]:
        new = [c for c in candidates if self._trial(c) is None]
        if new:
            self.trials += self.run.try_candidates(new)
        return [trial for c in candidates if (trial := self._trial(c)) is not None]

    def _passed(self, candidates: Sequence[Candidate]) -> list[bool]:
        """Return of each candidate whether it meets the target, on the held-out samples too if it has to."""
        passed = [self._meets(trial) for trial in self._tried(candidates)]
        for place, candidate in enumerate(candidates):
            if self.looks_at_holdout and passed[place]:
                may_look = len(self.verified) < LOOKS or _key(candidate) in self.verified
                if may_look:
                    self._verify(candidate)
                passed[place] = may_look and self._holds(candidate)
        return passed

    def _verify(self, candidate: Candidate) -> Score:
        """Return the score of a candidate on the held-out samples."""
        if _key(candidate) not in self.verified:
            self.verified[_key(candidate)] = self.run.held_out_score(candidate)
        return self.verified[_key(candidate)]

    def _holds(self, candidate: Candidate) -> bool:
        """Whether a candidate that was scored on the held-out samples meets the target there."""
        return self.verified[_key(candidate)].drop <= self.max_drop

    def _meets(self, trial: Trial) -> bool:
        return meets(trial, self.max_drop)

    def _trial(self, candidate: Candidate) -> Trial | None:
        return next((t for t in self.trials if t.candidate == candidate), None)


def _key(candidate: Candidate) -> tuple[str, tuple[str, ...]]:
    return candidate.base.name, candidate.keep_float
