"""The counter alone against histograms of other libraries: nanoseconds an element on one core.

    python tests/benchmarks/run.py counter --work DIR

All get 2000 bins over the exact range. numpy, boost-histogram and fast-histogram are told the range; qprof
finds minimum, maximum, zeros and values that are not finite on the way, which the others would need more
passes for.
"""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from importlib import import_module

import numpy as np
from frame import Row, Rows, Stage, table
from qprof_onnx.profiles.observers.histogram_counter import Bins, implementations
from qprof_onnx.profiles.records.histogram import BINS, bin_exponent, grid_index

ELEMENTS = 4_000_000
ROUNDS = 7

Array = np.ndarray
Count = Callable[[Array, float, float], object]


def distributions() -> dict[str, Array]:
    """Return what the counter meets: normal, half zeros, heavy tails, and two short types."""
    rng = np.random.default_rng(0)
    normal = rng.standard_normal(ELEMENTS).astype(np.float32)
    heavy = rng.standard_t(2, ELEMENTS).astype(np.float32)
    return {
        "normal": normal,
        "ReLU of normal": np.maximum(normal, 0),
        "heavy tails (t, 2 degrees)": heavy,
        "normal, float16": normal.astype(np.float16),
        "normal, float64": normal.astype(np.float64),
    }


def _qprof(name: str) -> Count:
    advance = implementations()[name]

    def count(values: Array, low: float, high: float) -> object:
        e = bin_exponent(low, high)
        first = grid_index(low, e)
        counts = np.zeros(grid_index(high, e) - first + 1, np.int64)
        return advance([values], [Bins(low, high, e, first, counts, np.zeros(1, np.int64))])

    return count


def _boost() -> Count:
    boost = import_module("boost_histogram")

    def count(values: Array, low: float, high: float) -> object:
        return boost.Histogram(boost.axis.Regular(BINS, low, high), storage=boost.storage.Int64()).fill(
            values
        )

    return count


def _fast() -> Count:
    fast = import_module("fast_histogram")
    return lambda values, low, high: fast.histogram1d(values, BINS, (low, high))


def contenders() -> dict[str, Count]:
    """Return every counter that is installed."""
    found: dict[str, Count] = {f"qprof, {name}": _qprof(name) for name in implementations()}
    found["numpy.histogram"] = lambda values, low, high: np.histogram(values, BINS, (low, high))
    for name, make in (("boost-histogram", _boost), ("fast-histogram", _fast)):
        try:
            found[name] = make()
        except ImportError:
            print(f"{name}: not installed, left out")
    return found


def rows(subject: str, given: Namespace) -> Iterator[Row]:
    """Yield ns an element of each contender, by distribution: the least of interleaved rounds, processor
    time.
    """
    data, counters = distributions(), contenders()
    best: dict[str, dict[str, float]] = {name: dict.fromkeys(data, float("inf")) for name in counters}
    for _ in range(ROUNDS):
        for kind, values in data.items():
            low, high = float(values.min()), float(values.max())
            for name, count in counters.items():
                before = time.thread_time_ns()
                count(values, low, high)
                spent = (time.thread_time_ns() - before) / values.size
                best[name][kind] = min(best[name][kind], spent)
    yield from ({"name": name, "ns": spent} for name, spent in best.items())


def page(rows: Rows) -> str:
    found = [row for some in rows.values() for row in some]
    cells = [[row["name"], *(f"{value:.2f}" for value in row["ns"].values())] for row in found]
    return table(["ns an element", *found[0]["ns"]], cells)


STAGE = Stage(rows, {"CALIBRATION.md": page})
