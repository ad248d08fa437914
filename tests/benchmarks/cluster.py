"""What sharing a calibration among processes costs, on one machine, and what follows for many.

    python tests/benchmarks/cluster.py --work /tmp/benchmarks --model resnet50 --feeds 1000

The same feeds and the same number of cores: one process with a thread for each core, and a Dask scheduler
with as many workers, in turns; the least of the rounds counts. All must give the same bytes. The
machines that nobody here has are reckoned from a shard's time, the size of its profile, the time of one
merge and the time until a worker is ready. `--write` writes CLUSTER.md beside this script.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import cycle, islice
from pathlib import Path

import numpy as np
import onnxruntime as ort
from calibration import model_file
from qprof_onnx.profiles.runner.cluster import merged_texts, shards
from qprof_onnx.profiles.runtime.providers import cores
from record import package_folder, read_feeds

HERE = Path(__file__).parent
QPROF = (sys.executable, "-P", "-c", "from qprof_onnx.cli.main import main; main()")
MACHINES, SAMPLES = 100, 10_000_000


def path_of(name: str, work: Path) -> Path:
    """Return the file of a model; the smallest of the OCR models is good for many feeds."""
    if name == "ppocr-cls":
        return package_folder("rapidocr_onnxruntime") / "models/ch_ppocr_mobile_v2.0_cls_infer.onnx"
    return model_file(name, work)


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


def seconds(model: Path, data: Path, output: Path, *options: str) -> float:
    """Return how long one run of the command line takes, its start included."""
    start = time.perf_counter()
    command = [*QPROF, "dump-profile", str(model), "--data", str(data), "-o", str(output), *options]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.perf_counter() - start


def compared(given: argparse.Namespace, folder: Path) -> tuple[dict[str, float], str]:
    """Return the least seconds by way, and the digest of the one profile that they give."""
    model, data, number = path_of(given.model, given.work), folder / "feeds", cores()
    data.mkdir(parents=True)
    feeds = list(islice(read_feeds(given.work / given.model / "calibration"), given.feeds))
    for index, feed in enumerate(islice(cycle(feeds), given.feeds)):
        np.savez(data / f"{index}.npz", **feed)
    best: dict[str, float] = {}
    digests = set()
    with cluster(number) as address:
        ways = {
            f"one process, {number} threads": ["--threads", str(number)],
            f"--scheduler, {number} workers": ["--scheduler", address],
        }
        for _ in range(given.rounds):
            for way, options in ways.items():
                taken = seconds(model, data, folder / "p.yaml", *options)
                best[way] = min(taken, best.get(way, taken))
                digests.add(hashlib.sha256((folder / "p.yaml").read_bytes()).hexdigest())
                print(way, f"{taken:.2f} s", flush=True)
    if len(digests) != 1:
        raise SystemExit("the profiles differ")
    best["start"] = seconds(model, data, folder / "one.yaml", "--threads", "1", "--limit", "1")
    return best, digests.pop()


def merge_seconds(text: str) -> float:
    """Return the time of one merge of two profiles, read and written as text."""
    taken = []
    for _ in range(3):
        start = time.perf_counter()
        merged_texts(text, text)
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


def report(given: argparse.Namespace, best: dict[str, float], digest: str, text: str) -> str:
    """Return the page."""
    ways = [way for way in best if way != "start"]
    base = best[ways[0]]
    rows = [f"| {way} | {best[way]:.1f} | {100 * (best[way] / base - 1):+.1f} % |" for way in ways]
    feed = (base - best["start"]) * cores() / given.feeds
    merge = merge_seconds(text)
    return f"""# Calibration shared among processes

onnxruntime {ort.__version__}, Python {platform.python_version()}, {platform.machine()}, {cores()} cores.
Written by cluster.py, which says how it is measured. {given.model}, {given.feeds} feeds.

| way | seconds, all told | beside one process |
|---|---|---|
{chr(10).join(rows)}

All wrote the same bytes, sha256 {digest[:16]}.

## A hundred machines, reckoned

Measured here: {1000 * feed:.1f} ms for a feed on one core, {best["start"]:.1f} s until one feed is done,
{merge:.2f} s for a merge, {len(text) / 1e6:.2f} MB for a profile.

{reckoned(feed, best["start"], merge, len(text) / 1e6)}
"""


def main() -> None:
    """Measure what the command line asks for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--model", default="resnet50")
    parser.add_argument("--feeds", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    folder = given.work / "cluster"
    shutil.rmtree(folder, ignore_errors=True)
    try:
        best, digest = compared(given, folder)
        text = (folder / "p.yaml").read_text(encoding="utf-8")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    page = report(given, best, digest, text)
    print(json.dumps(best))
    print(page)
    if given.write:
        (HERE / "CLUSTER.md").write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
