"""report.html: one file that loads nothing and that no name can break out of.

The templates (templates/page.html and those that it takes the sections from) lay out the page; this module
gives them functions for the records of a report. Every expression of a template is escaped, and characters
of a name that would hide, reorder or break the text around them are replaced (`visible`).
"""

from __future__ import annotations

import hashlib
import json
import math
from base64 import b64encode
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup, escape

from ....profiles.base.presentation import decibels, size_text
from .content import (
    FloatGroupRecord,
    NodeRecord,
    Report,
    TensorRecord,
    score_figure,
)
from .drawings import sparkline_path
from .figures import DASH, count_text, decibel_text, duration, number, percent_text, plural, visible

SCRIPTS = ("page.js", "tensor.js", "graph.js")
"""The scripts, in the order in which they run: one text in the page."""

LEVELS = {
    "good": ("✓", "Good"),
    "fair": ("◐", "Fair"),
    "poor": ("✗", "Poor"),
    "passed": ("✓", "Passed"),
    "failed": ("✗", "Failed"),
    "not proven": ("!", "Not proven"),
    "none": ("?", "None"),
}
"""Sign and word of a verdict."""

NODE_KINDS = {
    "quantized": ("int8", "int"),
    "lookup-table": ("table", "int"),
    "pass-through": ("moved", "int"),
    "dynamic": ("dynamic", "int"),
    "weight-only": ("weights", "float"),
    "float": ("float", "float"),
}
"""Word and colour of each kind of node."""

MAX_NAME_CHARACTERS = 96
"""Characters of a name that are shown; longer ones, which some exporters write, lose their middle."""

MAX_LAYER_ROWS = 1000
"""Layers with a row of their own: those that add most noise or take most time; the graph has all."""

MAX_FLOAT_NODES = 200
"""Nodes of one reason that are listed."""

MAX_STEPS = 14
"""Nodes of a noise budget that have a row of their own."""

MAX_SHOWN_OBJECTS = 8
"""Objects that are listed and drawn of a picture: the surest."""

MAX_DRIFT_ROWS = 200
"""Tensors of a newer profile that are listed, the worst first."""

NOTABLE_CLIPPING = 1e-3
"""Share of clipped values from which a tensor is marked."""


def page(report: Report) -> str:
    """Return report.html; the same report gives the same bytes."""
    return (
        _environment()
        .get_template("page.html")
        .render(
            report=report,
            style=Markup(_asset("assets/report.css")),
            script=Markup("\n".join(_asset(f"assets/{name}") for name in SCRIPTS)),
            data=Markup(script_data(report)),
        )
    )


@cache
def _asset(path: str) -> str:
    return files(__package__).joinpath(*path.split("/")).read_text("utf-8")


@cache
def _environment() -> Environment:
    """Return the environment of the templates: everything that one prints is escaped and made visible."""
    environment = Environment(
        autoescape=True,
        finalize=lambda value: visible(value) if type(value) is str else value,  # Markup is escaped already
        loader=FunctionLoader(lambda name: _asset(f"templates/{name}")),
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    environment.globals.update(
        MAX_DRIFT_ROWS=MAX_DRIFT_ROWS,
        MAX_SHOWN_OBJECTS=MAX_SHOWN_OBJECTS,
        MAX_STEPS=MAX_STEPS,
        column=Column,
        dash=DASH,
        known_fields=known_fields,
        levels=LEVELS,
        node_kinds=NODE_KINDS,
    )
    environment.filters.update(
        by_tensor=sqnr_by_tensor,
        capitalised=capitalised,
        count=count_text,
        decibels=decibel_text,
        drift_distance=drift_distance,
        duration=duration,
        layer_rows=layer_rows,
        places=lambda nodes: {node.name: f"in {node.run_by}" for node in nodes if node.run_by},
        name=name_code,
        noise_share=lambda sqnr: percent_text(10.0 ** (-sqnr / 20.0)),
        number=number,
        one_line=lambda markup: Markup(" ".join(markup.split())),
        percent=percent_text,
        percent_of_width=lambda share: 100.0 * min(max(share, 0.0), 1.0),
        plain_decibels=decibels,
        plural=plural,
        score=score_figure,
        sha256=lambda text: Markup(f"sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}"),
        size=size_text,
        slowest_first=slowest_first,
        sort_value=lambda value: "-inf" if value is None else f"{value:.9g}",
        sparkline_path=sparkline_path,
    )
    environment.tests.update(
        clipped=is_clipped,
        faster_than=is_slower,
        finite=lambda value: value is not None and math.isfinite(value),
    )
    return environment


@dataclass(frozen=True)
class Column:
    """A column of a table."""

    title: str
    is_number: bool = False  # whether its title is aligned to the right
    sortable: bool = True  # whether rows can be sorted by it
    hint: str = ""  # longer words for the title, "" for none
    shown: bool = True  # whether there is anything in it


def name_code(name: str) -> Markup:
    """Return the name of a tensor or a node: it may break after some signs, and a long one is shortened."""
    is_long = len(name) > MAX_NAME_CHARACTERS
    half = MAX_NAME_CHARACTERS // 2
    text = escape(visible(f"{name[:half]}\N{HORIZONTAL ELLIPSIS}{name[-half:]}" if is_long else name))
    for sign in ("/", ".", "_"):
        text = text.replace(sign, Markup(f"{sign}<wbr>"))
    if is_long:
        return Markup('<code title="{}">{}</code>').format(visible(name), text)
    return Markup("<code>{}</code>").format(text)


def known_fields(records: Iterable[object]) -> set[str]:
    """Return the names of the fields that at least one of some records has a value of."""
    return {name for record in records for name, value in vars(record).items() if value is not None}


def capitalised(reason: str) -> str:
    """Return a reason with a capital, except one that begins with the name of a target or an abbreviation."""
    first = reason.partition(" ")[0]
    return reason[:1].upper() + reason[1:] if first.isalnum() and first.islower() else reason


# Noise ------------------------------------------------------------------------------------------------------


def is_clipped(tensor: TensorRecord) -> bool:
    """Whether values are lost by saturation: not those that the function after the tensor flattens."""
    params = tensor.parameters
    return params is not None and params.clipped >= NOTABLE_CLIPPING and not tensor.following


def sqnr_by_tensor(layers: Sequence[Any]) -> dict[str, float]:
    """Return the SQNR in dB of each tensor that was compared."""
    return {layer.tensor: layer.effective.sqnr for layer in layers if layer.effective is not None}


# Nodes ------------------------------------------------------------------------------------------------------


MIN_SLOWER_US, MIN_SLOWER_SHARE = 5.0, 0.1
"""Microseconds, and share of its time in float, by which a layer is slower at least to be called so: the
profiler adds some 2 to 4 to each kernel, of which int8 may have one more."""


def is_slower(before: float | None, after: float | None) -> bool:
    """Whether a layer that took `before` microseconds in float takes more in the quantized model."""
    if before is None or after is None:
        return False
    return after - before >= max(MIN_SLOWER_US, MIN_SLOWER_SHARE * before)


def layer_rows(nodes: Sequence[NodeRecord]) -> tuple[list[NodeRecord], float]:
    """Return the layers that are shown, those that add most noise first, and their longest microseconds."""
    rows = sorted(nodes, key=lambda node: (-(node.noise or 0.0), -(node.planned_us or 0.0)))[:MAX_LAYER_ROWS]
    return rows, max((time for row in rows for time in (row.float_us, row.planned_us) if time), default=1.0)


def slowest_first(
    group: FloatGroupRecord, nodes: Sequence[NodeRecord]
) -> tuple[list[tuple[str, NodeRecord | None]], int]:
    """Return the nodes of a reason that are listed, by name, and how many there are more."""
    records = {node.name: node for node in nodes}
    pairs = [(name, records.get(name)) for name in group.nodes]
    pairs.sort(key=lambda pair: -(pair[1].planned_us or 0.0) if pair[1] is not None else 0.0)
    return pairs[:MAX_FLOAT_NODES], max(0, len(pairs) - MAX_FLOAT_NODES)


# Drift ------------------------------------------------------------------------------------------------------


def drift_distance(distance: float | None) -> float:
    """Return how far new values are from old ones, 0 to 1; unmeasured ones are far."""
    return 1.0 if distance is None else distance


# Data of the scripts (assets/*.js) --------------------------------------------------------------------------


def script_data(report: Report) -> str:
    """Return tensors and nodes as compact JSON, which cannot end the element of the page that holds it."""
    noise = sqnr_by_tensor(report.layers)
    text = json.dumps(
        {
            "tensors": [_tensor_data(t, noise.get(t.name)) for t in report.tensors],
            "nodes": _nodes_data(report.nodes),
            "how": None if report.run_time is None else report.run_time.how,
        },
        separators=(",", ":"),
        allow_nan=False,
        ensure_ascii=True,
    )
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _rounded(value: float | None, digits: int = 6) -> float | str | None:
    """Return a number with some digits; infinite ones as words, because JSON has no infinity."""
    if value is None:
        return None
    if not math.isfinite(value):
        return str(value)
    short = float(f"{value:.{digits}g}")
    return int(short) if short == int(short) and abs(short) < 1e15 else short


def _tensor_data(t: TensorRecord, measured: float | None) -> dict[str, Any]:
    """Return a tensor as an object; a key that would hold nothing is left out."""
    data: dict[str, Any] = {
        "n": t.name,
        "s": t.shape,
        "by": [t.made_by, t.operator],
        "to": list(t.read_by[:24]),
        "r": [_rounded(t.minimum, 7), _rounded(t.maximum, 7)],
        "c": [t.count, t.zeros, t.non_finite],
    }
    if t.histogram is not None:
        data["h"] = [
            _rounded(t.histogram.start, 9),
            _rounded(t.histogram.width, 9),
            list(t.histogram.counts),
        ]
    if t.parameters is not None:
        p = t.parameters
        data["q"] = [
            p.type,
            _rounded(p.scale),
            p.zero_point,
            _rounded(p.low),
            _rounded(p.high),
            _rounded(p.clipped, 3),
            _rounded(p.sqnr, 4),
        ]
    if measured is not None:
        data["m"] = _rounded(measured, 4)
    if t.following:
        data["f"] = t.following
    if t.is_equalized:
        data["eq"] = 1
    return data


def _nodes_data(nodes: Sequence[NodeRecord]) -> dict[str, Any]:
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
            _rounded(n.float_us, 4),
            _rounded(n.planned_us, 4),
            _rounded(n.multiply_adds, 4),
            _rounded(n.noise, 3),
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
