"""Ranges, zeros and histograms of arrays: the compiled kernel, and its reference implementation in numpy.

Both are functions of one signature, `CountHistograms`, for any number of arrays: the compiled kernel takes
the GIL once for all arrays of a call. They give the same counts; only the time tells which of them is in use.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from ..records.histogram import count_bins

try:
    from . import _counter
except ImportError:  # installed without a compiler
    _counter = None  # type: ignore[assignment]


class Bins(NamedTuple):
    """The bins of width 2**exponent that an array is counted into, in place, from `minimum` to `maximum`.

    Nothing is counted from inf to -inf. `first` is the grid index of the first bin; `counts` is int64, one
    for each bin, and `zeros` int64 (1,).
    """

    minimum: float
    maximum: float
    exponent: int
    first: int
    counts: npt.NDArray[np.int64]
    zeros: npt.NDArray[np.int64]

    @staticmethod
    def empty() -> Bins:
        """Return the bins of an observer that has seen nothing."""
        return Bins(math.inf, -math.inf, 0, 0, np.zeros(0, np.int64), np.zeros(1, np.int64))

    def hold(self, remainder: Remainder) -> bool:
        """Whether all elements of a remainder are in the range of these bins."""
        finite = not (remainder.nan or remainder.inf)
        return finite and remainder.low >= self.minimum and remainder.high <= self.maximum


class Remainder(NamedTuple):
    """The elements of array `number` from `stop` on, which were not counted: range, NaN, Inf."""

    number: int
    stop: int
    low: float
    high: float
    nan: int
    inf: int


Ranges = npt.NDArray[np.float64]
"""The smallest and the largest finite element of arrays so far, (n, 2), contiguous; inf and -inf for none."""


class CountHistograms(Protocol):
    """Counts contiguous arrays of floats, each into its own bins, up to the first element outside of them.

    The uncounted remainders are returned; `ranges` are widened to all finite elements, counted or not.
    """

    def __call__(
        self, arrays: list[npt.NDArray[Any]], bins: list[Bins], ranges: Ranges | None = None
    ) -> list[Remainder]:
        """Count, and return the arrays that were not counted."""
        ...


def empty_ranges(count: int) -> Ranges:
    """Return the ranges of `count` arrays without elements."""
    ranges = np.full((count, 2), math.inf)
    ranges[:, 1] = -math.inf
    return ranges


def count_histograms_numpy(
    arrays: list[npt.NDArray[Any]], bins: list[Bins], ranges: Ranges | None = None
) -> list[Remainder]:
    """Count in numpy: the reference implementation, used if the compiled kernel was not built."""
    wanted = empty_ranges(len(arrays)) if ranges is None else ranges
    remainders = map(_count_one, range(len(arrays)), arrays, bins, wanted)
    return [remainder for remainder in remainders if remainder is not None]


def _count_one(number: int, array: npt.NDArray[Any], bins: Bins, span: Ranges) -> Remainder | None:
    """Count an array as a whole, or nothing of it; widen its range."""
    flat = array.reshape(-1)
    if flat.size == 0:
        return None
    with np.errstate(invalid="ignore"):  # NaN
        if flat.dtype.itemsize == 2:
            flat = flat.astype(np.float32)  # exact, and numpy counts in short floats are slow
        low, high = float(flat.min()), float(flat.max())
    nan = inf = 0
    if not (math.isfinite(low) and math.isfinite(high)):  # min and max return NaN where there is one
        nan = int(np.count_nonzero(np.isnan(flat)))
        finite = flat[np.isfinite(flat)]
        inf = flat.size - nan - finite.size
        low, high = (float(finite.min()), float(finite.max())) if finite.size else (math.inf, -math.inf)
    # Adding 0.0 turns -0.0 into 0.0: which zero min and max return depends on the order.
    remainder = Remainder(number, 0, low + 0.0, high + 0.0, nan, inf)
    span[:] = min(span[0], remainder.low), max(span[1], remainder.high)
    if not bins.hold(remainder):
        return remainder
    if low <= 0.0 <= high:
        bins.zeros[0] += np.count_nonzero(flat == 0.0)
    bins.counts[:] += count_bins(flat, bins.exponent, bins.first, bins.counts.size)
    return None


def _count_compiled(
    level: int, arrays: list[npt.NDArray[Any]], bins: list[Bins], ranges: Ranges | None = None
) -> list[Remainder]:
    # bfloat16 is passed as its bits: numpy has no buffer format for it.
    data = [array if array.dtype.kind == "f" else array.view(np.uint16) for array in arrays]
    remainders = []
    wanted = () if ranges is None else (ranges,)
    for remainder in map(Remainder._make, _counter.advance(data, bins, level, *wanted)):
        number = remainder.number
        if bins[number].hold(remainder):  # tiny or nearly constant data, whose indices are too large for it
            count_histograms_numpy([arrays[number]], [bins[number]])
        else:
            remainders.append(remainder)
    return remainders


def implementations() -> dict[str, CountHistograms]:
    """Return every counter that runs on this machine, fastest first: the compiled kernels, then "numpy"."""
    levels = () if _counter is None else _counter.levels()
    compiled = {name: partial(_count_compiled, level) for level, name in enumerate(levels)}
    return {**compiled, "numpy": count_histograms_numpy}


IMPLEMENTATION, count_histograms = next(iter(implementations().items()))
"""Name of the counter in use, and the counter."""
