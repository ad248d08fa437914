"""Drift, samples, trials, notes and provenance of the report. Pure."""

from __future__ import annotations

from ....profiles.base.presentation import decibels
from ..content import Report
from ..records import DriftRecord, TensorDriftRecord
from .markup import Cell, Column, badge, details, esc, figure, head, name_html, section, table, text
from .text import DASH, TIMES, number, percent_text, plural

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
