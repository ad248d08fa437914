"""The tensors of the report: a row for each, with a place for the card that the script draws. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from ..content import Report
from ..records import SharedGroup, TensorNoiseRecord, TensorRecord
from .markup import Cell, Column, badge, details, esc, figure, head, name_html, section, sparkline, table
from .text import decibel_text, number, percent_text, plural

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
