"""The score of a quantized model beside that of the float one on the same samples, and what was lost."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from ...profiles.base.errors import DataError
from .intervals import bootstrap_interval, drop_interval, is_near_chance
from .table import MetricKind
from .values import Figures, Floats


@dataclass(frozen=True)
class Score:
    """The score of a quantized model and of the float one on the same samples.

    Attributes:
        samples: how many samples.
        rows: how many units were scored: rows, queries, or samples as a whole.
        float_score, quantized_score: of both models, in `unit`.
        drop: how much worse the quantized model is, in `drop_unit`; negative when it is better.
        drop_low, drop_high: 95 % interval of the drop on more data of the same kind (`drop_interval`,
            `bootstrap_interval`); infinite where one unit alone was scored, or the float model is near
            chance.
        unit: "%", "dB", or "" for the unit of the output.
        drop_unit: "percentage points", "dB", or "% of float's".
        higher_is_better: whether a larger score is the better one.
        chance: percent that guessing scores, such as 100 / classes of top-1 accuracy; 0 for unknown.
    """

    samples: int
    rows: int
    float_score: float
    quantized_score: float
    drop: float
    drop_low: float
    drop_high: float
    unit: str = "%"
    drop_unit: str = "percentage points"
    higher_is_better: bool = True
    chance: float = 0.0

    @property
    def is_worthless(self) -> bool:
        """Whether the float model is not surely better than guessing, so that nothing can be lost."""
        if not self.higher_is_better or self.unit != "%":
            return False
        return is_near_chance(self.float_score / 100.0 * self.rows, self.rows, self.chance / 100.0)


def with_chance(score: Score, chance: float) -> Score:
    """Return the score of rows that are right or wrong, of which guessing has `chance` percent right."""
    found = replace(score, chance=chance)
    return replace(found, drop_low=-math.inf, drop_high=math.inf) if found.is_worthless else found


def score_text(score: Score) -> str:
    """Return both figures with their unit, as in "71.20 % float, 70.90 % quantized"."""
    unit = f" {score.unit}" if score.unit else ""
    digits = ".6g" if score.drop_unit.startswith("%") else ".2f"
    return f"{score.float_score:{digits}}{unit} float, {score.quantized_score:{digits}}{unit} quantized"


def score_of(kind: MetricKind, samples: int, floats: Figures, quantized: Figures) -> Score:
    """Return the score of a quantized model.

    Args:
        kind: what the figures mean.
        samples: how many there were.
        floats, quantized: what a metric found in the outputs of both models.

    Raises:
        DataError: there is nothing to score.
    """
    if floats.units == 0:
        raise DataError("the samples: have no rows to score; check the data")
    a, b = floats.value, quantized.value
    drop = float(_drops(kind, np.array([a]), np.array([b]))[0])
    if floats.scores is not None and quantized.scores is not None and kind.drop != "relative":
        limit = 100.0 if kind.drop == "points" else math.inf
        low, high = drop_interval(_drops(kind, floats.scores, quantized.scores), limit)
    else:
        low, high = bootstrap_interval(
            lambda weights: _drops(kind, floats.figure(weights), quantized.figure(weights)), floats.units
        )
    better = kind.higher_is_better
    if better and kind.unit == "%" and a <= 0.0:  # nothing to lose
        low, high = -math.inf, math.inf
    return Score(samples, floats.units, a, b, drop, low, high, kind.unit, kind.drop_unit, better)


def _drops(kind: MetricKind, floats: Floats, quantized: Floats) -> Floats:
    """Return how much worse the second figures are; inf where the first is a number and the second is not."""
    lost = floats - quantized if kind.higher_is_better else quantized - floats
    if kind.drop == "relative":
        with np.errstate(divide="ignore", invalid="ignore"):
            lost = np.where(lost == 0.0, 0.0, 100.0 * lost / np.abs(floats))
    return np.where(np.isnan(quantized) & ~np.isnan(floats), math.inf, lost)
