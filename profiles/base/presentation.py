"""How results show themselves in Python: one line, a dict, Markdown, and a small table for notebooks.

A result gives its texts once (`Presentation`); this module makes all forms from them.
"""

from __future__ import annotations

import html
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from .arguments import checks_arguments
from .errors import ConfigError
from .findings import Finding, listed
from .json_values import to_jsonable
from .output_files import write_atomically

NOTEBOOK_ROWS = 30
"""Rows of a table that a notebook shows; `to_markdown` and files have all."""

_PAGE = (
    '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
    "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
    '<meta name="viewport" content="width=device-width"><style>'
    "body{font:15px/1.5 system-ui,sans-serif;margin:2rem;overflow-x:auto}table{margin-top:1rem}"
    "th,td{padding:.2rem .7rem;border-bottom:1px solid #8884}</style>"
)
"""The beginning of a page of one result; that of a model, with pictures, is `quantizer.plugins.report`."""

_STYLE = "border-collapse:collapse;font-size:90%"


@dataclass(frozen=True)
class Table:
    """A table of texts; the first `left` columns are aligned to the left, the others are numbers."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    left: int = 1


@dataclass(frozen=True)
class Presentation:
    """The parts that a result shows of itself below its headline."""

    facts: tuple[tuple[str, str], ...] = ()
    tables: tuple[Table, ...] = ()
    findings: tuple[Finding, ...] = ()

    @property
    def lines(self) -> tuple[tuple[str, str], ...]:
        """The facts and the findings, each with its name or label."""
        return (*self.facts, *listed(self.findings))


REPORTS = (".html", ".md", ".json")
"""Endings of the names of reports."""


def is_report(path: str | os.PathLike[str]) -> bool:
    """Return whether a name asks for a report, and not for the object's own file."""
    return Path(path).suffix.lower() in REPORTS


class Presented:
    """A result that can be shown: a mixin of frozen dataclasses, which give up their own `repr`."""

    document: ClassVar[str] = ""  # name of its JSON document, as of `qprof schema`

    def __init_subclass__(cls, document: str = "") -> None:
        cls.document = document or cls.document

    def headline(self) -> str:
        """Return the result in one line."""
        raise NotImplementedError

    def presentation(self) -> Presentation:
        """Return the parts to show below the headline."""
        raise NotImplementedError

    def __repr__(self) -> str:
        """Return one line."""
        return f"<{type(self).__name__}: {self.headline()}>"

    def to_dict(self) -> dict[str, Any]:
        """Return the result as dicts, lists, strings, numbers, booleans and None, ready for `json.dumps`."""
        document: dict[str, Any] = to_jsonable(self)
        return document

    def to_markdown(self) -> str:
        """Return the result as Markdown: a heading, the facts as a list, the tables in full."""
        return "\n".join(_markdown(self.headline(), self.presentation()))

    def _repr_html_(self) -> str:
        return "".join(_html(self.headline(), self.presentation(), NOTEBOOK_ROWS))

    @checks_arguments
    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a report, in the format that the name ends in: .html, .md or .json.

        Raises:
            ConfigError: the name ends in something else, or the file cannot be written.
        """
        write_atomically(path, self._report(path))

    def _report(self, path: str | os.PathLike[str]) -> str:
        match Path(path).suffix.lower():
            case ".html":
                page = "".join(_html(self.headline(), self.presentation()))
                return f"{_PAGE}<title>{html.escape(self.headline())}</title></head>\n{page}</html>\n"
            case ".md":
                return self.to_markdown()
            case ".json":
                head = {"format": f"qprof-{self.document}/1"} if self.document else {}
                return json.dumps({**head, **self.to_dict()}, indent=2, allow_nan=False) + "\n"
        raise ConfigError(f"{path}: a report ends in .html, .md or .json; choose one of these")


def _markdown(headline: str, shown: Presentation) -> Iterator[str]:
    yield f"## {_cell(headline)}\n"
    if shown.lines:
        yield from (f"* {_cell(name)}: {_cell(value)}" for name, value in shown.lines)
        yield ""
    for table in shown.tables:
        rules = [":--" if number < table.left else "--:" for number in range(len(table.header))]
        for cells in (table.header, rules, *table.rows):
            yield "| " + " | ".join(map(_cell, cells)) + " |"
        yield ""


def _cell(text: str) -> str:
    """Return a text that stays in its cell: names of tensors may contain markup of Markdown."""
    for character in ("\\", "|", "*", "_", "<", "`"):
        text = text.replace(character, f"\\{character}")
    return " ".join(text.split("\n"))


def _html(headline: str, shown: Presentation, limit: int | None = None) -> Iterator[str]:
    yield f"<div><b>{html.escape(headline)}</b>"
    if shown.lines:
        pairs = (f"{html.escape(name)}: {html.escape(value)}" for name, value in shown.lines)
        yield f"<br>{'<br>'.join(pairs)}"
    for table in shown.tables:
        yield f'<table style="{_STYLE}"><tr>{_cells(table.header, table.left, "th")}</tr>'
        yield from (f"<tr>{_cells(row, table.left, 'td')}</tr>" for row in table.rows[:limit])
        more = 0 if limit is None else len(table.rows) - limit
        if more > 0:
            yield f'<tr><td colspan="{len(table.header)}">... and {more} more</td></tr>'
        yield "</table>"
    yield "</div>"


def _cells(cells: Sequence[str], left: int, tag: str) -> str:
    return "".join(
        f'<{tag} style="text-align:{"left" if number < left else "right"};white-space:pre">'
        f"{html.escape(cell)}</{tag}>"
        for number, cell in enumerate(cells)
    )


def decibels(value: float | None) -> str:
    """Return a ratio in dB with two digits; "equal" for an infinite one, "-" for none."""
    if value is None:
        return "-"
    return "equal" if value == float("inf") else f"{value:.2f}"


def counted(samples: int, rows: int) -> str:
    """Return how many rows there are, in words; samples, if each is one row or their rows are not known."""
    number, what = (samples, "sample") if rows in (0, samples) else (rows, "row")
    return f"{number} {what}{'s'[: number != 1]}"


def deciding_digits(
    value: float, limit: float, decimals: tuple[int, int], *, is_least: bool = False
) -> tuple[str, str]:
    """Return a figure and its limit; one that misses its limit has as many more decimals as show that."""
    is_missed = value < limit if is_least else value > limit
    common = max(decimals)
    for first, second in (decimals, *((more, more) for more in range(common, common + 15))):
        shown, of_limit = f"{value:.{first}f}", f"{limit:.{second}f}"
        difference = float(shown) - float(of_limit)
        if not is_missed or (difference < 0.0 if is_least else difference > 0.0):
            break
    return shown, of_limit


def size_text(size: int) -> str:
    """Return a size in bytes with its unit and four digits or fewer before it, as in "49.3 MB"."""
    for unit, power in (("GB", 9), ("MB", 6), ("kB", 3)):
        if size >= 10**power:
            return f"{size / 10**power:.1f} {unit}"
    return f"{size} B"


def percent(share: float | None, digits: int = 2) -> str:
    """Return a share in percent, "-" for none."""
    return "-" if share is None else f"{100 * share:.{digits}f} %"
