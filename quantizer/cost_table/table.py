"""Measured times of a runtime's kernels on one machine, and their file.

A file is JSON with one line for each kernel, so that two tables can be compared line by line. Packaged ones
are `configs/costs/TARGET.THREADS.json`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from pathlib import Path

import msgspec

from ...profiles.base.atomic_files import read_text
from ...profiles.base.errors import ConfigError
from .interpolation import Point, Surface

FORMAT = 1
"""Version of the file."""

PLACE = "qprof_onnx.configs"

ADVICE = "measure the machine again with 'qprof measure-target'"


@dataclass(frozen=True)
class Conditions:
    """What a table was measured under.

    Attributes:
        target: name of the target whose kernels these are.
        processor: family of the processor, with the instruction sets that matter.
        runtime: name and version.
        threads: threads inside an operator.
    """

    target: str
    processor: str
    runtime: str
    threads: int


@dataclass(frozen=True, eq=False)
class CostTable:
    """Measured times of kernels.

    Attributes:
        conditions: under which they were measured.
        kernels: name of a kernel (see `costs.kernels`) -> points: sizes, and last the microseconds.
    """

    conditions: Conditions
    kernels: Mapping[str, tuple[Point, ...]]
    _surfaces: dict[str, Surface] = field(default_factory=dict, repr=False)

    def microseconds(self, kernel: str, sizes: tuple[float, ...]) -> float | None:
        """Return the time of a kernel at sizes, None where it was not measured."""
        if kernel not in self.kernels:
            return None
        if kernel not in self._surfaces:
            self._surfaces[kernel] = Surface(self.kernels[kernel])
        return self._surfaces[kernel].at(sizes)


class _File(msgspec.Struct, forbid_unknown_fields=True):
    format: int
    conditions: Conditions
    kernels: dict[str, list[list[float]]]


def table_text(table: CostTable) -> str:
    """Return a table as the text of its file."""
    conditions = json.dumps(msgspec.to_builtins(table.conditions))
    lines = [
        f" {json.dumps(name)}: {json.dumps([[_short(n) for n in point] for point in points], separators=(',', ':'))}"
        for name, points in sorted(table.kernels.items())
    ]
    kernels = ",\n".join(lines)
    return f'{{"format": {FORMAT},\n"conditions": {conditions},\n"kernels": {{\n{kernels}\n}}}}\n'


def _short(number: float) -> float | int:
    """Return a number with four digits, as an integer where it is one."""
    rounded = float(f"{number:.4g}") if number != int(number) else number
    return int(rounded) if rounded == int(rounded) else rounded


def parse_table(text: str, where: str) -> CostTable:
    """Return the table that a file holds.

    Raises:
        ConfigError: it is no table of costs.
    """
    try:
        file = msgspec.json.decode(text, type=_File)
    except msgspec.DecodeError as error:
        raise ConfigError(f"{where}: not a table of costs: {error}; {ADVICE}") from error
    if file.format != FORMAT:
        raise ConfigError(f"{where}: has format {file.format}, this version reads {FORMAT}; {ADVICE}")
    for name, points in file.kernels.items():
        if not points or len({len(point) for point in points}) != 1 or len(points[0]) < 2:
            raise ConfigError(f"{where}: kernel '{name}': its points have no common length; {ADVICE}")
    kernels = {name: tuple(tuple(point) for point in points) for name, points in file.kernels.items()}
    return CostTable(file.conditions, kernels)


def read_table(path: str | Path) -> CostTable:
    """Return the table of a file.

    Raises:
        ConfigError: it cannot be read, or is no table of costs.
    """
    return parse_table(read_text(Path(path), ConfigError), str(path))


@cache
def costs_of(target: str, threads: int = 1) -> CostTable | None:
    """Return the packaged table of a target, None where it has none for this number of threads."""
    name = f"{target}.{threads}.json"
    file = resources.files(PLACE).joinpath("costs", name)
    return parse_table(file.read_text(encoding="utf-8"), f"configs/costs/{name}") if file.is_file() else None
