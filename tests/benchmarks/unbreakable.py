"""Runs that are killed, and workers that are lost: do they end in the bytes of an undisturbed run?

    python tests/benchmarks/unbreakable.py --work /tmp/benchmarks --kills 12 --write

A calibration of the OCR direction classifier is killed with SIGKILL at seeded random moments, and the same
command started again, until `--kills` are done; then it may finish. Next the same samples are shared by the
workers of a Dask scheduler, and one of them is killed in the middle. The sha256
of every profile is that of the first, undisturbed run, or the script ends with exit code 1. `--write`
writes UNBREAKABLE.md beside this script.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path

import numpy as np
from cluster import QPROF, cluster, path_of
from record import read_feeds

HERE = Path(__file__).parent
MODEL = "ppocr-cls"
WORKERS = 3


@dataclass(frozen=True)
class Done:
    """A run that has ended.

    Attributes:
        what: what was done to it.
        seconds: from its start to its end, with those of the runs that were killed.
        digest: sha256 of the profile.
    """

    what: str
    seconds: float
    digest: str


def digest_of(path: Path) -> str:
    """Return the sha256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def command(model: Path, folder: Path, output: Path, options: Sequence[str]) -> list[str]:
    """Return the command line that profiles all feeds."""
    data = ["--data", str(folder / "feeds"), "-o", str(output)]
    return [*QPROF, "dump-profile", str(model), *data, *options]


def start(words: list[str]) -> subprocess.Popen[bytes]:
    """Start a command in a group of its own, quietly."""
    return subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def finish(words: list[str]) -> float:
    """Run a command to its end; return the seconds."""
    begun = time.perf_counter()
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.perf_counter() - begun


def undisturbed(model: Path, folder: Path, threads: str) -> Done:
    """Run without anything in the way."""
    output = folder / f"plain-{threads}.yaml"
    taken = finish(command(model, folder, output, ["--threads", threads]))
    return Done(f"undisturbed, {threads} threads", taken, digest_of(output))


def killed(model: Path, folder: Path, kills: int, longest: float) -> Done:
    """Kill a run with a checkpoint `kills` times, each within `longest` seconds, and let it finish."""
    chance, moments = random.Random(0), []
    output, progress = folder / "killed.yaml", folder / "progress"
    words = command(model, folder, output, ["--checkpoint", str(progress), "--every", "0.3"])
    begun = time.perf_counter()
    while len(moments) < kills:
        process, moment = start(words), chance.uniform(0.1, longest)
        try:
            process.wait(moment)
            raise SystemExit(f"finished within {moment:.1f} s, after {len(moments)} kills: give more --feeds")
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
            moments.append(moment)
        if output.exists():
            raise SystemExit("a killed run has written its profile")
    finish(words)
    told = ", ".join(f"{moment:.1f}" for moment in moments)
    return Done(f"killed {kills} times, after {told} s", time.perf_counter() - begun, digest_of(output))


def children(pid: int) -> list[int]:
    """Return the processes that a process has started."""
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii")
    return [int(word) for word in found.split()]


def busiest(pids: Sequence[int]) -> int:
    """Return the process that has used most processor time: a worker, not one that tracks resources."""

    def ticks(pid: int) -> int:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        return int(fields[11]) + int(fields[12])

    return max(pids, key=ticks)


def lost_worker(model: Path, folder: Path, after: float) -> Done:
    """Kill one of the workers of a Dask scheduler."""
    output = folder / "dask.yaml"
    with cluster(WORKERS) as address:
        ours = [pid for pid in children(os.getpid()) if "finished" in _words(pid) and address in _words(pid)]
        begun = time.perf_counter()
        process = start(command(model, folder, output, ["--scheduler", address]))
        time.sleep(after)
        os.kill(busiest(ours), signal.SIGKILL)
        if process.wait():
            raise SystemExit("the run with a lost Dask worker failed")
        what = f"--scheduler, {WORKERS} workers, one killed after {after:.1f} s"
        return Done(what, time.perf_counter() - begun, digest_of(output))


def _words(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text(encoding="utf-8")


def runs(given: argparse.Namespace, folder: Path) -> Iterator[Done]:
    """Yield every run as it ends."""
    model, data = path_of(MODEL, given.work), folder / "feeds"
    data.mkdir(parents=True)
    feeds = list(read_feeds(given.work / MODEL / "calibration"))
    for index, feed in enumerate(islice(cycle(feeds), given.feeds)):
        np.savez(data / f"{index}.npz", **feed)
    yield undisturbed(model, folder, "1")
    first = undisturbed(model, folder, "2")
    yield first
    yield killed(model, folder, given.kills, first.seconds / 3)
    yield lost_worker(model, folder, first.seconds / 2)


def main() -> None:
    """Run all, print each as it ends."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--feeds", type=int, default=3000)
    parser.add_argument("--kills", type=int, default=12)
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    folder = given.work / "unbreakable"
    shutil.rmtree(folder, ignore_errors=True)
    rows = []
    try:
        for done in runs(given, folder):
            rows.append(done)
            print(f"{done.what}: {done.seconds:.1f} s, sha256 {done.digest}", flush=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    lines = "\n".join(f"| {done.what} | {done.seconds:.1f} | {done.digest[:16]} |" for done in rows)
    if given.write:
        (HERE / "UNBREAKABLE.md").write_text(
            f"""# Killed runs and lost workers

Written by unbreakable.py, which says what is done. {given.feeds} feeds of {MODEL}; progress
is kept every 0.3 s.

| run | seconds, all told | sha256 of the profile |
|---|---|---|
{lines}
""",
            encoding="utf-8",
        )
    if len({done.digest for done in rows}) != 1:
        sys.exit("the profiles differ")


if __name__ == "__main__":
    main()
