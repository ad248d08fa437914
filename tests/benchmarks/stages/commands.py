"""What the commands of qprof take beside the model itself: processor seconds of one core.

    python tests/benchmarks/run.py commands nudenet u-net --work DIR

`plain` is onnxruntime on the calibration samples, read before; `dump-profile` and `quantize --profile` are
processes as a user starts them. `growth` is what `dump-profile` takes over plain inference, without
`START` seconds for what does not grow with the samples. Each is the least of several runs in turns.
"""

from __future__ import annotations

import os
import resource
import subprocess
import tempfile
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from pathlib import Path

from frame import Row, Rows, Stage, table
from record import read_feeds, session
from workbench import QPROF, Workbench

START = 0.6
"""Seconds of processor that a command may take before the first sample."""


def plain(path: Path, folder: Path) -> float:
    """Return the seconds of one run on each sample of a folder."""
    opened, feeds = session(path, 1), list(read_feeds(folder))
    opened.run(None, feeds[0])
    before = time.process_time()
    for feed in feeds:
        opened.run(None, feed)
    return time.process_time() - before


def command(*words: object) -> float:
    """Return the seconds of a command of qprof, in user and system together."""

    def spent() -> float:
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return usage.ru_utime + usage.ru_stime

    before = spent()
    one_thread = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*QPROF, *map(str, words)], env=one_thread, capture_output=True, text=True, check=False
    )
    if done.returncode > 1:
        raise SystemExit(done.stderr.strip())
    return spent() - before


def options(parser: ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, default=2)


def rows(name: str, given: Namespace) -> Iterator[Row]:
    bench = Workbench(name, given.work)
    data, seconds = bench.data.calibration, dict[str, list[float]]()
    with tempfile.TemporaryDirectory() as folder:
        profile, out = (Path(folder, file) for file in ("p.yaml", "q.onnx"))
        for _ in range(given.rounds):
            dump = ("dump-profile", bench.path, "--data", data, "-o", profile, "--threads", 1)
            seconds.setdefault("plain", []).append(plain(bench.path, data))
            seconds.setdefault("dump", []).append(command(*dump))
            seconds.setdefault("quantize", []).append(
                command("quantize", bench.path, "--profile", profile, "-o", out)
            )
    yield {key: min(values) for key, values in seconds.items()}


def page(rows: Rows) -> str:
    """Return the seconds of each model, and how much more than plain inference profiling takes."""
    lines = [
        [
            name,
            *(f"{row[key]:.2f}" for key in ("plain", "dump", "quantize")),
            f"{(row['dump'] - START) / row['plain']:.1f}",
        ]
        for name, (row,) in rows.items()
    ]
    return table(["model", "plain s", "dump-profile s", "quantize --profile s", "growth"], lines)


STAGE = Stage(rows, {"": page}, (), options)
