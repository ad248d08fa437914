"""How fast the quantized models are: qprof, an older qprof, onnxruntime, OpenVINO and NNCF, interleaved.

    python tests/benchmarks/run.py speed --work DIR                                     all models, all parts
    python tests/benchmarks/run.py speed --work DIR --parts build,score                 before the machine is
    quiet python tests/benchmarks/run.py speed minilm u-net --work DIR --again                time these again

DIR may be that of stage scores, whose data and variants are used. Parts: build (every int8 model), score
(evaluation split), time (all columns of a row in turns, in one process), nodes (what is run, with the times
of each node). --before CHECKOUT adds an older version of qprof. While `time` and `nodes` run, the machine
should have nothing else to do. Packages: those of stage scores, openvino and nncf.
"""

from __future__ import annotations

import math
import os
import statistics
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import models
from frame import HERE, Row, Rows, Stage, table
from nodes_run import executed, integer_share, predicted_ms, slowest, slowest_in_openvino
from qprof_onnx.quantizer.plan.store import load_plan
from record import Judged
from variants import PEERS, best_peer
from workbench import FLOAT, ONNXRUNTIME, Runtime, Variant, Workbench, qprof, qprof_whole

PARTS = ("build", "score", "time", "nodes")
TRANSFORMERS = {"minilm", "vit-focus", "encoder"}
"""Those for which NNCF is told so."""
NOW, BEFORE, NNCF, OV_QPROF, OV_FLOAT = "qprof", "qprof-before", "nncf", "qprof-openvino", "ov-float"
BEST, FASTEST = "ort-best", "ort-fastest"
IN_ORT = {
    BEFORE: "qprof before",
    NOW: "qprof",
    BEST: "ort, most accurate",
    FASTEST: "ort, fastest",
}
IN_OPENVINO = {NNCF: "NNCF", OV_QPROF: "qprof"}
PEERS_SECONDS = 3.0
"""For choosing onnxruntime's fastest setting."""


def options(parser: ArgumentParser) -> None:
    parser.add_argument("--parts", default=",".join(PARTS), help="some of " + ",".join(PARTS))
    parser.add_argument("--before", type=Path, help="checkout of an older qprof")
    parser.add_argument("--seconds", type=float, default=8.0, help="for the times of one model")
    parser.add_argument("--threads", default="1", help="numbers of threads, separated by commas")
    parser.add_argument("--again", action="store_true", help="time again what has been timed")


def openvino() -> Runtime:
    """Return OpenVINO, which is loaded now."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    from openvino_runs import OPENVINO

    return OPENVINO


def variants(name: str, before: Path | None) -> list[Variant]:
    """Return all int8 models of a row."""
    script = HERE / "nncf_int8.py"
    command = [sys.executable, str(script), "{model}", "--data", "{data}", "-o", "{out}"]
    command += ["--transformer"] if name in TRANSFORMERS else []
    in_openvino = qprof(OV_QPROF, "--target", "openvino")
    return [
        *PEERS.values(),
        *([qprof_whole(BEFORE, before)] if before else []),
        qprof_whole(),
        Variant(OV_QPROF, in_openvino.attempts, in_openvino.sources, runtime=openvino()),
        Variant(NNCF, [[command]], [script], runtime=openvino(), suffix=".xml"),
    ]


def rows(name: str, given: Namespace) -> Iterator[Row]:
    """Run the chosen parts of one model and yield its row."""
    bench, parts = Workbench(name, given.work), given.parts.split(",")
    if "build" in parts:
        for variant in variants(name, given.before):
            bench.build(variant)
    columns, split = (
        {column: column for column in (FLOAT, BEFORE, NOW, NNCF, OV_QPROF)},
        bench.data.evaluation,
    )
    best = best_peer(bench) if "score" in parts else None
    if best:
        peers = {label: (bench.file(label), ONNXRUNTIME) for label in PEERS if bench.works(label)}
        times = bench.times("peers", peers, PEERS_SECONDS)
        columns |= {BEST: best, FASTEST: min(times, key=lambda label: times[label])}
    row: Row = {
        "name": name,
        "kind": bench.model.kind,
        "scores": {},
        "sqnr": {},
        "errors": {},
        "milliseconds": {},
    }
    row["settings"] = {column: label for column, label in columns.items() if column != label}
    for column, label in columns.items():
        elsewhere = label in (NNCF, OV_QPROF)
        suffix = ".xml" if label == NNCF else ".onnx"
        found = (
            bench.judged(label, split, openvino() if elsewhere else ONNXRUNTIME, suffix)
            if "score" in parts
            else None
        )
        if isinstance(found, Judged):
            row["sqnr"][column] = found.worst_sqnr
            if found.scores:
                row["scores"][column] = found.scores.value
        elif found and bench.record(label):
            row["errors"][column] = found
    if "time" in parts:
        runs = {
            column: (
                bench.file(label, ".xml" if label == NNCF else ".onnx"),
                openvino() if label in IN_OPENVINO else ONNXRUNTIME,
            )
            for column, label in columns.items()
            if bench.works(label)
        } | {OV_FLOAT: (bench.path, openvino())}
        for threads in given.threads.split(","):
            row["milliseconds"][threads] = bench.times(
                f"speed-{threads}", runs, given.seconds, int(threads), given.again
            )
    if "nodes" in parts:
        row["nodes"] = nodes_of(bench)
    print(_line(row), flush=True)
    yield row


def nodes_of(bench: Workbench) -> dict[str, Any]:
    """Profile qprof's model in both runtimes, and float in onnxruntime."""
    feed = next(bench.data.evaluation.feeds())
    found: dict[str, Any] = {}
    if bench.works(NOW):
        file = bench.file(NOW)
        quantized, floats = executed(file, feed), executed(bench.path, feed)
        plan = load_plan(Path(f"{file}.plan.yaml"))
        found["integer_share"] = integer_share(quantized)
        found["slowest"] = slowest(quantized, floats, plan)
        found["predicted_ms"] = predicted_ms(bench.path, plan, bench.profile())
    files = {OV_FLOAT: bench.path, OV_QPROF: bench.file(OV_QPROF), NNCF: bench.file(NNCF, ".xml")}
    for label, file in files.items():
        if label == OV_FLOAT or bench.works(label):
            slow, precisions = slowest_in_openvino(file, feed)
            found[label] = {"slowest": slow, "precisions": precisions}
    return found


def page(rows: Rows) -> str:
    found = [row for (row,) in rows.values()]
    parts = []
    for count in sorted({count for row in found for count in row["milliseconds"]}, key=int):
        timed = [row for row in found if count in row["milliseconds"]]
        word = "thread" if count == "1" else "threads"
        parts += [f"## onnxruntime, {count} {word}", *_ort_table(timed, count)]
        parts += [f"## OpenVINO, {count} {word}", *_openvino_table(timed, count)]
    columns = {FLOAT: "float", NOW: "qprof", BEFORE: "qprof before"}
    columns |= {BEST: IN_ORT[BEST], FASTEST: IN_ORT[FASTEST], NNCF: "NNCF", OV_QPROF: "qprof in OpenVINO"}
    scores = [[row["name"], *(_score(row, column) for column in columns)] for row in found]
    parts += ["## Scores", table(["model", *columns.values()], scores)]
    parts += [
        "Score, and SQNR of the worst output against the float model.",
        "## The ten nodes that cost most",
    ]
    parts += [
        "Of qprof's int8 model in onnxruntime: what is executed, its share of the model's time, the time of\n"
        "the same node in the float model where it goes by the same name, and what the plan says of it."
    ]
    for row in found:
        if row.get("nodes", {}).get("slowest"):
            cells = [_node_cells(node) for node in row["nodes"]["slowest"]]
            parts += [
                f"### {row['name']} ({row['kind']})",
                table(["node", "ms", "share", "float ms", "why"], cells),
            ]
    return "\n\n".join(parts)


def _line(row: Row) -> str:
    times = ", ".join(
        f"{column} {_ms(value)}" for known in row["milliseconds"].values() for column, value in known.items()
    )
    return f"{row['name']}: {times} {row['errors'] or ''}"


def _ratio(row: Row, count: str, column: str, reference: str) -> float | None:
    known = row["milliseconds"][count]
    return known[column] / known[reference] if column in known and reference in known else None


def _ort_table(rows: Sequence[Row], count: str) -> list[str]:
    head = ["model", "float ms", *IN_ORT.values(), "its settings", "int8 products", "predicted", "error"]
    lines, errors = [], []
    for row in rows:
        known, nodes = row["milliseconds"][count], row.get("nodes", {})
        chosen = dict.fromkeys(label.removeprefix("ort-") for label in row["settings"].values())
        share, predicted, measured = nodes.get("integer_share"), nodes.get("predicted_ms"), known.get(NOW)
        cells = [row["name"], _ms(known[FLOAT]), *(_pair(row, count, column, FLOAT) for column in IN_ORT)]
        cells += [", ".join(chosen) or "none works", "-" if share is None else f"{100 * share:.0f} %"]
        if predicted is None or measured is None or count != "1":
            cells += ["-", "-"]
        else:
            errors.append(abs(predicted / measured - 1.0))
            cells += [_ms(predicted), f"{100 * (predicted / measured - 1):+.0f} %"]
        lines.append(cells)
    lines.append(_means(rows, count, IN_ORT, FLOAT, len(head)))
    said = (
        [f"Predicted against measured: median error {100 * statistics.median(errors):.0f} %."]
        if errors
        else []
    )
    return [table(head, lines), _slower(rows, count, NOW, FLOAT, "onnxruntime"), *said]


def _openvino_table(rows: Sequence[Row], count: str) -> list[str]:
    head = [
        "model",
        "float ms",
        *IN_OPENVINO.values(),
        "qprof over NNCF",
        "NNCF's score - float's",
        "qprof's - float's",
    ]
    lines = []
    for row in rows:
        known = row["milliseconds"][count]
        cells = [row["name"], _ms(known[OV_FLOAT]) if OV_FLOAT in known else "-"]
        cells += [_pair(row, count, column, OV_FLOAT) for column in IN_OPENVINO]
        against = _ratio(row, count, OV_QPROF, NNCF)
        lines.append(
            [
                *cells,
                "-" if against is None else f"{against:.2f}",
                *(_gap(row, column) for column in IN_OPENVINO),
            ]
        )
    lines.append(_means(rows, count, IN_OPENVINO, OV_FLOAT, len(head)))
    return [table(head, lines), _slower(rows, count, OV_QPROF, OV_FLOAT, "OpenVINO")]


def _slower(rows: Sequence[Row], count: str, column: str, reference: str, runtime: str) -> str:
    ratios = {row["name"]: r for row in rows if (r := _ratio(row, count, column, reference)) is not None}
    words = ", ".join(f"{name} {ratio:.2f}" for name, ratio in ratios.items() if ratio > 1.0)
    return f"Slower than float in {runtime}: {words or 'none'}."


def _means(
    rows: Sequence[Row], count: str, columns: Mapping[str, str], reference: str, width: int
) -> list[str]:
    """Return the line of geometric means, each over all models with the column."""
    cells = ["geometric mean", ""]
    for column in columns:
        found = [r for row in rows if (r := _ratio(row, count, column, reference)) is not None]
        cells.append(f"{statistics.geometric_mean(found):.3f} of {len(found)}" if found else "-")
    return cells + [""] * (width - len(cells))


def _score(row: Row, column: str) -> str:
    score, sqnr = row["scores"].get(column), row["sqnr"].get(column)
    parts = [] if score is None else [f"{score:.3f}"]
    parts += [] if sqnr is None or math.isinf(sqnr) else [f"{sqnr:.1f} dB"]
    return ", ".join(parts) or "-"


def _gap(row: Row, column: str) -> str:
    """Return the difference to float's score in points; without a score, the SQNR."""
    if column in row["scores"] and FLOAT in row["scores"]:
        return f"{100 * (row['scores'][column] - row['scores'][FLOAT]):+.1f}"
    return _score(row, column)


def _node_cells(node: Row) -> list[str]:
    name = node["name"] if len(node["name"]) <= 60 else f"...{node['name'][-57:]}"
    spent = "-" if node["float_us"] is None else f"{node['float_us'] / 1e3:.3f}"
    return [
        f"{node['op']} `{name}`",
        f"{node['us'] / 1e3:.3f}",
        f"{100 * node['share']:.0f} %",
        spent,
        node["why"],
    ]


def _pair(row: Row, count: str, column: str, reference: str) -> str:
    ratio = _ratio(row, count, column, reference)
    return "-" if ratio is None else f"{_ms(row['milliseconds'][count][column])} ({ratio:.2f})"


def _ms(value: float) -> str:
    return f"{value:.2f}" if value < 100 else f"{value:.0f}"


STAGE = Stage(rows, {"SPEED.md": page}, (*models.REAL, *models.SYNTHETIC), options)
