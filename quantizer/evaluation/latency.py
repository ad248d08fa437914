"""Latency of two models, measured fairly: in one process, in turns, on the same samples."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ...profiles.base.seconds import clocked
from .options import LatencySettings

MIN_TURN_SECONDS = 0.002
"""Seconds that a model runs at least before it is the other one's turn: far above the timer's resolution."""

MIN_ROUNDS = 5
"""Rounds that are measured even when the time is up."""

UNCLEAR_RATIO = 1.5
"""Upper over lower quartile of the speed-up from which on it is called unclear."""

EVEN_RATIO = 1.1
"""Upper over lower quartile up to which quartiles around 1 mean that both models are as fast."""

Run = Callable[[int], object]
"""Runs a model once on the sample with the given index."""

Clock = Callable[[], float]
Seconds = tuple[float, float]  # of the float and of the quantized model


@dataclass(frozen=True)
class Latency:
    """Latency of the float and of the quantized model.

    Attributes:
        float_ms: median milliseconds of one run (one sample) over the rounds.
        quantized_ms: the same divided by `speedup`.
        speedup: median over the rounds of the float model's time over the quantized one's; above 1 the
            quantized model is faster.
        speedup_low, speedup_high: quartiles of the same ratios.
        rounds: how many rounds were measured.
        runs: runs of each model in all the rounds together.
        samples: how many different samples were used.
        threads: threads inside an operator.
    """

    float_ms: float
    quantized_ms: float
    speedup: float
    speedup_low: float
    speedup_high: float
    rounds: int
    runs: int
    samples: int
    threads: int

    @property
    def milliseconds(self) -> str:
        """Return the times of both models, in words."""
        return f"float {self.float_ms:.3g} ms, quantized {self.quantized_ms:.3g} ms"

    @property
    def is_unclear(self) -> bool:
        """Whether the rounds differ too much to say which model is faster, or how much."""
        return is_unclear(self.speedup_low, self.speedup_high)

    @property
    def is_even(self) -> bool:
        """Whether neither model is faster in three of four rounds."""
        return self.speedup_low <= 1.0 <= self.speedup_high

    @property
    def words(self) -> str:
        """Return the speed of the quantized model in a few words, or "" if neither is known to be faster."""
        if self.is_unclear:
            is_slower, is_faster = self.speedup_high < 1.0, self.speedup_low > 1.0
            return "slower than float" * is_slower or "faster than float" * is_faster
        return "as fast as float" if self.is_even else f"{times_as_fast(self.speedup)} as float"

    def text(self, predicted: float | None = None) -> str:
        """Return the speed of the quantized model in words; if it is unclear, with the predicted speedup."""
        low, high = f"{self.speedup_low:.2f}", f"{self.speedup_high:.2f}"
        how = f"{self.threads} thread{'s'[: self.threads != 1]}"
        if self.is_unclear:
            beside = "" if predicted is None else f"; predicted {predicted:.2f}"
            word = "slower" if self.speedup_high < 1.0 else "unclear"
            return f"{word}, the machine is busy: {low} to {high} times as fast as float ({how}){beside}"
        times = " times" if self.is_even else ""
        return f"{self.words} ({low} to {high}{times}; {how})"


def times_as_fast(speedup: float) -> str:
    """Return a speedup in words."""
    return f"{speedup:.2f} times as fast"


def is_unclear(low: float, high: float) -> bool:
    """Return whether quartiles of a speed-up say nothing: 1 lies between them, or they differ by half."""
    return high / low > UNCLEAR_RATIO or (low <= 1.0 <= high and high / low > EVEN_RATIO)


def run_clock(threads: int) -> Clock:
    """Return the clock of runs: of one thread on the CPU its processor time, the same on a busy machine."""
    is_exact = time.get_clock_info("thread_time").resolution <= MIN_TURN_SECONDS / 1000.0  # not on Windows
    return time.thread_time if threads == 1 and is_exact else time.perf_counter


@clocked("time")
def measure(
    run_float: Run,
    run_quantized: Run,
    samples: int,
    settings: LatencySettings,
    before: Sequence[Seconds] = (),
    *,
    clock: Clock = time.perf_counter,
) -> Latency:
    """Return the latency of both models, whose functions run the sample with an index below `samples`.

    Seconds of both on samples that they ran `before`, in turns, are rounds too, if no run is shorter than a
    turn. After one or two unmeasured passes a further round runs both on each sample, fast ones several times
    in a turn of at least MIN_TURN_SECONDS; they begin in turns (ABBA), so that neither gains by its place.
    """
    models = (run_float, run_quantized)
    turns = tuple(enumerate(models))
    # All of them or none: to keep the longer runs alone would favour the other model.
    own = before if all(min(one) >= MIN_TURN_SECONDS for one in before) else ()
    per_round = list(own)  # seconds of a sample in each model
    runs, repeats, start = len(own), list[int](), clock()
    while len(per_round) < settings.rounds and not (
        len(per_round) >= MIN_ROUNDS
        and (clock() - start >= settings.seconds or _is_settled(per_round, settings.precision))
    ):
        if not repeats:
            repeats = [max(_repeats(timed, index, clock) for timed in models) for index in range(samples)]
        spent = [0.0, 0.0]
        for index in range(samples):
            for which, timed in turns if len(per_round) % 2 == 0 else turns[::-1]:
                begin = clock()
                for _ in range(repeats[index]):
                    timed(index)
                spent[which] += (clock() - begin) / repeats[index]
        per_round.append((spent[0] / samples, spent[1] / samples))
        runs += sum(repeats)
    low, speedup, high = _quartiles(per_round)
    float_ms = 1e3 * statistics.median(float_time for float_time, _ in per_round)
    return Latency(
        float_ms=float_ms,
        quantized_ms=float_ms / speedup,
        speedup=speedup,
        speedup_low=low,
        speedup_high=high,
        rounds=len(per_round),
        runs=runs,
        samples=max(samples, len(own)),
        threads=settings.threads,
    )


def _quartiles(rounds: Sequence[tuple[float, float]]) -> tuple[float, float, float]:
    """Return quartiles and median of the ratios in each round: what slows one model slows both."""
    ratios = [float_time / quantized_time for float_time, quantized_time in rounds]
    low, median, high = statistics.quantiles(ratios if len(ratios) > 1 else 2 * ratios, method="inclusive")
    return low, median, high


def _is_settled(rounds: Sequence[tuple[float, float]], precision: float) -> bool:
    """Whether the median is known to a fraction of itself, and the side of 1 on which each quartile is.

    At 5 %, nine of ten medians of 1,800 draws were within 1.4 % of that of 31 rounds (15 trained models).
    """
    low, median, high = _quartiles(rounds)
    # Half of the 95 % interval of a median, by about Student's quantile.
    error = (2.0 + 4.0 / len(rounds)) * 0.93 * (high - low) / math.sqrt(len(rounds))
    return 0.0 < precision >= error / median and min(abs(low - 1.0), abs(high - 1.0)) > error


def _repeats(run: Run, index: int, clock: Callable[[], float]) -> int:
    """Warm up, and return how many runs fill a turn; a second run tells only of a fast model."""
    took = 0.0
    for _ in range(2):
        if took < 4.0 * MIN_TURN_SECONDS:
            before = clock()
            run(index)
            took = clock() - before
    return max(1, math.ceil(MIN_TURN_SECONDS / max(took, 1e-6)))
