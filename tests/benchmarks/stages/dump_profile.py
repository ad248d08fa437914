"""What `qprof dump-profile` takes as a whole beside plain inference of its samples, step by step.

    python tests/benchmarks/run.py dump-profile resnet50 --work DIR --samples 64

Figures are processor seconds of processes of their own that compute on one thread: other work on the machine
moves them little. Plain inference, the whole command, and its steps in a process like it take turns, and the
least of the rounds counts. Loading is no part of plain inference.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path

import onnxruntime as ort
from frame import HERE, Row, Rows, Stage, table
from record import read_feeds
from workbench import QPROF, Workbench

from stages.calibration import MODELS

SUBJECTS = {**MODELS, "vit-focus": "ViT with a decoder, 384 x 384", "digits": "examples/digits, 8 x 8"}
STEPS = {
    "imports": "imports",
    "prepare": "prepare",
    "count": "run and count",
    "noise": "noise",
    "write": "write",
}


def plain(model: Path, data: Path, number: int) -> dict[str, float]:
    """Run the model as a user would."""
    feeds = list(islice(read_feeds(data), number))
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    session.run(None, dict(feeds[0]))
    start = time.process_time()
    for feed in feeds:
        session.run(None, dict(feed))
    return {"plain": time.process_time() - start, "samples": len(feeds)}


def steps(model: Path, data: Path, number: int) -> dict[str, float]:
    """Do what the command does, as `profile_model` has it."""
    from qprof_onnx.cli.entry import run

    sys.argv = ["qprof", "--version"]
    try:
        run()
    except SystemExit:
        from qprof_onnx.profiles.records.store import save_profile
        from qprof_onnx.profiles.runner.calibrate import calibrate
        from qprof_onnx.profiles.runner.settings import RunSettings
        from qprof_onnx.profiles.samples.samples import input_specs, open_samples
        from qprof_onnx.profiles.samples.smallest import SmallestSamples
        from qprof_onnx.quantizer.api.profiling import settings_for
        from qprof_onnx.quantizer.noise.measure import measure_noise
        from qprof_onnx.quantizer.prepare.prepare import open_prepared

    found, start = {}, time.process_time()

    def done(step: str) -> None:
        nonlocal start
        found[step], start = time.process_time() - start, time.process_time()

    prepared = open_prepared(model)
    specs = input_specs(prepared.model)
    settings = settings_for(prepared.graph, RunSettings(threads=1))
    done("prepare")
    samples, smallest = open_samples(str(data), specs, number), SmallestSamples(settings.noise_samples, specs)
    profile = calibrate(prepared.model, samples, prepared.identity, settings, smallest=smallest)
    done("count")
    measure_noise(prepared.model, set(profile), smallest.samples(samples))
    done("noise")
    with tempfile.TemporaryDirectory() as folder:
        save_profile(profile, Path(folder) / "profile.yaml")
        done("write")
    return found


WORK: Mapping[str, Callable[[Path, Path, int], dict[str, float]]] = {"plain": plain, "steps": steps}
CHILD = (
    "import json, sys; from pathlib import Path; from stages.dump_profile import WORK; "
    "print(json.dumps(WORK[sys.argv[1]](Path(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4]))))"
)
IMPORTS = (
    "import sys, time\n"
    "from qprof_onnx.cli.entry import run\n"
    "sys.argv = ['qprof', '--version']\n"
    "try:\n    run()\n"
    "except SystemExit:\n"
    "    import qprof_onnx.cli.commands.dump_profile, qprof_onnx.quantizer.api.profiling\n"
    "print(time.process_time())"
)


def whole(bench: Workbench, number: int) -> float:
    """Return the processor seconds of the command."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with tempfile.TemporaryDirectory() as folder:
        files = (str(bench.path), "--data", str(bench.data.calibration), "-o", f"{folder}/profile.yaml")
        command = [*QPROF, "dump-profile", *files, "--threads", "1", "--limit", str(number)]
        subprocess.run(command, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime + after.ru_stime) - (before.ru_utime + before.ru_stime)


def _said(*words: str) -> str:
    command = [sys.executable, "-c", *words]
    done = subprocess.run(command, cwd=HERE, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()[-1]


def rows(name: str, given: Namespace) -> Iterator[Row]:
    """Yield the least of each figure."""
    bench = Workbench(name, given.work)
    words = [str(bench.path), str(bench.data.calibration), str(given.samples)]
    best: Row = {}
    for _ in range(given.rounds):
        found: Row = {"whole": whole(bench, given.samples), "imports": float(_said(IMPORTS))}
        for work in WORK:
            found |= json.loads(_said(CHILD, work, *words))
        best = {key: min(value, best.get(key, value)) for key, value in found.items()}
    print(name, best, flush=True)
    yield best


def page(rows: Rows) -> str:
    """Return the steps in seconds, and the whole as a multiple of plain inference."""
    lines: list[Sequence[str]] = []
    for name, (row,) in rows.items():
        after = (row["whole"] - row["imports"]) / row["plain"]
        parts = [f"{row[step]:.2f}" for step in STEPS]
        times = ["-", "-"] if name == "digits" else [f"{row['whole'] / row['plain']:.1f} x", f"{after:.1f} x"]
        lines.append(
            [
                f"{SUBJECTS[name]}, {row['samples']}",
                f"{row['plain']:.2f}",
                *parts,
                f"{row['whole']:.2f}",
                *times,
            ]
        )
    head = ["model, samples", "plain", *STEPS.values(), "whole", "whole / plain", "without imports"]
    return table(head, lines)


def options(parser: ArgumentParser) -> None:
    parser.add_argument("--samples", type=int, default=64, help="take at most so many")
    parser.add_argument("--rounds", type=int, default=3)


STAGE = Stage(rows, {"CALIBRATION.md": page}, tuple(SUBJECTS), options)
