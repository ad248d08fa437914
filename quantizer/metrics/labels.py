"""The true class of every row, read from a file."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from ...profiles.base.errors import DataError
from ...profiles.readers.images.classes import noted_classes


@dataclass(frozen=True, eq=False)
class Labels:
    """The true class of every row, as a file or folder has them.

    Attributes:
        file: its path.
        classes: int64 of shape [rows], none below 0.
        lines: number of the line of each row in a text file; None for an array.
        rows: place of each row in the array or folder, for some of its rows; None for all.
        folders: number of folders whose order numbers the classes; None where nothing was taken for granted.
    """

    file: str
    classes: npt.NDArray[np.int64]
    lines: tuple[int, ...] | None = None
    rows: tuple[int, ...] | None = None
    folders: int | None = None

    def part(self, rows: Sequence[int]) -> Labels:
        """Return the labels of some of the rows, in the order of `rows`."""
        lines = None if self.lines is None else tuple(self.lines[row] for row in rows)
        places = tuple(rows if self.rows is None else (self.rows[row] for row in rows))
        return replace(self, classes=self.classes[list(rows)], lines=lines, rows=places)

    def check_classes(self, count: int | None) -> None:
        """Check the labels against the number of classes of an output; None for an unknown number.

        Raises:
            DataError: a label is no class, naming the first; or all are one too high; or some of
                the classes have no folder.
        """
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
            f"{self.classes[row]} is none of the output's {count} classes, 0 to {count - 1}; correct it, or "
            "choose another output, or the axis (--class-axis) that has these classes"
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


def load_labels(source: str | Path | Labels) -> Labels:
    """Return the labels in a file, `.npy` with a one-dimensional integer array or text, if not yet read.

    Text has one integer a line; empty lines are skipped. Of a folder of pictures, each in the folder of its
    class, they are the classes of the pictures (`noted_classes`).

    Raises:
        DataError: the file cannot be read, or holds something else, or a label is negative or does not
            fit into int64: the file, the row or line, what is wrong, and what to do.
    """
    if isinstance(source, Labels):
        return source
    file = Path(source)
    if file.is_dir():
        found = noted_classes(file)
        return Labels(str(file), found.labels, folders=len(found.names) if found.is_order else None)
    try:
        labels = _from_npy(file) if file.suffix == ".npy" else _from_text(file)
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


def _place(file: str, row: int, line: int | None) -> str:
    return f"{file}, row {row}" if line is None else f"{file}, line {line}"


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
