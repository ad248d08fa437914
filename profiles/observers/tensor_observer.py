"""The statistics of one tensor, gathered array by array; nothing else is kept of the arrays."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from ..records.histogram import Histogram, bin_exponent, grid_index
from ..records.profile import Dim, TensorProfile, merged_shape
from .channel_counter import Gather, Part, Tally, gather, layout_of
from .histogram_counter import Advance, Bins, Rest, advance

PIECE = 1 << 17
"""Elements that are counted, then added to their channels, while they are in the cache."""


class Accumulator:
    """Gathers the `TensorProfile` of one tensor, for one thread at a time.

    Its bins always span all values so far, so most arrays are counted straight into them. The result is
    the same as merging the profiles of the arrays, in any order.

    Attributes:
        bins: what arrays are counted into: by `add`, or by whoever counts many tensors at once and brings
            what does not fit to `go_on`.
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
        self.bins = Bins.empty()
        self._dtype = dtype
        self._counter = counter
        self._gather = gatherer
        self._axis = axis
        self._tally = None if axis is None else Tally.empty(channels)
        self._shape: tuple[Dim, ...] | None = None
        self._seen = False
        self._nan = self._inf = 0

    @property
    def seen(self) -> bool:
        """Whether there was an array, if only an empty one."""
        return self._seen

    def see(self, shape: tuple[Dim, ...] | None) -> None:
        """Take note of what a profile records of the shape of an array; once for any number of its kind."""
        self._shape = merged_shape(self._shape, shape) if self._seen else shape
        self._seen = True

    def add(self, array: npt.NDArray[Any], shape: tuple[Dim, ...] | None, block: int = 1) -> tuple[int, int]:
        """See and count one more array; see `count`."""
        self.see(shape)
        return self.count(array, block)

    def count(self, array: npt.NDArray[Any], block: int = 1) -> tuple[int, int]:
        """Count an array whose shape was seen, and return how many elements were NaN and infinite.

        Args:
            array: float16, bfloat16, float32 or float64, of any shape; read where it lies.
            block: channels that lie side by side (see `layout_of`).
        """
        flat = array.reshape(-1)  # a copy only of what is not contiguous
        part = self.part(array.shape, block)
        if part is None:
            return self._count_all(flat)
        unit = part.layout.unit
        step = max(1, PIECE // unit)
        nan = inf = 0
        for start in range(0, part.stop, step):
            stop = min(start + step, part.stop)
            found = self._count_all(flat[start * unit : stop * unit])
            nan, inf = nan + found[0], inf + found[1]
            self._gather([flat], [part._replace(start=start, stop=stop)])
        return nan, inf

    def part(self, shape: tuple[int, ...], block: int = 1) -> Part | None:
        """Return where an array of this shape is to be gathered; None where there are no channels."""
        if self._tally is None or self._axis is None or 0 in shape:
            return None
        layout = layout_of(shape, self._axis, block)
        return Part(layout, 0, math.prod(shape) // layout.unit, self._tally)

    def _count_all(self, flat: npt.NDArray[Any]) -> tuple[int, int]:
        found = self._counter([flat], [self.bins])
        return self.go_on(flat, found[0]) if found else (0, 0)

    def go_on(self, flat: npt.NDArray[Any], rest: Rest) -> tuple[int, int]:
        """Count what was left of a flat array, and return how many elements were NaN and infinite."""
        flat = flat[rest.stop :]
        if rest.low <= rest.high:
            self._widen(rest.low, rest.high)
        if rest.nan or rest.inf:
            self._nan += rest.nan
            self._inf += rest.inf
            flat = _finite(flat)
        left = self._counter([flat], [self.bins])
        assert not left, left
        return rest.nan, rest.inf

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
            channels=None if self._tally is None or self._axis is None else self._tally.channels(self._axis),
        )


def _finite(flat: npt.NDArray[Any]) -> npt.NDArray[Any]:
    if flat.dtype.itemsize == 2:
        with np.errstate(invalid="ignore"):
            flat = flat.astype(np.float32)  # not every numpy function knows bfloat16
    finite: npt.NDArray[Any] = flat[np.isfinite(flat)]
    return finite
