"""Rows with named values, whatever file they come from."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple


class Row(NamedTuple):
    """A row.

    Attributes:
        where: file and line, row or member; for messages.
        name: of the samples that are made of it.
        values: by column: numbers, text, bytes of a file, arrays; None where one is missing.
    """

    where: str
    name: str
    values: Mapping[str, object]


@dataclass(frozen=True)
class Rows:
    """Rows that are read one at a time.

    Attributes:
        source: where they come from, for messages.
        columns: their names, in order; () where every row has its own.
        total: number of rows, None where only iterating tells.
        iterate: gives some of the rows.
        binary: the columns that are known to hold files, with the recipe that reads them: image or audio.
    """

    source: str
    columns: tuple[str, ...]
    total: int | None
    iterate: Callable[[slice], Iterator[Row]]
    binary: Mapping[str, str]
