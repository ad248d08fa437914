"""Per-channel range, mean and power of a tensor. Merging is exact, in any order and grouping.

A sum of floating-point numbers depends on their order. So every value is rounded to a grid first and whole
numbers are added up. The grid is a power of two that follows from the channel's largest magnitude so far: its
level, the smallest multiple of some step with magnitude < 2**(level - 1). When the magnitude grows, values
must be rounded to a coarser grid, but they are no longer available. So the sums on the next coarser grids are
stored too; on still coarser grids every earlier value rounds to zero. A sum therefore depends only on the set
of values.

A value stands on a grid of at most 2**-10 of its channel's largest magnitude, 2**-16 on average, and a square
on one of at most 2**-14 of the largest square; they are rounded to the nearest, so that errors cancel out.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..base.errors import ProfileError
from .histogram import ArrayRecord, read_only_copy

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Grids:
    """Grids of sums of values to a `power`, by level: 2**(power * level - bits), and `step` levels coarser.

    `rows` are those of `Channels.sums`, the finest grid first; `lowest` is the level of magnitudes near zero.
    """

    power: int
    bits: int
    step: int
    lowest: int
    rows: tuple[int, ...]

    def levels(self, magnitude: Floats) -> Integers:
        """Return the level that each magnitude needs."""
        exponent = np.frexp(magnitude)[1].astype(np.int64)  # magnitude < 2**exponent
        needed = -(-(exponent + 1) // self.step) * self.step
        return np.where(magnitude > 0.0, np.maximum(needed, self.lowest), self.lowest)

    def total(self, sums: Integers, magnitude: Floats) -> Floats:
        """Return the sums over the finest grid as float values."""
        with np.errstate(over="ignore", under="ignore"):
            fine = sums[self.rows[0]].astype(np.float64)
            grid = (self.power * self.levels(magnitude) - self.bits).astype(np.int32)
            total: Floats = np.ldexp(fine, grid)
        return total

    def grow(self, sums: Integers, old: Integers, new: Integers) -> None:
        """Convert the sums, in place, from the old levels to the new ones, which must not be lower."""
        steps = (new - old) // self.step
        for _ in range(min(int(steps.max(initial=0)), len(self.rows))):
            channels = steps > 0
            for row in self.rows:
                coarser = sums[row + 1][channels] if row + 1 in self.rows else 0
                sums[row][channels] = coarser
            steps = steps - 1


VALUES = Grids(power=1, bits=22, step=11, lowest=-99, rows=(0, 1))
SQUARES = Grids(power=2, bits=24, step=4, lowest=-100, rows=(2, 3, 4))
SUMS = len(VALUES.rows) + len(SQUARES.rows)

MAX_CHANNEL_COUNT = 1 << 40
"""Finite elements of a channel, at most: a value is below 2**22 on its grid, so that sums fit into int64."""


@dataclass(frozen=True, eq=False)
class Channels(ArrayRecord):
    """Statistics of each of the n channels of a tensor, of finite elements only; arrays are read-only.

    Range and count are (n,); `sums` (SUMS, n) are whole numbers: of the values on two grids, of squares on
    three.
    """

    axis: int
    minimum: Floats
    maximum: Floats
    count: Integers
    sums: Integers

    def __post_init__(self) -> None:
        for name in ("minimum", "maximum", "count", "sums"):
            dtype = np.float64 if name.startswith("m") else np.int64
            object.__setattr__(self, name, read_only_copy(getattr(self, name), dtype))

    @property
    def magnitude(self) -> Floats:
        """Largest absolute value of each channel, float64 (n,)."""
        return np.maximum(np.abs(self.minimum), np.abs(self.maximum))

    @property
    def mean(self) -> Floats:
        """Mean of each channel, float64 (n,), inside its range; 0.0 if it had no elements."""
        mean = VALUES.total(self.sums, self.magnitude) / np.maximum(self.count, 1)
        return np.clip(mean, self.minimum, self.maximum)

    @property
    def power(self) -> Floats:
        """Mean square of each channel, float64 (n,), at least the square of the mean; perhaps infinite."""
        power = SQUARES.total(self.sums, self.magnitude) / np.maximum(self.count, 1)
        with np.errstate(over="ignore", under="ignore"):
            clipped: Floats = np.clip(power, self.mean**2, self.magnitude**2)
        return clipped

    def merged(self, other: Channels) -> Channels:
        """Return the record of both sets of elements together: exact, commutative, associative."""
        if (self.axis, self.count.size) != (other.axis, other.count.size):
            raise ProfileError(
                f"has {other.count.size} channels on axis {other.axis}, in the others {self.count.size} on "
                f"axis {self.axis}; profile all shards with the same options and the same version of qprof"
            )
        count = self.count + other.count
        if int(count.max(initial=0)) > MAX_CHANNEL_COUNT:
            raise ProfileError(
                f"would have more than {MAX_CHANNEL_COUNT} elements in a channel; merge fewer profiles"
            )
        none = self.count == 0, other.count == 0
        low = np.minimum(np.where(none[0], np.inf, self.minimum), np.where(none[1], np.inf, other.minimum))
        high = np.maximum(np.where(none[0], -np.inf, self.maximum), np.where(none[1], -np.inf, other.maximum))
        low, high = np.where(count > 0, low, 0.0), np.where(count > 0, high, 0.0)
        sums = np.zeros_like(self.sums)
        magnitude = np.maximum(np.abs(low), np.abs(high))
        for side in (self, other):
            grown = side.sums.copy()
            for grids in (VALUES, SQUARES):
                grids.grow(grown, grids.levels(side.magnitude), grids.levels(magnitude))
            sums += grown
        return Channels(self.axis, low, high, count, sums)


def divided(channels: Channels, divisors: Floats) -> Channels:
    """Return the statistics of elements that are divided by a number above 0 for each channel."""
    low, high = channels.minimum / divisors, channels.maximum / divisors
    magnitude = np.maximum(np.abs(low), np.abs(high))
    sums = np.zeros_like(channels.sums)
    for grids, mean in ((VALUES, channels.mean / divisors), (SQUARES, channels.power / divisors**2)):
        grid = (grids.power * grids.levels(magnitude) - grids.bits).astype(np.int32)
        sums[grids.rows[0]] = np.rint(np.ldexp(mean, -grid) * channels.count)
    return Channels(channels.axis, low, high, channels.count, sums)


def fault(channels: Channels) -> str:
    """Return the contradiction in a record, "" when there is none."""
    low, high, count, sums = channels.minimum, channels.maximum, channels.count, channels.sums
    if not low.shape == high.shape == count.shape or sums.shape != (SUMS, count.size) or not count.size:
        return "the arrays are not of one length"
    if not (np.isfinite(low).all() and np.isfinite(high).all()):
        return "a range is not finite"
    if (low > high).any():
        return "a minimum is greater than the maximum"
    if (count < 0).any() or (count > MAX_CHANNEL_COUNT).any():
        return f"a count is not in 0 .. {MAX_CHANNEL_COUNT}"
    if ((count == 0) & ((low != 0) | (high != 0) | (sums != 0).any(axis=0))).any():
        return "a channel without elements has a range or a sum"
    # A value is at most 2**21 on its grid, a square 2**22.
    if (np.abs(sums.astype(np.float64)) > count * 2.0**22).any():
        return "a sum is too large for its count"
    return ""
