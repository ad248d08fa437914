"""The statistics of one tensor, gathered array by array; nothing else is kept of the arrays."""

from __future__ import annotations

from threading import Lock
from typing import Any

import numpy as np
import numpy.typing as npt

from .channel_counter import Gather, Tally, gather, layout_of
from .counter import Advance, Grid, advance
from .histogram import Histogram, bin_exponent, grid_index
from .profile import Dim, TensorProfile, merged_shape

PIECE = 1 << 17
"""Elements that are counted, then added to their channels, while they are in the cache."""


class Accumulator:
    """Gathers the `TensorProfile` of one tensor: the only mutable thing of a calibration run.

    Its bins always span all values so far, so most arrays are counted straight into them. The result is
    the same as merging the profiles of the arrays, in any order. Several threads may add at once.
    """

    def __init__(
        self,
        dtype: str,
        counter: Advance = advance,
        axis: int | None = None,
        channels: int = 0,
        gatherer: Gather = gather,
    ) -> None:
        """Begin with nothing.

        Args:
            dtype: ONNX element type name, as in `TensorProfile`.
            counter: counts ranges and bins.
            axis: axis of the channels to be recorded one by one; None for none.
            channels: how many there are.
            gatherer: adds to the channels.
        """
        self._dtype = dtype
        self._counter = counter
        self._gather = gatherer
        self._axis = axis
        self._tally = None if axis is None else Tally(channels)
        self._shape: tuple[Dim, ...] | None = None
        self._arrays = self._count = self._zeros = self._nan = self._inf = 0
        self._grid = Grid()
        self._counts: npt.NDArray[np.int64] = np.zeros(0, np.int64)
        self._lock = Lock()

    @staticmethod
    def of(profile: TensorProfile, counter: Advance = advance) -> Accumulator:
        """Return an accumulator that goes on from a profile with an exact histogram."""
        found = Accumulator(profile.dtype, counter)
        found._arrays, found._shape, found._count = 1, profile.shape, profile.count
        found._zeros, found._nan, found._inf = profile.zeros, profile.nan, profile.inf
        if profile.count:
            histogram = profile.histogram
            assert isinstance(histogram, Histogram)
            found._grid = Grid(profile.minimum, profile.maximum, histogram.exponent, histogram.first)
            found._counts = histogram.counts.copy()
        if profile.channels is not None:
            found._axis, found._tally = profile.channels.axis, Tally.of(profile.channels)
        return found

    def add(self, array: npt.NDArray[Any], shape: tuple[Dim, ...] | None, block: int = 1) -> tuple[int, int]:
        """Count one more array and return how many elements were NaN and infinite.

        Args:
            array: float16, bfloat16, float32 or float64, of any shape; read where it lies.
            shape: what a profile records of its shape.
            block: channels that lie side by side (see `layout_of`).
        """
        flat = array.reshape(-1)  # a copy only of what is not contiguous
        with self._lock:
            if shape != self._shape:
                self._shape = shape if self._arrays == 0 else merged_shape(self._shape, shape)
            self._arrays += 1
            before = self._nan, self._inf
            if self._tally is None or self._axis is None or not flat.size:
                self._count_all(flat)
            else:
                layout = layout_of(array.shape, self._axis, block)
                units, step = range(flat.size // layout.unit), max(1, PIECE // layout.unit)
                for start in units[::step]:
                    piece = units[start : start + step]
                    self._count_all(flat[piece.start * layout.unit : piece.stop * layout.unit])
                    self._gather(flat, layout, piece, self._tally)
            return self._nan - before[0], self._inf - before[1]

    def _count_all(self, flat: npt.NDArray[Any]) -> None:
        """Count all elements of a flat array."""
        start = 0
        while start < flat.size:
            found = self._counter(flat, start, self._grid, self._counts)
            self._zeros += found.zeros
            self._count += found.stop - start
            start = found.stop
            if start == flat.size:
                break
            if found.low <= found.high:
                self._widen(found.low, found.high)
            if found.nan or found.inf:
                self._nan += found.nan
                self._inf += found.inf
                flat, start = _finite(flat[start:]), 0

    def _widen(self, minimum: float, maximum: float) -> None:
        """Let the bins span [minimum, maximum] too."""
        minimum, maximum = min(minimum, self._grid.minimum), max(maximum, self._grid.maximum)
        e = bin_exponent(minimum, maximum)
        first, last = grid_index(minimum, e), grid_index(maximum, e)
        counts = np.zeros(last - first + 1, np.int64)
        if self._counts.size:
            old = Histogram(self._grid.exponent, self._grid.first, self._counts).coarsened(e)
            counts[old.first - first :][: old.counts.size] = old.counts
        self._grid, self._counts = Grid(minimum, maximum, e, first), counts

    def profile(self) -> TensorProfile:
        """Return the profile of all arrays so far."""
        with self._lock:
            full = self._count > 0
            grid = self._grid
            return TensorProfile(
                dtype=self._dtype,
                shape=self._shape,
                minimum=grid.minimum if full else 0.0,
                maximum=grid.maximum if full else 0.0,
                count=self._count,
                zeros=self._zeros,
                nan=self._nan,
                inf=self._inf,
                histogram=Histogram(grid.exponent, grid.first, self._counts) if full else Histogram.empty(),
                channels=None
                if self._tally is None or self._axis is None
                else self._tally.channels(self._axis),
            )


def _finite(flat: npt.NDArray[Any]) -> npt.NDArray[Any]:
    if flat.dtype.itemsize == 2:
        with np.errstate(invalid="ignore"):
            flat = flat.astype(np.float32)  # not every numpy function knows bfloat16
    finite: npt.NDArray[Any] = flat[np.isfinite(flat)]
    return finite
