"""Second moments of what a weight is multiplied with. Pure, and the same to the bit on any number of threads.

A linear algebra library adds in an order that depends on threads and processors. So rows are rounded to a
grid of 16 bits first: products then are integers below 2^30, and the sum of up to 2^23 of them is exact in
float64, in any order. Samples are added one after the other.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ...profiles.base.errors import DataError

Floats = npt.NDArray[np.float64]

COLUMNS = 4096
"""Longer rows are split into blocks; correlations between blocks are ignored."""

BITS = 15
"""Bits of a magnitude on the grid, besides its sign."""


@dataclass(frozen=True, eq=False)
class Moments:
    """Sums over rows of n columns in g groups.

    Attributes:
        rows: how many rows.
        first: sum of the rows, (g, n).
        second: for each block of the columns, sum of the products of each two of them, (g, p, p).
    """

    rows: int
    first: Floats
    second: tuple[Floats, ...]

    def added(self, other: Moments) -> Moments:
        """Return the sums over both."""
        both = zip(self.second, other.second, strict=True)
        return Moments(self.rows + other.rows, self.first + other.first, tuple(a + b for a, b in both))

    def means(self, centred: bool = False) -> tuple[Floats, ...]:
        """Return the mean products of the columns of each block; their covariance where `centred`."""
        count = max(1, self.rows)
        products = tuple(second / count for second in self.second)
        if not centred:
            return products
        mean, ends = self.first / count, np.cumsum([s.shape[1] for s in self.second])
        parts = np.split(mean, ends[:-1], axis=1)
        return tuple(
            second - part[:, :, None] * part[:, None, :] for second, part in zip(products, parts, strict=True)
        )


@dataclass(frozen=True, eq=False)
class PairMoments:
    """Sums over rows x of the float model and x^ of the quantized one; see `Moments`.

    Attributes:
        own: those of x^.
        first: sum of x, (g, n).
        cross: for each block of the columns, sum of the products x x^', (g, p, p).
    """

    own: Moments
    first: Floats
    cross: tuple[Floats, ...]

    def added(self, other: PairMoments) -> PairMoments:
        """Return the sums over both."""
        both = tuple(a + b for a, b in zip(self.cross, other.cross, strict=True))
        return PairMoments(self.own.added(other.own), self.first + other.first, both)

    def means(self, centred: bool = False) -> tuple[tuple[Floats, Floats], ...]:
        """Return for each block the mean products x^ x^' and x x^'; covariances where `centred`."""
        count, sizes = max(1, self.own.rows), [part.shape[1] for part in self.cross]
        cross = tuple(part / count for part in self.cross)
        if centred:
            parts = (np.split(f / count, np.cumsum(sizes)[:-1], axis=1) for f in (self.first, self.own.first))
            cross = tuple(c - x[:, :, None] * y[:, None, :] for c, x, y in zip(cross, *parts, strict=True))
        return tuple(zip(self.own.means(centred), cross, strict=True))


def moments_of_pair(exact: Floats, rows: Floats, where: str) -> PairMoments:
    """Return the moments of rows of the float model with those of the quantized one; see `moments_of`."""
    (steps, unit), (others, other_unit) = _on_grid(exact, where), _on_grid(rows, where)
    cross, end = [], 0
    for size in column_blocks(rows.shape[2]):
        part = slice(end, end + size)
        products = np.matmul(steps[:, :, part].transpose(0, 2, 1), others[:, :, part])
        cross.append(products * (unit * other_unit))
        end += size
    return PairMoments(moments_of(rows, where), steps.sum(1) * unit, tuple(cross))


def moments_bytes(groups: int, columns: int) -> int:
    """Return the size of moments in bytes."""
    return 8 * groups * sum(size * size for size in column_blocks(columns))


def column_blocks(columns: int) -> list[int]:
    """Return the lengths of the blocks that a row is split into; they differ by one at most."""
    blocks = max(1, -(-columns // COLUMNS))
    return [columns // blocks + (i < columns % blocks) for i in range(blocks)]


def moments_of(rows: Floats, where: str) -> Moments:
    """Return the moments of rows (groups, rows, columns).

    Args:
        rows: of one sample.
        where: how to name them in messages.

    Raises:
        DataError: they hold NaN or Inf.
    """
    steps, unit = _on_grid(rows, where)
    second = []
    end = 0
    for size in column_blocks(rows.shape[2]):
        part = steps[:, :, end : end + size]
        second.append(np.matmul(part.transpose(0, 2, 1), part) * unit**2)
        end += size
    return Moments(rows.shape[1], steps.sum(1) * unit, tuple(second))


def _on_grid(rows: Floats, where: str) -> tuple[Floats, float]:
    """Return rows as multiples of a power of two, and that."""
    largest = float(np.abs(rows).max(initial=0.0))
    if not math.isfinite(largest):
        raise DataError(f"{where}: holds NaN or Inf; leave the sample out, or repair it")
    unit = math.ldexp(1.0, math.frexp(largest)[1] - BITS)
    return np.rint(rows / unit), unit
