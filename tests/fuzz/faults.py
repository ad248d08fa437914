"""Faults at random moments, for as long as one likes: do runs end in the bytes of an undisturbed one?

    python tests/fuzz/faults.py --seconds 600 --seed 1

Each turn starts `qprof dump-profile` on the digits model, with a checkpoint, with threads or with workers,
and sends SIGKILL, SIGTERM, SIGHUP or Ctrl-C at a random moment, to the process alone or to its whole group,
or SIGKILL to one of its workers. Then:

* the exit code is that of the signal, or 0; nothing is on stderr but one line, and no traceback;
* no process of the run is left, and in TMPDIR nothing, except after SIGKILL to a run without workers;
* the output is there whole, or not at all; a run with a checkpoint is resumed until it ends, the others are
  run again, and the bytes are those of the undisturbed run.

Ends with exit code 1 at the first turn that breaks a promise, and prints how to repeat it. One turn takes
some seconds. The faults of larger models and of Dask are in `tests/benchmarks/unbreakable.py`.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

DIGITS = Path(__file__).parents[2] / "examples" / "digits"
QPROF = (sys.executable, "-P", "-c", "from qprof_onnx.cli.start import run; run()", "dump-profile")
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
WAYS: dict[str, tuple[str, ...]] = {
    "checkpoint": ("--checkpoint", "progress.qprof", "--every", "0"),
    "checkpoint and limit": ("--checkpoint", "progress.qprof", "--every", "0.05", "--memory-limit", "4G"),
    "threads": ("--threads", "3"),
    "workers": ("--workers", "2"),
}


class BrokenError(Exception):
    """A promise was not kept."""


def alive(group: int) -> list[int]:
    """Return the processes of a group that run."""
    pids = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text(encoding="utf-8").rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[2]) == group and fields[0] not in "ZX":
            pids.append(int(stat.parent.name))
    return pids


def await_end(group: int) -> None:
    """Wait until no process of a group runs."""
    end = time.monotonic() + 30
    while left := alive(group):
        if time.monotonic() > end:
            raise BrokenError(f"processes {left} are left")
        time.sleep(0.02)


def start(place: Path, options: Sequence[str]) -> subprocess.Popen[str]:
    """Start a run in a group of its own, with a TMPDIR of its own."""
    words = [*QPROF, str(DIGITS / "model.onnx"), "--data", "data", "-o", "p.yaml", *options]
    environment = os.environ | {"TMPDIR": str(place / "tmp")}
    return subprocess.Popen(
        words,
        cwd=place,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def disturb(process: subprocess.Popen[str], chance: random.Random, longest: float, workers: bool) -> str:
    """Send a signal at a random moment; return which, and to whom."""
    time.sleep(chance.uniform(0.1, longest))
    others = [pid for pid in alive(process.pid) if pid != process.pid]
    kinds = ["process", "group", *(["worker"] if workers and others else [])]
    whom, number = chance.choice(kinds), chance.choice(SIGNALS)
    try:
        if whom == "worker":
            os.kill(chance.choice(others), signal.SIGKILL)
            return "worker"
        (os.killpg if whom == "group" else os.kill)(process.pid, number)
    except ProcessLookupError:
        pass
    return f"{number.name} {whom}"


def check(process: subprocess.Popen[str], fault: str, place: Path, workers: bool) -> None:
    """Check what a disturbed run leaves."""
    errors = [line for line in process.communicate(timeout=120)[1].splitlines() if "samples" not in line]
    await_end(process.pid)
    name = fault.split(maxsplit=1)[0]
    killed = name in ("SIGKILL", "worker")
    number = 0 if name == "worker" else getattr(signal, name)
    if process.returncode not in (0, 128 + number, -number):
        raise BrokenError(f"exit code {process.returncode}: {errors}")
    if (len(errors) > 1 or any("Traceback" in line for line in errors)) and not killed:
        raise BrokenError("\n".join(errors))
    left = [path.name for path in (place / "tmp").iterdir() if path.name != ".ses"]  # that is onnxruntime's
    if left and (not killed or (workers and fault == "SIGKILL process")):
        raise BrokenError(f"left in TMPDIR: {left}")


def turn(chance: random.Random, folder: Path, expected: bytes, longest: float) -> str:
    """Disturb one run until it has ended by itself; return what was done."""
    way = chance.choice(sorted(WAYS))
    place = Path(tempfile.mkdtemp(dir=folder))
    (place / "data").symlink_to(folder / "data")
    faults = []
    for _ in range(chance.randint(1, 4)):
        shutil.rmtree(place / "tmp", ignore_errors=True)
        (place / "tmp").mkdir()
        process = start(place, WAYS[way])
        fault = disturb(process, chance, longest, way == "workers")
        faults.append(fault)
        check(process, fault, place, way == "workers")
        if (place / "p.yaml").exists():
            break
    else:
        process = start(place, WAYS[way])
        errors = process.communicate(timeout=300)[1]
        if process.returncode:
            raise BrokenError(f"the undisturbed end failed: {errors}")
    if (place / "p.yaml").read_bytes() != expected:
        raise BrokenError(f"{way}, {faults}: other bytes")
    shutil.rmtree(place)
    return f"{way}: {', '.join(faults)}"


def main() -> None:
    """Run turns until the time is over."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--samples", type=int, default=400)
    given = parser.parse_args()
    end, counts, number = time.monotonic() + given.seconds, Counter[str](), 0
    with tempfile.TemporaryDirectory(prefix="qprof-faults-") as name:
        folder = Path(name)
        (folder / "data").mkdir()
        files = sorted((DIGITS / "calibration").glob("*.npz"))
        for sample in range(given.samples):
            os.link(
                shutil.copy(files[sample % len(files)], folder / "x.npz"), folder / "data" / f"{sample}.npz"
            )
            (folder / "x.npz").unlink()
        (folder / "tmp").mkdir()
        begun = time.monotonic()
        process = start(folder, ())
        process.communicate()
        longest, expected = time.monotonic() - begun, (folder / "p.yaml").read_bytes()
        while time.monotonic() < end:
            chance = random.Random(f"{given.seed} {number}")
            try:
                done = turn(chance, folder, expected, longest)
            except BrokenError as broken:
                sys.exit(f"seed {given.seed}, turn {number}: {broken}")
            counts.update(done.partition(": ")[2].split(", "))
            number += 1
            print(number, done, flush=True)
    print(f"{number} runs, {counts.total()} faults, none broke a promise: {dict(counts)}")


if __name__ == "__main__":
    main()
