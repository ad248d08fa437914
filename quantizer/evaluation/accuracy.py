"""Accuracy of two models on the same labelled rows, and how much of its difference is chance."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

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


@dataclass(frozen=True, eq=False)
class Labels:
    """The true class of every row, as a file has them.

    Attributes:
        file: its path.
        classes: int64 of shape [rows], none below 0.
        lines: number of the line of each row in a text file; None for an array.
    """

    file: str
    classes: npt.NDArray[np.int64]
    lines: tuple[int, ...] | None = None

    def check_classes(self, count: int | None) -> None:
        """Check the labels against the number of classes of an output; None for an unknown number.

        Raises:
            DataError: a label is no class, naming the first; or all are one too high.
        """
        if count is None or int(self.classes.max(initial=0)) < count:
            return
        if self.classes.min() >= 1 and self.classes.max() == count:
            raise DataError(
                f"{self.file}: the labels end at {count} and none is 0, but the output's {count} classes are "
                f"0 to {count - 1}: they seem to count from 1; subtract 1 from each"
            )
        row = int(np.argmax(self.classes >= count))
        raise DataError(
            f"{_place(self.file, row, self.lines)}: label {self.classes[row]} is none of the output's "
            f"{count} classes, 0 to {count - 1}; correct it, or choose the output (--output) and the axis "
            "(--class-axis) that have these classes"
        )

    def check_rows(self, rows: int, *, cut: bool) -> None:
        """Check that each of `rows` rows has a label; `cut`: samples after them were left out.

        Raises:
            DataError: there are no rows, or not as many as labels.
        """
        if not rows:
            raise DataError(f"{self.file}: the samples have 0 rows to compare with labels; check the data")
        count = self.classes.size
        if rows > count or (rows < count and not cut):
            raise DataError(
                f"{self.file}: {count} labels, but the samples have {rows} rows; give one label for each row"
            )


_WRITE = "write it with numpy.save(file, labels.astype('int64')), or as text with one integer a line"


def load_labels(path: str | Path) -> Labels:
    """Return the labels in a file: `.npy` with a one-dimensional integer array, or text.

    Text has one integer a line; empty lines are skipped.

    Raises:
        DataError: the file cannot be read, or holds something else, or a label is negative or does not
            fit into int64: the file, the row or line, what is wrong, and what to do.
    """
    file = Path(path)
    try:
        labels = _from_npy(file) if file.suffix == ".npy" else _from_text(file)
    except OSError as error:
        raise DataError(
            f"{file}: cannot read the labels: {error.strerror or error}; check the path"
        ) from error
    if labels.classes.min(initial=0) < 0:
        row = int(np.argmax(labels.classes < 0))
        raise DataError(
            f"{_place(str(file), row, labels.lines)}: label {labels.classes[row]} is negative, and classes "
            "count from 0; leave rows without a class out of both samples and labels"
        )
    return labels


def _place(file: str, row: int, lines: tuple[int, ...] | None) -> str:
    return f"{file}, row {row}" if lines is None else f"{file}, line {lines[row]}"


def _from_npy(file: Path) -> Labels:
    """Read an array after a look at its header, which may name more rows than the file has."""
    with file.open("rb") as stream:
        shape, dtype = _npy_header(stream, file)
        if len(shape) != 1 or dtype.kind not in "iu":
            kind = "Python objects" if dtype.hasobject else str(dtype)
            raise DataError(
                f"{file}: labels must be a one-dimensional array of integers, this is {kind} of shape "
                f"{list(shape)}; {_WRITE}"
            )
        wanted, there = shape[0] * dtype.itemsize, file.stat().st_size - stream.tell()
        if not 0 <= wanted <= there:
            raise DataError(
                f"{file}: its header says {shape[0]} labels of {dtype}, and {there} bytes follow; the file "
                "is damaged, copy it again"
            )
        values = np.frombuffer(stream.read(wanted), dtype)
    if values.size and int(values.max()) > np.iinfo(np.int64).max:
        row = int(np.argmax(values > np.iinfo(np.int64).max))
        raise DataError(f"{file}, row {row}: label {values[row]} does not fit into int64; correct it")
    return Labels(str(file), values.astype(np.int64))


def _npy_header(stream: BinaryIO, file: Path) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Return shape and dtype that an .npy file names."""
    if stream.read(2) == b"PK":
        raise DataError(f"{file}: is a zip archive (.npz) and not one array; {_WRITE}")
    stream.seek(0)
    try:
        version = np.lib.format.read_magic(stream)
        old = version == (1, 0)
        read = np.lib.format.read_array_header_1_0 if old else np.lib.format.read_array_header_2_0
        shape, _, dtype = read(stream)
    except OSError:
        raise
    except Exception as error:  # NumPy parses it as Python, which may raise anything
        raise DataError(f"{file}: is no .npy array, or its header is damaged; {_WRITE}") from error
    return shape, dtype


def _from_text(file: Path) -> Labels:
    try:
        lines = file.read_text(encoding="utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        raise DataError(f"{file}: not a text file; {_WRITE}") from error
    filled = [(number, line.strip()) for number, line in enumerate(lines, 1) if line.strip()]
    for number, line in filled:
        if not re.fullmatch(r"[+-]?[0-9]{1,18}", line):
            raise DataError(
                f"{file}, line {number}: '{line[:40]}' is not an integer label; write one integer a line"
            )
    classes = np.array([int(line) for _, line in filled], np.int64)
    return Labels(str(file), classes, tuple(number for number, _ in filled))
