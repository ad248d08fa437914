"""Elements of the report: everything that comes from a model is escaped here. Pure."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .text import DASH, visible

LONGEST = 96
"""Characters of a name that are shown; longer ones, which some exporters write, lose their middle."""


def esc(text: object) -> str:
    """Return a text as it stands in an element or in a quoted attribute; control characters are shown."""
    return html.escape(visible(str(text)))


def name_html(name: str) -> str:
    """Return the name of a tensor or a node: it may break after some signs, and a long one is shortened."""
    is_long = len(name) > LONGEST
    found = esc(f"{name[: LONGEST // 2]}\N{HORIZONTAL ELLIPSIS}{name[-LONGEST // 2 :]}" if is_long else name)
    for sign in ("/", ".", "_"):
        found = found.replace(sign, f"{sign}<wbr>")
    return f'<code title="{esc(name)}">{found}</code>' if is_long else f"<code>{found}</code>"


@dataclass(frozen=True)
class Cell:
    """A cell of a table.

    Attributes:
        html: what it shows.
        value: what it is sorted by; None for its text.
        is_number: whether it is aligned to the right.
        is_head: whether it names its row.
        css: class of the cell.
    """

    html: str
    value: float | None = None
    is_number: bool = False
    is_head: bool = False
    css: str = ""


def text(words: object, css: str = "") -> Cell:
    """Return a cell with words."""
    return Cell(esc(words), css=css)


def figure(words: str, value: float | None) -> Cell:
    """Return a cell with a number, which is sorted by its value; none comes last."""
    return Cell(esc(words), float("-inf") if value is None else value, True)


def head(markup: str) -> Cell:
    """Return a cell that names its row."""
    return Cell(markup, is_head=True)


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes:
        title: of the column.
        is_number: whether its title is aligned to the right.
        sortable: whether rows can be sorted by it.
        hint: longer words for the title, "" for none.
    """

    title: str
    is_number: bool = False
    sortable: bool = True
    hint: str = ""


def table(
    caption: str,
    columns: Sequence[Column],
    rows: Iterable[Sequence[Cell]],
    *,
    id_: str = "",
    attrs: Iterable[str] = (),
) -> str:
    """Return a table in a region that scrolls by itself; a single row needs no sorting.

    Args:
        caption: what it shows.
        columns: their titles.
        rows: of cells, one for each column.
        id_: of the table, if the script looks for it.
        attrs: the attributes of each row, if any.
    """
    found, attributes = list(rows), iter(attrs)
    body = "".join(f"<tr{next(attributes, '')}>{''.join(map(_cell, row))}</tr>\n" for row in found)
    heads = "".join(_column(column, len(found) > 1) for column in columns)
    named = f' id="{id_}"' if id_ else ""
    return (
        f'<div class="scroll" role="region" aria-label="Table: {esc(caption)}" tabindex="0"><table{named}>'
        f'<caption class="sr">{esc(caption)}</caption>'
        f"<thead><tr>{heads}</tr></thead><tbody>\n{body}</tbody></table></div>"
    )


def without_empty(
    columns: Sequence[Column], rows: Sequence[Sequence[Cell]]
) -> tuple[list[Column], list[list[Cell]]]:
    """Return columns and rows without the columns in which every cell says that there is nothing."""
    kept = [at for at in range(len(columns)) if any(row[at].html != DASH for row in rows)]
    return [columns[at] for at in kept], [[row[at] for at in kept] for row in rows]


def _column(column: Column, several: bool) -> str:
    css = ' class="n"' if column.is_number else ""
    hint = f' title="{esc(column.hint)}"' if column.hint else ""
    if not (column.sortable and several):
        return f'<th scope="col"{css}{hint}>{esc(column.title)}</th>'
    return (
        f'<th scope="col" aria-sort="none"{css}{hint}><button type="button">{esc(column.title)}</button></th>'
    )


def _cell(cell: Cell) -> str:
    css = " ".join(filter(None, ["n" if cell.is_number else "", cell.css]))
    classes = f' class="{css}"' if css else ""
    value = f' data-v="{cell.value:.9g}"' if cell.value is not None else ""
    if cell.is_head:
        return f'<th scope="row"{classes}{value}>{cell.html}</th>'
    return f"<td{classes}{value}>{cell.html}</td>"


def bar(start: float, end: float, css: str = "", marks: Iterable[tuple[float, str]] = ()) -> str:
    """Return a bar from `start` to `end` of its width, both from 0 to 1; `marks` are lines with a class."""
    left, right = (100.0 * min(max(x, 0.0), 1.0) for x in (start, end))
    lines = "".join(
        f'<rect class="{mark}" x="{100.0 * min(max(x, 0.0), 1.0) - 0.4:.2f}" y="0" width="0.8" height="10"/>'
        for x, mark in marks
    )
    return (
        f'<svg class="bar {css}" viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">'
        f'<rect class="rail" width="100" height="10"/>'
        f'<rect class="fill" x="{left:.2f}" width="{max(right - left, 0.3):.2f}" height="10"/>{lines}</svg>'
    )


def section(id_: str, title: str, intro: str, body: str) -> str:
    """Return a section with a heading; `intro` is plain text."""
    words = f'<p class="intro">{esc(intro)}</p>' if intro else ""
    heading = f'<h2 id="{id_}-h">{esc(title)}</h2>'
    return f'<section id="{id_}" aria-labelledby="{id_}-h">{heading}{words}\n{body}\n</section>\n'


def details(summary: str, body: str, is_open: bool = False) -> str:
    """Return a part that opens with a click."""
    return f"<details{' open' if is_open else ''}><summary>{esc(summary)}</summary>{body}</details>"


def badge(words: str, css: str) -> str:
    """Return a short word with a colour; the word says it all."""
    return f'<span class="badge {css}">{esc(words)}</span>'


def sparkline(counts: Sequence[int], columns: int = 32) -> str:
    """Return a small histogram with logarithmic heights, as a picture that says nothing to screen readers."""
    import math

    size = max(1, -(-len(counts) // columns))
    joined = [sum(counts[at : at + size]) for at in range(0, len(counts), size)]
    top = math.log1p(max(joined, default=0)) or 1.0
    heights = [round(16 * math.log1p(count) / top) for count in joined]
    path, last = "M0 16", 16
    for at, height in enumerate(heights):
        level = 16 - max(height, 1 if joined[at] else 0)
        path += (f"V{level}" if level != last else "") + f"H{2 * at + 2}"
        last = level
    return (
        f'<svg class="spark" viewBox="0 0 {2 * len(heights)} 16" preserveAspectRatio="none" '
        'aria-hidden="true">'
        f'<path d="{path}V16z"/></svg>'
    )
