"""The loop of every search: plans are proposed, made, judged, and kept or not.

    proposers ─► proposal ─► made, if it is another plan ─► judged on samples, or by the clock ─► kept, or not

A proposer yields proposals from the best plan so far. `Loop.make` makes one, `Loop.judge` evaluates it, and
the rule `keeps` decides whether it replaces the best. The searches differ in these functions:

    closed_loop     nearer to float on check samples at a price worth it, or faster with noise to spare
    --check-speed   faster by the clock
    tune            meets a quality target, then faster, smaller, or more of it in int8 (`plan_search`)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from ...profiles.base.errors import ConfigError, ModelError, PlanError, WritingError

P = TypeVar("P")
M = TypeVar("M")
T = TypeVar("T")
Measured = TypeVar("Measured")

CANDIDATE_ERRORS = (ConfigError, PlanError, ModelError)
"""Errors that say of a proposal that it cannot be planned, written or run."""

Proposer = Callable[[T], Iterable[P]]  # yields proposals from the best trial so far


@dataclass(frozen=True, eq=False)
class Trial(Generic[M, P, Measured]):
    """A plan that was tried."""

    plan: M  # as it was made
    change: P  # from the first plan
    measured: Measured  # what the judge saw of it
    cost: float  # time over float's, or the seconds that the trial took


@dataclass(eq=False)
class Loop(Generic[P, M, T]):
    """Plans of one model that are made and judged, equal ones once."""

    make: Callable[[P], M]  # a proposal as a plan, or as a model
    digest: Callable[[M], str]  # of what was made; the same for equal plans
    judge: Callable[[P, M, T], T | None]  # what was made with its figures, held against the best trial
    goes_on: Callable[[], bool] = lambda: True  # whether there is time for another trial
    tried: set[str] = field(default_factory=set)  # digests of what was judged
    trials: list[T] = field(default_factory=list)  # what was judged, in order

    def begin(self, made: M, trial: T) -> T:
        """Return the trial of a plan that was judged, which is not judged again."""
        self.tried.add(self.digest(made))
        self.trials.append(trial)
        return trial

    def attempt(self, proposal: P, best: T) -> T | None:
        """Return a proposal that was made and judged; None for one that cannot be, or is not another plan."""
        try:
            made = self.make(proposal)
            if self.digest(made) in self.tried:
                return None
            trial = self.judge(proposal, made, best)
            return None if trial is None else self.begin(made, trial)
        except WritingError:
            raise
        except CANDIDATE_ERRORS:
            return None

    def best(
        self,
        first: T,
        proposers: Iterable[Proposer[T, P]],
        keeps: Callable[[T, T], bool],
        *,
        ends: Callable[[T], bool] = lambda best: False,
    ) -> T:
        """Return the best trial that is found, from a first one; a proposer gets the best trial so far."""
        best = first
        for proposer in proposers:
            for proposal in proposer(best):
                if not self.goes_on():
                    return best
                trial = self.attempt(proposal, best)
                if trial is not None and keeps(trial, best):
                    best = trial
                if ends(best):
                    return best
        return best
