"""Accuracy of two models on the same labelled rows, and how much of its difference is chance."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from .metrics.intervals import is_near_chance, mcnemar_p, paired_interval, rows_to_show


@dataclass(frozen=True)
class Accuracy:
    """Top-1 accuracy of both models on the same rows.

    Attributes:
        output: name of the output that the labels belong to.
        rows: labelled rows.
        float_right, quantized_right: rows that the model has right.
        only_float, only_quantized: rows that one of them has right and the other wrong.
        float_percent, quantized_percent: accuracy in percent.
        drop: float_percent - quantized_percent, in percentage points; below 0 when the quantized model is
            better.
        drop_low, drop_high: 95 % interval of the drop on more data of the same kind (`paired_interval`); all
            that there can be where the float model is near chance.
        p_value: of McNemar's exact test: how likely such a difference is when both models are equally good.
        chance: percent of the rows that guessing has right, 100 / classes; 0 for unknown.
    """

    output: str
    rows: int
    float_right: int
    quantized_right: int
    only_float: int
    only_quantized: int
    float_percent: float
    quantized_percent: float
    drop: float
    drop_low: float
    drop_high: float
    p_value: float
    chance: float = 0.0
    unit: ClassVar[str] = "%"
    drop_unit: ClassVar[str] = "percentage points"
    higher_is_better: ClassVar[bool] = True

    @property
    def float_score(self) -> float:
        """The accuracy of the float model, as `Score` calls it."""
        return self.float_percent

    @property
    def quantized_score(self) -> float:
        """The accuracy of the quantized model, as `Score` calls it."""
        return self.quantized_percent

    @property
    def has_something_right(self) -> bool:
        """Whether the float model has any row right."""
        return self.float_right > 0

    @property
    def is_at_chance(self) -> bool:
        """Whether the float model is not surely better than guessing, so that nothing can be lost."""
        return is_near_chance(self.float_right, self.rows, self.chance / 100.0)

    def rows_to_show(self, limit: float) -> int | None:
        """Return the approximate number of rows that would show a drop below a limit, or None."""
        if self.is_at_chance:
            return None
        differing = 1e4 * (self.only_float + self.only_quantized) / self.rows
        return rows_to_show(self.drop, math.sqrt(differing - self.drop**2), 100.0, limit)


def chance_of(true: npt.NDArray[np.int64], said: npt.NDArray[np.int64], by_classes: float) -> float:
    """Return the share of rows that guessing has right, of labels that look shuffled what chance pairs; else
    `by_classes`."""
    if true.shape != said.shape or not true.size:
        return by_classes
    classes = np.unique(np.concatenate([true, said]))
    shares, others = ((of[:, None] == classes).mean(axis=0) for of in (true, said))
    paired, most = float(shares @ others), float(np.minimum(shares, others).sum())
    right, rows = int((true == said).sum()), true.size
    is_shuffled = is_near_chance(right, rows, paired) and not is_near_chance(round(most * rows), rows, paired)
    return max(by_classes, paired) if is_shuffled and right < most * rows else by_classes


def accuracy_of(
    output: str,
    float_right: npt.NDArray[np.bool_],
    quantized_right: npt.NDArray[np.bool_],
    chance: float = 0.0,
) -> Accuracy:
    """Return the accuracy of both models by bool arrays [rows]; `chance` in percent, 0 if unknown."""
    return accuracy_of_counts(
        output,
        float_right.size,
        (
            int(float_right.sum()),
            int((float_right & ~quantized_right).sum()),
            int((quantized_right & ~float_right).sum()),
        ),
        chance,
    )


def accuracy_of_counts(output: str, rows: int, counts: tuple[int, int, int], chance: float = 0.0) -> Accuracy:
    """Return the accuracy of both models by rows that float, only float and only quantized have right."""
    float_right, only_float, only_quantized = counts
    low, high = paired_interval(only_float, only_quantized, rows)
    if is_near_chance(float_right, rows, chance / 100.0):  # nothing to lose
        low, high = -1.0, 1.0
    quantized_right = float_right - only_float + only_quantized
    return Accuracy(
        output=output,
        rows=rows,
        float_right=float_right,
        quantized_right=quantized_right,
        only_float=only_float,
        only_quantized=only_quantized,
        float_percent=100.0 * float_right / rows,
        quantized_percent=100.0 * quantized_right / rows,
        drop=100.0 * (only_float - only_quantized) / rows,
        drop_low=100.0 * low,
        drop_high=100.0 * high,
        p_value=mcnemar_p(only_float, only_quantized),
        chance=chance,
    )
