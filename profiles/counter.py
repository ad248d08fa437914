"""Ranges, zeros and histogram counts of one array: the compiled counter, and its twin in plain numpy.

Both are functions of one signature, `Advance`. They give the same counts, so that which of them works shows
in the time alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from .histogram import count_bins

try:
    from . import _counter
except ImportError:  # installed without a compiler
    _counter = None  # type: ignore[assignment]


@dataclass(frozen=True)
class Grid:
    """The bins that an array is counted into.

    Attributes:
        minimum, maximum: what the bins are for: elements outside of them are not counted. An empty range, inf
            and -inf, counts nothing.
        exponent: the bin width is 2**exponent.
        first: grid index of the first bin.
    """

    minimum: float = math.inf
    maximum: float = -math.inf
    exponent: int = 0
    first: int = 0


class Advanced(NamedTuple):
    """How far an array was counted, and what is in the rest of it.

    Attributes:
        stop: the elements before it were counted; they are finite and inside the grid.
        zeros: how many of the counted are zero.
        low, high: range of the finite elements from `stop` on; inf and -inf when there are none.
        nan, inf: number of elements from `stop` on that are NaN, infinite.
    """

    stop: int
    zeros: int
    low: float
    high: float
    nan: int
    inf: int


Advance = Callable[[npt.NDArray[Any], int, Grid, npt.NDArray[np.int64]], Advanced]
"""Counts the elements of a flat array (float16, bfloat16, float32 or float64) from an index on, and adds to
the counts, one int64 for each bin of the grid; stops somewhere before the first element that does not fit."""

_TYPES = {"e": "e", "f": "f", "d": "d"}
"""Numpy's letter for a type -> that of the compiled counter, which calls bfloat16 "b"."""
_NO_INDEX = 1 << 30


def advance_numpy(flat: npt.NDArray[Any], start: int, grid: Grid, counts: npt.NDArray[np.int64]) -> Advanced:
    """Count in plain numpy: the reference, and what is used where there was no compiler."""
    rest = flat[start:]
    if rest.size == 0:
        return Advanced(start, 0, math.inf, -math.inf, 0, 0)
    with np.errstate(invalid="ignore"):  # NaN
        if rest.dtype.itemsize == 2:
            rest = rest.astype(np.float32)  # exact, and numpy counts in short floats are slow
        low, high = float(rest.min()), float(rest.max())
    nan = inf = 0
    if not (math.isfinite(low) and math.isfinite(high)):  # NaN comes out of min and max
        nan = int(np.count_nonzero(np.isnan(rest)))
        finite = rest[np.isfinite(rest)]
        inf = rest.size - nan - finite.size
        low, high = (float(finite.min()), float(finite.max())) if finite.size else (math.inf, -math.inf)
    # Adding 0.0 turns -0.0 into 0.0: which zero min and max return depends on the order.
    if nan or inf or low < grid.minimum or high > grid.maximum:
        return Advanced(start, 0, low + 0.0, high + 0.0, nan, inf)
    zeros = int(np.count_nonzero(rest == 0.0)) if low <= 0.0 <= high else 0
    counts += count_bins(rest, grid.exponent, grid.first, counts.size)
    return Advanced(flat.size, zeros, math.inf, -math.inf, 0, 0)


def _advance_compiled(
    level: int, flat: npt.NDArray[Any], start: int, grid: Grid, counts: npt.NDArray[np.int64]
) -> Advanced:
    reach = 1022 if flat.dtype == np.float64 else 126
    if counts.size > 1 and (abs(grid.exponent) > reach or abs(grid.first) > _NO_INDEX):
        return advance_numpy(flat, start, grid, counts)  # tiny or nearly constant data; rare
    code = _TYPES.get(flat.dtype.char) or "b"
    # Short floats go as their bits: not every type of array element has a buffer.
    data = flat.view(np.uint16) if code in "eb" else flat
    return Advanced(
        *_counter.advance(
            data, code, start, grid.minimum, grid.maximum, grid.exponent, grid.first, counts, level
        )
    )


def implementations() -> dict[str, Advance]:
    """Return every counter that can be used here, best first: those of the compiled module, then "numpy"."""
    levels = () if _counter is None else _counter.levels()
    compiled = {name: partial(_advance_compiled, level) for level, name in enumerate(levels)}
    return {**compiled, "numpy": advance_numpy}


IMPLEMENTATION, advance = next(iter(implementations().items()))
"""Name of the counter in use, and the counter."""
