"""Samples from files of arrays."""

from __future__ import annotations

import math
import os
import re
import zipfile
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import Enum
from itertools import accumulate
from typing import IO, Any, Literal

import numpy as np
import numpy.typing as npt

from ..base.errors import DataError, QprofError, natural_key, nearest_path
from ..base.findings import Code, Finding
from ..records.check_samples import SUFFIX, is_samples_file
from .batches import fixed_batch, in_batches
from .preprocessing import Preprocessing, recipe_of
from .storage import DataFile, data_file, entries_of, exists, is_file, is_folder, joined, shown_location
from .values import (
    ArrayHeader,
    InputSpec,
    Sample,
    Samples,
    check_headers,
    checked_arrays,
    fits,
    leading_dimensions,
    shape_text,
)

# Arrays in files: `.npz` and `.npy`; what a file says of an array is checked before it is read.
#
# Nothing is unpickled. Whatever numpy and zipfile raise on a damaged file becomes a DataError
# that names the file and what to do.

DEFLATE_RATIO = 1032
"""Bytes that a byte of deflated data can become at most (zlib's technical details)."""


Arrays = dict[str, npt.NDArray[Any]]
Headers = Mapping[str, ArrayHeader]
"""By the name of an array, or of the input that takes it."""
CheckHeaders = Callable[[str, Headers], None]
"""Called with the name of a sample and the headers of its arrays; raises DataError."""


def read_npz(source: DataFile, check: CheckHeaders | None = None) -> dict[str, Any]:
    """Return the arrays of an `.npz` file by name, after `check` has accepted the headers of all of them."""
    with _readable(source, "an .npz file"), source.open() as whole, zipfile.ZipFile(whole) as archive:
        headers = _npz_headers(source, archive)
        if check is not None:
            check(str(source), headers)
        arrays = {}
        for info in archive.infolist():
            name = info.filename.removesuffix(".npy")
            with _readable(f"{source}: array '{name}'", "an .npz file"), archive.open(info) as file:
                arrays[name] = np.lib.format.read_array(file, allow_pickle=False)
                file.read(1)  # the checksum is compared at the end
    return arrays


def read_npy(source: DataFile, names: Sequence[str], check: CheckHeaders | None = None) -> dict[str, Any]:
    """Return the array of an `.npy` file as a sample of a model with one input; `check` sees the header."""
    _check_one_input(source, names)
    with _readable(source, "an .npy file"), source.open() as file:
        header = _header(str(source), file, _size(file))
        if check is not None:
            check(str(source), {names[0]: header})
        file.seek(0)
        array = np.lib.format.read_array(file, allow_pickle=False)
        rest = file.read(1)
    if rest:
        raise DataError(f"{source}: has more data after its array; save one array a file with numpy.save")
    return {names[0]: array}


def _headers_of(source: DataFile, names: Sequence[str]) -> Headers:
    """Return the headers of an `.npz` file by array name, or of an `.npy` file by the one input's name."""
    if source.suffix == ".npz":
        with _readable(source, "an .npz file"), source.open() as whole, zipfile.ZipFile(whole) as archive:
            return _npz_headers(source, archive)
    _check_one_input(source, names)
    with _readable(source, "an .npy file"), source.open() as file:
        return {names[0]: _header(str(source), file, _size(file))}


def _npz_headers(source: DataFile, archive: zipfile.ZipFile) -> Headers:
    members = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
    if len(members) != len(archive.infolist()):
        raise DataError(f"{source}: contains an array twice; write the file again")
    headers = {}
    for name, info in members.items():
        where = f"{source}: array '{name}'"
        with _readable(where, "an .npz file"), archive.open(info) as file:
            ratio = {zipfile.ZIP_STORED: 1, zipfile.ZIP_DEFLATED: DEFLATE_RATIO}.get(info.compress_type)
            if ratio is not None and info.file_size > ratio * info.compress_size:
                raise ValueError(f"{info.compress_size} compressed bytes cannot be {info.file_size}")
            headers[name] = _header(where, file, info.file_size)
    return headers


def _check_one_input(source: DataFile, names: Sequence[str]) -> None:
    if len(names) != 1:
        inputs = ", ".join(f"'{name}'" for name in names) or "none"
        raise DataError(
            f"{source}: an .npy file contains one array, but the model has {len(names)} inputs ({inputs}); "
            "save each sample with numpy.savez, arrays named after the inputs"
        )


def _size(file: IO[bytes]) -> int:
    """Return the bytes of a file that is at its beginning."""
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    return size


def _header(where: str, file: IO[bytes], size: int) -> ArrayHeader:
    """Return the header at the start of a file of `size` bytes, if an array can follow it."""
    readers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    version = np.lib.format.read_magic(file)
    if version not in readers:
        raise DataError(
            f"{where}: has .npy version {version[0]}.{version[1]}; save plain arrays with numpy.save"
        )
    try:
        shape, _, dtype = readers[version](file)
    except ValueError as error:
        if "malformed node" in str(error):
            raise ValueError("its header is not a type, an order and a shape") from error
        raise
    if any(type(dim) is not int or dim < 0 for dim in shape):
        raise ValueError(f"shape {shape}")
    if dtype.hasobject:
        raise DataError(
            f"{where}: contains pickled Python objects, which are never loaded; save arrays of plain numbers"
        )
    header = ArrayHeader(dtype, shape)
    if header.nbytes > size - file.tell():
        raise ValueError(f"its header states {header.nbytes} bytes, but {size - file.tell()} follow")
    if header.nbytes > machine_bytes():
        raise DataError(
            f"{where}: takes {header.nbytes / 1e9:.1f} GB unpacked, more than this machine's memory; "
            "split the data"
        )
    return header


def machine_bytes() -> float:
    """Return the bytes of this machine's memory, infinity if it is unknown."""
    try:
        return float(os.sysconf("SC_PAGE_SIZE")) * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return math.inf


@contextmanager
def _readable(where: object, kind: str) -> Iterator[None]:
    """Turn any error on a damaged file into a DataError."""
    try:
        yield
    except QprofError:
        raise
    except Exception as error:  # numpy, zipfile and onnx raise anything
        if isinstance(error, OSError) and error.strerror:
            raise DataError(f"{where}: cannot be read: {error.strerror}; check the file") from error
        text = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise DataError(f"{where}: is broken or not {kind} ({text}); write the file again") from error


# Samples on disk: which files of a folder are samples, and which of them belong together.

ARRAYS = (".npz", ".npy")
LAYOUTS = "pictures, .txt, .wav, .csv or .parquet files, or arrays as .npz or .npy files"


def holds_arrays(source: str) -> bool:
    """Return whether a source is a file of arrays, or a folder that contains some."""
    if is_file(source):
        return data_file(source).suffix in ARRAYS
    names = entries_of(source) if is_folder(source) else ()
    return any(_is_sample(source, name) for name in names)


def _is_sample(folder: str, name: str) -> bool:
    """Return whether a file holds arrays, is not hidden, and has not the check samples of a profile."""
    is_kept = name.endswith(SUFFIX) and is_samples_file(os.path.join(folder, name))
    return is_array_name(name) and name[:1] != "." and not is_kept


def is_array_name(name: str) -> bool:
    """Return whether a file of this name in a folder of samples is a sample."""
    return name.lower().endswith(ARRAYS)


def sample_files(source: str) -> list[DataFile]:
    """Return the files of a folder that are samples, in natural order."""
    whole, folder = data_file(source), shown_location(source)
    if whole.suffix in ARRAYS and is_file(source):
        return [whole]
    if not is_folder(source):
        if exists(source):
            raise DataError(f"{folder}: is no file of samples; give {LAYOUTS}, or FILE.py:FUNCTION")
        near = nearest_path(source)
        raise DataError(f"{folder}: no such folder or file; check the path, or give FILE.py:FUNCTION.{near}")
    names = sorted((name for name in entries_of(source) if not name.startswith(".")), key=natural_key)
    files = [joined(source, name) for name in names if _is_sample(source, name)]
    files = [file for file in files if not is_folder(file.location)]
    if not files:
        held = f"contains '{names[0]}' but no samples" if names else "is empty"
        raise DataError(f"{folder}: {held}; expected {LAYOUTS}")
    return files


# What the arrays of a file are to a model: a sample, one row, rows of a batch, or several samples.

BATCH_NAMES = r"(?i)n|b|bs|bsz|.*batch.*"
"""Names that exporters give to a free number of rows."""


class Content(Enum):
    """The content of a file."""

    SAMPLE = "one sample"
    ROW = "one row, without an axis of rows"
    ROWS = "rows, each to be run on its own or in batches of the model's size"
    ITEMS = "samples along another axis"


def _content_of(headers: Headers | Arrays, inputs: Sequence[InputSpec]) -> Content:
    """Return how a file's arrays fit the inputs of a model; `Content.SAMPLE` if they do not fit at all."""
    if headers.keys() != {spec.name for spec in inputs} or any(spec.shape is None for spec in inputs):
        return Content.SAMPLE
    shapes = [(headers[spec.name].shape, spec.shape or ()) for spec in inputs]
    if all(fits(shape, wanted) for shape, wanted in shapes):
        return Content.SAMPLE
    if all(
        fits(shape, wanted)
        or (wanted and (wanted[0] == 1 or not isinstance(wanted[0], int)) and fits(shape, wanted[1:]))
        for shape, wanted in shapes
    ):
        return Content.ROW
    leading = {shape[0] if shape else 0 for shape, _ in shapes}
    if len(leading) != 1 or not max(leading):
        return Content.SAMPLE
    if all(fits(shape[1:], wanted) and shape[1] in (1, wanted[0]) for shape, wanted in shapes if wanted):
        return Content.ITEMS
    if max(leading) > fixed_batch(inputs) and all(
        len(shape) == len(wanted) and fits(shape[1:], wanted[1:]) for shape, wanted in shapes
    ):
        return Content.ROWS
    return Content.SAMPLE


@dataclass(frozen=True)
class ArrayRecipe:
    """The meaning of the rows of arrays, for a model with a free leading dimension.

    Attributes:
        rows: split (each row is a sample) or whole (a file is a sample); else the rows of a single file are
            samples if the name of the model's dimension means a batch
    """

    rows: Literal["split", "whole"] | None = None


def open(source: str, inputs: Sequence[InputSpec], preprocessing: Preprocessing) -> Samples:
    """Return the samples of a folder of arrays, or of one file; a finding states the meaning of rows."""
    recipe = recipe_of(preprocessing, ArrayRecipe)
    specs, files = tuple(inputs), sample_files(source)
    shown = shown_location(source)
    headers = _headers_if_whole(files[0], specs)
    content = _content_of(headers, specs)
    held = ", ".join(
        f"{shape_text(headers[spec.name].shape)} for '{spec.name}' {shape_text(spec.shape)}"
        for spec in specs
        if headers
    )
    named = f"{shown}: arrays of shape {held}" if headers else shown

    # Arrays that fit the model as they are may be a batch, whose rows are samples: the recipe says so, or
    # there is a single file and the name of the model's leading dimension is one that batches have.
    leading = leading_dimensions(specs)
    lengths = {header.shape[0] if header.shape else 0 for header in headers.values()}
    dimension = leading.pop() if len(leading) == 1 else 0
    free_rows = lengths.pop() if len(lengths) == 1 and not isinstance(dimension, int) else 0
    is_split = False
    if free_rows and content is Content.SAMPLE:
        is_batch = isinstance(dimension, str) and re.fullmatch(BATCH_NAMES, dimension) is not None
        alone = recipe.rows is None and len(files) == 1 and free_rows > 1
        is_split = recipe.rows == "split" or (alone and is_batch)

    if content in (Content.ROWS, Content.ITEMS) or is_split:
        total, iterate = _rows_as_samples(files, specs, content)
        size = fixed_batch(specs) if content is Content.ROWS else 1
        each = "each row is a sample" if size == 1 else f"{size} rows are a sample (the model's batch size)"
        samples = Samples(
            shown, total, iterate, True, (Finding(Code.READING_ASSUMED, f"{named}: {each}", shown),)
        )
        return in_batches(samples, specs) if size > 1 else samples
    findings: tuple[Finding, ...] = ()
    if content is Content.ROW:
        sentence = f"{named}: each file is one row, and gets the axis of rows"
        findings = (Finding(Code.READING_ASSUMED, sentence, shown),)
    elif len(files) == 1 and recipe.rows is None and free_rows > 1:
        sentence = (
            f"{named}: the file is one sample, as the model's leading dimension is not named as a batch"
        )
        remedy = "if its rows are samples, give a recipe with reader: array, rows: split"
        findings = (Finding(Code.READING_ASSUMED, sentence, shown, remedy=remedy),)
    return Samples(shown, len(files), lambda part: (_read(f, specs) for f in files[part]), True, findings)


def _headers_if_whole(file: DataFile, specs: tuple[InputSpec, ...]) -> Headers:
    """Return the headers of a file by input; none if it is broken, which reading it reports."""
    try:
        headers = _headers_of(file, [spec.name for spec in specs])
    except DataError:
        return {}
    return headers if headers.keys() == {spec.name for spec in specs} else {}


def _rows_as_samples(
    files: Sequence[DataFile], specs: tuple[InputSpec, ...], content: Content
) -> tuple[int, Callable[[slice], Iterator[Sample]]]:
    """Return the number of rows of files, and a function that yields a slice of them as samples."""
    counts = []
    for file in files:
        headers = _headers_of(file, [spec.name for spec in specs])
        if _content_of(headers, specs) is not content:
            check_headers(str(file), headers, specs)
        counts.append(next(iter(headers.values())).shape[0])
    ends = list(accumulate(counts))  # of each file, the number of the row after its last

    def iterate(part: slice) -> Iterator[Sample]:
        held, arrays = -1, Arrays()  # a file is read once as long as its rows follow each other
        for number in range(ends[-1])[part]:
            index = bisect_right(ends, number)
            if index != held:
                held, arrays = index, _read_of_any_shape(files[index].fetched(), specs)
            row = number - (ends[index - 1] if index else 0)
            chosen: Any = row if content is Content.ITEMS else slice(row, row + 1)
            rows = {spec.name: arrays[spec.name][chosen] for spec in specs}
            yield Sample(f"{files[index].name}[{row}]", rows, step=row)

    return ends[-1], iterate


def _read(file: DataFile, specs: tuple[InputSpec, ...]) -> Sample:
    """Return a file as one sample."""
    file = file.fetched()
    arrays = _read_arrays(file, specs, row=True)
    if _content_of(arrays, specs) is Content.ROW:
        for spec in specs:
            if arrays[spec.name].ndim < len(spec.shape or ()):
                arrays[spec.name] = arrays[spec.name][None]
    return Sample(file.name, checked_arrays(str(file), arrays, specs))


def _read_of_any_shape(file: DataFile, specs: Sequence[InputSpec]) -> Arrays:
    return _read_arrays(file, _of_any_shape(specs))


def _of_any_shape(specs: Sequence[InputSpec]) -> list[InputSpec]:
    return [replace(spec, shape=None) for spec in specs]


def _read_arrays(file: DataFile, specs: Sequence[InputSpec], *, row: bool = False) -> Arrays:
    """Return the arrays of a file, if they fit inputs, or with `row` are one; checked, then unpacked."""

    def check(where: str, headers: Headers) -> None:
        is_row = row and _content_of(headers, specs) is Content.ROW
        check_headers(where, headers, _of_any_shape(specs) if is_row else specs)

    return read_npz(file, check) if file.suffix == ".npz" else read_npy(file, [s.name for s in specs], check)
