"""What one quantized file of a model is worth on a split of its data: score, SQNR, and its time beside float.

python tests/benchmarks/run.py quick magika --work DIR --file q.onnx --seconds 0
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from pathlib import Path

from frame import Row, Rows, Stage
from record import Judged, judge
from workbench import FLOAT, ONNXRUNTIME, Workbench, turns


def options(parser: ArgumentParser) -> None:
    parser.add_argument("--file", type=Path, required=True, help="the quantized model")
    parser.add_argument("--on", choices=("tuning", "evaluation"), default="tuning")
    parser.add_argument("--seconds", type=float, default=6.0, help="of timing; 0: none")


def rows(name: str, given: Namespace) -> Iterator[Row]:
    bench = Workbench(name, given.work)
    split = bench.split(given.on if bench.data.tuning else "evaluation")
    plain = bench.judged(FLOAT, split)
    assert isinstance(plain, Judged)
    found = judge(bench.model, (bench.path, given.file), split)
    times = {}
    if given.seconds > 0:
        files = {"float": bench.path, "int8": given.file}
        runs = {label: ONNXRUNTIME.run(path, 1) for label, path in files.items()}
        times = turns(runs, [next(split.feeds())], given.seconds)
    yield {"name": name, "float": said(plain), "int8": said(found), "times": times}


def said(judged: Judged) -> str:
    """Return score and SQNR in one line."""
    parts = [] if judged.scores is None else [f"score {judged.scores.value:.4f}"]
    parts += [] if judged.scores is None else [f"{k} {v:.4f}" for k, v in judged.scores.parts.items()]
    sqnr = ", ".join(f"{output} {value:.2f} dB" for output, value in judged.sqnr.items())
    return f"{'; '.join(parts)}; SQNR {judged.worst_sqnr:.2f} dB ({sqnr})"


def page(rows: Rows) -> str:
    return "\n".join(f"{key}: {value}" for (row,) in rows.values() for key, value in row.items())


STAGE = Stage(rows, {"quick": page}, (), options)
