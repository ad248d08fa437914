"""The noise of the report: the budget as a waterfall, SQNR along the graph and as measured. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..content import Report
from ..records import NoiseBudget, TensorNoiseRecord
from .markup import Cell, Column, badge, bar, details, esc, figure, head, name_html, section, table, text
from .text import DASH, MINUS, decibel_text, number, percent_text, plural

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
        f'<div class="plots">{pictures}</div>' + _table(records, measured),
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


def _table(records: Sequence[TensorNoiseRecord], measured: bool) -> str:
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
