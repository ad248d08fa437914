"""How much calibration costs beside running the model: qprof and onnxruntime's calibrators, same feeds.

    python tests/benchmarks/run.py calibration resnet50 --work DIR --feeds 16

Each measurement is a process of its own; the processes of all methods take turns, and the least of the rounds
counts; onnxruntime's calibrators, some of which take minutes, run in the first round only. The base is plain
inference of the unmodified model with all cores. Loading is told apart from the seconds; what qprof's runner
opens for itself is part of them. `--flat` measures instead how the peak of memory changes with the number of
feeds.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from itertools import cycle, islice
from pathlib import Path
from statistics import median

import numpy as np
import onnxruntime as ort
from frame import HERE, Row, Rows, Stage, table
from record import read_feeds
from workbench import Workbench

METHODS = (
    "plain",
    "qprof all",
    "qprof needed",
    "qprof needed without channels",
    "ort MinMax",
    "ort Entropy",
    "ort Percentile",
)
MODELS = {
    "resnet50": "ResNet-50, 224 x 224",
    "orientation": "PP-LCNet (MobileNet-sized), 224 x 224",
    "ppocr-cls": "MobileNetV3 of PP-OCR (tiny), 48 x 192",
    "ppocr-det": "PP-OCRv4 detector, 480 x 640",
    "magika": "magika, 2048 bytes",
    "minilm": "MiniLM, sentences",
}
MEMORY_BYTES = 16 << 30
SECONDS = 300


def plain(model: Path, feeds: Sequence[Mapping[str, np.ndarray]]) -> dict[str, float]:
    """Run the model as a user would."""
    start = time.perf_counter()
    session = ort.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    loaded = time.perf_counter()
    for feed in feeds:
        session.run(None, dict(feed))
    return {"load": loaded - start, "seconds": time.perf_counter() - loaded}


def qprof(model: Path, feeds: Sequence[Mapping[str, np.ndarray]], how: str) -> dict[str, float]:
    """Profile the model; `how` is "all" or "needed", and "without channels" where they are not recorded."""
    from qprof_onnx.profiles.runner.calibrate import profile_samples
    from qprof_onnx.profiles.runner.sample_pass import profiling_model
    from qprof_onnx.profiles.runner.settings import RunSettings
    from qprof_onnx.profiles.samples.values import Sample
    from qprof_onnx.quantizer.api.profiling import settings_for
    from qprof_onnx.quantizer.prepare.prepare import open_prepared

    samples = [Sample(str(number), feed) for number, feed in enumerate(feeds)]
    start = time.perf_counter()
    prepared = open_prepared(model)
    tensors, _, less = how.partition(" ")
    run = RunSettings(tensors, "off" if less else "weighted-layers")
    with profiling_model(prepared.model, settings_for(prepared.graph, run)) as profiled:
        ready = time.perf_counter()
        profile_samples(profiled, samples, prepared.identity)
        return {"load": ready - start, "seconds": time.perf_counter() - ready}


class _Reader:
    """Feeds as onnxruntime's calibrators want them."""

    def __init__(self, feeds: Sequence[Mapping[str, np.ndarray]]) -> None:
        self._feeds = iter(feeds)

    def get_next(self) -> Mapping[str, np.ndarray] | None:
        return next(self._feeds, None)


def calibrator(model: Path, feeds: Sequence[Mapping[str, np.ndarray]], method: str) -> dict[str, float]:
    """Calibrate with a method of onnxruntime."""
    quantization = import_module("onnxruntime.quantization.calibrate")
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        made = quantization.create_calibrator(
            model,
            augmented_model_path=str(Path(folder, "augmented.onnx")),
            calibrate_method=quantization.CalibrationMethod[method],
        )
        ready = time.perf_counter()
        made.collect_data(_Reader(feeds))
        made.compute_data()
        return {"load": ready - start, "seconds": time.perf_counter() - ready}


def measure(words: Sequence[str]) -> dict[str, float]:
    """Return seconds, seconds of loading, and the peak of memory in MiB; the work of a process of its own.

    The words are a method, a model, a folder of samples, the number of feeds and how many of them differ at
    most. The feeds are in memory beforehand.
    """
    method, model, data = words[0], Path(words[1]), Path(words[2])
    number, distinct = int(words[3]), int(words[4])
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    feeds = list(islice(cycle(list(islice(read_feeds(data), min(number, distinct)))), number))
    tool, _, how = method.partition(" ")
    if tool == "plain":
        found = plain(model, feeds)
    else:
        found = qprof(model, feeds, how) if tool == "qprof" else calibrator(model, feeds, how)
    return {**found, "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}


CHILD = "import json, sys; from stages.calibration import measure; print(json.dumps(measure(sys.argv[1:])))"


def child(method: str, bench: Workbench, number: int, distinct: int = 128) -> Row:
    """Measure in a process of its own; the answer holds "failed" when it ran out of memory or time."""
    words = [method, str(bench.path), str(bench.data.calibration), str(number), str(distinct)]
    command = [sys.executable, "-c", CHILD, *words]
    try:
        done = subprocess.run(command, cwd=HERE, capture_output=True, text=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return {"failed": f"over {SECONDS} s"}
    if done.returncode:
        memory = any(word in done.stderr for word in ("MemoryError", "bad_alloc", "allocate"))
        if memory or done.returncode < 0:
            return {"failed": f"over {MEMORY_BYTES >> 30} GiB"}
        return {"failed": done.stderr.strip().splitlines()[-1][:60]}
    return dict(json.loads(done.stdout.splitlines()[-1]))


def rows(name: str, given: Namespace) -> Iterator[Row]:
    """Yield the least of each figure by method, for each number of feeds; with --flat the peaks of memory
    alone.
    """
    bench, methods = Workbench(name, given.work), given.methods.split(",")
    for number in FLAT_FEEDS if given.flat else ():
        # The same few feeds again and again: those that wait in memory are none of the runner's.
        runs = [child("qprof all", bench, number, FLAT_FEEDS[0])["peak"] for _ in range(FLAT_ROUNDS)]
        yield {"flat": number, "peak": median(runs)}
    for number in () if given.flat else map(int, given.feeds.split(",")):
        best: dict[str, Row] = {}
        for turn in range(given.rounds):
            for method in methods[turn % len(methods) :] + methods[: turn % len(methods)]:
                peer = method.startswith("ort")
                if peer and number > given.ort_feeds:
                    best[method] = {"failed": "not run"}
                if (peer and turn > 0) or "failed" in best.get(method, {}):
                    continue
                found = child(method, bench, number)
                print(name, number, method, found, flush=True)
                before = best.get(method, found)
                best[method] = (
                    found if "failed" in found else {key: min(found[key], before[key]) for key in found}
                )
        yield {"feeds": number, "best": best}


def page(rows: Rows) -> str:
    """Return seconds beside plain inference and peaks, then seconds of loading."""
    lines, loads, flat = [], [], []
    for name, some in rows.items():
        flat += [
            f"{MODELS.get(name, name)}: {row['peak']:.0f} MiB at {row['flat']} feeds"
            for row in some
            if "flat" in row
        ]
        for row in (row for row in some if "best" in row):
            base = row["best"]["plain"]["seconds"]
            cells = [
                _cell(row["best"].get(method, {"failed": "not run"}), method, base) for method in METHODS
            ]
            lines.append([f"{MODELS.get(name, name)}, {row['feeds']}", *cells])
            if row["feeds"] == 16 and "load" in row["best"].get("qprof all", {}):
                figures = [f"{row['best'][method]['load']:.2f}" for method in ("plain", "qprof all")]
                loads.append([MODELS.get(name, name), *figures])
    parts = [table(["model, feeds", *METHODS], lines)]
    parts += [f"Peaks with `all`, medians of {FLAT_ROUNDS} runs. {'; '.join(flat)}."] if flat else []
    parts += ["Loading, in seconds; for qprof with preparation and optimisation of the graph:"]
    return "\n\n".join([*parts, table(["model", "plain", "qprof"], loads)])


def _cell(found: Row, method: str, base: float) -> str:
    if "failed" in found:
        return str(found["failed"])
    spent = f"{base:.2f} s" if method == "plain" else f"{found['seconds'] / base:.2f} x"
    return f"{spent}, {found['peak']:.0f} MiB"


def options(parser: ArgumentParser) -> None:
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--feeds", default="16,128")
    parser.add_argument("--ort-feeds", type=int, default=128, help="run onnxruntime's with at most so many")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--flat", action="store_true", help="the peaks at more and more feeds, such as of ppocr-cls"
    )


FLAT_FEEDS, FLAT_ROUNDS = (16, 128, 2000), 3
STAGE = Stage(rows, {"CALIBRATION.md": page}, tuple(MODELS), options)
