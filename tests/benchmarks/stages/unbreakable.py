"""Runs that are killed, and workers that are lost: do they end in the bytes of an undisturbed run?

    python tests/benchmarks/run.py unbreakable ppocr-cls --work DIR --kills 12

A calibration is killed with SIGKILL at seeded random moments, and the same command started again, until
`--kills` are done; then it may finish. Next the same samples are shared by the workers of a Dask scheduler,
and one of them is killed in the middle. The sha256 of every profile is that of the first, undisturbed run, or
the script ends with an error.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from pathlib import Path

from frame import Row, Rows, Stage, table
from workbench import Workbench, digest_of

from stages.cluster import cluster, feeds_of, profiling, seconds

WORKERS = 3


def rows(name: str, given: Namespace) -> Iterator[Row]:
    """Yield every run as it ends.

    Raises:
        RuntimeError: two profiles differ.
    """
    bench = Workbench(name, given.work)
    digests = set()

    def row(what: str, taken: float, output: str) -> Row:
        digests.add(digest_of(folder / output))
        print(what, f"{taken:.1f} s", flush=True)
        if len(digests) > 1:
            raise RuntimeError(f"{what}: the profiles differ")
        return {"what": what, "seconds": taken, "digest": digest_of(folder / output), "feeds": given.feeds}

    with feeds_of(bench, given.feeds) as folder:
        for threads in ("1", "2"):
            taken = seconds(profiling(bench.path, folder, "plain.yaml", "--threads", threads))
            yield row(f"undisturbed, {threads} thread{'s' if threads != '1' else ''}", taken, "plain.yaml")
        moments, whole = killed(bench.path, folder, given.kills, taken / 3)
        told = ", ".join(f"{moment:.1f}" for moment in moments)
        yield row(f"killed {given.kills} times, after {told} s", whole, "killed.yaml")
        whole = lost_worker(bench.path, folder, taken / 2)
        yield row(f"--scheduler, {WORKERS} workers, one killed after {taken / 2:.1f} s", whole, "dask.yaml")


def start(words: list[str]) -> subprocess.Popen[bytes]:
    """Start a command quietly."""
    return subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def killed(model: Path, folder: Path, kills: int, longest: float) -> tuple[list[float], float]:
    """Kill a run with a checkpoint, each time within `longest` seconds, and let it finish; return the
    moments.
    """
    chance, moments = random.Random(0), list[float]()
    progress = ("--checkpoint", str(folder / "progress"), "--every", "0.3")
    words, begun = profiling(model, folder, "killed.yaml", *progress), time.perf_counter()
    while len(moments) < kills:
        process, moment = start(words), chance.uniform(0.1, longest)
        try:
            process.wait(moment)
            raise RuntimeError(
                f"finished within {moment:.1f} s, after {len(moments)} kills: give more --feeds"
            )
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
            moments.append(moment)
        if (folder / "killed.yaml").exists():
            raise RuntimeError("a killed run has written its profile")
    seconds(words)
    return moments, time.perf_counter() - begun


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


def lost_worker(model: Path, folder: Path, after: float) -> float:
    """Kill one of the workers of a Dask scheduler; return the seconds of the run."""
    with cluster(WORKERS) as address:
        ours = [pid for pid in children(os.getpid()) if "finished" in _words(pid) and address in _words(pid)]
        begun = time.perf_counter()
        process = start(profiling(model, folder, "dask.yaml", "--scheduler", address))
        time.sleep(after)
        os.kill(busiest(ours), signal.SIGKILL)
        if process.wait():
            raise RuntimeError("the run with a lost Dask worker failed")
    return time.perf_counter() - begun


def _words(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text(encoding="utf-8")


def page(rows: Rows) -> str:
    parts = []
    for name, some in rows.items():
        cells = [[row["what"], f"{row['seconds']:.1f}", row["digest"][:16]] for row in some]
        parts.append(f"{some[0]['feeds']} feeds of {name}; progress is kept every 0.3 s.")
        parts.append(table(["run", "seconds, all told", "sha256 of the profile"], cells))
    return "\n\n".join(parts)


def options(parser: ArgumentParser) -> None:
    parser.add_argument("--feeds", type=int, default=3000)
    parser.add_argument("--kills", type=int, default=12)


STAGE = Stage(rows, {"UNBREAKABLE.md": page}, ("ppocr-cls",), options)
