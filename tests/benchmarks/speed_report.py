"""SPEED.md from the rows of speed_table.py."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

PAGE = Path(__file__).with_name("SPEED.md")
Row = Mapping[str, Any]
HEADS = {
    "before": "qprof before",
    "now": "qprof",
    "ort-best": "ort, most accurate",
    "ort-fastest": "ort, fastest",
    "ov-qprof": "qprof",
    "nncf": "NNCF",
}
IN_ORT = ("before", "now", "ort-best", "ort-fastest")
IN_OPENVINO = ("nncf", "ov-qprof")
INTRODUCTION = """# How fast the quantized models are

Written by speed_table.py: {versions}, one thread unless a heading says otherwise. All models of a row run in
turns in one process on the first evaluation sample; medians of milliseconds, and ratios to the float model in
the same runtime: below 1 is faster than float. Each int8 model is made of the same calibration samples with
defaults: `qprof quantize`; onnxruntime's `quantize_static` with six settings (the one with the best score on
the evaluation data, and the fastest, dynamic quantization included); `nncf.quantize`, for transformers with
`model_type=TRANSFORMER`; `qprof quantize --target openvino`. OpenVINO computes what stays float in float32.

What was looked at while qprof was made: shapes, plans, executed graphs and times of these models; scores on
their tuning splits; microbenchmarks with random weights. The scores below are of the evaluation splits, which
make this table and chose nothing but onnxruntime's setting. Two of OpenVINO's facts were
chosen by times that were taken on evaluation samples (`node_products`) and by scores on tuning splits.
"""


def page(rows: Sequence[Row], versions: str) -> str:
    """Return the whole page."""
    parts = [INTRODUCTION.format(versions=versions)]
    threads = sorted({count for row in rows for count in row["milliseconds"]}, key=int)
    for count in threads:
        timed = [row for row in rows if count in row["milliseconds"]]
        word = "thread" if count == "1" else "threads"
        parts += [f"## onnxruntime, {count} {word}\n", _ort_table(timed, count)]
        parts += [f"## OpenVINO, {count} {word}\n", _openvino_table(timed, count)]
    parts += ["## Scores\n", _scores(rows), "## The ten nodes that cost most\n", _NODES]
    parts += [_nodes(row) for row in rows if row["nodes"].get("slowest")]
    return "\n".join(parts)


def line(row: Row) -> str:
    """Return what is known of a model in one line."""
    known = next(iter(row["milliseconds"].values()), {})
    times = ", ".join(f"{column} {_ms(value)}" for column, value in known.items())
    errors = "; ".join(f"{column}: {error}" for column, error in row["errors"].items())
    return f"{row['name']}: {times}{'; ' + errors if errors else ''}"


def geometric_mean(values: Sequence[float]) -> float:
    """Return the geometric mean; NaN of nothing."""
    return statistics.geometric_mean(values) if values else math.nan


def _ratio(row: Row, count: str, column: str, reference: str) -> float | None:
    known = row["milliseconds"][count]
    return known[column] / known[reference] if column in known and reference in known else None


def _ort_table(rows: Sequence[Row], count: str) -> str:
    head = ["model", "float ms", *(HEADS[column] for column in IN_ORT), "its settings", "int8 products"]
    head += ["predicted", "error"]
    lines = [_cells(head), _rule(len(head))]
    for row in rows:
        known = row["milliseconds"][count]
        cells = [row["name"], _ms(known["float"])]
        cells += [_pair(known.get(column), _ratio(row, count, column, "float")) for column in IN_ORT]
        chosen = dict.fromkeys(label.removeprefix("ort-") for label in row["settings"].values())
        share = row["nodes"].get("integer_share")
        cells += [", ".join(chosen) or "none works", "-" if share is None else f"{100 * share:.0f} %"]
        lines.append(_cells([*cells, *_predicted(row, known.get("now"), count)]))
    lines.append(_means(rows, count, IN_ORT, ("float", len(head))))
    return (
        "\n".join(lines)
        + "\n\n"
        + _summary(rows, count, "now", "float", "onnxruntime")
        + _errors(rows, count)
    )


def _openvino_table(rows: Sequence[Row], count: str) -> str:
    head = ["model", "float ms", *(HEADS[column] for column in IN_OPENVINO), "qprof over NNCF"]
    head += ["NNCF's score - float's", "qprof's - float's"]
    lines = [_cells(head), _rule(len(head))]
    for row in rows:
        known = row["milliseconds"][count]
        cells = [row["name"], _ms(known["ov-float"]) if "ov-float" in known else "-"]
        cells += [_pair(known.get(column), _ratio(row, count, column, "ov-float")) for column in IN_OPENVINO]
        against = _ratio(row, count, "ov-qprof", "nncf")
        cells += ["-" if against is None else f"{against:.2f}"]
        lines.append(_cells([*cells, *(_gap(row, column) for column in IN_OPENVINO)]))
    lines.append(_means(rows, count, IN_OPENVINO, ("ov-float", len(head))))
    return "\n".join(lines) + "\n\n" + _summary(rows, count, "ov-qprof", "ov-float", "OpenVINO")


def _summary(rows: Sequence[Row], count: str, column: str, reference: str, runtime: str) -> str:
    ratios = {row["name"]: r for row in rows if (r := _ratio(row, count, column, reference)) is not None}
    slower = [f"{name} {ratio:.2f}" for name, ratio in ratios.items() if ratio > 1.0]
    words = ", ".join(slower) or "none"
    return f"Slower than float in {runtime}: {words}.\n"


def _errors(rows: Sequence[Row], count: str) -> str:
    errors = [
        abs(row["nodes"]["predicted_ms"] / row["milliseconds"][count]["now"] - 1.0)
        for row in rows
        if count == "1" and row["nodes"].get("predicted_ms") and "now" in row["milliseconds"][count]
    ]
    if not errors:
        return ""
    return f"Predicted against measured: median error {100 * statistics.median(errors):.0f} %.\n"


def _predicted(row: Row, measured: float | None, count: str) -> list[str]:
    predicted = row["nodes"].get("predicted_ms")
    if predicted is None or measured is None or count != "1":
        return ["-", "-"]
    return [_ms(predicted), f"{100 * (predicted / measured - 1):+.0f} %"]


def _means(rows: Sequence[Row], count: str, columns: Sequence[str], shape: tuple[str, int]) -> str:
    """Return the line of geometric means: over all models with the column, by name of reference and width."""
    reference, width = shape
    cells = ["geometric mean", ""]
    for column in columns:
        found = [r for row in rows if (r := _ratio(row, count, column, reference)) is not None]
        cells.append(f"{geometric_mean(found):.3f} of {len(found)}" if found else "-")
    return _cells(cells + [""] * (width - len(cells)))


_SCORED = ("now", "before", "ort-best", "ort-fastest", "nncf", "ov-qprof")
_NODES = """Of qprof's int8 model in onnxruntime: what is executed, its share of the model's time, the time of
the same node in the float model where it goes by the same name, and what the plan says of it.
"""


def _scores(rows: Sequence[Row]) -> str:
    heads = ["qprof", "qprof before", "ort, most accurate", "ort, fastest", "NNCF", "qprof in OpenVINO"]
    lines = [_cells(["model", "float", *heads]), _rule(len(heads) + 2)]
    for row in rows:
        lines.append(_cells([row["name"], *(_score(row, column) for column in ("float", *_SCORED))]))
    return "\n".join(lines) + "\n\nScore, and SQNR of the worst output against the float model.\n"


def _score(row: Row, column: str) -> str:
    score, sqnr = row["scores"].get(column), row["sqnr"].get(column)
    parts = [] if score is None else [f"{score:.3f}"]
    parts += [] if sqnr is None or math.isinf(sqnr) else [f"{sqnr:.1f} dB"]
    return ", ".join(parts) or "-"


def _gap(row: Row, column: str) -> str:
    """Return the difference to float's score in points; without a score, the SQNR."""
    if column in row["scores"] and "float" in row["scores"]:
        return f"{100 * (row['scores'][column] - row['scores']['float']):+.1f}"
    return _score(row, column)


def _nodes(row: Row) -> str:
    lines = [
        f"### {row['name']} ({row['kind']})\n",
        _cells(["node", "ms", "share", "float ms", "why"]),
        _rule(5),
    ]
    for node in row["nodes"]["slowest"]:
        spent = "-" if node["float_us"] is None else f"{node['float_us'] / 1e3:.3f}"
        name = f"{node['op']} `{_short(node['name'])}`"
        lines.append(
            _cells([name, f"{node['us'] / 1e3:.3f}", f"{100 * node['share']:.0f} %", spent, node["why"]])
        )
    return "\n".join(lines) + "\n"


def _short(name: str, most: int = 60) -> str:
    return name if len(name) <= most else f"...{name[3 - most :]}"


def _pair(milliseconds: float | None, ratio: float | None) -> str:
    return "-" if milliseconds is None or ratio is None else f"{_ms(milliseconds)} ({ratio:.2f})"


def _ms(value: float) -> str:
    return f"{value:.2f}" if value < 100 else f"{value:.0f}"


def _cells(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _rule(count: int) -> str:
    return "|" + "---|" * count
