"""Accuracy of two models on the same labelled rows, and how much of its difference is chance."""

from __future__ import annotations

import math
from dataclasses import dataclass

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

    @property
    def is_at_chance(self) -> bool:
        """Whether the float model is not surely better than guessing, so that nothing can be lost."""
        return is_near_chance(self.float_right, self.rows, self.chance / 100.0)

    def rows_to_show(self, limit: float) -> int | None:
        """Return about how many rows would show that the drop is below a limit; None where none would."""
        if self.is_at_chance:
            return None
        differing = 1e4 * (self.only_float + self.only_quantized) / self.rows
        return rows_to_show(self.drop, math.sqrt(differing - self.drop**2), 100.0, limit)


@dataclass(frozen=True)
class RowCounts:
    """Counts of the rows that have a label, by which of the models has them right.

    Attributes:
        rows: all of them.
        both, only_float, only_quantized: rows that both models have right, and just one of them.
    """

    rows: int = 0
    both: int = 0
    only_float: int = 0
    only_quantized: int = 0

    def added(
        self,
        labels: npt.NDArray[np.int64],
        floats: npt.NDArray[np.int64],
        quantized: npt.NDArray[np.int64],
        first: int,
    ) -> RowCounts:
        """Return the counts with the answers of one sample more (classes, one for each of its rows).

        `labels` are those of all the data; the sample's begin at `first`. A quantized model that gives
        another number of answers than the float one has none of the sample right. Rows beyond the labels are
        only counted: the caller compares both numbers at the end, for its message.
        """
        wanted = labels[first : first + floats.size]
        f = floats[: wanted.size] == wanted
        q = quantized[: wanted.size] == wanted if quantized.size == floats.size else np.zeros(f.shape, bool)
        return RowCounts(
            self.rows + floats.size,
            self.both + int((f & q).sum()),
            self.only_float + int((f & ~q).sum()),
            self.only_quantized + int((q & ~f).sum()),
        )


def accuracy_of(output: str, counts: RowCounts, chance: float = 0.0) -> Accuracy:
    """Return the accuracy of both models from the counts of at least one row.

    Args:
        output: name of the output that the labels belong to.
        counts: of the rows.
        chance: percent of the rows that guessing has right; 0 for unknown.
    """
    rows, float_right = counts.rows, counts.both + counts.only_float
    quantized_right = counts.both + counts.only_quantized
    low, high = paired_interval(counts.only_float, counts.only_quantized, rows)
    if is_near_chance(float_right, rows, chance / 100.0):  # nothing to lose
        low, high = -1.0, 1.0
    return Accuracy(
        output=output,
        rows=rows,
        float_right=float_right,
        quantized_right=quantized_right,
        only_float=counts.only_float,
        only_quantized=counts.only_quantized,
        float_percent=100.0 * float_right / rows,
        quantized_percent=100.0 * quantized_right / rows,
        drop=100.0 * (counts.only_float - counts.only_quantized) / rows,
        drop_low=100.0 * low,
        drop_high=100.0 * high,
        p_value=mcnemar_p(counts.only_float, counts.only_quantized),
        chance=chance,
    )
