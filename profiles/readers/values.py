"""Samples, and what a model expects of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt


class ArrayHeader(NamedTuple):
    """What a file says of an array before its elements."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """Bytes of the elements."""
        return math.prod(self.shape) * self.dtype.itemsize


@dataclass(frozen=True)
class InputSpec:
    """What a model expects of one of its inputs.

    Attributes:
        name: of the graph input.
        dtype: numpy type of the elements; `object` for strings.
        shape: a number for a fixed dimension, a name or None for a free one; None for an unknown rank.
        rows: of what integers select from, such as an embedding; 1 where the model does not say how
            many, None for what selects nothing.
    """

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int | str | None, ...] | None
    rows: int | None = None

    def __str__(self) -> str:
        return f"{type_text(self.dtype)} of shape {shape_text(self.shape)}"


@dataclass(frozen=True, eq=False)
class Sample:
    """One sample: what a model is fed with in one run.

    Attributes:
        name: where it comes from, for messages; the file or folder name, "module:function[3]", or "data[3]".
        arrays: by input name, in the order of the model's inputs.
    """

    name: str
    arrays: Mapping[str, npt.NDArray[Any]]


@dataclass(frozen=True)
class Samples:
    """Samples that are read, or computed, one at a time while they are iterated.

    A folder can be iterated again; so can a function, which is called anew each time, and an object of Python
    that is no iterator.

    Attributes:
        source: folder, "module:function", or "data" for an object; for messages.
        total: number of samples, None where only iterating tells.
        iterate: gives a fresh iterator over some of the samples. Files that are not among them are not read;
            a function is called all the same, and an object iterated.
        place: absolute path of the folder, without links; "" for what is not a folder.
        notes: what was assumed to read them, as "where: what; how to choose otherwise".
    """

    source: str
    total: int | None
    iterate: Callable[[slice], Iterator[Sample]]
    place: str = ""
    notes: tuple[str, ...] = ()

    def __iter__(self) -> Iterator[Sample]:
        return self.iterate(slice(None))

    def part(self, start: int, stop: int | None = None, step: int = 1) -> Samples:
        """Return every `step`-th of the samples from `start` to before `stop`, counted from 0."""
        chosen = slice(start, stop, step)
        total = None if self.total is None else len(range(self.total)[chosen])
        return replace(self, total=total, iterate=lambda inner: self._part_of(chosen, inner))

    def _part_of(self, chosen: slice, inner: slice) -> Iterator[Sample]:
        if self.total is None:
            return islice(self.iterate(chosen), inner.start, inner.stop, inner.step)
        numbers = range(self.total)[chosen][inner]
        return self.iterate(slice(numbers.start, numbers.stop, numbers.step))


def shape_text(shape: Iterable[int | str | None] | None) -> str:
    """Return a shape as messages have it, "?" for a free dimension."""
    if shape is None:
        return "of any rank"
    dims = ["?" if d is None else str(d) for d in shape]
    return f"({', '.join(dims)}{',' if len(dims) == 1 else ''})"


def type_text(dtype: np.dtype[Any]) -> str:
    """Return the name of an element type as messages have it."""
    if dtype.kind == "O":
        return "string"
    return dtype.name if dtype.isnative else f"{dtype.name} in foreign byte order"
