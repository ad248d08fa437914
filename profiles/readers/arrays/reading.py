"""Samples from files of arrays."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Annotated, Any, Literal

import numpy.typing as npt
from msgspec import Meta

from ...base.errors import DataError
from ...storage.files import DataFile, is_file, place_of, shown_location
from ..batches import fixed_batch, in_batches
from ..checks import check_header, check_names, checked_arrays
from ..preprocessing import Preprocessing, recipe_of
from ..values import ArrayHeader, InputSpec, Sample, Samples
from .files import headers_of, read_npy, read_npz
from .folders import ARRAYS, read_data_set, sample_files
from .rows import Content, are_rows, content_of, described

Headers = Mapping[str, ArrayHeader]
Arrays = dict[str, npt.NDArray[Any]]


@dataclass(frozen=True)
class ArrayRecipe:
    """What the rows of arrays are, for a model with a free leading dimension."""

    rows: Annotated[
        Literal["split", "whole"] | None,
        Meta(
            description="split (each row is a sample) or whole (a file is a sample); else the rows of a "
            "single file are samples, where the model's dimension is named as a batch"
        ),
    ] = None


def open(source: str, inputs: Sequence[InputSpec], preprocessing: Preprocessing) -> Samples:
    """Return the samples of a folder of arrays, or of one file of them.

    A file is one sample, or: one row without the axis of rows; more rows than the model takes at a time,
    which are split, and put together to its batches; samples along another axis. What is done is noted.

    Args:
        source: a folder of `.npz` files (arrays named after the inputs), of `.npy` files (models with one
            input), of `input_*.pb` files as in the ONNX model zoo (one sample), or of `test_data_set_*`
            folders of those; or one `.npz` or `.npy` file; or its URL.
        inputs: what a sample must hold.
        preprocessing: a recipe for arrays, or none.

    Raises:
        ConfigError: the recipe is wrong.
        DataError: there is no such folder, or it has no samples. While iterating: a file is broken or holds
            pickled objects, or does not fit the inputs.
    """
    recipe = recipe_of(preprocessing, ArrayRecipe)
    specs, files = tuple(inputs), sample_files(source)
    place, shown = place_of(source), shown_location(source)
    first = _headers(files[0], specs)
    content = content_of(first, specs)
    named = f"{shown}: arrays of shape {described(first, specs)}" if first else shown
    if content in (Content.ROWS, Content.ITEMS) or _is_split(recipe, source, first, specs):
        rows = _rows_of(files, specs, content)
        size = fixed_batch(specs) if content is Content.ROWS else 1
        each = "each row is a sample" if size == 1 else f"{size} rows are a sample, as the model takes them"
        samples = Samples(shown, rows.total, rows.read, place, (f"{named}: {each}",))
        return in_batches(samples, specs) if size > 1 else samples
    notes = (f"{named}: each file is one row, and gets the axis of rows",) if content is Content.ROW else ()
    if not notes and is_file(source) and recipe.rows is None and _free_rows(first, specs) > 1:
        notes = (
            f"{named}: the file is one sample, as the model's leading dimension is not named as a batch; if "
            "its rows are samples, give a recipe with reader: array, rows: split",
        )
    return Samples(shown, len(files), lambda part: (_read(f, specs) for f in files[part]), place, notes)


def _headers(file: DataFile, specs: tuple[InputSpec, ...]) -> Headers:
    """Return the headers of a file; none of one that is broken, as reading it says."""
    if file.suffix not in ARRAYS:
        return {}
    try:
        found = headers_of(file, tuple(spec.name for spec in specs))
    except DataError:
        return {}
    return found if found.keys() == {spec.name for spec in specs} else {}


def _free_rows(headers: Headers, specs: Sequence[InputSpec]) -> int:
    """Return the rows of the arrays along a free leading dimension that is the same for all; else 0."""
    leading = {spec.shape[0] if spec.shape else 0 for spec in specs}
    rows = {header.shape[0] if header.shape else 0 for header in headers.values()}
    if len(leading) != 1 or len(rows) != 1 or isinstance(leading.pop(), int):
        return 0
    return rows.pop()


def _is_split(recipe: ArrayRecipe, source: str, headers: Headers, specs: Sequence[InputSpec]) -> bool:
    """Return whether the rows of samples that fit the model as they are become samples."""
    if not _free_rows(headers, specs) or content_of(headers, specs) is not Content.SAMPLE:
        return False
    alone = is_file(source) and _free_rows(headers, specs) > 1 and are_rows(specs)
    return recipe.rows == "split" or (recipe.rows is None and alone)


@dataclass(frozen=True)
class _Rows:
    """The rows of files, counted through.

    Attributes:
        files: in order.
        ends: number of the row after the last of each file.
        specs: what a row must hold.
        content: ROWS, or ITEMS.
    """

    files: Sequence[DataFile]
    ends: Sequence[int]
    specs: tuple[InputSpec, ...]
    content: Content

    @property
    def total(self) -> int:
        return self.ends[-1]

    def read(self, part: slice) -> Iterator[Sample]:
        """Yield some of the rows as samples; a file is read once as long as its rows follow each other."""
        held, arrays = -1, Arrays()
        for number in range(self.total)[part]:
            index = bisect_right(self.ends, number)
            if index != held:
                held, arrays = index, _unpacked(self.files[index], self.specs)
            row = number - (self.ends[index - 1] if index else 0)
            chosen: Any = row if self.content is Content.ITEMS else slice(row, row + 1)
            name = f"{self.files[index].name}[{row}]"
            yield Sample(name, {spec.name: arrays[spec.name][chosen] for spec in self.specs})


def _rows_of(files: Sequence[DataFile], specs: tuple[InputSpec, ...], content: Content) -> _Rows:
    """Return the rows of files.

    Raises:
        DataError: a file is broken, or has no rows as the first has.
    """
    counts = []
    for file in files:
        headers = headers_of(file, tuple(spec.name for spec in specs))
        if content_of(headers, specs) is not content:
            _check(str(file), headers, specs)
        counts.append(next(iter(headers.values())).shape[0])
    kept = Content.ITEMS if content is Content.ITEMS else Content.ROWS
    return _Rows(files, list(accumulate(counts)), specs, kept)


def _check(where: str, headers: Headers, specs: Sequence[InputSpec]) -> None:
    """Refuse arrays that do not fit a model as one sample."""
    check_names(where, headers, specs)
    for spec in specs:
        check_header(f"{where}: input '{spec.name}'", headers[spec.name], spec)


def _unpacked(file: DataFile, specs: tuple[InputSpec, ...]) -> Arrays:
    """Return the arrays of a file whose types fit, whatever their shapes."""
    names, file = tuple(spec.name for spec in specs), file.fetched()

    def check(where: str, headers: Headers) -> None:
        check_names(where, headers, specs)
        _check(where, headers, [replace(spec, shape=headers[spec.name].shape) for spec in specs])

    return read_npz(file, check) if file.suffix == ".npz" else read_npy(file, names, check)


def _read(file: DataFile, specs: tuple[InputSpec, ...]) -> Sample:
    """Return a file, or a folder of `.pb` files, as one sample."""
    names, file = tuple(spec.name for spec in specs), file.fetched()
    if file.suffix not in ARRAYS:
        arrays: Arrays = read_data_set(file, names)
    elif content_of(_headers(file, specs), specs) is Content.ROW:
        unpacked = _unpacked(file, specs)
        arrays = {
            spec.name: unpacked[spec.name].reshape(_with_row(unpacked[spec.name].shape, spec))
            for spec in specs
        }
    else:
        read = read_npz if file.suffix == ".npz" else lambda f, check: read_npy(f, names, check)
        arrays = read(file, lambda where, headers: _check(where, headers, specs))
    return Sample(file.name, checked_arrays(str(file), arrays, specs))


def _with_row(shape: tuple[int, ...], spec: InputSpec) -> tuple[int, ...]:
    return (1, *shape) if len(shape) < len(spec.shape or ()) else shape
