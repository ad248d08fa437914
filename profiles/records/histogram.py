"""The exact, mergeable 2000-bin histogram, in numpy.

Bins have width 2**e on the grid k * 2**e, with e the smallest exponent for which the data fits into 2000
bins. Scaling by a power of two is exact, so the bin of a value depends only on the value and e, and e only on
minimum and maximum. Merging therefore shifts bin indices and adds integers: the result is the histogram of
all data, in any order and grouping.
"""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass, fields
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
from msgspec import Meta

BINS = 2000
"""Largest number of bins of a histogram."""

INDEX_BITS = 40
"""Bin indices stay below 2**40 in magnitude, which bounds the exponent of nearly constant data from below."""

MIN_EXPONENT = -200
"""Exponent of data that is all zero; below every exponent that a non-zero float32 can need."""


def bin_exponent(minimum: float, maximum: float, bins: int = BINS) -> int:
    """Return the smallest e with at most `bins` grid indices, all below 2**INDEX_BITS in magnitude.

    It never falls when the range grows, which makes merging exact.
    """
    largest = max(abs(minimum), abs(maximum))
    if largest == 0.0:
        return MIN_EXPONENT
    low = math.frexp(largest)[1] - INDEX_BITS - 1
    # The span bounds e from below as well: bins * 2**e must exceed it by less than two bins.
    span = maximum / 2.0 - minimum / 2.0  # halved, so that it cannot overflow
    if span > 0.0:
        low = max(low, math.frexp(span)[1] + 1 - bins.bit_length() - 2)
    e = max(low, MIN_EXPONENT)
    while True:
        first, last = grid_index(minimum, e), grid_index(maximum, e)
        if last - first < bins and max(abs(first), abs(last)) < 1 << INDEX_BITS:
            return e
        e += 1


def grid_index(value: float, e: int) -> int:
    """Return the grid index of the bin of width 2**e that `value` lies in: floor(value / 2**e)."""
    index = math.floor(math.ldexp(value, -e))
    return min(index, -1) if value < 0.0 else index  # a tiny double underflows to -0.0, yet lies below zero


def exact_sum(counts: npt.NDArray[np.int64]) -> int:
    """Return the sum of at most 2**31 counts; numpy's could wrap round if a count were large."""
    is_small = counts.max(initial=0) < 1 << 31
    return int(counts.sum()) if is_small else sum(counts.tolist())


class ArrayRecord:
    """A frozen dataclass with arrays, which are equal by their elements."""

    def _values(self) -> list[npt.NDArray[Any]]:
        return [np.asarray(getattr(self, field.name)) for field in fields(self)]  # type: ignore[arg-type]

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        return all(map(np.array_equal, self._values(), other._values()))

    def __hash__(self) -> int:
        return hash(tuple(values.tobytes() for values in self._values()))


def read_only_copy(array: npt.NDArray[np.generic], dtype: type[np.generic]) -> npt.NDArray[np.generic]:
    """Return a copy of an array that cannot be written to."""
    copy = np.array(array, dtype)
    copy.flags.writeable = False
    return copy


@dataclass(frozen=True, eq=False)
class Histogram(ArrayRecord):
    """Counts (read-only int64) in at most BINS bins of width 2**exponent; first and last are not 0.

    Bin i covers [(first + i), (first + i + 1)) * 2**exponent.
    """

    exponent: Annotated[int, Meta(ge=MIN_EXPONENT, le=1024)]
    first: Annotated[int, Meta(ge=1 - (1 << INDEX_BITS), le=(1 << INDEX_BITS) - 1)]
    counts: npt.NDArray[np.int64]

    def __post_init__(self) -> None:
        counts = np.ascontiguousarray(self.counts, dtype=np.int64)
        if counts is self.counts and counts.flags.writeable:
            counts = counts.copy()
        counts.flags.writeable = False
        object.__setattr__(self, "counts", counts)

    @staticmethod
    def empty() -> Histogram:
        """Return the histogram of no data: the neutral element of `merged`."""
        return Histogram(MIN_EXPONENT, 0, np.zeros(0, np.int64))

    @staticmethod
    def of(values: npt.ArrayLike) -> Histogram:
        """Return the histogram of `values` (any shape; float16, float32 or float64, all finite)."""
        flat = np.asarray(values).reshape(-1)
        if flat.size == 0:
            return Histogram.empty()
        minimum, maximum = float(flat.min()), float(flat.max())
        e = bin_exponent(minimum, maximum)
        first, last = grid_index(minimum, e), grid_index(maximum, e)
        return Histogram(e, first, count_bins(flat, e, first, last - first + 1))

    @property
    def total(self) -> int:
        """Number of values counted."""
        return exact_sum(self.counts)

    def fault(self, minimum: float, maximum: float) -> str:
        """Return the contradiction between the bins and a range, "" for none."""
        if not self.total:
            return "no elements, but a range or a histogram" if self.counts.size or minimum or maximum else ""
        if not (self.counts[0] and self.counts[-1]):
            return "the first or the last bin of the histogram is empty"
        ends = self.first, self.first + self.counts.size - 1
        with suppress(OverflowError):
            if ends == (grid_index(minimum, self.exponent), grid_index(maximum, self.exponent)):
                return ""
        return (
            f"the histogram is outside minimum .. maximum: {minimum} must lie in its first bin, {maximum} in "
            "its last"
        )

    @property
    def width(self) -> float:
        """Width of a bin, a power of two."""
        return math.ldexp(1.0, self.exponent)

    def coarsened(self, exponent: int) -> Histogram:
        """Return the same values in bins of width 2**exponent, which must not be narrower than now."""
        shift = exponent - self.exponent
        if shift == 0 or self.counts.size == 0:
            return Histogram(exponent, self.first, self.counts)
        if shift < 0:
            raise ValueError(f"cannot refine bins of width 2**{self.exponent} to 2**{exponent}")
        indices = (self.first + np.arange(self.counts.size, dtype=np.int64)) >> min(shift, 62)
        first = int(indices[0])
        counts = np.zeros(int(indices[-1]) - first + 1, np.int64)
        np.add.at(counts, indices - first, self.counts)
        return Histogram(exponent, first, counts)

    def merged(self, other: Histogram) -> Histogram:
        """Return the histogram of both sets of values: exactly that of all of them counted at once."""
        if self.counts.size == 0:
            return other
        if other.counts.size == 0:
            return self
        a, b = self, other
        e = max(a.exponent, b.exponent)
        while True:
            a, b = a.coarsened(e), b.coarsened(e)
            first = min(a.first, b.first)
            end = max(a.first + a.counts.size, b.first + b.counts.size)
            if end - first <= BINS:
                break
            e += 1
        counts = np.zeros(end - first, np.int64)
        counts[a.first - first :][: a.counts.size] += a.counts
        counts[b.first - first :][: b.counts.size] += b.counts
        return Histogram(e, first, counts)

    def edges(self) -> npt.NDArray[np.float64]:
        """Return the counts.size + 1 edges of the bins, float64."""
        return np.ldexp((self.first + np.arange(self.counts.size + 1)).astype(np.float64), self.exponent)

    def resampled(self, minimum: float, maximum: float, bins: int = BINS) -> EqualBins:
        """Return `bins` equal bins over the exact range, as Glow's profiles have them; the total stays."""
        return _resampled(self.edges(), self.counts, minimum, maximum, bins)


def count_bins(flat: npt.NDArray[np.floating], e: int, first: int, bins: int) -> npt.NDArray[np.int64]:
    """Return the numbers of elements in bins `first` on of width 2**e: the reference of every faster counter.

    `flat` has one axis, and is finite and in these bins; e is at most 1022.
    """
    if bins == 1:
        return np.array([flat.size], np.int64)
    counts = np.zeros(bins, np.int64)
    dtype = _scaling_dtype(flat.dtype, e)
    factor = dtype.type(math.ldexp(1.0, -e))
    step = 1 << 16  # stay in cache
    scaled, indices = np.empty(min(step, flat.size), dtype), np.empty(min(step, flat.size), np.intp)
    for start in range(0, flat.size, step):
        part = flat[start : start + step]
        floats, whole = scaled[: part.size], indices[: part.size]
        np.multiply(part, factor, out=floats, dtype=dtype)
        np.floor(floats, out=floats)
        if flat.dtype == np.float64 and e > 0:
            np.minimum(floats, -1.0, out=floats, where=part < 0.0)  # see grid_index
        np.subtract(floats, dtype.type(first), out=floats)  # exact: see _scaling_dtype
        np.copyto(whole, floats, casting="unsafe")
        counts += np.bincount(whole, minlength=bins)
    return counts


def _scaling_dtype(dtype: np.dtype[Any], e: int) -> np.dtype[Any]:
    """Return the type that holds x * 2**-e, its floor and its distance from the first index exactly.

    For float32 the distance of two whole numbers below 2000 is exact (Sterbenz), and no product underflows.
    """
    return np.dtype(np.float32 if dtype != np.float64 and -126 <= e <= 0 else np.float64)


@dataclass(frozen=True, eq=False)
class EqualBins(ArrayRecord):
    """Counts (read-only float64) in equal bins over [minimum, maximum], which cannot be merged exactly."""

    minimum: float
    maximum: float
    counts: npt.NDArray[np.float64]

    def __post_init__(self) -> None:
        object.__setattr__(self, "counts", read_only_copy(self.counts, np.float64))

    @property
    def total(self) -> int:
        """Number of values counted."""
        return int(self.counts.sum())

    def edges(self) -> npt.NDArray[np.float64]:
        """Return the counts.size + 1 edges of the bins, float64."""
        return np.linspace(self.minimum, self.maximum, self.counts.size + 1)

    def resampled(self, minimum: float, maximum: float, bins: int = BINS) -> EqualBins:
        """Return these bins unchanged if the range is their own, else `bins` over the given one."""
        if (minimum, maximum) == (self.minimum, self.maximum):
            return self
        return _resampled(self.edges(), self.counts, minimum, maximum, bins)


def _resampled(
    own: npt.NDArray[np.float64], counts: npt.NDArray[Any], minimum: float, maximum: float, bins: int
) -> EqualBins:
    """Return counts between edges of their `own` as `bins` equal bins, as in `Histogram.resampled`."""
    if counts.size == 0:
        return EqualBins(minimum, maximum, np.zeros(bins))
    cumulative = np.append(0.0, np.cumsum(counts.astype(np.float64)))
    if not minimum < maximum:
        alone = np.zeros(bins)
        alone[0] = cumulative[-1]
        return EqualBins(minimum, maximum, alone)
    wanted = np.linspace(minimum, maximum, bins + 1)
    at = np.rint(np.interp(wanted, np.clip(own, minimum, maximum), cumulative))
    at[0], at[-1] = 0, cumulative[-1]
    return EqualBins(minimum, maximum, np.diff(at))


UNKNOWN_BINS = EqualBins(0.0, 0.0, np.zeros(0))
"""No histogram: another tool recorded only the range."""

Bins = Histogram | EqualBins
"""What is known of how the elements of a tensor are spread."""
