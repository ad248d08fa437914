"""The observer of one tensor: it counts one array after another, and keeps none of them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from ..records.histogram import Histogram, bin_exponent, grid_index
from ..records.profile import Dim, TensorProfile, merged_shape
from .channel_counter import AccumulateChannels, ArraySlice, ChannelSums, accumulate_channels, layout_of
from .histogram_counter import Bins, CountHistograms, Ranges, Remainder, count_histograms

SLICE = 1 << 17
"""Elements that are counted, then added to their channels, while they are in the cache."""


class TensorObserver:
    """Observes one tensor, as if the profiles of its arrays were merged; for one thread at a time.

    A caller may count many tensors into their `bins` in one call, and pass the rest of an array to `finish`.
    """

    def __init__(
        self,
        dtype: str,
        counter: CountHistograms = count_histograms,
        axis: int | None = None,
        channels: int = 0,
        channel_counter: AccumulateChannels = accumulate_channels,
    ) -> None:
        """Begin with nothing; `channels` on `axis` are recorded, 0 for as many as the first array has."""
        self.bins = Bins.empty()
        self._dtype = dtype
        self._count_histograms = counter
        self._accumulate_channels = channel_counter
        self._axis = axis
        self._sums = ChannelSums.empty(channels) if channels else None
        self._shape: tuple[Dim, ...] | None = None
        self._has_shape = False
        self._nan = self._inf = 0

    @property
    def has_shape(self) -> bool:
        """Whether there was an array, even an empty one."""
        return self._has_shape

    @property
    def channels(self) -> int:
        """How many channels are recorded one by one; 0 for none, or none yet."""
        return 0 if self._sums is None else self._sums.sums.shape[1]

    def note_shape(self, shape: tuple[Dim, ...] | None) -> None:
        """Note the shape that a profile records for an array; once for any number of arrays of that shape."""
        self._shape = merged_shape(self._shape, shape) if self._has_shape else shape
        self._has_shape = True

    def add(
        self, array: npt.NDArray[Any], shape: tuple[Dim, ...] | None, ranges: Ranges | None = None
    ) -> tuple[int, int]:
        """Note the shape of one more array and count it; see `count`."""
        self.note_shape(shape)
        return self.count(array, ranges=ranges)

    def count(self, array: npt.NDArray[Any], block: int = 1, ranges: Ranges | None = None) -> tuple[int, int]:
        """Count an array after its shape was recorded, and return its numbers of NaN and of infinite
        elements."""
        flat = array.reshape(-1)  # a copy only of what is not contiguous
        whole = self.channel_slice(array.shape, block)
        if whole is None:
            return self._count_all(flat, ranges)
        unit = whole.layout.unit
        step = max(1, SLICE // unit)
        nan = inf = 0
        for start in range(0, whole.stop, step):
            stop = min(start + step, whole.stop)
            counts = self._count_all(flat[start * unit : stop * unit], ranges)
            nan, inf = nan + counts[0], inf + counts[1]
            self._accumulate_channels([flat], [whole._replace(start=start, stop=stop)])
        return nan, inf

    def channel_slice(self, shape: tuple[int, ...], block: int = 1) -> ArraySlice | None:
        """Return the whole of an array of this shape and its channels; None if none are recorded."""
        if self._axis is None:
            return None
        if self._sums is None:
            self._sums = ChannelSums.empty(shape[self._axis])
        if 0 in shape:
            return None
        layout = layout_of(shape, self._axis, block)
        return ArraySlice(layout, 0, math.prod(shape) // layout.unit, self._sums)

    def _count_all(self, flat: npt.NDArray[Any], ranges: Ranges | None) -> tuple[int, int]:
        remainders = self._count_histograms([flat], [self.bins], ranges)
        return self.finish(flat, remainders[0]) if remainders else (0, 0)

    def finish(self, flat: npt.NDArray[Any], remainder: Remainder) -> tuple[int, int]:
        """Count the remainder of a flat array, and return its numbers of NaN and of infinite elements."""
        flat = flat[remainder.stop :]
        if remainder.low <= remainder.high:
            self._widen(remainder.low, remainder.high)
        if remainder.nan or remainder.inf:
            self._nan += remainder.nan
            self._inf += remainder.inf
            if flat.dtype.itemsize == 2:
                with np.errstate(invalid="ignore"):
                    flat = flat.astype(np.float32)  # not every numpy function has bfloat16
            flat = flat[np.isfinite(flat)]
        left = self._count_histograms([flat], [self.bins])
        assert not left, left
        return remainder.nan, remainder.inf

    def _widen(self, minimum: float, maximum: float) -> None:
        """Let the bins span [minimum, maximum] too."""
        bins = self.bins
        minimum, maximum = min(minimum, bins.minimum), max(maximum, bins.maximum)
        e = bin_exponent(minimum, maximum)
        first, last = grid_index(minimum, e), grid_index(maximum, e)
        counts = np.zeros(last - first + 1, np.int64)
        if bins.counts.size:
            old = bins
            if e != bins.exponent:
                coarse = Histogram(bins.exponent, bins.first, bins.counts).coarsened(e)
                old = bins._replace(first=coarse.first, counts=coarse.counts)
            counts[old.first - first :][: old.counts.size] = old.counts
        self.bins = Bins(minimum, maximum, e, first, counts, bins.zeros)

    def profile(self) -> TensorProfile:
        """Return the profile of all arrays so far."""
        bins = self.bins
        count = int(bins.counts.sum())
        return TensorProfile(
            dtype=self._dtype,
            shape=self._shape,
            minimum=bins.minimum if count else 0.0,
            maximum=bins.maximum if count else 0.0,
            count=count,
            zeros=int(bins.zeros[0]),
            nan=self._nan,
            inf=self._inf,
            histogram=Histogram(bins.exponent, bins.first, bins.counts) if count else Histogram.empty(),
            channels=None if self._sums is None or self._axis is None else self._sums.channels(self._axis),
        )
