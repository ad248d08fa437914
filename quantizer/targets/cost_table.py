"""Measured times of a runtime's kernels on one machine, and their file.

A file is JSON with one line for each kernel, so that two tables can be compared line by line. Packaged ones
are in `configs/costs`, one file for each target and number of threads.

Between measured points, times are interpolated in log space: doubling a size multiplies the time. The points
of a kernel need not fill a grid, because large sizes are skipped if they take too long to measure. So axes
are interpolated one after the other. The value is bracketed by the two nearest measured sizes on the first
axis; for the points with each of these sizes, the same is done on the second axis, and so on. So each slice
has its own ends. A slice that ends before the requested size is ignored if its neighbours reach it. Beyond an
end, the time follows the slope of the last two points, clamped between 0 (a fixed cost) and 1 (proportional).
The last axis is an amount of work, such as pixels, rows or steps: above its last point the time is a fixed
cost and a proportional part.

A size is covered by a table if it is no further from measured sizes than these are from each other, for any
amount of work.
"""

from __future__ import annotations

import itertools
import json
import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from importlib import resources
from pathlib import Path
from typing import Any

import msgspec

from ...profiles.base.errors import ConfigError
from ...profiles.base.output_files import read_text, write_atomically
from .machine import Processor
from .packaged import PLACE

FORMAT = 1
"""Version of the file."""

ADVICE = "measure the machine again with 'qprof targets NAME --measure COSTS.json'"


Point = tuple[float, ...]
"""Sizes along the axes of a kernel, and last the microseconds."""

NEAR = 0.1
"""Sizes whose logarithms differ by less count as one: between them noise would make a slope."""

MIN_MICROSECONDS = 0.05
"""Kernel times below the resolution of the profiler's clock count as this many microseconds."""


class Surface:
    """The measured times of one kernel over its sizes."""

    def __init__(self, points: Sequence[Point]) -> None:
        """Take points of equal length, at least one."""
        self._points = sorted(points)
        self._axes = len(self._points[0]) - 1

    @cached_property
    def _tree(self) -> _Axis | float:
        rows = [
            (*(math.log(max(size, 1.0)) for size in point[:-1]), math.log(max(point[-1], MIN_MICROSECONDS)))
            for point in self._points
        ]
        return _tree(rows, self._axes)

    def at(self, sizes: Sequence[float]) -> float:
        """Return the microseconds at sizes, one for each axis."""
        assert len(sizes) == self._axes, f"{len(sizes)} sizes for {self._axes} axes"
        return math.exp(_at(self._tree, [math.log(max(size, 1.0)) for size in sizes]))

    def knows(self, sizes: Sequence[float]) -> bool:
        """Whether the time at sizes follows from measured ones that are near."""
        return _knows(self._tree, [math.log(max(size, 1.0)) for size in sizes])


class _Axis:
    """Logarithms of the sizes measured along an axis, ascending, and the entries of each."""

    def __init__(self, sizes: list[float], slices: list[_Axis | float]) -> None:
        self.sizes, self.slices = sizes, slices


def _tree(rows: Sequence[tuple[float, ...]], axes: int) -> _Axis | float:
    """Return rows, sorted, as a tree with a level for each axis; points that are near are averaged."""
    if axes == 0:
        return sum(row[0] for row in rows) / len(rows)
    groups: list[list[tuple[float, ...]]] = []
    for row in sorted(rows):
        if groups and row[0] - groups[-1][0][0] < NEAR:
            groups[-1].append(row)
        else:
            groups.append([row])
    return _Axis(
        [sum(row[0] for row in group) / len(group) for group in groups],
        [_tree([row[1:] for row in group], axes - 1) for group in groups],
    )


def _at(tree: _Axis | float, sizes: list[float]) -> float:
    """Return the logarithm of the time at logarithms of sizes."""
    if isinstance(tree, float):
        return tree
    size, rest = sizes[0], sizes[1:]
    if len(tree.sizes) == 1:  # nothing says how time grows along this axis: in proportion
        return _at(tree.slices[0], rest) + max(size - tree.sizes[0], 0.0)
    places = [place for place, part in enumerate(tree.slices) if _reaches(part, rest)]
    if len(places) < 2 or not tree.sizes[places[0]] - NEAR <= size <= tree.sizes[places[-1]] + NEAR:
        places = list(range(len(tree.sizes)))
    measured = [tree.sizes[place] for place in places]
    above = min(max(bisect_left(measured, size), 1), len(measured) - 1)
    low, high = measured[above - 1], measured[above]
    first, second = (_at(tree.slices[places[place]], rest) for place in (above - 1, above))
    slope = (second - first) / (high - low)
    if size < low:
        return first + min(max(slope, 0.0), 1.0) * (size - low)
    if size > high and rest:
        return second + min(max(slope, 0.0), 1.0) * (size - high)
    if size > high:  # a fixed cost, and a part in proportion
        grown = (1.0 - math.exp(first - second)) / (1.0 - math.exp(low - high))  # 1 is in proportion
        return second + math.log1p(min(max(grown, 0.0), 1.0) * math.expm1(size - high))
    return first + slope * (size - low)


def _reaches(tree: _Axis | float, sizes: list[float]) -> bool:
    """Whether sizes lie between measured ones."""
    if isinstance(tree, float):
        return True
    inside = tree.sizes[0] - NEAR <= sizes[0] <= tree.sizes[-1] + NEAR
    return inside and any(_reaches(part, sizes[1:]) for part in tree.slices)


def _knows(tree: _Axis | float, sizes: list[float]) -> bool:
    """Whether measured sizes are near, on each axis but the last."""
    if isinstance(tree, float) or len(sizes) == 1:
        return True
    steps = [high - low for low, high in itertools.pairwise(tree.sizes)] or [NEAR]
    near = [size for size, part in zip(tree.sizes, tree.slices, strict=True) if _knows(part, sizes[1:])] or [
        math.inf
    ]
    return near[0] - steps[0] - NEAR <= sizes[0] <= near[-1] + steps[-1] + NEAR


@dataclass(frozen=True)
class Conditions:
    """The conditions under which a table was measured."""

    target: str  # name of the target whose kernels these are
    processor: str  # family of the processor, with the instruction sets that matter
    runtime: str  # name and version
    threads: int  # threads inside an operator

    def text(self, target: str) -> str:
        """Return runtime, threads and processor in words, and that these are not those of another target."""
        threads = f"{self.threads} thread{'s'[: self.threads != 1]}"
        doubt = f"; not measured on {target}" if self.target != target else ""
        return f"{self.runtime}, {threads}, {self.processor}{doubt}"


@dataclass(frozen=True, eq=False)
class CostTable:
    """Measured times of kernels."""

    conditions: Conditions  # under which they were measured
    kernels: Mapping[str, tuple[Point, ...]]  # points: sizes, and last the microseconds
    held: tuple[str, ...] = ()  # the models that predictions were held against; () for none
    error: float = 0.0  # of predicted ratios to float, at most, for nine of ten of them; 0 for none
    guesses: bool = False  # whether only times that do not follow from measured ones are not 0
    _surfaces: dict[str, Surface] = field(default_factory=dict, repr=False)
    _times: dict[tuple[str, tuple[float, ...]], float] = field(default_factory=dict, repr=False)

    def microseconds(self, kernel: str, sizes: tuple[float, ...]) -> float | None:
        """Return the time of a kernel at sizes, or None if it was not measured."""
        if kernel not in self.kernels:
            return None
        key = (kernel, sizes)  # layers of a model have the same sizes, and every plan of it asks again
        if key not in self._times:
            surface = self._surface(kernel)
            self._times[key] = 0.0 if self.guesses and surface.knows(sizes) else surface.at(sizes)
        return self._times[key]

    def guess(self, kernel: str, sizes: tuple[float, ...]) -> float:
        """Return the time of a similar kernel in place of an unmeasured one; 0 if there is no similar
        kernel."""
        return self._surface(kernel).at(sizes) if kernel in self.kernels else 0.0

    def _surface(self, kernel: str) -> Surface:
        if kernel not in self._surfaces:
            self._surfaces[kernel] = Surface(self.kernels[kernel])
        return self._surfaces[kernel]

    @cached_property
    def guessed(self) -> CostTable:
        """The table of the times that do not follow from measured ones."""
        return CostTable(self.conditions, self.kernels, guesses=True)


def table_text(table: CostTable) -> str:
    """Return a table as the text of its file."""
    conditions = json.dumps(msgspec.to_builtins(table.conditions))
    lines = []
    for name, points in sorted(table.kernels.items()):
        numbers = [[_short(number) for number in point] for point in points]
        lines.append(f" {json.dumps(name)}: {json.dumps(numbers, separators=(',', ':'))}")
    kernels = ",\n".join(lines)
    held = f'"held": {json.dumps(table.held)},\n"error": {table.error},\n' if table.held else ""
    return f'{{"format": {FORMAT},\n"conditions": {conditions},\n{held}"kernels": {{\n{kernels}\n}}}}\n'


def _short(number: float) -> float | int:
    """Return a number with four digits, as an integer if it is whole."""
    rounded = float(f"{number:.4g}") if number != int(number) else number
    return int(rounded) if rounded == int(rounded) else rounded


def parse_table(text: str, where: str) -> CostTable:
    """Return the cost table of a text; raises ConfigError for another text."""
    try:
        version = msgspec.json.decode(text, type=dict[str, Any]).get("format")
        table = msgspec.json.decode(text, type=CostTable)
    except msgspec.DecodeError as error:
        raise ConfigError(f"{where}: not a table of costs: {error}; {ADVICE}") from error
    if version != FORMAT:
        raise ConfigError(f"{where}: has format {version}, this version reads {FORMAT}; {ADVICE}")
    for name, points in table.kernels.items():
        if not points or len({len(point) for point in points}) != 1 or len(points[0]) < 2:
            raise ConfigError(f"{where}: kernel '{name}': its points have no common length; {ADVICE}")
    return table if table.held else replace(table, error=0.0)


def read_table(path: str | Path) -> CostTable:
    """Return the cost table of a file; raises ConfigError for an unreadable or other file."""
    return parse_table(read_text(Path(path), ConfigError), str(path))


def is_file_of_costs(costs: str) -> bool:
    """Whether `Target.costs` names a file, and no packaged table."""
    return costs.endswith(".json")


def save_table(table: CostTable, path: str | Path) -> None:
    """Write the file of a table; raises ConfigError if it cannot be written."""
    write_atomically(path, table_text(table))


def costs_on(target: str, here: Processor) -> CostTable | None:
    """Return the packaged table of a target's kernels on a processor, or None."""
    names = (file.name for file in resources.files(PLACE).joinpath("costs").iterdir())
    tables = (costs_of(name.removesuffix(".1.json")) for name in sorted(names) if name.endswith(".1.json"))
    for table in tables:
        made = None if table is None else table.conditions
        if made is not None and made.target == target and here.has_kernels_of(made.processor):
            return table
    return None


@cache
def costs_of(target: str, threads: int = 1) -> CostTable | None:
    """Return the packaged table of a name, or None if it is missing for this number of threads."""
    name = f"{target}.{threads}.json"
    file = resources.files(PLACE).joinpath("costs", name)
    return parse_table(file.read_text(encoding="utf-8"), f"configs/costs/{name}") if file.is_file() else None
