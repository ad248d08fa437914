"""Extremes as they stand in a profile's file: a table of samples, and for each tensor numbers of its rows.

The first value of each end is the tensor's minimum or maximum, which the file has already. So each end is a
text of numbers: the row of the first sample, the row of the second, and the second's value.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from ..base.strict_yaml import MalformedError, fields, flow_text, list_at, text_at
from .profile import Extreme, Extremes

Row = tuple[str, str]
"""Digest and name of a sample."""

_ENDS = ("lowest", "highest")


def sample_rows(several: Iterable[Extremes | None]) -> list[Row]:
    """Return the samples of all extremes, each once, by their digests."""
    rows = {(e.digest, e.name) for x in several if x is not None for e in (*x.lowest, *x.highest)}
    return sorted(rows)


def rows_text(rows: Sequence[Row]) -> str:
    """Return the lines of the entry `extreme_samples`."""
    lines = [f"  - {{digest: {flow_text(digest)}, name: {flow_text(name)}}}\n" for digest, name in rows]
    return "extreme_samples:\n" + "".join(lines) if lines else "extreme_samples: []\n"


def rows_at(value: object) -> list[Row]:
    """Return the samples that an entry `extreme_samples` lists, or raise MalformedError."""
    rows = []
    for number, row in enumerate(list_at(value, "extreme_samples")):
        where = f"extreme_samples: entry {number}"
        entries = fields(row, where, ("digest", "name"))
        digest = text_at(entries["digest"], f"{where}: digest")
        if not re.fullmatch("[0-9a-f]{32}", digest):
            raise MalformedError(f"{where}: digest is not 32 hexadecimal digits")
        rows.append((digest, text_at(entries["name"], f"{where}: name")))
    return rows


def extremes_text(extremes: Extremes, place: Mapping[Row, int], number: Callable[[float], str]) -> str:
    """Return the extremes of a tensor as a mapping on one line.

    Args:
        extremes: of the tensor.
        place: of each sample in the table.
        number: writes a value of the tensor so that it is read exactly.
    """
    ends = (_end_text(end, place, number) for end in (extremes.lowest, extremes.highest))
    return "{" + ", ".join(f'{name}: "{text}"' for name, text in zip(_ENDS, ends, strict=True)) + "}"


def _end_text(end: Sequence[Extreme], place: Mapping[Row, int], number: Callable[[float], str]) -> str:
    return " ".join([*(str(place[e.digest, e.name]) for e in end), *(number(e.value) for e in end[1:])])


def extremes_at(
    value: object, rows: Sequence[Row], ends: tuple[float, float], number: Callable[[str], float], where: str
) -> Extremes:
    """Return the extremes that an entry of a tensor describes.

    Args:
        value: the entry.
        rows: the table of samples.
        ends: minimum and maximum of the tensor.
        number: reads a value of the tensor.
        where: the entry, for messages.

    Raises:
        MalformedError: it does not describe any, or contradicts the range.
    """
    entries = fields(value, where, _ENDS)
    found = [
        _end_at(text_at(entries[name], f"{where}: {name}"), rows, first, number, f"{where}: {name}")
        for name, first in zip(_ENDS, ends, strict=True)
    ]
    extremes = Extremes(*found)
    if wrong := fault_of_extremes(extremes):
        raise MalformedError(f"{where}: {wrong}")
    return extremes


def _end_at(
    text: str, rows: Sequence[Row], first: float, number: Callable[[str], float], where: str
) -> tuple[Extreme, ...]:
    words = text.split()
    if len(words) not in (0, 1, 3) or not all(re.fullmatch("[0-9]{1,9}", word) for word in words[:2]):
        raise MalformedError(f"{where}: '{text[:40]}' is not a row of extreme_samples, or two and a value")
    places = [int(word) for word in words[:2]]
    if any(place >= len(rows) for place in places):
        raise MalformedError(f"{where}: extreme_samples has {len(rows)} rows, and row {max(places)} is named")
    values = [first, *(_value(word, number, where) for word in words[2:])]
    return tuple(Extreme(v, *rows[place]) for v, place in zip(values, places, strict=False))


def _value(word: str, number: Callable[[str], float], where: str) -> float:
    if not re.fullmatch(r"-?[0-9]+(?:[.][0-9]+)?(?:e[-+]?[0-9]{1,3})?", word) or not math.isfinite(
        number(word)
    ):
        raise MalformedError(f"{where}: '{word[:40]}' is not a finite number")
    return number(word)


def fault_of_extremes(extremes: Extremes) -> str:
    """Return how extremes contradict themselves, "" where they do not."""
    if bool(extremes.lowest) != bool(extremes.highest):
        return "one end has samples and the other has none"
    for name, end, sign in zip(_ENDS, (extremes.lowest, extremes.highest), (1.0, -1.0), strict=True):
        order = [(sign * e.value, e.digest) for e in end]
        if order != sorted(order) or len({e.digest for e in end}) < len(end):
            return f"{name} is not two different samples in order"
    return ""
