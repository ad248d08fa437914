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
from ..base.findings import Code, Finding
from ..base.tool import note


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
    """The name, type and shape that a model expects of one of its inputs.

    Attributes:
        name: of the graph input.
        dtype: numpy type of the elements; `object` for strings.
        shape: a number for a fixed dimension, a name or None for a free one; None for an unknown rank.
        rows: of what integers select from, such as an embedding; 1 where the model does not say how
            many, None for what selects nothing.
        fed_by: name of the output that looks like its value in the next step (`state_output`); "" for none.
        has_rows: whether a free first axis can be that of the rows of a batch; where no output has a free
            first axis it is another one, that of time, or of letters.
    """

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int | str | None, ...] | None
    rows: int | None = None
    fed_by: str = ""
    has_rows: bool = True

    def __str__(self) -> str:
        return f"{type_text(self.dtype)} of shape {shape_text(self.shape)}"


Box = tuple[float, float, float, float]
"""x0, y0, x1, y1, in pixels."""


class OriginalPicture(NamedTuple):
    """A picture as a person knows it.

    Attributes:
        content: of a small picture file.
        media_type: of that file, as "image/jpeg".
        size: width and height.
        box: the whole of it as x0, y0, x1, y1 in pixels of the model's input; beyond these where it is
            cropped. None where that is not known.
    """

    content: bytes
    media_type: str
    size: tuple[int, int]
    box: Box | None


@dataclass(frozen=True, eq=False)
class Original:
    """One row of a sample as a person knows it, before arrays were made of it.

    Attributes:
        input: name of the input that was made of it; "" for several.
        text: a text, or the fields of a row of a table; "" for what is none.
        picture: reads the picture, made smaller where a side has more pixels than the number given; None for
            what is no picture. It raises DataError where the file can no longer be read.
    """

    input: str = ""
    text: str = ""
    picture: Callable[[int], OriginalPicture] | None = None


@dataclass(frozen=True, eq=False)
class Sample:
    """One sample: the inputs of a model in one run.

    Attributes:
        name: where it comes from, for messages; the file or folder name, "module:function[3]", or "data[3]".
        arrays: by input name, in the order of the model's inputs.
        step: number of the step in its sequence, from 0, where a state goes from step to step; else None.
        next_tokens: of a text, the token that follows each one of the sample, int64 of shape [tokens],
            -1 where it ends; None for what is no text, or goes on after it.
        position: among all samples, counted from 0, where a limit drew it from them; None where the samples
            are the first ones, or all.
        originals: that its rows were made of, one for each; () where nobody knows.
    """

    name: str
    arrays: Mapping[str, npt.NDArray[Any]]
    _: KW_ONLY
    step: int | None = None
    next_tokens: npt.NDArray[np.int64] | None = None
    position: int | None = None
    originals: tuple[Original, ...] = ()

    def first_row(self, rows: int, samples_before: int, rows_before: int) -> int:
        """Return the position of its first row in all of the data, for its labels.

        `rows` are those of this sample, `rows_before` those of all `samples_before`. DataError if samples
        were drawn that have different numbers of rows, so that the position is unknown.
        """
        if self.position is None:
            return rows_before
        each = rows_before // samples_before if samples_before else rows
        if each * samples_before != rows_before or rows > each:
            raise DataError(
                f"{self.name}: has {rows} rows, and samples before it have {each}: of samples that are drawn "
                "from all of them labels can be found only where all have as many; leave the limit out, or "
                "give others to judge on, with labels of their own: --holdout-data DATA"
            )
        return self.position * each


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
        findings: what was assumed to read them, as "where: what; how to choose otherwise".
        state: the inputs that take an output of the step before, with the names of the outputs.
        pick: gives the samples of some numbers, in order, where that is cheaper than one after the other.
        parts: names of the elements of an input along one axis, such as the columns of a table, by input.
        rates: samples a second of signals, by input.
    """

    source: str
    total: int | None
    iterate: Callable[[slice], Iterator[Sample]]
    place: str = ""
    findings: tuple[Finding, ...] = ()
    state: Mapping[str, str] = field(default_factory=dict)
    pick: Callable[[frozenset[int]], Iterator[Sample]] | None = None
    parts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    rates: Mapping[str, int] = field(default_factory=dict)

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
        """Yield the samples at some positions, ascending, with these; those beyond the last one are left out.

        Only these files are read; from a function or an object, all items up to the last.
        """
        if not positions:
            return  # an iterator can be read only once: for nothing it is not
        if self.pick is not None:
            yield from zip(positions, self.pick(frozenset(positions)), strict=False)
        elif self.place and self.total is not None:
            yield from ((at, sample) for at in positions for sample in self.iterate(slice(at, at + 1)))
        else:
            among, last = frozenset(positions), max(positions)
            samples = enumerate(self.iterate(slice(0, last + 1)))
            yield from ((at, sample) for at, sample in samples if at in among)

    def chosen(self, positions: tuple[int, ...], *, drawn: bool = False) -> Samples:
        """Return the samples at some positions, ascending, read as by `numbered`.

        With `drawn`, the samples have their positions. DataError while iterating if the source has fewer
        samples now.
        """

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

    def drawn(self, limit: int, *, notes: bool = True) -> Samples:
        """Return `limit` of the samples, spread over all; from a stream, whose end is unknown, the first.

        Data often lies in order: a folder for each class, the windows of one recording after another, a table
        sorted by its answer. So the order is cut in `limit` equal parts, and one sample is drawn from each
        part, by the place of the part and not at random: the same data and limit give the same samples, and
        only these are read.
        """
        total = self.total
        if total is None or total <= limit:
            return self.part(0, limit)
        if notes:
            sentence = f"{self.source}: {limit} of {total} samples, spread over all of them"
            figures = {"samples": limit, "of": total}
            note(Finding(Code.SAMPLES_DRAWN, sentence, self.source, figures))
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
    """Return the rows of a batch; None if there is none.

    All inputs of a batch have one and the same free leading dimension, and the arrays agree on it.
    """
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
    """Refuse a sample that lacks an input, or has an array that is none."""
    names = [spec.name for spec in specs]
    expected = ", ".join(f"'{name}'" for name in names) or "none"
    extra = [str(name) for name in arrays if name not in names]
    for spec in specs:
        if spec.name not in arrays:
            held = ", ".join(f"'{name}'" for name in arrays) or "nothing"
            misspelt = next((name for name in extra if nearest(name, [spec.name])), None)
            advice = f" Rename '{misspelt}' to '{spec.name}'?" if misspelt is not None else ""
            raise DataError(
                f"{where}: input '{spec.name}' is missing, expected {spec}; the sample holds {held}: "
                f"name its arrays after the model's inputs, {expected}.{advice}"
            )
    if extra:
        raise DataError(
            f"{where}: holds '{extra[0]}', which is not an input of the model; its inputs are {expected}: "
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
        raise DataError(f"{where}: holds Python objects, expected {spec}; give an array of numbers")
    elif dtype != spec.dtype and not _is_raw(dtype, spec.dtype):
        raise DataError(
            f"{where}: has type {type_text(dtype)}, expected {type_text(spec.dtype)}; "
            "nothing is cast silently: convert it where the data is made"
        )
    if spec.shape is None:
        return
    if len(spec.shape) != len(shape):
        advice = "reshape it where the data is made"
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
                advice = (
                    "split the data into its rows, or profile it with --by-row (by_row=True in Python), "
                    "which does so"
                )
            raise DataError(
                f"{where}: has shape {shape_text(shape)}, expected {shape_text(spec.shape)}: "
                f"dimension {axis} is {size} and the model fixes it at {wanted}; "
                f"{_order_advice(shape, spec.shape) or advice}"
            )


def _is_raw(dtype: np.dtype[Any], wanted: np.dtype[Any]) -> bool:
    """Return whether elements are `wanted` in the form of numpy's files: raw bytes, as those of bfloat16."""
    raw = dtype.kind == "V" and dtype.names is None and dtype.itemsize == wanted.itemsize
    return raw and wanted.kind == "V"


ORDERS = {"NHWC": (0, 3, 1, 2), "NCHW": (0, 2, 3, 1)}
"""Orders of the axes of pictures, and the transposition that makes the other one of each."""


def _order_advice(shape: tuple[int, ...], wanted: tuple[int | str | None, ...]) -> str:
    """Return advice about pictures whose channels are on the other side; "" for others."""
    if len(wanted) != 4 or len(shape) not in (3, 4):
        return ""
    lacks_batch = len(shape) == 3
    for name, order in ORDERS.items():
        axes = tuple(axis - 1 for axis in order[1:]) if lacks_batch else order
        turned = tuple(shape[axis] for axis in axes)
        channels = wanted[1 if name == "NHWC" else 3]
        if channels in (1, 3, 4) and fits((1, *turned) if lacks_batch else turned, wanted):
            return f"it looks like {name[lacks_batch:]}: turn it with array.transpose{axes}"
    return ""


def fits(shape: Sequence[int], wanted: Sequence[int | str | None]) -> bool:
    """Return whether a shape is one that an input takes."""
    return len(shape) == len(wanted) and all(
        size == want or not isinstance(want, int) for size, want in zip(shape, wanted, strict=True)
    )
