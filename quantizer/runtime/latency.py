"""Latency of two models, measured fairly: in one process, in turns, on the same feeds."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

MIN_TURN = 0.005
"""Seconds that a model runs at least before it is the other one's turn: far above the timer's grain."""

MIN_ROUNDS = 5
"""Rounds that are measured even when the time is up."""

Run = Callable[[int], object]
"""Runs a model once on the feed with the given index."""


@dataclass(frozen=True)
class Latency:
    """Latency of the float and of the quantized model.

    Attributes:
        float_ms, quantized_ms: median milliseconds of one run (one sample).
        speedup: float_ms / quantized_ms; above 1 the quantized model is faster.
        speedup_low, speedup_high: quartiles of the same ratio, taken round by round.
        rounds: how many rounds were measured; in each both models ran all feeds, in turns.
        runs: runs of each model in all the rounds together.
        feeds: how many different feeds were used.
        threads: threads inside an operator.
    """

    float_ms: float
    quantized_ms: float
    speedup: float
    speedup_low: float
    speedup_high: float
    rounds: int
    runs: int
    feeds: int
    threads: int


def measure(
    run_float: Run,
    run_quantized: Run,
    feeds: int,
    *,
    rounds: int,
    seconds: float = 20.0,
    threads: int = 1,
    clock: Callable[[], float] = time.perf_counter,
) -> Latency:
    """Return the latency of both models.

    After two unmeasured passes over the feeds, a round runs, for each feed in order, the float model and then
    the quantized one; fast models run several times in their turn (both equally often), so that it lasts
    MIN_TURN. What disturbs the machine for longer than a turn thus disturbs both.

    Args:
        run_float, run_quantized: run the model on the feed with an index below `feeds`.
        feeds: number of feeds, at least 1.
        rounds: how many rounds to measure, at least 1.
        seconds: no new round starts after this time, once MIN_ROUNDS are done.
        threads: for the record only.
        clock: monotonic seconds.
    """
    models = (run_float, run_quantized)
    repeats = [max(_repeats(run, index, clock) for run in models) for index in range(feeds)]
    per_round: list[tuple[float, float]] = []
    start = clock()
    while len(per_round) < rounds and (len(per_round) < MIN_ROUNDS or clock() - start < seconds):
        spent = [0.0, 0.0]
        for index in range(feeds):
            for which, run in enumerate(models):
                before = clock()
                for _ in range(repeats[index]):
                    run(index)
                spent[which] += (clock() - before) / repeats[index]
        per_round.append((spent[0] / feeds, spent[1] / feeds))
    return summarise(per_round, sum(repeats), feeds, threads)


def _repeats(run: Run, index: int, clock: Callable[[], float]) -> int:
    """Warm up, and return how many runs fill a turn."""
    run(index)
    before = clock()
    run(index)
    return max(1, math.ceil(MIN_TURN / max(clock() - before, 1e-6)))


def summarise(
    per_round: Sequence[tuple[float, float]], runs_a_round: int, feeds: int, threads: int
) -> Latency:
    """Return the medians of measured seconds (float, quantized), one pair for each round."""
    ratios = sorted(a / b for a, b in per_round)
    low, high = (ratios[0], ratios[-1]) if len(ratios) < 2 else _quartiles(ratios)
    float_ms, quantized_ms = (1e3 * statistics.median(side) for side in zip(*per_round, strict=True))
    return Latency(
        float_ms=float_ms,
        quantized_ms=quantized_ms,
        speedup=float_ms / quantized_ms,
        speedup_low=low,
        speedup_high=high,
        rounds=len(per_round),
        runs=runs_a_round * len(per_round),
        feeds=feeds,
        threads=threads,
    )


def _quartiles(values: Sequence[float]) -> tuple[float, float]:
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, high
