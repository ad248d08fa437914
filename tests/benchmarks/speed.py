"""Latency of several models, interleaved in one process, so that a busy moment hits them alike."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping
from pathlib import Path

from record import Feed, session


def latencies(
    paths: Mapping[str, Path], feed: Feed, seconds: float = 10.0, threads: int = 1
) -> dict[str, float]:
    """Return each model's median latency in milliseconds over interleaved rounds.

    Rounds go on for about the given time, at least 9 and at most 400 of them; the order turns by one
    model every round.
    """
    sessions = {name: session(path, threads) for name, path in paths.items()}
    names, times = list(sessions), {name: list[float]() for name in sessions}
    for opened in sessions.values():
        for _ in range(2):
            opened.run(None, feed)
    start, done = time.perf_counter(), 0
    while done < 9 or (done < 400 and time.perf_counter() - start < seconds):
        for name in names[done % len(names) :] + names[: done % len(names)]:
            before = time.perf_counter()
            sessions[name].run(None, feed)
            times[name].append(time.perf_counter() - before)
        done += 1
    return {name: statistics.median(values) * 1000 for name, values in times.items()}
