"""Ranges, zeros and histogram counts of arrays: the compiled counter, and its twin in plain numpy.

Both are functions of one signature, `Advance`, for any number of arrays: the compiled one holds up other
threads once for all of them. They give the same counts, so that which of them works shows in the time alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ..records.histogram import count_bins

try:
    from . import _counter
except ImportError:  # installed without a compiler
    _counter = None  # type: ignore[assignment]


class Bins(NamedTuple):
    """What an array is counted into.

    Attributes:
        minimum, maximum: what the bins are for: elements outside of them are not counted. An empty range, inf
            and -inf, counts nothing.
        exponent: the bin width is 2**exponent.
        first: grid index of the first bin.
        counts: int64, one for each bin; added to.
        zeros: int64 (1,), how many of the counted elements are zero; added to.
    """

    minimum: float
    maximum: float
    exponent: int
    first: int
    counts: npt.NDArray[np.int64]
    zeros: npt.NDArray[np.int64]

    @staticmethod
    def empty() -> Bins:
        """Return bins for nothing."""
        return Bins(math.inf, -math.inf, 0, 0, np.zeros(0, np.int64), np.zeros(1, np.int64))

    def hold(self, rest: Rest) -> bool:
        """Whether all elements of a rest belong into these bins."""
        return not (rest.nan or rest.inf or rest.low < self.minimum or rest.high > self.maximum)


class Rest(NamedTuple):
    """What is left of an array that was not counted to its end.

    Attributes:
        number: which of the arrays.
        stop: the elements before it were counted; they are finite and inside the bins.
        low, high: range of the finite elements from `stop` on; inf and -inf when there are none.
        nan, inf: number of elements from `stop` on that are NaN, infinite.
    """

    number: int
    stop: int
    low: float
    high: float
    nan: int
    inf: int


Advance = Callable[[list[npt.NDArray[Any]], list[Bins]], list[Rest]]
"""Counts arrays (float16, bfloat16, float32 or float64, contiguous), each into bins of its own; stops in each
somewhere before the first element that does not fit, and returns the rests of those that do not end there."""


def advance_numpy(arrays: list[npt.NDArray[Any]], bins: list[Bins]) -> list[Rest]:
    """Count in plain numpy: the reference, and what is used where there was no compiler."""
    found = map(_advance_one, range(len(arrays)), arrays, bins)
    return [rest for rest in found if rest is not None]


def _advance_one(number: int, array: npt.NDArray[Any], bins: Bins) -> Rest | None:
    """Count an array as a whole, or nothing of it."""
    flat = array.reshape(-1)
    if flat.size == 0:
        return None
    with np.errstate(invalid="ignore"):  # NaN
        if flat.dtype.itemsize == 2:
            flat = flat.astype(np.float32)  # exact, and numpy counts in short floats are slow
        low, high = float(flat.min()), float(flat.max())
    nan = inf = 0
    if not (math.isfinite(low) and math.isfinite(high)):  # NaN comes out of min and max
        nan = int(np.count_nonzero(np.isnan(flat)))
        finite = flat[np.isfinite(flat)]
        inf = flat.size - nan - finite.size
        low, high = (float(finite.min()), float(finite.max())) if finite.size else (math.inf, -math.inf)
    # Adding 0.0 turns -0.0 into 0.0: which zero min and max return depends on the order.
    rest = Rest(number, 0, low + 0.0, high + 0.0, nan, inf)
    if not bins.hold(rest):
        return rest
    if low <= 0.0 <= high:
        bins.zeros[0] += np.count_nonzero(flat == 0.0)
    bins.counts[:] += count_bins(flat, bins.exponent, bins.first, bins.counts.size)
    return None


def _advance_compiled(level: int, arrays: list[npt.NDArray[Any]], bins: list[Bins]) -> list[Rest]:
    # bfloat16 goes as its bits: it has no buffer of its own.
    data = [array if array.dtype.kind == "f" else array.view(np.uint16) for array in arrays]
    found = []
    for rest in map(Rest._make, _counter.advance(data, bins, level)):
        if bins[rest.number].hold(rest):  # tiny or nearly constant data, whose indices are too large for it
            advance_numpy([arrays[rest.number]], [bins[rest.number]])
        else:
            found.append(rest)
    return found


def implementations() -> dict[str, Advance]:
    """Return every counter that can be used here, best first: those of the compiled module, then "numpy"."""
    levels = () if _counter is None else _counter.levels()
    compiled = {name: partial(_advance_compiled, level) for level, name in enumerate(levels)}
    return {**compiled, "numpy": advance_numpy}


IMPLEMENTATION, advance = next(iter(implementations().items()))
"""Name of the counter in use, and the counter."""
