"""The nodes of the report: the graph with its table, and why nodes stay float. Pure."""

from __future__ import annotations

from ..content import Report
from ..nodes import gain_of
from ..records import FloatGroupRecord, NodeRecord
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
from .text import count_text, milliseconds, percent_text, plural

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
