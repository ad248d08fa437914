"""What a tuner tries, in which order. Pure: it asks for trials and learns what they gave.

1. The default plan, then the same with other settings (`Base`): other calibrators, other limits of noise.
2. From the settings that lost least, and from the default, unless others keep the promise with as many
   nodes on codes: nodes are left float, those that cost most when quantized alone first: 1, 2, 4, 8, ... of
   them until the promise is kept; then the smallest number that keeps it is looked for between the last
   two, by bisection.
3. Of these nodes, groups are given back, half of them at first, then ever smaller groups, as long as the
   promise is kept: the ranking may have put innocent nodes before guilty ones.

The order depends on nothing but what the trials gave, so a tuning that was interrupted can be taken up from
the trials alone.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from .scores import Judgement

STARTS = 2
"""Settings from which nodes are left float, the best first."""

TIE = 0.05
"""Latencies that differ by less than this fraction are taken as equal."""


@dataclass(frozen=True)
class Base:
    """Settings to start from.

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
        keep_float: nodes that are left float besides those of the recipe.
    """

    base: Base
    keep_float: tuple[str, ...] = ()


@dataclass(frozen=True)
class Trial:
    """What one candidate gave.

    Attributes:
        candidate: what was tried.
        judgement: against the float model, on the tuning samples; None when the plan could not be made or
            run.
        value: of the objective, larger is better; None when it was not measured (the promise was not kept).
        integer_nodes: how many nodes compute on codes.
        plan: digest of the plan; candidates that come to the same plan are run once.
        error: why there is no judgement.
    """

    candidate: Candidate
    judgement: Judgement | None
    value: float | None
    integer_nodes: int
    plan: str = ""
    error: str = ""

    @property
    def drop(self) -> float:
        """Points lost; inf for a plan that could not be tried."""
        return math.inf if self.judgement is None else self.judgement.drop


@dataclass(frozen=True)
class Rank:
    """Asks for the nodes that a base quantizes, the most sensitive first."""

    base: Base


Asked = Candidate | Rank
Answer = Trial | Sequence[str]
"""A trial for a candidate, node names for a ranking."""

Search = Generator[Asked, Answer, None]


def search(bases: Sequence[Base], max_drop: float) -> Search:
    """Yield what to try next; the answer is to be sent in. Ends when there is nothing left to try.

    Args:
        bases: settings to start from, the default first.
        max_drop: the promise, in points.
    """
    trials = []
    for base in bases:
        trials.append((yield from _tried(Candidate(base))))
    able = [t for t in trials if t.judgement is not None]
    best = sorted(able, key=lambda t: t.drop)
    enough = max((t.integer_nodes for t in able if kept(t, max_drop)), default=0)
    starts = {t.candidate.base.name: t for t in [*best[: STARTS - 1], *able[:1]]}
    for first in starts.values():
        if not kept(first, max_drop) and first.integer_nodes > enough:
            yield from _narrowed(first.candidate.base, max_drop)


def kept(trial: Trial, max_drop: float) -> bool:
    """Return whether a trial keeps the promise: it loses at most so many points, and computes on codes."""
    return trial.drop <= max_drop and trial.integer_nodes > 0


def _tried(candidate: Candidate) -> Generator[Asked, Answer, Trial]:
    answer = yield candidate
    assert isinstance(answer, Trial)
    return answer


def _narrowed(base: Base, max_drop: float) -> Search:
    answer = yield Rank(base)
    assert not isinstance(answer, Trial)
    names = tuple(answer)
    high = 0
    for low, high in steps(len(names)):  # noqa: B007 - both are used after the loop
        if kept((yield from _tried(Candidate(base, names[:high]))), max_drop):
            break
    else:
        return
    while high - low > 1:
        middle = (low + high) // 2
        if kept((yield from _tried(Candidate(base, names[:middle]))), max_drop):
            high = middle
        else:
            low = middle
    yield from _given_back(base, names[:high], max_drop)


def steps(count: int) -> Iterator[tuple[int, int]]:
    """Yield (last number tried, number to try): 1, 2, 4, ... and one less than all in the end."""
    low, high = 0, 1
    while low < count - 1:
        high = min(high, count - 1)
        yield low, high
        low, high = high, 2 * high


def _given_back(base: Base, names: tuple[str, ...], max_drop: float) -> Search:
    """Try to quantize groups of the nodes again, least sensitive first, in ever smaller groups."""
    size = len(names) // 2
    while size:
        end = len(names)
        while end > 0:
            begin = max(0, end - size)
            fewer = (*names[:begin], *names[end:])
            if fewer and kept((yield from _tried(Candidate(base, fewer))), max_drop):
                names = fewer
            end = begin
        size //= 2


def best_of(trials: Sequence[Trial], max_drop: float, tie: float = 0.0) -> Trial | None:
    """Return the trial to choose; None when there is none at all.

    Of those that keep the promise the one with the best objective; of those within the fraction `tie` of it
    the one that loses least. When none keeps it, the one that loses least.
    """
    good = [t for t in trials if kept(t, max_drop) and t.value is not None]
    if good:
        top = max(t.value for t in good if t.value is not None)
        good = [t for t in good if t.value is not None and t.value >= top - abs(top) * tie]
    able = good or [t for t in trials if t.judgement is not None and t.integer_nodes > 0]
    return min(able, key=lambda t: (t.drop, -t.integer_nodes), default=None)
