"""The first screen of the report: verdict, the four figures, outputs, gates, what to try. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..content import OutputQuality, Report, WhatIf
from ..measured import is_unsure, reached_sqnr, sqnr_of
from .markup import (
    Cell,
    Column,
    badge,
    bar,
    details,
    esc,
    figure,
    head,
    name_html,
    section,
    table,
    text,
    without_empty,
)
from .text import (
    DASH,
    MINUS,
    TIMES,
    bytes_text,
    decibel_text,
    milliseconds,
    number,
    percent_text,
    plural,
    ratio_text,
    size_text,
)

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
