"""Rows of CSV files: text in every cell, the names of the columns in the first line."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from itertools import islice

from ...base.errors import DataError
from ...storage.files import DataFile, is_url
from .rows import Row, Rows

DELIMITERS = {".csv": ",", ".tsv": "\t"}
"""By ending of the file."""


def delimited_rows(source: str, files: Sequence[DataFile], delimiter: str, header: Sequence[str]) -> Rows:
    """Return the rows of CSV files, which have the same columns.

    Args:
        source: that holds them, for messages.
        files: at least one.
        delimiter: between cells; "" for that of the ending.
        header: names of the columns where the files do not begin with them.

    Raises:
        DataError: a file is empty, not CSV, or has other columns. While iterating: a row has more or fewer
            cells.
    """
    columns = _columns(files[0], delimiter, header)
    for file in files[1:]:
        if (other := _columns(file, delimiter, header)) != columns:
            raise DataError(
                f"{file}: has the columns {', '.join(other)}, and {files[0]} has {', '.join(columns)}; give "
                "files of one kind"
            )

    def iterate(part: slice) -> Iterator[Row]:
        cells = (row for file in files for row in _rows(file, columns, delimiter, bool(header)))
        return islice(cells, part.start, part.stop, part.step)

    total = None if any(is_url(file.location) for file in files) else sum(1 for _ in iterate(slice(None)))
    return Rows(source, columns, total, iterate, {})


def _columns(file: DataFile, delimiter: str, header: Sequence[str]) -> tuple[str, ...]:
    if header:
        return tuple(header)
    first = next(_cells(file, delimiter), None)
    if first is None:
        raise DataError(f"{file}: is empty; the first line names the columns")
    names = tuple(name.strip() for name in first[1])
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise DataError(f"{file}: line 1: has column '{twice}' twice; rename one")
    if _is_data(names):
        raise DataError(
            f"{file}: line 1: names the columns, and holds the numbers {', '.join(names[:4])}; write names "
            "above them, or give them as header: [NAME, ...] in a recipe with reader: table"
        )
    if not delimiter and len(names) == 1 and any(mark in names[0] for mark in ";|\t"):
        raise DataError(
            f"{file}: has one column only, '{names[0]}'; set delimiter in a recipe with reader: table"
        )
    return names


def _is_data(names: Sequence[str]) -> bool:
    """Return whether a first line is one of numbers; whole ones that count up may be names of columns."""
    try:
        numbers = [float(name) for name in names]
    except ValueError:
        return False
    return [number - numbers[0] for number in numbers] != list(range(len(numbers)))


def _rows(file: DataFile, columns: Sequence[str], delimiter: str, has_no_header: bool) -> Iterator[Row]:
    for line, cells in islice(_cells(file, delimiter), 0 if has_no_header else 1, None):
        where = f"{file}: line {line}"
        if len(cells) != len(columns):
            raise DataError(
                f"{where}: has {len(cells)} cells, and there are {len(columns)} columns; correct the line, "
                "or set delimiter in the recipe"
            )
        yield Row(where, f"{file.name}:{line}", dict(zip(columns, cells, strict=True)))


def _cells(file: DataFile, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the cells of each line that has some, with the number of the line at its end."""
    with io.TextIOWrapper(file.open(), encoding="utf-8-sig", newline="") as text:
        reader = csv.reader(text, delimiter=delimiter or DELIMITERS.get(file.suffix, ","), strict=True)
        try:
            for cells in reader:
                if cells:
                    yield reader.line_num, cells
        except csv.Error as error:
            raise DataError(
                f"{file}: line {reader.line_num}: is not CSV ({error}); correct the line"
            ) from None
        except UnicodeDecodeError as error:
            raise DataError(
                f"{file}: after line {reader.line_num}: is not UTF-8 text ({error.reason}); write it as UTF-8"
            ) from None
