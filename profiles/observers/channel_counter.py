"""Per-channel ranges and sums of arrays: the compiled kernel, and its reference implementation in numpy.

Both are functions of one signature, `AccumulateChannels`, for any number of arrays: the compiled kernel takes
the GIL once for all arrays of a call. They bring `ChannelSums` to the same state.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ..records.channel_statistics import SQUARES, SUMS, VALUES, Channels

try:
    from . import _channels
except ImportError:  # installed without a compiler
    _channels = None  # type: ignore[assignment]

_SQUARE_BITS = SQUARES.bits // SQUARES.power


class ChannelLayout(NamedTuple):
    """A row of units of `inner` vectors of `lanes` channels; unit u begins at (u % groups) * lanes."""

    groups: int
    inner: int
    lanes: int

    @property
    def unit(self) -> int:
        """Elements of a unit."""
        return self.inner * self.lanes


def layout_of(shape: tuple[int, ...], axis: int, block: int = 1) -> ChannelLayout:
    """Return the layout of channels on an axis; `block` of them are neighbours, 1 in the usual order."""
    axis %= len(shape)
    channels, inner = shape[axis], math.prod(shape[axis + 1 :])
    if block > 1:
        return ChannelLayout(channels // block, inner, block)
    if inner == 1:
        return ChannelLayout(1, 1, channels)
    return ChannelLayout(channels, inner, 1)


class ChannelSums(NamedTuple):
    """The state of one tensor's n channels; the counters change its arrays in place.

    `ranges` float64 (5, n): smallest and largest value, the magnitude that needs coarser grids, and the
    factors of values and of roots of squares. `sums` int64 (1 + SUMS, n): finite elements, then
    `Channels.sums`.
    """

    ranges: npt.NDArray[np.float64]
    sums: npt.NDArray[np.int64]

    @staticmethod
    def empty(channels: int) -> ChannelSums:
        """Return the state of channels without elements."""
        sums = ChannelSums(np.zeros((5, channels)), np.zeros((1 + SUMS, channels), np.int64))
        sums.ranges[0], sums.ranges[1] = np.inf, -np.inf
        sums._fit(np.zeros(channels))
        return sums

    def channels(self, axis: int) -> Channels:
        """Return the record of the channels, on this axis of the tensor."""
        full = self.sums[0] > 0
        # Adding 0.0 turns -0.0 into 0.0: which zero min and max return depends on the order.
        low, high = (np.where(full, self.ranges[i], 0.0) + 0.0 for i in (0, 1))
        return Channels(axis, low, high, self.sums[0], self.sums[1:])

    def widen(self, low: npt.NDArray[np.float64], high: npt.NDArray[np.float64]) -> None:
        """Let each channel's range include low .. high, which may be inf .. -inf, and the grids fit it."""
        old = self._magnitude()
        np.minimum(self.ranges[0], low, out=self.ranges[0])
        np.maximum(self.ranges[1], high, out=self.ranges[1])
        new = self._magnitude()
        if np.any(new >= self.ranges[2]):
            for grids in (VALUES, SQUARES):
                grids.grow(self.sums[1:], grids.levels(old), grids.levels(new))
            self._fit(new)

    def _magnitude(self) -> npt.NDArray[np.float64]:
        magnitude: npt.NDArray[np.float64] = np.maximum(np.maximum(-self.ranges[0], self.ranges[1]), 0.0)
        return magnitude

    def _fit(self, magnitude: npt.NDArray[np.float64]) -> None:
        values, squares = VALUES.levels(magnitude), SQUARES.levels(magnitude)
        self.ranges[2] = np.ldexp(1.0, np.minimum(values, squares) - 1)
        self.ranges[3] = np.ldexp(1.0, VALUES.bits - values)
        self.ranges[4] = np.ldexp(1.0, _SQUARE_BITS - squares)


class ArraySlice(NamedTuple):
    """The units from `start` to `stop` of an array, and the sums that they are added to."""

    layout: ChannelLayout
    start: int
    stop: int
    sums: ChannelSums


AccumulateChannels = Callable[[list[npt.NDArray[Any]], list[ArraySlice]], None]
"""Adds a slice of each array (float16, bfloat16, float32 or float64, contiguous) to its channels."""


def accumulate_channels_numpy(arrays: list[npt.NDArray[Any]], slices: list[ArraySlice]) -> None:
    """Add in numpy: the reference implementation, used if the compiled kernel was not built."""
    for array, array_slice in zip(arrays, slices, strict=True):
        _accumulate_one(array.reshape(-1), array_slice)


def _accumulate_one(flat: npt.NDArray[Any], run: ArraySlice) -> None:
    layout, units, state = run.layout, range(run.start, run.stop), run.sums
    part = flat[units.start * layout.unit : units.stop * layout.unit]
    if part.size == 0:
        return
    if layout.groups == 1:  # many short units are one
        layout, units = ChannelLayout(1, part.size // layout.lanes, layout.lanes), range(1)
    x = (part if part.dtype == np.float64 else part.astype(np.float32)).reshape(
        -1, layout.inner, layout.lanes
    )
    first = np.array(units) % layout.groups * layout.lanes
    where = first[:, None] + np.arange(layout.lanes)  # channel of each lane of a unit
    mask = np.isfinite(x)
    finite = None if mask.all() else mask
    low, high = np.full(state.sums.shape[1], np.inf), np.full(state.sums.shape[1], -np.inf)
    np.minimum.at(low, where, (x if finite is None else np.where(finite, x, np.inf)).min(axis=1))
    np.maximum.at(high, where, (x if finite is None else np.where(finite, x, -np.inf)).max(axis=1))
    state.widen(low, high)
    if finite is not None:
        x = np.where(finite, x, x.dtype.type(0))
    # Powers of two: every product is exact, or so small that it rounds to zero.
    scale, root = (state.ranges[row][where][:, None].astype(x.dtype) for row in (3, 4))
    with np.errstate(under="ignore"):
        values = x * scale
        squares = (x * root) ** 2
        terms = [(values, 2.0 ** (-VALUES.step * k)) for k in range(len(VALUES.rows))]
        down = SQUARES.power * SQUARES.step
        terms += [(squares, 2.0 ** (-down * k)) for k in range(len(SQUARES.rows))]
        for row, (term, factor) in enumerate(terms, 1):
            # Whole numbers below 2**22, of an array that fits into memory: exact in float64.
            total = np.rint(term * factor).sum(axis=1, dtype=np.float64)
            np.add.at(state.sums[row], where, total.astype(np.int64))
    np.add.at(state.sums[0], where, layout.inner if finite is None else finite.sum(axis=1))


def _accumulate_compiled(level: int, arrays: list[npt.NDArray[Any]], slices: list[ArraySlice]) -> None:
    # bfloat16 is passed as its bits: numpy has no buffer format for it.
    data = [array if array.dtype.kind == "f" else array.view(np.uint16) for array in arrays]
    _channels.gather(data, slices, level)


def implementations() -> dict[str, AccumulateChannels]:
    """Return every counter that runs on this machine, fastest first: the compiled kernels, then "numpy"."""
    levels = () if _channels is None else _channels.levels()
    compiled = {name: partial(_accumulate_compiled, level) for level, name in enumerate(levels)}
    return {**compiled, "numpy": accumulate_channels_numpy}


IMPLEMENTATION, accumulate_channels = next(iter(implementations().items()))
"""Name of the counter in use, and the counter."""
