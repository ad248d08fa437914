"""Latency of several models, interleaved in one process, so that a busy moment hits them alike."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from record import Feed, session

Run = Callable[[Feed], object]


def latencies(
    paths: Mapping[str, Path], feed: Feed, seconds: float = 10.0, threads: int = 1
) -> dict[str, float]:
    """Return each model's median latency in onnxruntime, in milliseconds, over interleaved rounds."""
    return interleaved({name: onnxruntime_run(path, threads) for name, path in paths.items()}, feed, seconds)


def onnxruntime_run(path: Path, threads: int) -> Run:
    """Return one run of a model in onnxruntime."""
    opened = session(path, threads)
    return lambda feed: opened.run(None, feed)


def interleaved(runs: Mapping[str, Run], feed: Feed, seconds: float) -> dict[str, float]:
    """Return the median milliseconds of each of several runs.

    Rounds go on for about the given time, at least 9 and at most 400 of them; the order turns by one
    every round.
    """
    names, times = list(runs), {name: list[float]() for name in runs}
    for run in runs.values():
        for _ in range(2):
            run(feed)
    start, done = time.perf_counter(), 0
    while done < 9 or (done < 400 and time.perf_counter() - start < seconds):
        for name in names[done % len(names) :] + names[: done % len(names)]:
            before = time.perf_counter()
            runs[name](feed)
            times[name].append(time.perf_counter() - before)
        done += 1
    return {name: statistics.median(values) * 1000 for name, values in times.items()}
