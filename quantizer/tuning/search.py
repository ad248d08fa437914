"""The search strategy of a tuner: which plans it tries, and in which order. Pure: it requests trials and is
sent their results.

1. The default plan, then the same plan with other settings (`Base`): other calibrators, other SQNR limits.
2. Starting from the settings with the smallest drop, and from the default, unless other settings meet the
   target with as many quantized nodes: nodes are left float, the most sensitive first: 1, 2, 4, 8, ... of
   them until the target is met. The smallest number that meets it is then found by bisection between the
   last two.
3. Groups of these nodes are quantized again, first half of them, then ever smaller groups, as long as the
   target stays met: the sensitivity ranking may list nodes that are not to blame.

The order depends only on the results of the trials, so an interrupted tuning can be resumed from them.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from .scores import Score

STARTS = 2
"""Number of settings from which the search leaves nodes float, the best first."""

TIE = 0.05
"""Latencies that differ by less than this fraction count as equal."""


@dataclass(frozen=True)
class Base:
    """Settings that candidates start from.

    Attributes:
        name: for people.
        settings: fields of `QuantConfig` that differ from the recipe's, with their values.
    """

    name: str
    settings: Mapping[str, str | float] = field(default_factory=dict)


@dataclass(frozen=True)
class Candidate:
    """One plan to try.

    Attributes:
        base: its settings.
        keep_float: names of the nodes that are left float besides those of the recipe.
    """

    base: Base
    keep_float: tuple[str, ...] = ()


@dataclass(frozen=True)
class Trial:
    """The result of one candidate.

    Attributes:
        candidate: what was tried.
        score: of the quantized model against the float one, on the tuning samples; None when the plan could
            not be made or run.
        value: of the objective, larger is better; None when it was not measured (the target was missed).
        quantized_nodes: number of nodes that compute in integers.
        plan_digest: identifies the plan; equal plans are run once and share their score.
        error: why there is no score; "" otherwise.
    """

    candidate: Candidate
    score: Score | None
    value: float | None
    quantized_nodes: int
    plan_digest: str = ""
    error: str = ""

    @property
    def drop(self) -> float:
        """Drop of the score in percentage points; inf for a plan that could not be tried."""
        return math.inf if self.score is None else self.score.drop


@dataclass(frozen=True)
class RankNodes:
    """Requests the nodes that the plan of some settings quantizes, the most sensitive first."""

    base: Base


Request = Candidate | RankNodes
Result = Trial | Sequence[str]
"""A trial for a candidate, node names for a ranking."""

Search = Generator[Request, Result, None]


def search(bases: Sequence[Base], max_drop: float) -> Search:
    """Yield what to try next, and take its result by `send`. Ends when there is nothing left to try.

    Args:
        bases: settings to start from, the default first.
        max_drop: the quality target, in percentage points.
    """
    trials = []
    for base in bases:
        trials.append((yield from _trial_of(Candidate(base))))
    scored = [t for t in trials if t.score is not None]
    best = sorted(scored, key=lambda t: t.drop)
    enough = max((t.quantized_nodes for t in scored if meets(t, max_drop)), default=0)
    starts = {t.candidate.base.name: t for t in [*best[: STARTS - 1], *scored[:1]]}
    for first in starts.values():
        if not meets(first, max_drop) and first.quantized_nodes > enough:
            yield from _leave_float(first.candidate.base, max_drop)


def meets(trial: Trial, max_drop: float) -> bool:
    """Return whether a trial meets the target: its drop is at most `max_drop`, and some node is quantized."""
    return trial.drop <= max_drop and trial.quantized_nodes > 0


def _trial_of(candidate: Candidate) -> Generator[Request, Result, Trial]:
    result = yield candidate
    assert isinstance(result, Trial)
    return result


def _leave_float(base: Base, max_drop: float) -> Search:
    """Leave the most sensitive nodes float, as few as the target allows (steps 2 and 3)."""
    ranking = yield RankNodes(base)
    assert not isinstance(ranking, Trial)
    names = tuple(ranking)
    high = 0
    for low, high in steps(len(names)):  # noqa: B007 - both are used after the loop
        if meets((yield from _trial_of(Candidate(base, names[:high]))), max_drop):
            break
    else:
        return
    while high - low > 1:
        middle = (low + high) // 2
        if meets((yield from _trial_of(Candidate(base, names[:middle]))), max_drop):
            high = middle
        else:
            low = middle
    yield from _quantize_again(base, names[:high], max_drop)


def steps(count: int) -> Iterator[tuple[int, int]]:
    """Yield (last number tried, number to try): 1, 2, 4, ... and finally one less than all."""
    low, high = 0, 1
    while low < count - 1:
        high = min(high, count - 1)
        yield low, high
        low, high = high, 2 * high


def _quantize_again(base: Base, names: tuple[str, ...], max_drop: float) -> Search:
    """Try to quantize groups of the nodes again, the least sensitive first, in ever smaller groups."""
    size = len(names) // 2
    while size:
        end = len(names)
        while end > 0:
            begin = max(0, end - size)
            fewer = (*names[:begin], *names[end:])
            if fewer and meets((yield from _trial_of(Candidate(base, fewer))), max_drop):
                names = fewer
            end = begin
        size //= 2


def best_of(trials: Sequence[Trial], max_drop: float, tie: float = 0.0) -> Trial | None:
    """Return the trial to choose; None when no plan with quantized nodes could be run.

    Among the trials that meet the target: the one with the best objective; among those within the fraction
    `tie` of it, the one with the smallest drop. When none meets it: the one with the smallest drop.
    """
    good = [t for t in trials if meets(t, max_drop) and t.value is not None]
    if good:
        top = max(t.value for t in good if t.value is not None)
        good = [t for t in good if t.value is not None and t.value >= top - abs(top) * tie]
    eligible = good or [t for t in trials if t.score is not None and t.quantized_nodes > 0]
    return min(eligible, key=lambda t: (t.drop, -t.quantized_nodes), default=None)
