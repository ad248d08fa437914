"""Candidates of a search, and their trials. Values only."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from ..evaluation.metrics.score import Score
from ..targets.loading import Settings

TIE = 0.05  # latencies that differ by less than this fraction count as equal


@dataclass(frozen=True)
class Base:
    """Settings that candidates start from."""

    name: str  # for people, another one for other settings
    settings: Settings = field(default_factory=dict)  # those that differ from the recipe's


@dataclass(frozen=True)
class Candidate:
    """One plan to try."""

    base: Base
    keep_float: tuple[str, ...] = ()  # nodes that are left float besides those of the recipe

    @property
    def settings(self) -> Settings:
        """All settings that differ from the recipe's."""
        return (
            {**self.base.settings, "keep_float": self.keep_float} if self.keep_float else self.base.settings
        )


@dataclass(frozen=True)
class Trial:
    """The result of one candidate."""

    candidate: Candidate
    # On the tuning samples, or the first of them if these show that the target is missed; None if it failed.
    score: Score | None
    value: float | None  # of the objective, larger is better
    quantized_nodes: int  # number of nodes that compute in integers or have quantized weights
    predicted: float | None  # the objective as it is predicted, before anything is run
    sqnr: float | None  # dB, of the worst group of channels of the worst output; None if nothing differs
    plan_digest: str = ""  # identifies the plan; equal plans are run once
    error: str = ""  # why there is no score; "" otherwise

    @property
    def drop(self) -> float:
        """Drop of the score in percentage points; inf for a plan that could not be tried."""
        return math.inf if self.score is None else self.score.drop

    @property
    def noise(self) -> float:
        """Noise over signal in the worst group of channels; 0 where nothing differs."""
        return 0.0 if self.sqnr is None else 10.0 ** (-self.sqnr / 10.0)


OnTrial = Callable[[int, Trial], None]  # called after each trial with its number and the trial


@dataclass(frozen=True)
class RankedNode:
    """A node, or several that are left float together, with a rank by worth in time."""

    nodes: tuple[str, ...]
    noise: float  # that they add at the outputs, over the signal
    microseconds: float  # that float is predicted to take longer, with the conversions around it


def meets(trial: Trial, max_drop: float) -> bool:
    """Return whether a trial meets the target: its drop is at most `max_drop`, and some node is quantized."""
    return trial.drop <= max_drop and trial.quantized_nodes > 0
