"""What sharing a calibration among processes costs, on one machine, and what follows for many.

    python tests/benchmarks/run.py cluster resnet50 --work DIR --feeds 1000

The same feeds and the same number of cores: one process with a thread for each core, and a Dask scheduler
with as many workers, in turns; the least of the rounds counts. All must give the same bytes. The
machines that nobody here has are reckoned from a shard's time, the size of its profile, the time of one
merge and the time until a worker is ready.
"""

from __future__ import annotations

import math
import subprocess
import sys
import tempfile
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import cycle, islice
from pathlib import Path

import numpy as np
from frame import Row, Rows, Stage, table
from qprof_onnx.profiles.records.store import loads
from qprof_onnx.profiles.runner.cluster import dumps_shard, merged_texts, shards
from qprof_onnx.profiles.runtime.providers import cores
from record import read_feeds
from workbench import QPROF, Workbench, digest_of

MACHINES, SAMPLES = 100, 10_000_000


SCHEDULER = """
import asyncio
from distributed import Scheduler
async def main():
    async with Scheduler(port=0, dashboard=False) as scheduler:
        print(scheduler.address, flush=True)
        await scheduler.finished()
asyncio.run(main())
"""
WORKER = """
import asyncio, sys
from distributed import Worker
async def main():
    async with Worker(sys.argv[1], nthreads=1, dashboard=False) as worker:
        await worker.finished()
asyncio.run(main())
"""


@contextmanager
def cluster(workers: int) -> Iterator[str]:
    """Yield the address of a Dask scheduler with workers of one thread, each a process of its own."""
    python = [sys.executable, "-P", "-c"]
    with subprocess.Popen([*python, SCHEDULER], stdout=subprocess.PIPE, text=True) as scheduler:
        assert scheduler.stdout is not None
        address = scheduler.stdout.readline().strip()
        crew = [
            subprocess.Popen([*python, WORKER, address], stderr=subprocess.DEVNULL) for _ in range(workers)
        ]
        try:
            _await_workers(address, workers)
            yield address
        finally:
            for process in (*crew, scheduler):
                process.kill()
                process.wait()


def _await_workers(address: str, number: int) -> None:
    from distributed import Client

    with Client(address, set_as_default=False) as client:
        client.wait_for_workers(number)


@contextmanager
def feeds_of(bench: Workbench, number: int) -> Iterator[Path]:
    """Yield a folder of so many feeds, those of the calibration again and again, and room for more."""
    with tempfile.TemporaryDirectory(dir=bench.work) as place:
        folder = Path(place)
        (folder / "feeds").mkdir()
        kept = list(islice(read_feeds(bench.data.calibration), number))
        for index, feed in enumerate(islice(cycle(kept), number)):
            np.savez(folder / "feeds" / f"{index}.npz", **feed)
        yield folder


def profiling(model: Path, folder: Path, output: str, *options: str) -> list[str]:
    """Return the command line that profiles all feeds of a folder."""
    files = ["--data", str(folder / "feeds"), "-o", str(folder / output)]
    return [*QPROF, "dump-profile", str(model), *files, *options]


def seconds(command: Sequence[str]) -> float:
    """Return how long one run of a command line takes, its start included."""
    start = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.perf_counter() - start


def rows(name: str, given: Namespace) -> Iterator[Row]:
    """Yield the least seconds of each way, then what the reckoning needs.

    Raises:
        RuntimeError: the profiles of the ways differ.
    """
    bench, number, best = Workbench(name, given.work), cores(), dict[str, float]()
    with feeds_of(bench, given.feeds) as folder, cluster(number) as address:
        ways = {
            f"one process, {number} threads": ("--threads", str(number)),
            f"--scheduler, {number} workers": ("--scheduler", address),
        }
        digests = set()
        for _ in range(given.rounds):
            for way, options in ways.items():
                taken = seconds(profiling(bench.path, folder, "p.yaml", *options))
                best[way] = min(taken, best.get(way, taken))
                digests.add(digest_of(folder / "p.yaml"))
                print(way, f"{taken:.2f} s", flush=True)
        if len(digests) != 1:
            raise RuntimeError("the profiles differ")
        one = seconds(profiling(bench.path, folder, "one.yaml", "--threads", "1", "--limit", "1"))
        text = (folder / "p.yaml").read_text(encoding="utf-8")
    yield from ({"way": way, "seconds": taken} for way, taken in best.items())
    feed = (next(iter(best.values())) - one) * number / given.feeds
    facts = {"feeds": given.feeds, "feed": feed, "start": one, "merge": merge_seconds(text)}
    yield {**facts, "size": len(text) / 1e6, "digest": digests.pop()}


def merge_seconds(text: str) -> float:
    """Return the time of one merge of two profiles, read and written as text."""
    shard, taken = dumps_shard(loads(text), ()), []
    for _ in range(3):
        start = time.perf_counter()
        merged_texts(shard, shard)
        taken.append(time.perf_counter() - start)
    return min(taken)


def reckoned(feed: float, start: float, merge: float, size: float) -> str:
    """Return the reckoning as text: seconds for a feed, a start and a merge; MB of a profile."""
    parts = shards(SAMPLES, MACHINES)
    one = (parts[0].stop or SAMPLES) - parts[0].start
    work = math.ceil(len(parts) / MACHINES) * one * feed
    least = SAMPLES / MACHINES * feed
    last = math.ceil(math.log2(MACHINES))
    merging = (len(parts) / MACHINES + last) * merge
    total = start + work + merging
    again = f"at most {work:.0f} s of one machine"
    return f"""{SAMPLES:,} samples on {MACHINES} machines of one such core each, in {len(parts)} shards of
{one:,}.
At the least each machine runs and counts for {least / 3600:.2f} hours.

- start and model: {start:.1f} s once, on all machines at a time;
- shards: {math.ceil(len(parts) / MACHINES)} for the busiest, {one * feed:.0f} s each, {work / 3600:.2f} h;
- merges: {len(parts) - 1} of {merge:.2f} s; workers merge neighbours while others still run, and
  the last {last} steps wait for each other: {merging:.1f} s in all;
- traffic: {2 * len(parts) * size:.0f} MB of profiles in all, {size:.2f} MB each, to and fro;
- a lost machine costs the shard that it was at and the profiles that it alone held, {again}.

In all {total / 3600:.2f} h, {100 * (total / least - 1):.1f} % above the least."""


def page(rows: Rows) -> str:
    parts = []
    for name, (*ways, facts) in rows.items():
        base = ways[0]["seconds"]
        cells = [[w["way"], f"{w['seconds']:.1f}", f"{100 * (w['seconds'] / base - 1):+.1f} %"] for w in ways]
        parts += [
            f"{name}, {facts['feeds']} feeds.",
            table(["way", "seconds, all told", "beside one process"], cells),
            f"All wrote the same bytes, sha256 {facts['digest'][:16]}.",
            f"## A hundred machines, reckoned from {name}",
            f"Measured here: {1000 * facts['feed']:.1f} ms for a feed on one core, "
            f"{facts['start']:.1f} s until one feed is done,\n"
            f"{facts['merge']:.2f} s for a merge, {facts['size']:.2f} MB for a profile.",
            reckoned(facts["feed"], facts["start"], facts["merge"], facts["size"]),
        ]
    return "\n\n".join(parts)


def options(parser: ArgumentParser) -> None:
    parser.add_argument("--feeds", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=2)


STAGE = Stage(rows, {"CLUSTER.md": page}, ("resnet50",), options)
