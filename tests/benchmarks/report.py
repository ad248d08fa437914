"""The tables of README.md, from the results in the work folder."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from bootstrap import Difference
from record import write_atomically

START, END = "<!-- results: written by real_models.py -->", "<!-- end of results -->"
Record = dict[str, Any]


def write(results: Sequence[Record], readme: Path) -> None:
    """Put the tables between the marks of README.md."""
    text = readme.read_text(encoding="utf-8")
    before, rest = text.split(START)
    after = rest.split(END)[1]
    write_atomically(readme, f"{before}{START}\n\n{tables(results)}\n{END}{after}".encode())


def write_tuning(results: Sequence[Record], page: Path) -> None:
    """Write what `qprof tune` said of each model that it was run on."""
    parts = ["# What qprof tune did\n\nWritten by real_models.py: what the command printed."]
    for record in results:
        tuned = record["builds"].get("qprof-tuned")
        if tuned is not None:
            said = tuned["steps"][-1]["printed"].rstrip()
            parts.append(f"## {record['name']}, {tuned['seconds']:.0f} s in all\n\n```text\n{said}\n```")
    write_atomically(page, ("\n\n".join(parts) + "\n").encode())


SETTINGS = ("float", "qprof", "tuned", "ort", "dynamic")
GAPS = (("qprof", "float"), ("qprof-tuned", "float"), ("qprof", "peer"))  # label, what it is compared with
HEADS = {
    "score": ("model", *SETTINGS[:4], "its setting", "dynamic", "SQNR qprof", "SQNR ort"),
    "gaps": (
        *("model", "qprof - float", "tuned - float", "qprof - ort"),
        *("within 0.5 of float", "tuned within 0.5", "at least ort"),
    ),
    "latency": ("model", *(f"{name} ms" for name in SETTINGS), "qprof over float", "ort over float"),
    "cost": (
        *("model", "qprof s", "tune s", "ort s", "qprof MB peak", "ort MB peak"),
        *(f"{name} MB" for name in SETTINGS),
    ),
}


def tables(results: Sequence[Record]) -> str:
    """Return the tables as Markdown."""
    parts = [
        f'onnxruntime {version("onnxruntime")}, {_processor()}. "ort" is its best static setting.',
        "### Task score and SQNR",
        table(HEADS["score"], [_score_row(record) for record in results]),
        "### Differences in points, with the 95 % interval of a paired bootstrap over the samples",
        table(HEADS["gaps"], [_gap_row(record) for record in results if record["differences"]]),
        "A question mark: the interval holds the limit, the samples do not settle it.",
        "### Latency, interleaved, 1 thread",
        table(HEADS["latency"], [_latency_row(record) for record in results]),
        "### Profile and quantize, and what comes out",
        table(HEADS["cost"], [_cost_row(record) for record in results]),
        "### The tasks",
        table(
            ("model", "weights from", "kind", "task"),
            [(r["name"], r["source"], r["kind"], r["task"]) for r in results],
        ),
        "### Settings that failed",
        table(("model", "setting", "what it said"), _failures(results)),
    ]
    return "\n\n".join(parts) + "\n"


def _tried(record: Record) -> bool:
    return any(label.startswith("ort-") and label != "ort-dynamic" for label in record["builds"])


def _score_row(record: Record) -> tuple[str, ...]:
    qprof, tuned, peer, dynamic = (_judged(build) for build in _four(record))
    return (
        record["name"],
        *(_score(judged) for judged in (record["float"], qprof, tuned, peer)),
        (record["best_peer"] or ("none works" if _tried(record) else "not run")).removeprefix("ort-"),
        _score(dynamic),
        _sqnr(qprof),
        _sqnr(peer),
    )


def _gap_row(record: Record) -> tuple[str, ...]:
    found = [record["differences"].get(label, {}).get(other) for label, other in GAPS]
    gaps = [Difference(**gap) if gap else None for gap in found]
    return (
        record["name"],
        *(f"{g.points:+.1f} ({g.low:+.1f} to {g.high:+.1f})" if g else "-" for g in gaps),
        *(g.within(drop) if g else "-" for g, drop in zip(gaps, (0.5, 0.5, 0.0), strict=True)),
    )


def _latency_row(record: Record) -> tuple[str, ...]:
    times = record["milliseconds"]
    labels = ("float", "qprof", "qprof-tuned", record["best_peer"], "ort-dynamic")
    plain, qprof, tuned, peer, dynamic = (times.get(label) for label in labels)
    return (
        record["name"],
        *(_number(value, 2) for value in (plain, qprof, tuned, peer, dynamic)),
        *(f"{plain / value:.2f} x" if plain and value else "-" for value in (qprof, peer)),
    )


def _cost_row(record: Record) -> tuple[str, ...]:
    qprof, tuned, peer, dynamic = (build or {} for build in _four(record))
    sizes = [record["size"], *(build.get("size") for build in (qprof, tuned, peer, dynamic))]
    return (
        record["name"],
        *(_number(build.get("seconds"), 1) for build in (qprof, tuned, peer)),
        *(_number(build.get("peak_mb"), 0) for build in (qprof, peer)),
        *(_number(size / 1e6 if size else None, 2) for size in sizes),
    )


def _four(record: Record) -> list[Record | None]:
    labels = ("qprof", "qprof-tuned", record["best_peer"], "ort-dynamic")
    return [record["builds"].get(label) for label in labels]


def _failures(results: Sequence[Record]) -> list[tuple[str, ...]]:
    return [
        (record["name"], label, build["error"].replace("|", "\\|"))
        for record in results
        for label, build in record["builds"].items()
        if build["error"]
    ]


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


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) if rows else "None."


def _processor() -> str:
    names = [line for line in _text("/proc/cpuinfo").splitlines() if line.startswith("model name")]
    return names[0].split(":")[1].strip() if names else "unknown processor"


def _text(path: str) -> str:
    file = Path(path)
    return file.read_text(encoding="utf-8") if file.exists() else ""
