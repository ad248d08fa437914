"""Accuracy of two models on the same labelled rows, and how much of its difference is chance."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ...profiles.base.errors import DataError

Z95 = 1.959963984540054
"""Two-sided 95 % quantile of the normal distribution."""


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
        drop_low, drop_high: 95 % interval of the drop on more data of the same kind (`paired_interval`).
        p_value: of McNemar's exact test: how likely such a difference is when both models are equally good.
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
        self, labels: npt.NDArray[np.int64], floats: npt.NDArray[np.int64], quantized: npt.NDArray[np.int64]
    ) -> RowCounts:
        """Return the counts with the answers of one sample more (classes, one for each of its rows).

        `labels` are those of all the data; the sample's begin at `rows`. A quantized model that gives another
        number of answers than the float one has none of the sample right. Rows beyond the labels are only
        counted: the caller compares both numbers at the end, for its message.
        """
        wanted = labels[self.rows : self.rows + floats.size]
        f = floats[: wanted.size] == wanted
        q = quantized[: wanted.size] == wanted if quantized.size == floats.size else np.zeros(f.shape, bool)
        return RowCounts(
            self.rows + floats.size,
            self.both + int((f & q).sum()),
            self.only_float + int((f & ~q).sum()),
            self.only_quantized + int((q & ~f).sum()),
        )


def accuracy_of(output: str, counts: RowCounts) -> Accuracy:
    """Return the accuracy of both models from the counts of at least one row."""
    rows, float_right = counts.rows, counts.both + counts.only_float
    quantized_right = counts.both + counts.only_quantized
    low, high = paired_interval(counts.only_float, counts.only_quantized, rows)
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
    )


def paired_interval(only_float: int, only_quantized: int, rows: int) -> tuple[float, float]:
    """Return the 95 % interval of a difference of two proportions measured on the same rows, in [-1, 1].

    Bonett and Price (2012): the normal interval after one row was added to each of the two counts that
    differ. It keeps a width when the models agree on every one of a few rows.
    """
    n = rows + 2
    a, b = (only_float + 1) / n, (only_quantized + 1) / n
    half = Z95 * math.sqrt(max(0.0, a + b - (a - b) ** 2) / n)
    return max(-1.0, a - b - half), min(1.0, a - b + half)


def rows_to_show(only_float: int, only_quantized: int, rows: int, limit: float) -> int | None:
    """Return about how many rows it takes to show that a difference of two proportions is below a limit.

    That is the least number for which the upper end of `paired_interval` is at most the limit when rows
    differ as often as these did. With d the difference and s the sum of the two rates, D = limit - d,
    v = s - d**2 and m = rows + 2, the end is about d + Z95 * sqrt((v + 2 / m) / m), so that m is the positive
    root of D**2 m**2 - Z95**2 v m - 2 Z95**2 = 0.

    Args:
        only_float, only_quantized: rows that one of the models alone has right.
        rows: all of them.
        limit: largest difference, in [-1, 1].

    Returns:
        None where the difference itself is not below the limit: no number of rows would do.
    """
    a, b = only_float / rows, only_quantized / rows
    room, variance = limit - (a - b), a + b - (a - b) ** 2
    if room <= 0.0:
        return None
    z = Z95 * Z95 * variance
    return math.ceil((z + math.sqrt(z * z + 8.0 * (Z95 * room) ** 2)) / (2.0 * room * room)) - 2


def mcnemar_p(only_float: int, only_quantized: int) -> float:
    """Return the two-sided p-value of McNemar's exact test: a row that differs is a fair coin toss."""
    n, few = only_float + only_quantized, min(only_float, only_quantized)
    tail = math.fsum(
        math.exp(math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1) - n * math.log(2.0))
        for k in range(few + 1)
    )
    return min(1.0, 2.0 * tail)


def load_labels(path: str | Path) -> npt.NDArray[np.int64]:
    """Return the labels in a file: `.npy` with a one-dimensional integer array, or text.

    Text has one integer a line; empty lines are skipped.

    Raises:
        DataError: the file cannot be read, or holds something else; a line is named by its number.
    """
    file = Path(path)
    try:
        return _from_npy(file) if file.suffix == ".npy" else _from_text(file)
    except OSError as error:
        raise DataError(f"{file}: cannot read the labels: {error.strerror or error}") from error


def _from_npy(file: Path) -> npt.NDArray[np.int64]:
    try:
        labels = np.load(file, allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise DataError(f"{file}: not a NumPy array of numbers: {error}") from error
    if not isinstance(labels, np.ndarray) or labels.ndim != 1 or labels.dtype.kind not in "iu":
        got = (
            f"{labels.dtype} of shape {list(labels.shape)}"
            if isinstance(labels, np.ndarray)
            else "an archive"
        )
        raise DataError(f"{file}: labels must be a one-dimensional array of integers, this is {got}")
    return labels.astype(np.int64)


def _from_text(file: Path) -> npt.NDArray[np.int64]:
    labels: list[int] = []
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise DataError(f"{file}: not a text file; labels are one integer a line, or a .npy array") from error
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            labels.append(int(np.int64(int(line))))
        except (ValueError, OverflowError) as error:
            raise DataError(
                f"{file}, line {number}: '{line.strip()[:40]}' is not an integer label"
            ) from error
    return np.array(labels, np.int64)
