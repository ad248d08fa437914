"""The page: sections, style and script in one file that loads nothing and that no name can break out of."""

from __future__ import annotations

import hashlib
import html
import json
import math
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from ...profiles.base.presentation import decibels, size_text
from .assemble import is_unsure, reached_sqnr, sqnr_of
from .content import (
    DriftRecord,
    FloatGroupRecord,
    NodeRecord,
    NoiseBudget,
    OutputQuality,
    Report,
    SharedGroup,
    TensorDriftRecord,
    TensorNoiseRecord,
    TensorRecord,
    WhatIf,
)
from .estimates import gain_of

# Numbers as the report shows them. Pure.

__all__ = [
    "DASH",
    "MINUS",
    "TIMES",
    "bytes_text",
    "count_text",
    "decibel_text",
    "milliseconds",
    "number",
    "percent_text",
    "plural",
    "ratio_text",
    "size_text",
    "visible",
]

DASH, MINUS, TIMES = "\N{EN DASH}", "\N{MINUS SIGN}", "\N{MULTIPLICATION SIGN}"


def number(value: float | None, digits: int = 4) -> str:
    """Return a number with some significant digits; an en dash for none."""
    if value is None:
        return DASH
    if not math.isfinite(value):
        return {math.inf: "\N{INFINITY}", -math.inf: f"{MINUS}\N{INFINITY}"}.get(value, "NaN")
    return f"{value:.{digits}g}".replace("-", MINUS)


def decibel_text(value: float | None) -> str:
    """Return an SQNR with one digit after the point; "equal" for no difference."""
    if value is None:
        return DASH
    if value == math.inf:
        return "equal"
    return f"{value:.1f}".replace("-", MINUS) if math.isfinite(value) else number(value)


def percent_text(share: float | None) -> str:
    """Return a share in percent, with the digits that tell it from 0 and 100."""
    if share is None:
        return DASH
    if share == 0.0:
        return "0 %"
    percent = 100.0 * share
    if percent < 0.01:
        return "< 0.01 %"
    return (
        f"{percent:.2f} %" if percent < 0.1 else f"{percent:.1f} %" if percent < 99.95 else f"{percent:.0f} %"
    )


def milliseconds(microseconds: float | None) -> str:
    """Return a time in milliseconds; an en dash for none."""
    if microseconds is None:
        return DASH
    if 0.0 < microseconds < 10.0:
        return f"{number(microseconds, 2)} \N{MICRO SIGN}s"
    return f"{number(microseconds / 1e3, 3)} ms"


def bytes_text(size: int) -> str:
    """Return a difference in bytes with its sign."""
    sign = "+" if size >= 0 else MINUS
    return f"{sign}{size_text(abs(size))}"


def ratio_text(before: int, after: int) -> str:
    """Return how much smaller, or larger, a file is than the one before, as in "3.82 times smaller"."""
    ratio = before / max(after, 1)
    return f"{ratio:.2f} times smaller" if ratio >= 1.0 else f"{1.0 / max(ratio, 1e-9):.2f} times larger"


def count_text(count: float) -> str:
    """Return a large number with a unit, as in "12.3 M"."""
    for unit, power in (("G", 9), ("M", 6), ("k", 3)):
        if count >= 10**power:
            return f"{count / 10**power:.3g} {unit}"
    return f"{count:.0f}"


def plural(count: int, word: str) -> str:
    """Return a count with its word, as in "3 nodes"."""
    return f"{count:,} {word}{'' if count == 1 else 's'}"


def visible(text: str) -> str:
    """Return a text with a sign for each character that would hide, reorder or break the text around it."""
    return "".join(_visible(character) for character in text)


def _visible(character: str) -> str:
    code = ord(character)
    is_control = code < 32 or 127 <= code < 160
    if is_control or 0x202A <= code <= 0x202E or 0x2066 <= code <= 0x2069 or 0xD800 <= code <= 0xDFFF:
        return "\N{REPLACEMENT CHARACTER}"
    return character


# Elements of the report: everything that comes from a model is escaped here. Pure.


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


# The nodes of the report: the graph with its table, and why nodes stay float. Pure.

MOST_ROWS = 1000
"""Nodes in the table: those that add most noise or take most time; the graph has all."""

MOST_NAMES = 200
"""Nodes of one reason that are listed."""

KINDS = {
    "quantized": ("int8", "int"),
    "lookup-table": ("table", "int"),
    "pass-through": ("moved", "int"),
    "dynamic": ("dynamic", "int"),
    "weight-only": ("weights", "float"),
    "float": ("float", "float"),
}
"""Kind of a node -> its badge."""


def kind_badge(kind: str) -> str:
    """Return the badge of a kind."""
    return badge(*KINDS.get(kind, (kind, "float")))


def graph_section(report: Report) -> str:
    """Return the places of map, graph and card, and the table of nodes."""
    if not report.nodes:
        return ""
    intro = (
        "The map has every node in the order of execution: one small square each, wide models in many lines. "
        "Choose one, or search, for the graph around it."
    )
    modes = "".join(
        f'<label><input type="radio" name="colour" value="{value}"'
        f"{' checked' if value == 'noise' else ''}> {words}</label>"
        for value, words in (("noise", "share of the noise"), ("time", "time"), ("kind", "int8 or float"))
    )
    shell = (
        '<div class="tools"><label class="find"><span>Search nodes</span>'
        '<input type="search" id="node-search" autocomplete="off" spellcheck="false" '
        'list="node-names"></label>'
        f'<fieldset class="modes"><legend>Colour by</legend>{modes}</fieldset></div>'
        '<datalist id="node-names"></datalist><p id="graph-legend" class="legend"></p>'
        '<svg id="map" role="img" aria-label="All nodes of the model in order of execution"></svg>'
        '<div class="split"><div id="node-card" class="card sticky" aria-live="polite"></div>'
        '<div id="graph-view" class="scroll" role="region" aria-label="Graph around the chosen node" '
        'tabindex="0"></div></div>'
    )
    return section("graph", "Graph", intro, f'<div id="graph-shell">{shell}</div>' + _table(report))


def _table(report: Report) -> str:
    def rank(node: NodeRecord) -> tuple[float, float]:
        return -(node.noise or 0.0), -(node.planned_us or 0.0)

    chosen = sorted(report.nodes, key=rank)[:MOST_ROWS]
    total = sum(node.multiply_adds for node in report.nodes) or 1.0
    columns = [
        Column("node"),
        Column("operator"),
        Column("kind"),
        Column("noise", True, True, "share of the noise at the output with the lowest SQNR"),
        Column("time", True, True, "predicted, as planned"),
        Column("in float", True, True, "predicted, in the float model"),
        Column("multiply-adds", True),
    ]
    rows = [
        [
            head(
                f'<button type="button" class="link" data-node="{esc(node.name)}">'
                f"{name_html(node.name)}</button>"
            ),
            text(node.operator),
            Cell(kind_badge(node.kind)),
            figure(percent_text(node.noise), node.noise),
            figure(milliseconds(node.planned_us), node.planned_us),
            figure(milliseconds(node.float_us), node.float_us),
            figure(percent_text(node.multiply_adds / total), node.multiply_adds),
        ]
        for node in chosen
    ]
    more = (
        f", {len(report.nodes) - len(chosen)} more are in the graph"
        if len(chosen) < len(report.nodes)
        else ""
    )
    return details(
        f"Table of {plural(len(chosen), 'node')}{more}", table("Nodes", columns, rows, id_="node-table")
    )


def float_section(report: Report) -> str:
    """Return why nodes stay float, with what it costs."""
    if not report.float_groups:
        return ""
    intro = (
        "Every node that stays float has a reason. The time is what these nodes take, as predicted; the gain "
        "is what int8 would save in those that it would make faster, conversions included."
    )
    total = sum(group.float_us or 0.0 for group in report.float_groups) or 1.0
    records = {node.name: node for node in report.nodes}
    columns = [
        Column("reason", False, False),
        Column("nodes", True),
        Column("time", True),
        Column("share of float time", False, False),
        Column("int8 would gain", True),
        Column("multiply-adds", True),
    ]
    rows = [
        [
            head(f'<span class="reason">{esc(_sentence(group.reason))}</span>{_names(group, records)}'),
            figure(str(len(group.nodes)), len(group.nodes)),
            figure(milliseconds(group.float_us), group.float_us),
            Cell(bar(0.0, (group.float_us or 0.0) / total)),
            figure(milliseconds(group.gain_us), group.gain_us),
            figure(percent_text(group.multiply_adds), group.multiply_adds),
        ]
        for group in report.float_groups
    ]
    return section("float", "Why float", intro, table("Why nodes stay float", *without_empty(columns, rows)))


def _sentence(reason: str) -> str:
    """Return a reason with a capital, but one that begins with the name of a target."""
    first = reason.partition(" ")[0]
    return reason if "-" in first or not first.isalnum() else reason[:1].upper() + reason[1:]


def _names(group: FloatGroupRecord, records: dict[str, NodeRecord]) -> str:
    """Return the nodes of a reason, what takes most time first."""
    order = sorted(
        group.nodes, key=lambda name: -(records[name].planned_us or 0.0) if name in records else 0.0
    )
    items = []
    for name in order[:MOST_NAMES]:
        node = records.get(name)
        price = ""
        if node is not None and node.planned_us is not None:
            price = milliseconds(node.planned_us)
            if node.quantized_us is not None and node.conversions_us is not None:
                price += f" now; int8 {milliseconds(node.quantized_us)}, "
                price += f"conversions {milliseconds(node.conversions_us)}"
                price += f": gains {milliseconds(gain)}" if (gain := gain_of(node)) else ": no gain"
            price += f"; {count_text(node.multiply_adds)} multiply-adds"
        items.append(f'<li>{name_html(name)} <span class="muted">{esc(price)}</span></li>')
    more = len(order) - MOST_NAMES
    items += [f'<li class="muted">and {more} more</li>'] if more > 0 else []
    return details(plural(len(group.nodes), "node"), f"<ul>{''.join(items)}</ul>")


# The noise of the report: the budget as a waterfall, SQNR along the graph and as measured. Pure.

SHOWN_PARTS = 14
"""Nodes of a waterfall; the rest is one step."""

WORTH_SHOWING = 0.1
"""Share of the limit from which a waterfall is drawn to the scale of the limit."""

FAR_DB = 6.0
"""Median difference in dB from which the samples themselves are suspected."""

WIDTH, HEIGHT, MARGIN = 720, 260, 44


def budget_section(report: Report) -> str:
    """Return a waterfall for each output."""
    if not report.noise:
        return ""
    intro = (
        "Which nodes make the noise of an output, as estimated: rounding enters at many places, travels "
        "through the rest of the graph and adds up. A node that is kept float takes its step away."
    )
    parts = [
        details(f"{b.output}: {decibel_text(b.sqnr)} dB", _waterfall(b), is_open=at == 0)
        for at, b in enumerate(report.noise)
    ]
    return section("budget", "Noise budget", intro, "\n".join(parts))


def _waterfall(budget: NoiseBudget) -> str:
    """Return the steps as a table: each begins where the one before it ended."""
    total = 10.0 ** (-budget.sqnr / 10.0)
    allowed = None if budget.limit is None else 10.0 ** (-budget.limit / 10.0)
    used = None if allowed is None else total / allowed
    to_limit = used is not None and used >= WORTH_SHOWING
    unit = 1.0 if used is None or not to_limit else min(used, 1.0)
    marks = [(unit / used, "limit")] if used is not None and used > 1.0 else []
    start, rows = 0.0, []
    for part in budget.parts[:SHOWN_PARTS]:
        rows.append(_step(name_html(part.node), (start, part.share, unit), part.sqnr, marks))
        start += part.share
    rest = budget.parts[SHOWN_PARTS:]
    if rest:
        share = sum(part.share for part in rest)
        sqnr = budget.sqnr - 10.0 * math.log10(share) if share > 0.0 else None
        rows.append(_step(plural(len(rest), "other node"), (start, share, unit), sqnr, marks))
    whole = Cell(bar(0.0, unit, "total", marks))
    rows.append(
        [head("all of it"), figure("100 %", 1.0), figure(decibel_text(budget.sqnr), budget.sqnr), whole]
    )
    columns = [
        Column("node", sortable=False),
        Column("share", True, False),
        Column("alone dB", True, False, "SQNR of the output with the noise of this node alone"),
        Column("noise, added up", sortable=False),
    ]
    return f"<p>{esc(_budget_words(budget, used, to_limit))}</p>" + table(
        f"Noise of {budget.output}", columns, rows
    )


def _step(
    name: str, place: tuple[float, float, float], sqnr: float | None, marks: Sequence[tuple[float, str]]
) -> list[Cell]:
    """Return a row; `place` is start and share of the noise, and the width of all of it."""
    start, share, unit = place
    drawn = bar(start * unit, (start + share) * unit, "step", marks)
    return [head(name), figure(percent_text(share), share), figure(decibel_text(sqnr), sqnr), Cell(drawn)]


def _budget_words(budget: NoiseBudget, used: float | None, to_limit: bool) -> str:
    if used is None or budget.limit is None:
        return f"Estimated SQNR {decibel_text(budget.sqnr)} dB. No limit is known of this output."
    left = budget.sqnr - budget.limit
    room = f"{left:.1f} dB of room" if left >= 0.0 else f"{-left:.1f} dB too little"
    scale = "The full width is the limit." if to_limit and used <= 1.0 else "The full width is all noise."
    return (
        f"Estimated SQNR {decibel_text(budget.sqnr)} dB; the plan allows down to "
        f"{decibel_text(budget.limit)} dB: {room}, {percent_text(used)} of the noise allowed. {scale}"
    )


def tensor_noise_section(report: Report) -> str:
    """Return estimated and measured SQNR of tensors: along the graph, against each other, as a table."""
    records = report.tensor_noise
    if not records:
        return ""
    measured = any(r.measured is not None for r in records)
    intro = "SQNR of each tensor with all the noise that came before it, in graph order."
    if measured:
        intro += f" The estimate is from the profile alone.{_agreement(records)}"
    pictures = _along(records) + (_scatter(records) if measured else "")
    return section(
        "layers",
        "Noise, tensor by tensor",
        intro,
        f'<div class="plots">{pictures}</div>' + _table_of_noise(records, measured),
    )


def _agreement(records: Sequence[TensorNoiseRecord]) -> str:
    """Return how far measured and estimated SQNR are apart, in words; "" where nothing can be compared."""
    pairs = [(r.measured, r.estimated) for r in records]
    found = sorted(m - e for m, e in pairs if m is not None and e is not None and math.isfinite(m))
    if not found:
        return ""
    middle, most = found[len(found) // 2], sorted(map(abs, found))[int(0.9 * (len(found) - 1))]
    words = (
        f" Of {plural(len(found), 'tensor')} the measured SQNR is {number(middle, 2)} dB from the estimate "
        f"in the median, and nine of ten are within {number(most, 2)} dB."
    )
    if abs(middle) < FAR_DB:
        return words
    return words + (
        " So far off, these samples are often not like those of the profile: padded, say, or prepared in "
        "another way."
    )


def _table_of_noise(records: Sequence[TensorNoiseRecord], measured: bool) -> str:
    columns = [Column("tensor"), Column("made by"), Column("type"), Column("estimated dB", True)]
    if measured:
        columns += [
            Column("measured dB", True),
            Column("difference", True, True, "measured less estimated, dB"),
            Column("drop dB", True, True, "what this node adds, measured"),
        ]
    rows = []
    for r in records:
        after = f' <span class="muted">after {esc(r.after)}</span>' if r.after else ""
        if r.is_equalized:
            after += ' <span class="muted">channels equalized: not comparable</span>'
        kind = badge("int8", "int") if r.is_quantized else badge("float", "float")
        row = [
            head(name_html(r.tensor) + after),
            text(r.operator),
            Cell(kind),
            figure(decibel_text(r.estimated), r.estimated),
        ]
        if measured:
            off = None if r.estimated is None or r.measured is None else r.measured - r.estimated
            row += [
                figure(decibel_text(r.measured), r.measured),
                figure(
                    DASH if off is None or not math.isfinite(off) else f"{off:+.1f}".replace("-", MINUS), off
                ),
                figure(decibel_text(r.drop), r.drop),
            ]
        rows.append(row)
    return details(
        f"Table of {plural(len(rows), 'tensor')}",
        table("SQNR of each tensor", columns, rows, id_="noise-table"),
        is_open=len(rows) <= 12,
    )


def _known(values: Sequence[float | None]) -> list[float]:
    return [v for v in values if v is not None and math.isfinite(v)]


def _ends(values: Sequence[float]) -> tuple[float, float]:
    low, high = min(values, default=0.0), max(values, default=60.0)
    low, high = math.floor(low / 10.0) * 10.0, math.ceil(high / 10.0) * 10.0
    return low, max(high, low + 10.0)


def _frame(titles: tuple[str, str, str], body: str, low: float, high: float) -> str:
    """Return a figure with a scale of dB at its left; `titles` are its title, key and horizontal axis."""
    title, words, x_words = titles
    lines = []
    for tick in range(int(low), int(high) + 1, 10 if high - low <= 80 else 20):
        y = _y(tick, low, high)
        lines.append(f'<line class="grid" x1="{MARGIN}" x2="{WIDTH - 8}" y1="{y:.1f}" y2="{y:.1f}"/>')
        lines.append(f'<text x="{MARGIN - 6}" y="{y + 4:.1f}" text-anchor="end">{number(tick)}</text>')
    return (
        f'<figure><figcaption>{esc(title)} <span class="muted">{esc(words)}</span></figcaption>'
        f'<svg class="plot" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="{esc(title)}; the table below has its figures">'
        f"{''.join(lines)}{body}"
        f'<text x="{MARGIN - 6}" y="10" text-anchor="end">dB</text>'
        f'<text x="{WIDTH - 8}" y="{HEIGHT - 4}" text-anchor="end">{esc(x_words)}</text></svg></figure>'
    )


def _y(value: float, low: float, high: float) -> float:
    return 16.0 + (HEIGHT - 46.0) * (1.0 - (value - low) / (high - low))


def _along(records: Sequence[TensorNoiseRecord]) -> str:
    """Return SQNR over the position in the graph: a line for the estimates, points for what was measured."""
    records = [r for r in records if _known([r.estimated, r.measured])]
    low, high = _ends(_known([r.estimated for r in records] + [r.measured for r in records]))
    step = (WIDTH - MARGIN - 16.0) / max(len(records) - 1, 1)
    x = [MARGIN + 4.0 + step * at for at in range(len(records))]
    line = " ".join(
        f"{x[at]:.1f},{_y(r.estimated, low, high):.1f}"
        for at, r in enumerate(records)
        if r.estimated is not None and math.isfinite(r.estimated)
    )
    dots = "".join(
        _point(x[at], _y(r.measured, low, high), r)
        for at, r in enumerate(records)
        if r.measured is not None and math.isfinite(r.measured) and not r.is_equalized
    )
    key = "line: estimated" + ("; ● int8, ○ float: measured" if dots else "")
    titles = ("SQNR along the graph", key, "graph order")
    return _frame(titles, f'<polyline class="line" points="{line}"/>{dots}', low, high)


def _scatter(records: Sequence[TensorNoiseRecord]) -> str:
    """Return measured over estimated SQNR, with the diagonal."""
    both = [
        r for r in records if r.estimated is not None and r.measured is not None and math.isfinite(r.measured)
    ]
    if not both:
        return ""
    low, high = _ends(_known([r.estimated for r in both] + [r.measured for r in both]))

    def x(value: float) -> float:
        return MARGIN + 4.0 + (WIDTH - MARGIN - 16.0) * (value - low) / (high - low)

    diagonal = (
        f'<line class="diagonal" x1="{x(low):.1f}" y1="{_y(low, low, high):.1f}" '
        f'x2="{x(high):.1f}" y2="{_y(high, low, high):.1f}"/>'
    )
    ticks = "".join(
        f'<text x="{x(tick):.1f}" y="{HEIGHT - 18}" text-anchor="middle">{number(tick)}</text>'
        for tick in range(int(low), int(high) + 1, 10 if high - low <= 80 else 20)
    )
    dots = "".join(_point(x(r.estimated or 0.0), _y(r.measured or 0.0, low, high), r) for r in both)
    titles = ("Measured against estimated", "● int8, ○ float", "estimated dB")
    return _frame(titles, diagonal + ticks + dots, low, high)


def _point(x: float, y: float, record: TensorNoiseRecord) -> str:
    css = "dot int" if record.is_quantized else "dot float"
    estimated, measured = decibel_text(record.estimated), decibel_text(record.measured)
    words = f"{record.tensor}: estimated {estimated}, measured {measured} dB"
    return f'<circle class="{css}" cx="{x:.1f}" cy="{y:.1f}" r="3.5"><title>{esc(words)}</title></circle>'


# Drift, samples, trials, notes and provenance of the report. Pure.

NIGHT_ROWS = 25
"""Tensors of the table of all nights: those that drifted most in one of them."""


def drift_section(report: Report) -> str:
    """Return how newer profiles differ from that of the plan."""
    if not report.drift:
        return ""
    intro = (
        "Newer data against the data that the model was quantized with: the Jensen-Shannon distance of the "
        "values (0 alike, 1 apart), how many saturate, by how much ranges have grown."
    )
    body = _nights(report.drift) if len(report.drift) > 1 else ""
    last = len(report.drift) - 1
    body += "\n".join(details(_night(d), _one(d), at == last) for at, d in enumerate(report.drift))
    return section("drift", "Drift", intro, body)


def _night(drift: DriftRecord) -> str:
    result = ", within limits" if drift.passed else ", exceeds limits"
    return f"{drift.profile}: {plural(drift.samples, 'sample')}{result if drift.gated else ''}"


def _nights(nights: tuple[DriftRecord, ...]) -> str:
    """Return distances by tensor and night: darker cells are farther away."""
    by_night = [{t.tensor: t for t in night.tensors} for night in nights]
    most: dict[str, float] = {}
    for night in by_night:
        for name, t in night.items():
            most[name] = max(most.get(name, 0.0), _distance(t))
    worst = sorted(most, key=lambda name: -most[name])[:NIGHT_ROWS]
    columns = [Column("tensor"), *(Column(night.profile, True) for night in nights)]
    rows = [[head(name_html(name)), *(_night_cell(night.get(name)) for night in by_night)] for name in worst]
    return table("Distance by tensor and night", columns, rows)


def _distance(t: TensorDriftRecord) -> float:
    return 1.0 if t.distance is None else t.distance


def _night_cell(t: TensorDriftRecord | None) -> Cell:
    if t is None:
        return Cell(DASH, -1.0, True)
    level = min(4, int(_distance(t) / 0.1))
    mark = " ✗" if t.failed else ""
    return Cell(esc(number(t.distance, 2) + mark), _distance(t), True, css=f"heat{level}")


def _one(drift: DriftRecord) -> str:
    columns = [
        Column("tensor"),
        Column("distance", True),
        Column("clipped", True),
        Column("range", True, True, "factor by which the range has grown"),
        Column("limits"),
    ]
    rows = [
        [
            head(name_html(t.tensor)),
            figure(number(t.distance, 3), _distance(t)),
            figure(percent_text(t.clipping), t.clipping),
            figure(f"{TIMES} {number(t.range_growth, 3)}", t.range_growth),
            Cell(badge("✗ exceeded", "poor") if t.failed else ""),
        ]
        for t in drift.tensors
    ]
    notes = "".join(f"<p>{esc(note)}</p>" for note in drift.notes)
    return notes + table(f"Drift of {drift.profile}", columns, rows)


def samples_section(report: Report) -> str:
    """Return the samples that stand out."""
    if not report.samples:
        return ""
    columns = [
        Column("sample"),
        Column("SQNR dB", True, True, "of the output that differs most on it, where it is one of the lowest"),
        Column("makes the extremes of", True, True, "tensors whose smallest or largest value it made"),
        Column("is clipped in", True, True, "quantized tensors in which its extreme values saturate"),
    ]
    rows = [
        [
            head(f"<code>{esc(s.sample)}</code>"),
            figure(DASH if s.sqnr is None else decibels(s.sqnr), s.sqnr),
            figure(plural(s.extremes, "tensor"), s.extremes),
            figure(plural(s.clipped, "tensor"), s.clipped),
        ]
        for s in report.samples
    ]
    intro = (
        "The samples with the lowest SQNR are those on which the quantized model differs most. Samples that "
        "hold the most extreme values decide the ranges. One that does so in far more tensors "
        "than the others is an outlier, or the only one of its kind: look at it first."
    )
    return section("samples", "Samples that stand out", intro, table("Samples", columns, rows))


def trials_section(report: Report) -> str:
    """Return the trials of a tuning."""
    if not report.trials:
        return ""
    columns = [
        Column("trial", True),
        Column("settings"),
        Column("kept float", True),
        Column("quantized", True),
        Column("drop, points", True),
        Column("value", True),
        Column(""),
    ]
    rows = [
        [
            figure(str(at + 1), at),
            text(t.settings),
            figure(str(t.kept_float), t.kept_float),
            figure(str(t.quantized), t.quantized),
            figure(DASH if t.drop is None else f"{t.drop:.2f}", t.drop),
            figure(number(t.value, 3), t.value),
            Cell(badge("✓ chosen", "good") if t.chosen else esc(t.error)),
        ]
        for at, t in enumerate(report.trials)
    ]
    return section("trials", "Trials", "The plans that tune tried, in order.", table("Trials", columns, rows))


def provenance_section(report: Report) -> str:
    """Return where all of it comes from, and remarks."""
    facts = "".join(f"<dt>{esc(f.name)}</dt><dd>{esc(f.text)}</dd>" for f in report.provenance)
    kinds = ", ".join(f"{count} {kind}" for kind, count in report.kinds.items())
    facts += f"<dt>nodes</dt><dd>{esc(kinds)}</dd>" if kinds else ""
    notes = "".join(f"<li>{esc(note)}</li>" for note in report.notes)
    body = f"<dl>{facts}</dl>" + (f"<h3>Notes</h3><ul>{notes}</ul>" if notes else "")
    return section("provenance", "Provenance", "", body)


# The tensors of the report: a row for each, with a place for the card that the script draws. Pure.

NOTABLE_CLIPPING = 1e-3
"""Share of clipped values from which a tensor is marked."""

WORTH_DB = 0.1
"""dB lost from which a group is shown at once."""

MOST_GROUPS = 60
"""Groups of shared scales that are listed: those that cost a member most."""


def tensors_section(report: Report) -> str:
    """Return the table of activations, and the place of the card."""
    if not report.tensors:
        return ""
    noise = {r.tensor: r for r in report.tensor_noise}
    columns = [
        Column("tensor"),
        Column("values", sortable=False, hint="histogram with logarithmic heights"),
        Column("type"),
        Column("own dB", True, True, "SQNR of rounding this tensor alone"),
        Column("total dB", True, True, "SQNR with all noise that came before: measured, else estimated"),
        Column("clipped", True, True, "share of the values that saturate by more than one step"),
        Column("minimum", True),
        Column("maximum", True),
    ]
    rows = [_row(at, record, noise) for at, record in enumerate(report.tensors)]
    attrs = [f' data-tensor="{at}" data-kind="{_kind(r)}"' for at, r in enumerate(report.tensors)]
    intro = (
        "What flowed through the model while it was profiled, and what the plan makes of it. Choose a tensor "
        "for its histogram, its limits and what other calibrators would have chosen."
    )
    tools = (
        '<div class="tools"><label class="find"><span>Search tensors</span>'
        '<input type="search" data-for="tensor-table" autocomplete="off" spellcheck="false"></label>'
        '<label class="find"><span>Show</span><select data-for="tensor-table">'
        '<option value="">all</option><option value="int8">quantized</option>'
        '<option value="float">float</option><option value="clips">clipped values</option>'
        '<option value="shared">shared scale</option><option value="odd">NaN or infinite</option>'
        '</select></label><p class="count" role="status" data-count="tensor-table"></p></div>'
    )
    body = (
        f'{tools}<div class="split"><div id="tensor-card" class="card sticky" aria-live="polite">'
        f'<p class="muted">Choose a tensor from the table.</p></div>'
        f"{table('Tensors', columns, rows, id_='tensor-table', attrs=attrs)}</div>"
    )
    return section("tensors", "Tensors", intro, body)


def _kind(record: TensorRecord) -> str:
    """Return the words that the filter of the table looks for."""
    words = ["int8" if record.parameters is not None else "float"]
    if _is_clipped(record):
        words.append("clips")
    words += ["shared"] if record.group is not None else []
    words += ["odd"] if record.non_finite else []
    return " ".join(words)


def _is_clipped(record: TensorRecord) -> bool:
    """Whether values are lost by saturation: not those that the function after the tensor flattens."""
    params = record.parameters
    return params is not None and params.clipped >= NOTABLE_CLIPPING and not record.following


def _row(at: int, record: TensorRecord, noise: Mapping[str, TensorNoiseRecord]) -> list[Cell]:
    params, here = record.parameters, noise.get(record.name)
    upstream = None if here is None else here.estimated if here.measured is None else here.measured
    clipped = None if params is None else params.clipped
    mark = " ⚠" if _is_clipped(record) else ""
    spark = sparkline(record.histogram.counts) if record.histogram else ""
    return [
        head(
            f'<button type="button" class="link" data-show="{at}">{name_html(record.name)}</button>'
            f'<span class="muted">{esc(record.operator)}, {esc(record.shape)}</span>'
        ),
        Cell(spark),
        Cell(badge("float", "float") if params is None else badge(params.type, "int")),
        figure(
            decibel_text(None if params is None else params.sqnr), None if params is None else params.sqnr
        ),
        figure(decibel_text(upstream), upstream),
        figure(percent_text(clipped) + mark, clipped),
        figure(number(record.minimum), record.minimum),
        figure(number(record.maximum), record.maximum),
    ]


def shared_section(report: Report) -> str:
    """Return who forced whose scale, and what it costs."""
    groups = sorted(report.shared, key=lambda group: -_most_lost(group))
    if not groups:
        return ""
    intro = (
        "Some operators need one scale for several tensors, as Concat for all its inputs. The widest range "
        "wins; a tensor with a narrower one loses resolution: 6 dB for each factor of two."
    )
    dear = [group for group in groups if _most_lost(group) >= WORTH_DB][:MOST_GROUPS]
    parts = [_group(group) for group in dear]
    rest = groups[len(dear) : len(dear) + MOST_GROUPS]
    if rest:
        words = f"{plural(len(groups) - len(dear), 'group')} that cost less than {WORTH_DB:g} dB"
        parts.append(details(words, "".join(map(_group, rest))))
    return section("shared", "Shared scales", intro, "\n".join(parts))


def _most_lost(group: SharedGroup) -> float:
    return max((member.lost_db for member in group.members), default=0.0)


def _group(group: SharedGroup) -> str:
    setters = [m.tensor for m in group.members if m.sets_range]
    lost = _most_lost(group)
    columns = [
        Column("tensor"),
        Column("own range", False, False),
        Column("sets the range"),
        Column("lost dB", True),
    ]
    rows = [
        [
            head(name_html(m.tensor)),
            Cell(esc(f"{number(m.low)} to {number(m.high)}")),
            Cell("yes" if m.sets_range else ""),
            figure(decibel_text(m.lost_db), m.lost_db),
        ]
        for m in sorted(group.members, key=lambda m: -m.lost_db)
    ]
    tied = ", ".join(map(name_html, group.tied_by[:6])) + (" …" if len(group.tied_by) > 6 else "")
    words = (
        f"<p>Tied by {tied}; common range {number(group.low)} to {number(group.high)}.</p>" if tied else ""
    )
    costs = f"costs up to {lost:.1f} dB" if lost >= 0.05 else "costs nothing"
    title = f"{plural(len(group.members), 'tensor')}, range of {', '.join(setters[:2])}: {costs}"
    return details(title, words + table("Tensors with one scale", columns, rows))


# The first screen of the report: verdict, the four figures, outputs, gates, what to try. Pure.

LEVELS = {
    "good": ("✓", "Good"),
    "fair": ("◐", "Fair"),
    "poor": ("✗", "Poor"),
    "passed": ("✓", "Passed"),
    "failed": ("✗", "Failed"),
    "unknown": ("?", "Unknown"),
}
"""Sign and word of a verdict."""

SCALE_DB = 60.0
"""An SQNR of this many dB fills a bar."""


def hero(report: Report) -> str:
    """Return verdict and figures."""
    sign, word = LEVELS[report.verdict.level]
    besides = report.verdict.grade_besides
    grade = f" {badge(besides, report.verdict.grade)}" if besides else ""
    causes = "".join(f"<li>{esc(cause)}</li>" for cause in report.verdict.causes)
    return (
        f'<section id="summary" aria-labelledby="summary-h" class="hero">'
        f'<div class="verdict {esc(report.verdict.level)}">'
        f'<span class="sign" aria-hidden="true">{sign}</span>'
        f'<div><h2 id="summary-h">{word}{grade}</h2><p>{esc(report.verdict.sentence)}</p>'
        f"{f'<ul>{causes}</ul>' if causes else ''}</div></div>\n"
        f'<div class="tiles">{"".join(_tiles(report))}</div></section>\n'
    )


def _tile(label: str, value: str, words: str, picture: str = "") -> str:
    return (
        f'<div class="tile"><p class="label">{esc(label)}</p><p class="value">{esc(value)}</p>'
        f'{picture}<p class="words">{esc(words)}</p></div>'
    )


def _tiles(report: Report) -> Iterator[str]:
    if report.outputs:
        worst = report.outputs[0]
        yield _tile(
            "Quality, worst output",
            f"{decibel_text(sqnr_of(worst))} dB",
            _quality_words(worst),
            quality_bar(worst),
        )
    if report.size is not None and report.size.quantized_bytes is not None:
        size, small = report.size, report.size.quantized_bytes
        times = f"{ratio_text(size.float_bytes, small)} than {size_text(size.float_bytes)}"
        about = ", estimated" if size.is_estimated else ""
        yield _tile("Size", size_text(small), times + about, bar(0.0, small / max(size.float_bytes, 1)))
    if report.speed is not None:
        speed = report.speed
        times = (
            f"{number(speed.float_ms, 3)} ms float, {number(speed.quantized_ms, 3)} ms quantized, {speed.how}"
        )
        yield _tile(
            "Speed", f"{speed.speedup:.2f} {TIMES}", times, bar(0.0, min(1.0, 1.0 / max(speed.speedup, 1e-9)))
        )
    if report.int8_share is not None:
        words = "of the multiply-adds on integers"
        yield _tile("In int8", percent_text(report.int8_share), words, bar(0.0, report.int8_share))


def _quality_words(output: OutputQuality) -> str:
    if output.measured is not None:
        expected = "" if output.estimated is None else f", {decibel_text(output.estimated)} dB expected"
        return f"SQNR of '{output.name}', measured{expected}"
    band = "" if output.low is None else f" ({output.low:.0f} to {output.high or 0.0:.0f})"
    return f"SQNR of '{output.name}', expected{band}"


def quality_bar(output: OutputQuality) -> str:
    """Return the band that is expected of an output, with the estimate and what was measured."""
    marks = [(output.estimated / SCALE_DB, "expected")] if output.estimated is not None else []
    marks += [(output.measured / SCALE_DB, "measured")] if output.measured is not None else []
    known = sqnr_of(output)
    low = output.low if output.low is not None else 0.0
    high = output.high if output.high is not None else known
    return bar(low / SCALE_DB, high / SCALE_DB, "band", marks)


def outputs_section(report: Report) -> str:
    """Return the outputs with what was expected and measured."""
    if not report.outputs:
        return ""
    columns = [
        Column("output"),
        Column("expected dB", True),
        Column("band", False, False, "where nine of ten outputs lie"),
        Column("measured dB", True),
        Column("needed dB", True, True, "from which on such an output is good"),
        Column("0 to 60 dB", False, False),
        Column("cosine", True),
        Column("equal answers", True),
    ]
    rows = [
        [
            head(name_html(o.name) + (f'<span class="muted">{esc(o.kind)}</span>' if o.kind else "")),
            figure(decibel_text(o.estimated), o.estimated),
            text(DASH if o.low is None else f"{o.low:.0f} to {o.high or 0.0:.0f}", "whole"),
            figure(decibel_text(o.measured), o.measured),
            figure(decibel_text(o.needed), o.needed),
            Cell(quality_bar(o)),
            figure(DASH if o.cosine is None else f"{o.cosine:.6f}", o.cosine),
            figure(percent_text(o.agreement), o.agreement),
        ]
        for o in report.outputs
    ]
    facts = "".join(f"<dt>{esc(f.name)}</dt><dd>{esc(f.text)}</dd>" for f in report.facts)
    body = table("Outputs", *without_empty(columns, rows)) + (f"<dl>{facts}</dl>" if facts else "")
    intro = (
        "SQNR compares the signal of an output with the noise that quantization adds: 20 dB is a tenth of "
        "the signal, 40 dB a hundredth. The bar shows the expected band, a thin line the estimate, a thick "
        "one what was measured."
    )
    return section("outputs", "Outputs", intro, body)


def gates_section(report: Report) -> str:
    """Return the limits and whether they are kept."""
    if not report.gates:
        return ""
    rows = [
        [
            head(f'<code>{esc(gate.name)}</code><span class="muted">{esc(gate.subject)}</span>'),
            figure(gate.limit_text or DASH, gate.limit),
            Cell(badge("✓ passed", "good") if gate.passed else badge("✗ failed", "poor")),
            text("; ".join(gate.failures) or DASH),
        ]
        for gate in report.gates
    ]
    columns = [Column("gate"), Column("limit", True), Column("result"), Column("where", False, False)]
    failed = sum(not gate.passed for gate in report.gates)
    intro = f"{plural(failed, 'gate')} failed." if failed else "All gates passed."
    return section("gates", "Gates", intro, table("Gates", columns, rows))


def what_ifs_section(report: Report) -> str:
    """Return what other settings would bring, with commands to copy."""
    if not report.what_ifs:
        return ""
    intro = (
        "Each of these plans was made and estimated as qprof quantize would do it; those that were run on "
        "samples say so. The SQNR is that of the output with the lowest."
        " Each command writes files of its own."
    )
    if any(is_unsure(change, report.outputs) for change in report.what_ifs):
        intro += (
            " What was measured lies outside of the expected band: gains that are unsure may be as far off."
        )
    cards = "".join(_what_if(change, report.outputs) for change in report.what_ifs)
    return section("try", "What to try", intro, f'<div class="cards">{cards}</div>')


def _what_if(change: WhatIf, outputs: Sequence[OutputQuality]) -> str:
    figures = []
    if change.gained is not None:
        css, sign = ("up", "+") if change.gained >= 0.0 else ("down", MINUS)
        reached = reached_sqnr(change, outputs)
        to = "" if reached is None else f" <span>to {reached:.1f} dB</span>"
        figures.append(f'<b class="{css}">{sign}{abs(change.gained):.1f} dB</b>{to}')
    if change.speedup is not None:
        figures.append(f"<b>{change.speedup:.2f} {TIMES}</b> <span>{_time(change.added_us)}</span>")
    if change.added_bytes:
        words = "on disk: weights in float" if change.added_bytes > 0 else "on disk"
        figures.append(f"<b>{esc(bytes_text(change.added_bytes))}</b> <span>{words}</span>")
    shown = "".join(f'<span class="fig">{part}</span>' for part in figures)
    nodes = ""
    if change.nodes:
        names = "".join(f"<li>{name_html(name)}</li>" for name in change.nodes)
        nodes = details(plural(len(change.nodes), "node"), f"<ul>{names}</ul>")
    mark = badge("measured", "good") if change.is_measured else badge("estimated", "plain")
    if is_unsure(change, outputs):
        mark = badge("estimated, unsure", "fair")
    return (
        f'<article class="card"><h3>{esc(change.title)} {mark}</h3><p class="figures">{shown}</p>'
        f'<div class="copy"><pre tabindex="0"><code>{esc(change.command)}</code></pre>'
        '<button type="button" class="do-copy">Copy<span class="sr"> the command</span></button></div>'
        f"{nodes}</article>\n"
    )


def _time(added: float | None) -> str:
    """Return by how much a run takes longer, or what the ratio is of."""
    if added is None:
        return "as fast as float"
    more = f", {'+' if added > 0.0 else MINUS}{milliseconds(abs(added))} a run" if added else ""
    return f"as fast as float{more}, predicted"


# What the script of the report draws from: compact JSON inside the page. Pure.


def payload(report: Report) -> str:
    """Return tensors and nodes as JSON that cannot end the element that holds it."""
    noise = {r.tensor: (r.estimated, r.measured) for r in report.tensor_noise}
    text = json.dumps(
        {
            "tensors": [_tensor(t, *noise.get(t.name, (None, None))) for t in report.tensors],
            "nodes": _nodes(report.nodes),
            "groups": [
                {
                    "by": list(g.tied_by[:8]),
                    "of": [[m.tensor, m.sets_range, _figure(m.lost_db, 3)] for m in g.members[:40]],
                }
                for g in report.shared
            ],
        },
        separators=(",", ":"),
        allow_nan=False,
        ensure_ascii=True,
    )
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _figure(value: float | None, digits: int = 6) -> float | str | None:
    """Return a number with some digits; infinite ones as words, since JSON has none."""
    if value is None:
        return None
    if not math.isfinite(value):
        return str(value)
    short = float(f"{value:.{digits}g}")
    return int(short) if short == int(short) and abs(short) < 1e15 else short


def _tensor(t: TensorRecord, estimated: float | None, measured: float | None) -> dict[str, Any]:
    found: dict[str, Any] = {
        "n": t.name,
        "s": t.shape,
        "by": [t.made_by, t.operator],
        "to": list(t.read_by[:24]),
        "r": [_figure(t.minimum, 7), _figure(t.maximum, 7)],
        "c": [t.count, t.zeros, t.non_finite],
    }
    if t.histogram is not None:
        found["h"] = [_figure(t.histogram.start, 9), _figure(t.histogram.width, 9), list(t.histogram.counts)]
    if t.parameters is not None:
        p = t.parameters
        found["q"] = [
            p.type,
            _figure(p.scale),
            p.zero_point,
            _figure(p.low),
            _figure(p.high),
            _figure(p.clipped, 3),
            _figure(p.sqnr, 4),
        ]
        found["k"] = [
            [c.name, _figure(c.low, 5), _figure(c.high, 5), _figure(c.clipped, 3), _figure(c.sqnr, 4)]
            for c in t.calibrators
        ]
    for key, value in (("e", estimated), ("m", measured)):
        if value is not None:
            found[key] = _figure(value, 4)
    if t.following:
        found["f"] = t.following
    if t.is_equalized:
        found["eq"] = 1
    if t.group is not None:
        found["g"] = t.group
    if t.minimum_samples or t.maximum_samples:
        found["x"] = [list(t.minimum_samples), list(t.maximum_samples)]
    return found


def _nodes(nodes: Sequence[NodeRecord]) -> dict[str, Any]:
    """Return the nodes as columns: most have few figures, and many share a reason."""
    makers = {name: at for at, node in enumerate(nodes) for name in node.outputs}
    words: dict[str, int] = {}

    def word(text: str) -> int:
        return words.setdefault(text, len(words))

    rows = [
        [
            word(n.operator),
            word(n.kind),
            word(n.reason),
            _figure(n.float_us, 4),
            _figure(n.planned_us, 4),
            _figure(n.quantized_us, 4),
            _figure(n.conversions_us, 4),
            _figure(n.multiply_adds, 4),
            _figure(n.noise, 3),
            [makers[name] for name in n.inputs if name in makers],
        ]
        for n in nodes
    ]
    return {
        "names": [n.name for n in nodes],
        "outs": [list(n.outputs) for n in nodes],
        "words": list(words),
        "rows": rows,
    }


SCRIPTS = ("page.js", "tensor.js", "graph.js")
"""The scripts, in the order in which they run: one text in the page."""

SECTIONS = (
    ("summary", "Summary", hero),
    ("gates", "Gates", gates_section),
    ("outputs", "Outputs", outputs_section),
    ("try", "What to try", what_ifs_section),
    ("trials", "Trials", trials_section),
    ("budget", "Noise budget", budget_section),
    ("layers", "Tensor by tensor", tensor_noise_section),
    ("tensors", "Tensors", tensors_section),
    ("graph", "Graph", graph_section),
    ("float", "Why float", float_section),
    ("shared", "Shared scales", shared_section),
    ("samples", "Samples", samples_section),
    ("drift", "Drift", drift_section),
    ("provenance", "Provenance", provenance_section),
)
"""Id, name in the list of contents, and writer of each section, in order."""


def page(report: Report) -> str:
    """Return report.html."""
    style, script = asset("report.css"), "\n".join(map(asset, SCRIPTS))
    policy = (
        f"default-src 'none'; style-src 'sha256-{digest(style)}'; script-src 'sha256-{digest(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    sections = [(id_, name, write(report)) for id_, name, write in SECTIONS]
    links = "".join(f'<li><a href="#{id_}">{name}</a></li>' for id_, name, body in sections if body)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="referrer" content="no-referrer">\n'
        f"<title>{esc(report.title)} | qprof</title>\n<style>{style}</style>\n</head>\n<body>\n"
        '<a class="skip" href="#main">Skip to the report</a>\n'
        f'<header><div><p class="brand">qprof report</p><h1>{esc(report.title)}</h1></div>'
        '<button type="button" id="theme" aria-pressed="false">Dark theme</button></header>\n'
        f'<nav aria-label="Sections"><ul>{links}</ul></nav>\n<main id="main" tabindex="-1">\n'
        '<noscript><p class="note">Without scripts there is no search, no sorting, no card and no graph; '
        "all tables are here.</p></noscript>\n"
        f"{''.join(body for _, _, body in sections)}</main>\n"
        f"<footer><p>{esc(report.tool)}. This file is complete: it loads nothing.</p></footer>\n"
        f'<script type="application/json" id="data">{payload(report)}</script>\n'
        f"<script>{script}</script>\n</body>\n</html>\n"
    )


@cache
def asset(name: str) -> str:
    """Return a file of the folder of style and scripts."""
    return files(__package__).joinpath("assets", name).read_text("utf-8")


def digest(text: str) -> str:
    """Return the SHA-256 of a text as a content security policy writes it."""
    return b64encode(hashlib.sha256(text.encode()).digest()).decode()
