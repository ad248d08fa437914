"""Rows of `.jsonl` files: one JSON object a line."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import islice

from ...base.errors import DataError
from ...storage.files import DataFile, is_url
from .rows import Row, Rows

SUFFIXES = (".jsonl", ".ndjson")


def json_rows(source: str, files: Sequence[DataFile]) -> Rows:
    """Return the objects of files of JSON lines; empty lines are passed over.

    Args:
        source: that holds them, for messages.
        files: at least one.

    Raises:
        DataError: while iterating: a line is not UTF-8 or no JSON object.
    """

    def iterate(part: slice) -> Iterator[Row]:
        lines = ((file, number, line) for file in files for number, line in _lines(file))
        for file, number, line in islice(lines, part.start, part.stop, part.step):
            where = f"{file}: line {number}"
            yield Row(where, f"{file.name}:{number}", _object(where, line))

    remote = any(is_url(file.location) for file in files)
    total = None if remote else sum(1 for file in files for _ in _lines(file))
    return Rows(source, (), total, iterate, {})


def _lines(file: DataFile) -> Iterator[tuple[int, bytes]]:
    with file.open() as stream:
        yield from ((number, line) for number, line in enumerate(stream, 1) if line.strip())


def _object(where: str, line: bytes) -> dict[str, object]:
    try:
        row = json.loads(line.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise DataError(f"{where}: is not JSON ({error}); write one object a line") from None
    if not isinstance(row, dict):
        raise DataError(f'{where}: is no JSON object; write one object a line, as {{"text": "..."}}')
    return row
