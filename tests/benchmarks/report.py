"""The tables of README.md, from the results in the work folder."""

from __future__ import annotations

import math
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from record import write_atomically

START, END = "<!-- results: written by real_models.py -->", "<!-- end of results -->"
Record = dict[str, Any]


def write(results: Sequence[Record], readme: Path) -> None:
    """Put the tables between the marks of README.md."""
    text = readme.read_text(encoding="utf-8")
    before, rest = text.split(START)
    after = rest.split(END)[1]
    write_atomically(readme, f"{before}{START}\n\n{tables(results)}\n{END}{after}".encode())


def tables(results: Sequence[Record]) -> str:
    """Return the tables as Markdown."""
    parts = [
        f"onnxruntime {version('onnxruntime')}, {_processor()}.",
        "### Task score and SQNR",
        _table(
            (
                "model",
                "float",
                "qprof",
                "onnxruntime",
                "its setting",
                "SQNR qprof",
                "SQNR onnxruntime",
                "what falls short",
            ),
            [_score_row(record) for record in results],
        ),
        "### Latency, interleaved, 1 thread",
        _table(
            ("model", "float ms", "qprof ms", "onnxruntime ms", "qprof over float", "onnxruntime over float"),
            [_latency_row(record) for record in results],
        ),
        "### Profile and quantize, and what comes out",
        _table(
            (
                "model",
                "qprof s",
                "onnxruntime s",
                "qprof MB peak",
                "onnxruntime MB peak",
                "float MB",
                "qprof MB",
                "onnxruntime MB",
            ),
            [_cost_row(record) for record in results],
        ),
        "### The tasks",
        _table(("model", "weights from", "task"), [(r["name"], r["source"], r["task"]) for r in results]),
        "### Settings that failed",
        _table(("model", "setting", "what it said"), _failures(results)),
    ]
    return "\n\n".join(parts) + "\n"


def _score_row(record: Record) -> tuple[str, ...]:
    peer = _peer(record)
    qprof = record["builds"].get("qprof")
    return (
        record["name"],
        _score(record["float"]),
        _score(_judged(qprof)),
        _score(_judged(peer)),
        (record["best_peer"] or "none works").removeprefix("ort-"),
        _sqnr(_judged(qprof)),
        _sqnr(_judged(peer)),
        _short(record),
    )


def _latency_row(record: Record) -> tuple[str, ...]:
    times = record["milliseconds"]
    float_ms, qprof, peer = (times.get(label) for label in ("float", "qprof", record["best_peer"]))
    return (
        record["name"],
        *(_number(value, 2) for value in (float_ms, qprof, peer)),
        *(f"{float_ms / value:.2f} x" if float_ms and value else "-" for value in (qprof, peer)),
    )


def _cost_row(record: Record) -> tuple[str, ...]:
    pair = record["builds"].get("qprof") or {}, _peer(record) or {}
    megabytes = [record["size"] / 1e6, *(one["size"] / 1e6 if one.get("size") else None for one in pair)]
    return (
        record["name"],
        *(_number(one.get("seconds"), 1) for one in pair),
        *(_number(one.get("peak_mb"), 0) for one in pair),
        *(_number(value, 2) for value in megabytes),
    )


def _short(record: Record) -> str:
    """Name what is worse than it should be: under float by half a point or more, under the peer, slower."""
    qprof, peer, times = record["builds"].get("qprof"), _peer(record), record["milliseconds"]
    said = []
    if qprof is None or qprof["error"]:
        return "qprof: no model" if qprof else "not built"
    mine, theirs, plain = (_value(judged) for judged in (_judged(qprof), _judged(peer), record["float"]))
    if mine is not None and plain is not None and plain - mine >= 0.005:
        said.append(f"{100 * (plain - mine):.1f} points under float")
    if mine is not None and theirs is not None and mine < theirs:
        said.append(f"{100 * (theirs - mine):.1f} points under onnxruntime")
    if "qprof" in times and times["qprof"] > times.get(record["best_peer"], math.inf):
        said.append(
            f"{100 * (times['qprof'] / times[record['best_peer']] - 1):.0f} % slower than onnxruntime's int8"
        )
    if "qprof" in times and times["qprof"] > times["float"]:
        said.append("slower than float")
    return "; ".join(said) or "-"


def _failures(results: Sequence[Record]) -> list[tuple[str, ...]]:
    return [
        (record["name"], label, build["error"].replace("|", "\\|"))
        for record in results
        for label, build in record["builds"].items()
        if build["error"]
    ]


def _peer(record: Record) -> Record | None:
    return record["builds"].get(record["best_peer"]) if record["best_peer"] else None


def _judged(build: Record | None) -> Record | None:
    return build.get("judged") if build else None


def _value(judged: Record | None) -> float | None:
    return judged["scores"]["value"] if judged and judged["scores"] else None


def _score(judged: Record | None) -> str:
    return _number(_value(judged), 3)


def _sqnr(judged: Record | None) -> str:
    return f"{min(judged['sqnr'].values()):.1f} dB" if judged and judged["sqnr"] else "-"


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) if rows else "None."


def _processor() -> str:
    names = [line for line in _text("/proc/cpuinfo").splitlines() if line.startswith("model name")]
    return names[0].split(":")[1].strip() if names else "unknown processor"


def _text(path: str) -> str:
    file = Path(path)
    return file.read_text(encoding="utf-8") if file.exists() else ""
