"""The statistics of one tensor, gathered array by array; nothing else is kept of the arrays."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from .histogram import Histogram, bin_exponent, count_bins, grid_index
from .profile import Dim, TensorProfile, merged_shape


@dataclass(frozen=True, eq=False)
class Summary:
    """What one pass over an array tells.

    Attributes:
        minimum, maximum: smallest and largest finite value; 0.0 when there is none.
        zeros, nan, inf: number of elements that are zero, NaN, infinite.
        finite: the finite elements, one axis; shares the array's memory when all of them are.
    """

    minimum: float
    maximum: float
    zeros: int
    nan: int
    inf: int
    finite: npt.NDArray[Any]


def summarize(array: npt.NDArray[Any]) -> Summary:
    """Return range and special counts of a float16, float32 or float64 array of any shape."""
    flat = array.reshape(-1)
    if flat.dtype == np.float16:
        flat = flat.astype(np.float32)  # exact, and numpy counts in float16 are slow
    if flat.size == 0:
        return Summary(0.0, 0.0, 0, 0, 0, flat)
    with np.errstate(invalid="ignore"):
        minimum, maximum = float(flat.min()), float(flat.max())
    nan = inf = 0
    if not (math.isfinite(minimum) and math.isfinite(maximum)):  # NaN comes out of min and max
        nan = int(np.count_nonzero(np.isnan(flat)))
        kept = flat[np.isfinite(flat)]
        inf = flat.size - nan - kept.size
        flat = kept
        minimum, maximum = (float(flat.min()), float(flat.max())) if flat.size else (0.0, 0.0)
    zeros = int(np.count_nonzero(flat == 0.0)) if minimum <= 0.0 <= maximum else 0
    # Adding 0.0 turns -0.0 into 0.0: which zero min and max return depends on the order.
    return Summary(minimum + 0.0, maximum + 0.0, zeros, nan, inf, flat)


class Accumulator:
    """Gathers the `TensorProfile` of one tensor: the only mutable thing of a calibration run.

    Its bins always span all values so far, so most arrays are counted straight into them. The result is
    the same as merging the profiles of the arrays, in any order.
    """

    def __init__(self, dtype: str) -> None:
        self._dtype = dtype
        self._shape: tuple[Dim, ...] | None = None
        self._minimum = self._maximum = 0.0
        self._arrays = self._count = self._zeros = self._nan = self._inf = 0
        self._exponent = self._first = 0
        self._counts: npt.NDArray[np.int64] = np.zeros(0, np.int64)

    def add(self, summary: Summary, shape: tuple[Dim, ...] | None) -> None:
        """Count one more array; `shape` is what a profile records of its shape."""
        self._shape = shape if self._arrays == 0 else merged_shape(self._shape, shape)
        self._arrays += 1
        self._nan += summary.nan
        self._inf += summary.inf
        if summary.finite.size == 0:
            return
        self._widen(summary.minimum, summary.maximum)
        self._count += summary.finite.size
        self._zeros += summary.zeros
        self._counts += count_bins(summary.finite, self._exponent, self._first, self._counts.size)

    def _widen(self, minimum: float, maximum: float) -> None:
        """Let the bins span [minimum, maximum] too."""
        if self._count:
            minimum, maximum = min(minimum, self._minimum), max(maximum, self._maximum)
            if (minimum, maximum) == (self._minimum, self._maximum):
                return
        e = bin_exponent(minimum, maximum)
        first, last = grid_index(minimum, e), grid_index(maximum, e)
        counts = np.zeros(last - first + 1, np.int64)
        if self._count:
            old = Histogram(self._exponent, self._first, self._counts).coarsened(e)
            counts[old.first - first :][: old.counts.size] = old.counts
        self._minimum, self._maximum = minimum, maximum
        self._exponent, self._first, self._counts = e, first, counts

    def profile(self) -> TensorProfile:
        """Return the profile of all arrays so far."""
        full = self._count > 0
        return TensorProfile(
            dtype=self._dtype,
            shape=self._shape,
            minimum=self._minimum,
            maximum=self._maximum,
            count=self._count,
            zeros=self._zeros,
            nan=self._nan,
            inf=self._inf,
            histogram=Histogram(self._exponent, self._first, self._counts) if full else Histogram.empty(),
        )
