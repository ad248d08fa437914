"""Real models, float against int8: task score, SQNR, latency, time and memory of qprof and its peer.

    python tests/benchmarks/run.py scores --work DIR                                all models, all parts
    python tests/benchmarks/run.py scores magika --work DIR --parts qprof,score     build and score qprof's
    model python tests/benchmarks/run.py scores --work DIR --known --write                write the pages of
    what is known

Parts: peers (onnxruntime's settings), qprof, tune (`qprof tune`), score, latency. Pages: README.md, and
    TUNING.md with what `qprof tune` printed.
"""

from __future__ import annotations

import shlex
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

import models
from bootstrap import Difference, difference
from frame import HERE, WORK, Row, Rows, Stage, number, table
from record import Judged
from variants import DYNAMIC, PEERS, best_peer
from workbench import FLOAT, ONNXRUNTIME, QPROF, Variant, Workbench, qprof_whole, sources_of_qprof

TUNED = "qprof-tuned"
PARTS = ("peers", "qprof", "tune", "score", "latency")
LABELS = ("qprof", TUNED, *PEERS)


def options(parser: ArgumentParser) -> None:
    parser.add_argument("--parts", default=",".join(PARTS), help="some of " + ",".join(PARTS))
    parser.add_argument("--seconds", type=float, default=20.0, help="time for the latency of one model")
    parser.add_argument("--budget", type=float, default=60.0, help="seconds that qprof tune may try things")
    parser.add_argument("--qprof-options", default="", help="more options for qprof quantize")
    parser.add_argument("--again", action="store_true", help="build and time again what was built already")


def tuned(bench: Workbench, budget: float) -> Variant:
    """Return what `qprof tune` finds on the tuning split, losing at most half a percentage point.

    A model without that split is tuned on its calibration samples, which have no answers.
    """
    metric = () if bench.data.tuning is None else ("--metric", "{metric}")
    target = (*metric, "--max-drop", "0.5", "--objective", "latency", "--budget", str(budget))
    files = ("--profile", "{profile}", "--data", "{tuning}", "-o", "{out}")
    environment = {"PYTHONPATH": str(HERE), WORK: str(bench.work)}
    return Variant(TUNED, [[(*QPROF, "tune", "{model}", *files, *target)]], sources_of_qprof(), environment)


def rows(name: str, given: Namespace) -> Iterator[Row]:
    """Run the chosen parts of one model and yield what is known afterwards."""
    bench, parts = Workbench(name, given.work), given.parts.split(",")
    if given.again:
        bench.forget()
    variants = list(PEERS.values()) if "peers" in parts else []
    if "qprof" in parts:
        variants.append(qprof_whole(options=shlex.split(given.qprof_options)))
    if "tune" in parts:
        variants.append(tuned(bench, given.budget))
    for variant in variants:
        bench.build(variant)
    split, best = bench.data.evaluation, None
    judged: dict[str, Judged | str] = {}
    if "score" in parts:
        judged = {label: bench.judged(label, split) for label in (FLOAT, *LABELS) if bench.record(label)}
        best = best_peer(bench)
    labels = [label for label in (FLOAT, "qprof", TUNED, best, DYNAMIC) if label and bench.works(label)]
    runs = {label: (bench.file(label), ONNXRUNTIME) for label in labels}
    times = bench.times("scores", runs, given.seconds, again=given.again) if "latency" in parts else {}
    plain = judged.pop(FLOAT, None)
    against = {"float": plain, "peer": judged.get(best or "")}
    builds = {label: dict(bench.record(label)) for label in LABELS if bench.record(label)}
    for label, found in judged.items():
        builds[label]["judged"] = _told(found)
        builds[label]["error"] = builds[label]["error"] or (found if isinstance(found, str) else None)
    row = {
        "name": bench.model.name,
        "source": bench.model.source,
        "kind": bench.model.kind,
        "task": bench.model.task,
        "size": bench.path.stat().st_size,
        "float": _told(plain),
        "builds": builds,
        "best_peer": best,
        "differences": {
            label: {
                name: asdict(difference(found.units, other.units, lambda sums: bench.model.score(sums).value))
                for name, other in against.items()
                if isinstance(other, Judged) and found.units
            }
            for label, found in judged.items()
            if isinstance(found, Judged) and label != best
        },
        "milliseconds": times,
    }
    told = {label: found if isinstance(found, str) else said(found) for label, found in judged.items()}
    print(
        f"== {name}",
        *(f"{label}: {words}" for label, words in told.items()),
        f"ms: {times}",
        sep="\n",
        flush=True,
    )
    yield row


def said(judged: Judged) -> str:
    """Return score and SQNR in one line."""
    parts = [] if judged.scores is None else [f"score {judged.scores.value:.4f}"]
    parts += [] if judged.scores is None else [f"{k} {v:.4f}" for k, v in judged.scores.parts.items()]
    sqnr = ", ".join(f"{output} {value:.2f} dB" for output, value in judged.sqnr.items())
    return f"{'; '.join(parts)}; SQNR {judged.worst_sqnr:.2f} dB ({sqnr})"


def _told(judged: Judged | str | None) -> Row | None:
    if not isinstance(judged, Judged):
        return None
    return {key: value for key, value in judged.record().items() if key != "units"}


SETTINGS = ("float", "qprof", "tuned", "ort", "dynamic")
GAPS = (("qprof", "float"), (TUNED, "float"), ("qprof", "peer"))  # label, what it is compared with
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


def scores_page(rows: Rows) -> str:
    """Return the tables of README.md."""
    results = [row for (row,) in rows.values()]
    parts = [
        '"ort" is its best static setting.',
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
    return "\n\n".join(parts)


def tuning_page(rows: Rows) -> str:
    """Return what `qprof tune` said of each model that it was run on."""
    parts = []
    for (record,) in rows.values():
        tuned = record["builds"].get(TUNED)
        if tuned is not None:
            said = tuned["steps"][-1]["printed"].rstrip()
            parts.append(f"## {record['name']}, {tuned['seconds']:.0f} s in all\n\n```text\n{said}\n```")
    return "\n\n".join(parts)


def _four(record: Row) -> list[Row]:
    labels = ("qprof", TUNED, record["best_peer"], DYNAMIC)
    return [record["builds"].get(label) or {} for label in labels]


def _score_row(record: Row) -> tuple[str, ...]:
    qprof, tuned, peer, dynamic = (build.get("judged") for build in _four(record))
    tried = any(label in PEERS and label != DYNAMIC for label in record["builds"])
    return (
        record["name"],
        *(_score(judged) for judged in (record["float"], qprof, tuned, peer)),
        (record["best_peer"] or ("none works" if tried else "not run")).removeprefix("ort-"),
        _score(dynamic),
        _sqnr(qprof),
        _sqnr(peer),
    )


def _gap_row(record: Row) -> tuple[str, ...]:
    found = [record["differences"].get(label, {}).get(other) for label, other in GAPS]
    gaps = [Difference(**gap) if gap else None for gap in found]
    return (
        record["name"],
        *(f"{g.points:+.1f} ({g.low:+.1f} to {g.high:+.1f})" if g else "-" for g in gaps),
        *(g.within(drop) if g else "-" for g, drop in zip(gaps, (0.5, 0.5, 0.0), strict=True)),
    )


def _latency_row(record: Row) -> tuple[str, ...]:
    times = record["milliseconds"]
    plain, *others = (times.get(label) for label in ("float", "qprof", TUNED, record["best_peer"], DYNAMIC))
    return (
        record["name"],
        *(number(value, 2) for value in (plain, *others)),
        *(f"{plain / value:.2f} x" if plain and value else "-" for value in (others[0], others[2])),
    )


def _cost_row(record: Row) -> tuple[str, ...]:
    builds = _four(record)
    sizes = [record["size"], *(build.get("size") for build in builds)]
    return (
        record["name"],
        *(number(build.get("seconds"), 1) for build in builds[:3]),
        *(number(build.get("peak_mb"), 0) for build in (builds[0], builds[2])),
        *(number(size / 1e6 if size else None, 2) for size in sizes),
    )


def _failures(results: Sequence[Row]) -> list[tuple[str, ...]]:
    return [
        (record["name"], label, build["error"].replace("|", "\\|"))
        for record in results
        for label, build in record["builds"].items()
        if build["error"]
    ]


def _score(judged: Any) -> str:
    return number(judged["scores"]["value"] if judged and judged["scores"] else None, 3)


def _sqnr(judged: Any) -> str:
    return f"{min(judged['sqnr'].values()):.1f} dB" if judged and judged["sqnr"] else "-"


STAGE = Stage(rows, {"README.md": scores_page, "TUNING.md": tuning_page}, models.REAL, options)
