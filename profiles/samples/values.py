"""Samples, and a model's expectations of them."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from itertools import islice, pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ..base.errors import DataError, nearest
from ..base.findings import Finding


class ArrayHeader(NamedTuple):
    """The header of an array in a file, before its elements."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """Bytes of the elements."""
        return math.prod(self.shape) * self.dtype.itemsize


@dataclass(frozen=True)
class InputSpec:
    """The name, type and shape that a model expects of one of its inputs."""

    name: str
    dtype: np.dtype[Any]  # object for strings
    shape: tuple[int | str | None, ...] | None  # a name or None for a free size; None for an unknown rank
    # that integers select from, as in an embedding; 1 if unknown, None if they select nothing
    rows: int | None = None
    fed_by: str = ""  # output that looks like its value in the next step (`state_output`)
    has_rows: bool = True  # False if a free first axis is one of time, or of letters
    recipe: str = "imagenet"  # built-in one for pictures, by the metadata of the model, or an example

    def __str__(self) -> str:
        return f"{type_text(self.dtype)} of shape {shape_text(self.shape)}"


Box = tuple[float, float, float, float]
"""x0, y0, x1, y1, in pixels."""


class OriginalPicture(NamedTuple):
    """A picture as a person knows it."""

    content: bytes
    media_type: str
    size: tuple[int, int]  # width, height
    box: Box | None  # of the whole picture in pixels of the model's input


@dataclass(frozen=True, eq=False)
class Original:
    """One row of a sample as a person knows it, before arrays were made of it."""

    input: str = ""  # made of it; "" for several
    text: str = ""
    picture: Callable[[int], OriginalPicture] | None = None  # reads it, with sides of at most so many pixels


@dataclass(frozen=True, eq=False)
class Sample:
    """One sample: the inputs of a model in one run."""

    name: str  # file, "module:function[3]", or "data[3]"
    arrays: Mapping[str, npt.NDArray[Any]]  # in the order of the model's inputs
    _: KW_ONLY
    step: int | None = None  # in its sequence, if a state goes from step to step
    next_tokens: npt.NDArray[np.int64] | None = None  # int64 [tokens], -1 where the text ends
    position: int | None = None  # among all samples, if a limit drew it
    originals: tuple[Original, ...] = ()  # one for each row, or none

    def first_row(self, rows: int, samples_before: int, rows_before: int) -> int:
        """Return the position of its first row in all of the data; DataError if it is unknown."""
        if self.position is None:
            return rows_before
        each = rows_before // samples_before if samples_before else rows
        if each * samples_before != rows_before or rows > each:
            raise DataError(
                f"{self.name}: has {rows} rows, but samples before it have {each}: labels can be assigned to "
                "drawn samples only if all samples have the same number of rows; leave the limit out, or "
                "pass held-out samples with their own labels: --holdout-data DATA"
            )
        return self.position * each


@dataclass(frozen=True)
class Samples:
    """Samples that are read, or computed, one at a time while they are iterated, each time anew."""

    source: str
    total: int | None  # None if only iterating tells
    iterate: Callable[[slice], Iterator[Sample]]  # a fresh iterator; other files are not read
    is_seekable: bool = False  # whether one sample is read without those before
    findings: tuple[Finding, ...] = ()
    # outputs of the step before, by the inputs that take them
    state: Mapping[str, str] = field(default_factory=dict)
    # those of some numbers, if that is cheaper than one after the other
    pick: Callable[[frozenset[int]], Iterator[Sample]] | None = None
    rates: Mapping[str, int] = field(default_factory=dict)  # samples a second of signals, by input

    def __iter__(self) -> Iterator[Sample]:
        return self.iterate(slice(None))

    def part(self, start: int, stop: int | None = None, step: int = 1) -> Samples:
        """Return every `step`-th of the samples from `start` to before `stop`, counted from 0."""
        chosen = slice(start, stop, step)

        def iterate(inner: slice) -> Iterator[Sample]:
            if self.total is None:
                return islice(self.iterate(chosen), inner.start, inner.stop, inner.step)
            numbers = range(self.total)[chosen][inner]
            return self.iterate(slice(numbers.start, numbers.stop, numbers.step))

        total = None if self.total is None else len(range(self.total)[chosen])
        return replace(self, total=total, iterate=iterate, pick=None)

    def numbered(self, positions: Sequence[int]) -> Iterator[tuple[int, Sample]]:
        """Yield the samples at some positions, ascending, with these; none beyond the last."""
        if not positions:
            return  # an iterator can be read only once: for nothing it is not
        if self.pick is not None:
            yield from zip(positions, self.pick(frozenset(positions)), strict=False)
        elif self.is_seekable and self.total is not None:
            yield from ((at, sample) for at in positions for sample in self.iterate(slice(at, at + 1)))
        else:
            among, last = frozenset(positions), max(positions)
            samples = enumerate(self.iterate(slice(0, last + 1)))
            yield from ((at, sample) for at, sample in samples if at in among)

    def chosen(self, positions: tuple[int, ...], *, drawn: bool = False) -> Samples:
        """Return the samples at some positions, ascending; with `drawn`, they know them."""

        def iterate(part: slice) -> Iterator[Sample]:
            wanted = positions[part]
            count = 0
            for at, sample in self.numbered(wanted):
                count += 1
                yield replace(sample, position=at) if drawn else sample
            if count < len(wanted):
                raise DataError(
                    f"{self.source}: had at least {max(wanted) + 1} samples when it was first read, and has "
                    f"{wanted[count]} or fewer now; give data that has the same samples each time it is read"
                )

        return replace(self, total=len(positions), iterate=iterate, pick=None)

    def drawn(self, limit: int) -> Samples:
        """Return `limit` of the samples, spread over all; from a stream, whose end is unknown, the first.

        One sample is drawn from each of `limit` equal parts by its place: data often lies in order.
        """
        total = self.total
        if total is None or total <= limit:
            return self.part(0, limit)
        return self.chosen(drawn_positions(total, limit), drawn=True)


def drawn_positions(total: int, limit: int) -> tuple[int, ...]:
    """Return the positions of `limit` of `total` samples, one in each of as many equal parts, ascending."""
    edges = [part * total // limit for part in range(limit + 1)]
    return tuple(
        start + int.from_bytes(hashlib.blake2b(f"{part}".encode(), digest_size=8).digest()) % (stop - start)
        for part, (start, stop) in enumerate(pairwise(edges))
    )


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


# Whether arrays fit a model: nothing is cast, reshaped or left out silently.


def checked_arrays(
    where: str, arrays: Mapping[Any, Any], specs: Sequence[InputSpec]
) -> dict[str, npt.NDArray[Any]]:
    """Return the arrays of a sample in the order of the inputs, if they fit them; else DataError."""
    _check_names(where, arrays, specs)
    checked = {}
    for spec in specs:
        array, named = arrays[spec.name], f"{where}: input '{spec.name}'"
        if not isinstance(array, np.ndarray):
            raise DataError(
                f"{named}: is of type {type(array).__name__}, expected a numpy array, {spec}; "
                "convert it with numpy.asarray"
            )
        _check_header(named, ArrayHeader(array.dtype, array.shape), spec)
        if array.dtype.kind == "O" and not all(isinstance(item, str) for item in array.flat):
            raise DataError(
                f"{named}: has {type_text(array.dtype)} elements, expected strings; give an array of str"
            )
        checked[spec.name] = array.view(spec.dtype) if _is_raw(array.dtype, spec.dtype) else array
    if batch_size(checked, specs) == 0:
        raise DataError(f"{where}: is a batch of no rows; leave the sample out")
    return checked


def batch_size(arrays: Mapping[str, npt.NDArray[Any]], specs: Sequence[InputSpec]) -> int | None:
    """Return the rows of a batch, whose inputs share one free leading dimension; None without such a
    dimension."""
    leading = leading_dimensions(specs)
    if len(leading) != 1 or isinstance(leading.pop(), int) or not all(spec.has_rows for spec in specs):
        return None
    rows = {array.shape[0] for array in arrays.values() if array.ndim}
    return rows.pop() if len(rows) == 1 else None


def leading_dimensions(specs: Sequence[InputSpec]) -> set[int | str | None]:
    """Return the leading dimensions of the inputs; that of a scalar and of an unknown rank is 0."""
    return {spec.shape[0] if spec.shape else 0 for spec in specs}


def of_batches(specs: Sequence[InputSpec]) -> tuple[InputSpec, ...]:
    """Return the inputs with a free batch if the model fixes 1 row: rows of batches run one by one."""
    if leading_dimensions(specs) != {1}:
        return tuple(specs)
    return tuple(replace(spec, shape=("rows", *(spec.shape or ())[1:]), has_rows=True) for spec in specs)


def with_leading_axes(array: npt.NDArray[Any], spec: InputSpec) -> npt.NDArray[Any]:
    """Return the array of one row with axes of 1 in front, to the rank of an input; with one if unknown."""
    rank = array.ndim + 1 if spec.shape is None else len(spec.shape)
    return array.reshape((1,) * (rank - array.ndim) + array.shape)


def _check_names(where: str, arrays: Mapping[Any, Any], specs: Sequence[InputSpec]) -> None:
    """Reject a sample that lacks an input, or has an array that is not an input."""
    names = [spec.name for spec in specs]
    expected = ", ".join(f"'{name}'" for name in names) or "none"
    extra = [str(name) for name in arrays if name not in names]
    for spec in specs:
        if spec.name not in arrays:
            held = ", ".join(f"'{name}'" for name in arrays) or "nothing"
            misspelt = next((name for name in extra if nearest(name, [spec.name])), None)
            advice = f" Rename '{misspelt}' to '{spec.name}'?" if misspelt is not None else ""
            raise DataError(
                f"{where}: input '{spec.name}' is missing, expected {spec}; the sample contains {held}: "
                f"name its arrays after the model's inputs, {expected}.{advice}"
            )
    if extra:
        raise DataError(
            f"{where}: contains '{extra[0]}', which is not an input of the model; its inputs are {expected}: "
            "remove the array"
        )


def check_headers(where: str, headers: Mapping[str, ArrayHeader], specs: Sequence[InputSpec]) -> None:
    """Refuse the arrays of a sample by their names, types and shapes only."""
    _check_names(where, headers, specs)
    for spec in specs:
        _check_header(f"{where}: input '{spec.name}'", headers[spec.name], spec)


def _check_header(where: str, header: ArrayHeader, spec: InputSpec) -> None:
    """Refuse an array by its type and shape only."""
    dtype, shape = header
    if spec.dtype.kind == "O":
        if dtype.kind not in "OU":
            raise DataError(
                f"{where}: has {type_text(dtype)} elements, expected strings; give an array of str"
            )
    elif dtype.kind == "O":
        raise DataError(f"{where}: contains Python objects, expected {spec}; give an array of numbers")
    elif dtype != spec.dtype and not _is_raw(dtype, spec.dtype):
        raise DataError(
            f"{where}: has type {type_text(dtype)}, expected {type_text(spec.dtype)}; "
            "qprof never casts silently: convert it in the code that makes the data"
        )
    if spec.shape is None:
        return
    if len(spec.shape) != len(shape):
        advice = "reshape it in the code that makes the data"
        if len(shape) + 1 == len(spec.shape):
            advice = _order_advice(shape, spec.shape) or "add the batch dimension"
        raise DataError(
            f"{where}: has shape {shape_text(shape)} of rank {len(shape)}, "
            f"expected {shape_text(spec.shape)} of rank {len(spec.shape)}; {advice}"
        )
    for axis, (size, wanted) in enumerate(zip(shape, spec.shape, strict=True)):
        if isinstance(wanted, int) and size != wanted:
            advice = "resize or split the data"
            if axis == 0 and wanted == 1 and size > 1:
                advice = "split the data into its rows, or profile it with --by-row, which does so"
            raise DataError(
                f"{where}: has shape {shape_text(shape)}, expected {shape_text(spec.shape)}: "
                f"dimension {axis} is {size} and the model fixes it at {wanted}; "
                f"{_order_advice(shape, spec.shape) or advice}"
            )


def _is_raw(dtype: np.dtype[Any], wanted: np.dtype[Any]) -> bool:
    """Return whether elements are `wanted` in the form of numpy's files: raw bytes, as those of bfloat16."""
    raw = dtype.kind == "V" and dtype.names is None and dtype.itemsize == wanted.itemsize
    return raw and wanted.kind == "V"


def _order_advice(shape: tuple[int, ...], wanted: tuple[int | str | None, ...]) -> str:
    """Return advice about pictures whose channels are on the other side; "" for others."""
    rows = len(shape) - 3
    for order, axes, channels in (("HWC", (2, 0, 1), 1), ("CHW", (1, 2, 0), 3)):
        if len(wanted) != 4 or rows not in (0, 1) or wanted[channels] not in (1, 3, 4):
            continue
        turned = (*range(rows), *(axis + rows for axis in axes))
        if fits([shape[axis] for axis in turned], wanted[1 - rows :]):
            return f"it looks like {'N' * rows}{order}: turn it with array.transpose{turned}"
    return ""


def fits(shape: Sequence[int], wanted: Sequence[int | str | None]) -> bool:
    """Return whether a shape is one that an input takes."""
    return len(shape) == len(wanted) and all(
        size == want or not isinstance(want, int) for size, want in zip(shape, wanted, strict=True)
    )
