"""Times between measured points, in log space: what doubles one size multiplies the time. Pure.

The points of a kernel need not fill a grid: large sizes are left out where they take too long to measure. So
one axis is looked at after the other. The value is bracketed by the two nearest sizes that were measured on
the first axis; among the points that have each of them the same is done on the second axis, and so on. A
ragged grid is thus no gap, and each slice has ends of its own. Beyond an end the time follows the slope of
the last two points, which is held between 0 (a fixed cost) and 1 (in proportion).
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from functools import cached_property

Point = tuple[float, ...]
"""Sizes along the axes of a kernel, and last the microseconds."""

LEAST = 0.05
"""Microseconds: what is too fast for the profiler's clock counts as this."""


class Surface:
    """The measured times of one kernel over its sizes."""

    def __init__(self, points: Sequence[Point]) -> None:
        """Take points of equal length, at least one."""
        self._points = sorted(points)
        self._axes = len(self._points[0]) - 1

    @cached_property
    def _tree(self) -> _Axis | float:
        rows = [
            (*(math.log(max(size, 1.0)) for size in point[:-1]), math.log(max(point[-1], LEAST)))
            for point in self._points
        ]
        return _tree(rows, self._axes)

    def at(self, sizes: Sequence[float]) -> float:
        """Return the microseconds at sizes, one for each axis."""
        assert len(sizes) == self._axes, f"{len(sizes)} sizes for {self._axes} axes"
        return math.exp(_at(self._tree, [math.log(max(size, 1.0)) for size in sizes]))


class _Axis:
    """Logarithms of the sizes measured along an axis, ascending, and what belongs to each."""

    def __init__(self, sizes: list[float], slices: list[_Axis | float]) -> None:
        self.sizes, self.slices = sizes, slices


def _tree(rows: Sequence[tuple[float, ...]], axes: int) -> _Axis | float:
    """Return rows, sorted, as a tree with a level for each axis; equal points are averaged."""
    if axes == 0:
        return sum(row[0] for row in rows) / len(rows)
    groups: dict[float, list[tuple[float, ...]]] = {}
    for row in rows:
        groups.setdefault(row[0], []).append(row[1:])
    return _Axis(list(groups), [_tree(group, axes - 1) for group in groups.values()])


def _at(tree: _Axis | float, sizes: list[float]) -> float:
    """Return the logarithm of the time at logarithms of sizes."""
    if isinstance(tree, float):
        return tree
    size, rest = sizes[0], sizes[1:]
    if len(tree.sizes) == 1:  # nothing says how time grows along this axis: in proportion
        return _at(tree.slices[0], rest) + max(size - tree.sizes[0], 0.0)
    above = min(max(bisect_left(tree.sizes, size), 1), len(tree.sizes) - 1)
    low, high = tree.sizes[above - 1], tree.sizes[above]
    first, second = _at(tree.slices[above - 1], rest), _at(tree.slices[above], rest)
    slope = (second - first) / (high - low)
    if size < low:
        return first + min(max(slope, 0.0), 1.0) * (size - low)
    if size > high:
        return second + min(max(slope, 0.0), 1.0) * (size - high)
    return first + slope * (size - low)
