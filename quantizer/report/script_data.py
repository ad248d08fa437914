"""The data that the scripts of the page (assets/*.js) draw: compact JSON with short keys and rows. Pure."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

from .content import NodeRecord, Report, TensorRecord


def script_data(report: Report) -> str:
    """Return tensors and nodes as JSON that cannot end the element that holds it."""
    noise = {r.tensor: (r.estimated, r.measured) for r in report.tensor_noise}
    text = json.dumps(
        {
            "tensors": [_tensor(t, *noise.get(t.name, (None, None))) for t in report.tensors],
            "nodes": _nodes(report.nodes),
            "groups": [
                {
                    "by": list(g.tied_by[:8]),
                    "of": [[m.tensor, m.sets_range, _number(m.lost_db, 3)] for m in g.members[:40]],
                }
                for g in report.shared
            ],
        },
        separators=(",", ":"),
        allow_nan=False,
        ensure_ascii=True,
    )
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _number(value: float | None, digits: int = 6) -> float | str | None:
    """Return a number with some digits; infinite ones as words, since JSON has none."""
    if value is None:
        return None
    if not math.isfinite(value):
        return str(value)
    short = float(f"{value:.{digits}g}")
    return int(short) if short == int(short) and abs(short) < 1e15 else short


def _tensor(t: TensorRecord, estimated: float | None, measured: float | None) -> dict[str, Any]:
    """Return a tensor as an object; a key that would hold nothing is left out."""
    data: dict[str, Any] = {
        "n": t.name,
        "s": t.shape,
        "by": [t.made_by, t.operator],
        "to": list(t.read_by[:24]),
        "r": [_number(t.minimum, 7), _number(t.maximum, 7)],
        "c": [t.count, t.zeros, t.non_finite],
    }
    if t.histogram is not None:
        data["h"] = [_number(t.histogram.start, 9), _number(t.histogram.width, 9), list(t.histogram.counts)]
    if t.parameters is not None:
        p = t.parameters
        data["q"] = [
            p.type,
            _number(p.scale),
            p.zero_point,
            _number(p.low),
            _number(p.high),
            _number(p.clipped, 3),
            _number(p.sqnr, 4),
        ]
        data["k"] = [
            [c.name, _number(c.low, 5), _number(c.high, 5), _number(c.clipped, 3), _number(c.sqnr, 4)]
            for c in t.calibrators
        ]
    for key, value in (("e", estimated), ("m", measured)):
        if value is not None:
            data[key] = _number(value, 4)
    if t.following:
        data["f"] = t.following
    if t.is_equalized:
        data["eq"] = 1
    if t.group is not None:
        data["g"] = t.group
    if t.minimum_samples or t.maximum_samples:
        data["x"] = [list(t.minimum_samples), list(t.maximum_samples)]
    return data


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
            _number(n.float_us, 4),
            _number(n.planned_us, 4),
            _number(n.quantized_us, 4),
            _number(n.conversions_us, 4),
            _number(n.multiply_adds, 4),
            _number(n.noise, 3),
            [makers[name] for name in n.inputs if name in makers],
            word(n.module),
            _number(n.measured_float_us, 4),
            _number(n.measured_us, 4),
        ]
        for n in nodes
    ]
    return {
        "names": [n.name for n in nodes],
        "outs": [list(n.outputs) for n in nodes],
        "words": list(words),
        "rows": rows,
    }
