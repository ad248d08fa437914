"""The observer of one tensor: it counts one array after another, and keeps none of them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from ..records.histogram import BINS, Histogram, bin_exponent, grid_index
from ..records.profile import Dim, TensorProfile, merged_shape
from .channel_counter import AccumulateChannels, ArraySlice, ChannelSums, accumulate_channels, layout_of
from .histogram_counter import Bins, CountHistograms, Ranges, Remainder, count_histograms, empty_ranges


class TensorObserver:
    """Observes one tensor, as if the profiles of its arrays were merged; for one thread at a time.

    A caller may count many tensors into their `bins` and `ranges`, a row each, in one call, and pass the
    rest of an array to `finish`.
    """

    def __init__(
        self,
        dtype: str,
        counter: CountHistograms = count_histograms,
        axis: int | None = None,
        channels: int = 0,
        channel_counter: AccumulateChannels = accumulate_channels,
        *,
        ranges: Ranges | None = None,
    ) -> None:
        """Begin with nothing; `channels` on `axis` are recorded, 0 for as many as the first array has."""
        self.bins = Bins.empty()
        self._ranges = empty_ranges(1) if ranges is None else ranges
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

    def add(self, array: npt.NDArray[Any], shape: tuple[Dim, ...] | None) -> tuple[int, int]:
        """Count an array, and return its numbers of NaN and of infinite elements."""
        self.note_shape(shape)
        flat = array.reshape(-1)  # a copy only of what is not contiguous
        array_slice = self.channel_slice(array.shape)
        if array_slice is not None:
            self._accumulate_channels([flat], [array_slice])
        remainders = self._count_histograms([flat], [self.bins], self._ranges)
        return self.finish(flat, remainders[0]) if remainders else (0, 0)

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

    def finish(self, flat: npt.NDArray[Any], remainder: Remainder) -> tuple[int, int]:
        """Count the remainder of a flat array, and return its numbers of NaN and of infinite elements."""
        flat = flat[remainder.stop :]
        if remainder.low <= remainder.high:
            self._widen()
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

    def _widen(self) -> None:
        """Let the bins span the range; those that are left of 2000 lie beside it."""
        ((minimum, maximum),) = self._ranges.tolist()
        e = bin_exponent(minimum, maximum)
        first, last = grid_index(minimum, e), grid_index(maximum, e)
        # Such indices, and those 2000 away, are exact in float32.
        if first < last and abs(e) <= 126 and max(-first, last) < 1 << 22:
            spare = BINS - (last - first + 1)
            first -= 0 if minimum >= 0.0 else spare if maximum <= 0.0 else spare // 2
            last = first + BINS - 1
            minimum, maximum = math.ldexp(first, e), math.nextafter(math.ldexp(last + 1, e), -math.inf)
        counts = np.zeros(last - first + 1, np.int64)
        if self.bins.counts.size:
            old = Histogram(self.bins.exponent, self.bins.first, self.bins.counts).coarsened(e)
            used = np.flatnonzero(old.counts)
            counts[used + (old.first - first)] = old.counts[used]
        self.bins = Bins(minimum, maximum, e, first, counts, self.bins.zeros)

    def profile(self) -> TensorProfile:
        """Return the profile of all arrays so far."""
        bins, histogram, minimum, maximum = self.bins, Histogram.empty(), 0.0, 0.0
        if bins.counts.any():
            ((minimum, maximum),) = self._ranges.tolist()
            first, last = (grid_index(end, bins.exponent) for end in (minimum, maximum))
            counts = bins.counts[first - bins.first : last - bins.first + 1]
            histogram = Histogram(bins.exponent, first, counts)
        return TensorProfile(
            dtype=self._dtype,
            shape=self._shape,
            minimum=minimum,
            maximum=maximum,
            count=histogram.total,
            zeros=int(bins.zeros[0]),
            nan=self._nan,
            inf=self._inf,
            histogram=histogram,
            channels=None if self._sums is None or self._axis is None else self._sums.channels(self._axis),
        )
