"""The truth that metrics read: labels of rows, and files of a folder by the names of samples, or an array."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from ....profiles.base.errors import DataError
from ....profiles.base.findings import Code, Finding
from ....profiles.base.tool import note
from ....profiles.samples.picture_files import noted_classes
from ....profiles.samples.registry import column_of
from ....profiles.samples.values import Sample

# The true class of every row, read from a file -----------------------------------------------------------


LabelsLike: TypeAlias = str | os.PathLike[str] | npt.NDArray[Any] | Sequence[int] | Sequence[str]
"""The truth that a metric reads: a file or folder, an array with a row for each row of the samples, or texts.
Without a metric the class of each row: a file with one integer a line or an .npy file, or the integers."""


@dataclass(frozen=True, eq=False)
class Labels:
    """The true class of every row, as a file or folder has them."""

    file: str
    classes: npt.NDArray[np.int64]
    lines: tuple[int, ...] | None = None  # of each row in a text file
    rows: tuple[int, ...] | None = None  # place of each row in the file, if these are some of its rows
    folders: int | None = None  # number of folders whose order numbers the classes, if it does
    names: tuple[str, ...] = ()

    def subset(self, rows: Sequence[int]) -> Labels:
        """Return the labels of some of the rows, in the order of `rows`."""
        lines = None if self.lines is None else tuple(self.lines[row] for row in rows)
        places = tuple(rows if self.rows is None else (self.rows[row] for row in rows))
        return replace(self, classes=self.classes[list(rows)], lines=lines, rows=places)

    def check_classes(self, count: int | None) -> None:
        """Check the labels against the number of classes of an output; None for an unknown number."""
        if count is not None and self.folders is not None and self.folders != count:
            raise DataError(
                f"{self.file}: has folders of {self.folders} classes, and the output has {count}; write the "
                "names of all classes, in the model's order, into classes.txt in that folder, a line each"
            )
        if count is None or int(self.classes.max(initial=0)) < count:
            return
        if self.rows is None and self.classes.min() >= 1 and self.classes.max() == count:
            raise DataError(
                f"{self.file}: the labels end at {count} and none is 0, but the output's {count} classes are "
                f"0 to {count - 1}: they seem to count from 1; subtract 1 from each"
            )
        row = int(np.argmax(self.classes >= count))
        line = None if self.lines is None else self.lines[row]
        raise DataError(
            f"{_place(self.file, row if self.rows is None else self.rows[row], line)}: label "
            f"{self.classes[row]} is not one of the output's {count} classes, 0 to {count - 1}; correct it, "
            "or choose another output, or the axis (--class-axis) that has these classes"
        )

    def check_rows(self, rows: int, *, cut: bool, ended: bool = True) -> None:
        """Check that each row has a label; `cut`: samples were left out; not `ended`: more are to come."""
        if not rows:
            raise DataError(f"{self.file}: the samples have 0 rows to compare with labels; check the data")
        count = self.classes.size
        if rows > count or (rows < count and not cut):
            more = "" if ended else " or more"
            raise DataError(
                f"{self.file}: {count} labels, but the samples have {rows} rows{more}; give one label for "
                "each row"
            )


_WRITE = "write it with numpy.save(file, labels.astype('int64')), or as text with one integer a line"


def load_labels(source: str | Path | Labels) -> Labels:
    """Return the labels in a file: an `.npy` array or one integer a line.

    A folder of pictures in folders of their classes, and FILE:COLUMN, a column of a table, are labels too.
    """
    if isinstance(source, Labels):
        return source
    file, (table, column) = Path(source), table_and_column(source)
    if column:
        numbers, names = _classes_in_column(str(file), list(column_of(table, column)))
        return Labels(str(file), numbers, names=names)
    if file.is_dir():
        classes = noted_classes(file)
        folders = len(classes.names) if classes.is_order else None
        return Labels(str(file), classes.labels, folders=folders, names=classes.names)
    try:
        labels = _labels_from_npy(file) if file.suffix == ".npy" else _labels_from_text(file)
    except OSError as error:
        raise DataError(
            f"{file}: cannot read the labels: {error.strerror or error}; check the path"
        ) from error
    if labels.classes.min(initial=0) < 0:
        row = int(np.argmax(labels.classes < 0))
        line = labels.lines[row] if labels.lines else None
        raise DataError(
            f"{_place(str(file), row, line)}: label {labels.classes[row]} is negative, and classes "
            "count from 0; leave rows without a class out of both samples and labels"
        )
    return labels


def table_and_column(source: str | os.PathLike[str]) -> tuple[str, str]:
    """Return the table and the column of labels FILE:COLUMN; the source itself and "" for another file."""
    table, _, column = os.fspath(source).rpartition(":")
    is_column = table and not os.path.exists(source) and os.path.exists(table)
    return (table, column) if is_column else (os.fspath(source), "")


def _classes_in_column(where: str, values: Sequence[object]) -> tuple[npt.NDArray[np.int64], tuple[str, ...]]:
    """Return the classes in a column of a table, and their names, () for numbers."""
    texts = [str(value).strip() if value is not None else "" for value in values]
    for row, text in enumerate(texts):
        if not text:
            raise DataError(f"{where}, row {row}: has no class; leave rows without a class out of the table")
    if all(re.fullmatch(r"[0-9]{1,18}(\.0+)?", text) for text in texts):
        return np.array([int(text.partition(".")[0]) for text in texts], np.int64), ()
    names = sorted(set(texts))
    if len(names) > max(2, len(texts) // 2):
        raise DataError(
            f"{where}: contains {len(names)} different values in {len(texts)} rows, such as "
            f"'{names[0][:40]}': no classes; name another column"
        )
    sentence = (
        f"{where}: {len(names)} classes, numbered in alphabetical order: "
        + ", ".join(f"{number} '{name}'" for number, name in enumerate(names[:12]))
        + (f" and {len(names) - 12} more" if len(names) > 12 else "")
    )
    remedy = "if the model has others, write a column of numbers"
    note(Finding(Code.CLASSES_NUMBERED, sentence, where, {"classes": len(names)}, remedy))
    return np.array([names.index(text) for text in texts], np.int64), tuple(names)


def _place(file: str, row: int, line: int | None) -> str:
    return f"{file}, row {row}" if line is None else f"{file}, line {line}"


def _labels_from_npy(file: Path) -> Labels:
    try:
        values = read_npy(file)
    except OSError:
        raise
    except Exception as error:  # NumPy parses headers as Python, which may raise anything
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise DataError(f"{file}: is not an .npy array of numbers ({reason:.100}); {_WRITE}") from error
    if values.ndim != 1 or values.dtype.kind not in "iu":
        raise DataError(
            f"{file}: labels must be a one-dimensional array of integers, this is {values.dtype} of shape "
            f"{list(values.shape)}; {_WRITE}"
        )
    if values.size and int(values.max()) > np.iinfo(np.int64).max:
        row = int(np.argmax(values))
        raise DataError(f"{file}, row {row}: label {values[row]} does not fit into int64; correct it")
    return Labels(str(file), values.astype(np.int64))


def read_npy(file: Path) -> npt.NDArray[Any]:
    """Return the array of an .npy file of numbers; raise ValueError for another one."""
    with file.open("rb") as stream:
        if stream.read(2) == b"PK":
            raise ValueError("it is a zip archive (.npz) and not one array")
    array = np.load(file, mmap_mode="r", allow_pickle=False)
    if not isinstance(array, np.ndarray) or array.dtype.kind not in "fiub" or not array.ndim:
        raise ValueError("it contains no array of numbers")
    return array


def _labels_from_text(file: Path) -> Labels:
    try:
        lines = file.read_text(encoding="utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        raise DataError(f"{file}: not a text file; {_WRITE}") from error
    filled = [(number, line.strip()) for number, line in enumerate(lines, 1) if line.strip()]
    for number, line in filled:
        if not re.fullmatch(r"[+-]?[0-9]{1,18}", line):
            column = f"name its column, {file}:COLUMN, or " if file.suffix.lower() in {".csv", ".tsv"} else ""
            raise DataError(
                f"{file}, line {number}: '{line[:40]}' is not an integer label; {column}write one integer a "
                "line, or name the metric of texts (--metric cer)"
            )
    classes = np.array([int(line) for _, line in filled], np.int64)
    return Labels(str(file), classes, tuple(number for number, _ in filled))


@dataclass(frozen=True)
class Place:
    """The place of a sample among the samples; its truth is looked up by it."""

    index: int
    name: str
    row: int = 0
    sample: Sample | None = None
