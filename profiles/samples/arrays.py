"""Samples from files of arrays."""

from __future__ import annotations

import math
import os
import re
import struct
import tokenize
import zipfile
import zlib
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import Enum
from itertools import accumulate
from typing import IO, Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
from msgspec import Meta

from ..base.errors import DataError, natural_key, nearest_path
from .batches import fixed_batch, in_batches
from .preprocessing import Preprocessing, recipe_of
from .storage import (
    DataFile,
    data_file,
    data_files,
    entries_of,
    exists,
    is_file,
    is_folder,
    joined,
    place_of,
    shown_location,
)
from .values import (
    ArrayHeader,
    InputSpec,
    Sample,
    Samples,
    check_header,
    check_names,
    checked_arrays,
    fits,
    shape_text,
)

# Arrays in files: `.npz`, `.npy` and `.pb`; what a file says of an array is checked before it is read.
#
# Nothing is unpickled. Whatever numpy, zipfile and protobuf raise on a damaged file becomes a DataError
# that names the file and what to do.

try:
    from lzma import LZMAError
except ImportError:  # Python was built without it
    LZMAError = zlib.error  # type: ignore[misc, assignment]

BROKEN = (
    OSError,  # the file, and its parts that lie outside of it
    EOFError,  # cut off
    ValueError,  # numpy, on headers and lengths; UnicodeDecodeError is one
    TypeError,  # numpy, on shapes that are no numbers; onnx, on types that are none
    LookupError,  # onnx, on unknown types
    AttributeError,  # numpy, on header entries of another type
    ArithmeticError,  # lengths beyond 64 bits
    SyntaxError,  # numpy reads headers as Python literals
    tokenize.TokenError,  # and those of Python 2 by tokens
    RuntimeError,  # zipfile, on encrypted members; NotImplementedError and RecursionError are of it
    MemoryError,
    struct.error,
    zipfile.BadZipFile,
    zlib.error,
    LZMAError,
)
"""What numpy, zipfile and onnx raise for files that are cut off, damaged, encrypted or something else."""

DEFLATE_RATIO = 1032
"""Bytes that a byte of deflated data can become at most (zlib's technical details)."""


CheckHeaders = Callable[[str, Mapping[str, ArrayHeader]], None]
"""Takes what names a sample, and the headers of its arrays by input name; raises DataError."""


def read_npz(source: DataFile, check: CheckHeaders) -> dict[str, Any]:
    """Return the arrays of an `.npz` file by name.

    Args:
        source: the file.
        check: called with the headers of all arrays before one of them is unpacked.

    Raises:
        DataError: the file is broken, or holds something else than arrays of plain numbers or text; what
            `check` raises.
    """
    with _readable(source, "an .npz file"), source.open() as whole, zipfile.ZipFile(whole) as archive:
        members = _members(source, archive)
        check(str(source), _npz_headers(source, archive))
        arrays = {}
        for name, info in members.items():
            where = f"{source}: array '{name}'"
            with _readable(where, "an .npz file"), archive.open(info) as file:
                arrays[name] = np.lib.format.read_array(file, allow_pickle=False)
                file.read(1)  # the checksum is compared at the end
    return arrays


def _members(source: DataFile, archive: zipfile.ZipFile) -> dict[str, zipfile.ZipInfo]:
    members = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
    if len(members) != len(archive.infolist()):
        raise DataError(f"{source}: holds an array twice; write the file again")
    return members


def _npz_headers(source: DataFile, archive: zipfile.ZipFile) -> dict[str, ArrayHeader]:
    headers = {}
    for name, info in _members(source, archive).items():
        where = f"{source}: array '{name}'"
        with _readable(where, "an .npz file"), archive.open(info) as file:
            _check_ratio(info)
            headers[name] = _header(where, file, info.file_size)
    return headers


def headers_of(source: DataFile, names: tuple[str, ...]) -> dict[str, ArrayHeader]:
    """Return the headers of the arrays of an `.npz` file by name, or that of an `.npy` file by the one input.

    Raises:
        DataError: see `read_npz` and `read_npy`.
    """
    if source.suffix == ".npz":
        with _readable(source, "an .npz file"), source.open() as whole, zipfile.ZipFile(whole) as archive:
            return _npz_headers(source, archive)
    _check_one_input(source, names)
    with _readable(source, "an .npy file"), source.open() as file:
        return {names[0]: _header(str(source), file, _size(file))}


def _check_one_input(source: DataFile, names: tuple[str, ...]) -> None:
    if len(names) != 1:
        inputs = ", ".join(f"'{name}'" for name in names) or "none"
        raise DataError(
            f"{source}: an .npy file holds one array, and the model has {len(names)} inputs ({inputs}); "
            "save each sample with numpy.savez, arrays named after the inputs"
        )


def read_npy(source: DataFile, names: tuple[str, ...], check: CheckHeaders) -> dict[str, Any]:
    """Return the array of an `.npy` file as the sample of a model with one input.

    Raises:
        DataError: the model has not one input, or the file is broken or holds pickled objects; what `check`
            raises.
    """
    _check_one_input(source, names)
    with _readable(source, "an .npy file"), source.open() as file:
        check(str(source), {names[0]: _header(str(source), file, _size(file))})
        file.seek(0)
        array = np.lib.format.read_array(file, allow_pickle=False)
        rest = file.read(1)
    if rest:
        raise DataError(f"{source}: has more data after its array; save one array a file with numpy.save")
    return {names[0]: array}


def read_pb(source: DataFile) -> tuple[str, npt.NDArray[Any]]:
    """Return name and array of a file that holds an ONNX TensorProto.

    Raises:
        DataError: it does not, or is damaged, or keeps its data elsewhere.
    """
    import onnx
    from google.protobuf.message import DecodeError

    with _readable(source, "an ONNX TensorProto", DecodeError):
        tensor = onnx.TensorProto.FromString(source.read())
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            raise DataError(f"{source}: keeps its data in another file; save the tensor with its data")
        return tensor.name, onnx.numpy_helper.to_array(tensor)


def _size(file: IO[bytes]) -> int:
    """Return the bytes of a file that is at its beginning."""
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    return size


@contextmanager
def _readable(where: object, kind: str, *others: type[Exception]) -> Iterator[None]:
    """Turn whatever is raised on a damaged file into a DataError."""
    kinds: tuple[type[Exception], ...] = (*BROKEN, *others)
    try:
        yield
    except kinds as error:
        if isinstance(error, OSError) and error.strerror:
            raise DataError(f"{where}: cannot be read: {error.strerror}; check the file") from error
        text = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise DataError(f"{where}: is broken or not {kind} ({text}); write the file again") from error


def _header(where: str, file: IO[bytes], size: int) -> ArrayHeader:
    """Return the header at the start of a file of `size` bytes, if an array can follow it.

    Raises:
        DataError: it cannot. Any of `BROKEN`: there is no header.
    """
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
            raise ValueError("its header is no type, order and shape") from error
        if "max_header_size" not in str(error):
            raise
        raise DataError(
            f"{where}: has a header of more than 10000 characters, where type and shape take a hundred; "
            "save plain arrays with numpy.save"
        ) from error
    if any(type(dim) is not int or dim < 0 for dim in shape):
        raise ValueError(f"shape {shape}")
    if dtype.hasobject:
        raise DataError(
            f"{where}: holds pickled Python objects, which are never loaded; save arrays of plain numbers"
        )
    header = ArrayHeader(dtype, shape)
    if header.nbytes > size - file.tell():
        raise ValueError(f"its header says {header.nbytes} bytes, {size - file.tell()} follow")
    if header.nbytes > _machine_bytes():
        raise DataError(
            f"{where}: takes {header.nbytes / 1e9:.1f} GB unpacked, more than this machine's memory; "
            "split the data"
        )
    return header


def _check_ratio(info: zipfile.ZipInfo) -> None:
    """Raise a ValueError where a member claims to be larger than its compressed bytes can be."""
    ratio = {zipfile.ZIP_STORED: 1, zipfile.ZIP_DEFLATED: DEFLATE_RATIO}.get(info.compress_type)
    if ratio is not None and info.file_size > ratio * info.compress_size:
        raise ValueError(f"{info.compress_size} compressed bytes cannot be {info.file_size}")


def _machine_bytes() -> float:
    """Return the bytes of this machine's memory, infinity where it does not say."""
    try:
        return float(os.sysconf("SC_PAGE_SIZE")) * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return math.inf


# What the arrays of a file are to a model: a sample, one row, rows of a batch, or several samples.

BATCH_NAMES = r"(?i)n|b|bs|bsz|.*batch.*"
"""Names that exporters give to a free number of rows."""

Shape = Sequence[int | str | None]


class Content(Enum):
    """What a file holds."""

    SAMPLE = "one sample"
    ROW = "one row, without an axis of rows"
    ROWS = "rows, each to be run on its own or in batches of the model's size"
    ITEMS = "samples along another axis"


def content_of(headers: Mapping[str, ArrayHeader], inputs: Sequence[InputSpec]) -> Content:
    """Return what the arrays of a file are to a model; a sample where they do not fit at all.

    Args:
        headers: of the arrays, by input name.
        inputs: of the model.
    """
    if headers.keys() != {spec.name for spec in inputs} or any(spec.shape is None for spec in inputs):
        return Content.SAMPLE
    shapes = [(headers[spec.name].shape, spec.shape or ()) for spec in inputs]
    if all(fits(shape, wanted) for shape, wanted in shapes):
        return Content.SAMPLE
    if all(fits(shape, wanted) or _is_row(shape, wanted) for shape, wanted in shapes):
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


def _is_row(shape: Sequence[int], wanted: Shape) -> bool:
    return bool(wanted) and (wanted[0] == 1 or not isinstance(wanted[0], int)) and fits(shape, wanted[1:])


def are_rows(inputs: Sequence[InputSpec]) -> bool:
    """Return whether the leading dimensions of the inputs are free and named as the rows of a batch."""
    leading = {spec.shape[0] if spec.shape else 0 for spec in inputs}
    name = leading.pop() if len(leading) == 1 else 0
    return isinstance(name, str) and re.fullmatch(BATCH_NAMES, name) is not None


def described(headers: Mapping[str, ArrayHeader], inputs: Sequence[InputSpec]) -> str:
    """Return the shapes of a file and of the inputs, for notes."""
    parts = (
        f"{shape_text(headers[spec.name].shape)} for '{spec.name}' {shape_text(spec.shape)}"
        for spec in inputs
    )
    return ", ".join(parts)


# Samples on disk: which files of a folder are samples, and which of them belong together.

ARRAYS = (".npz", ".npy")
DATA_SET = re.compile("test_data_set_.*")
LAYOUTS = "expected .npz files, .npy files, input_*.pb files or test_data_set_* folders"


def sample_files(source: str) -> list[DataFile]:
    """Return the samples of a folder in natural order: `.npz` and `.npy` files, or folders of `input_*.pb`.

    Hidden files are passed over. An `.npz` or `.npy` file instead of a folder is one sample.

    Args:
        source: the folder or file, or its URL.

    Raises:
        DataError: no such folder, it cannot be read, it has no samples, or it has more than one layout.
    """
    whole, folder = data_file(source), shown_location(source)
    if whole.suffix in ARRAYS and is_file(source):
        return [whole]
    if not is_folder(source):
        if exists(source):
            raise DataError(f"{folder}: is a file; give a folder of samples ({LAYOUTS}) or FILE.py:FUNCTION")
        near = nearest_path(source)
        raise DataError(f"{folder}: no such folder or file; check the path, or give FILE.py:FUNCTION.{near}")
    names = sorted((name for name in entries_of(source) if not name.startswith(".")), key=natural_key)
    entries = [joined(source, name) for name in names]
    arrays = [e for e in entries if e.suffix in ARRAYS and not is_folder(e.location)]
    data_sets = [e for e in entries if DATA_SET.fullmatch(e.name) and is_folder(e.location)]
    single = [whole] if any(_input_number(name) is not None for name in names) else []
    layouts = [layout for layout in (arrays, data_sets, single) if layout]
    if not layouts:
        held = f"holds '{names[0]}' but no samples" if names else "is empty"
        raise DataError(f"{folder}: {held}; {LAYOUTS}")
    if len(layouts) > 1:
        mixed = " and ".join(f"'{layout[0].name}'" for layout in layouts)
        raise DataError(
            f"{folder}: holds more than one kind of samples ({mixed}); give a folder with one kind"
        )
    return layouts[0]


def holds_arrays(source: str) -> bool:
    """Return whether a source is a file of arrays, or a folder that holds some.

    Raises:
        DataError: a store does not answer, or a folder cannot be read.
    """
    if is_file(source):
        return data_file(source).suffix in ARRAYS
    names = entries_of(source) if is_folder(source) else ()
    return any(is_array_name(name) or DATA_SET.fullmatch(name) for name in names if name[:1] != ".")


def is_array_name(name: str) -> bool:
    """Return whether a file of this name in a folder of samples is, or is part of, a sample."""
    return name.lower().endswith(ARRAYS) or _input_number(name) is not None


def read_data_set(folder: DataFile, names: tuple[str, ...]) -> dict[str, npt.NDArray[Any]]:
    """Return the `input_*.pb` files of a folder as one sample.

    If every tensor is named after an input, the names count; otherwise input_0.pb is the first input,
    and so on, as in the test data of ONNX.

    Raises:
        DataError: the folder has none, one is broken, or it has more than the model has inputs.
    """
    entries = data_files(folder.location, (".pb",))
    files = [(number, file) for file in entries if (number := _input_number(file.name)) is not None]
    if not files:
        raise DataError(f"{folder}: holds no input_*.pb; {LAYOUTS}")
    tensors = [(number, file, *read_pb(file)) for number, file in files]
    named = [name for _, _, name, _ in tensors]
    if set(named) <= set(names) and len(set(named)) == len(named):
        return {name: array for _, _, name, array in tensors}
    arrays: dict[str, npt.NDArray[Any]] = {}
    for number, file, _, array in tensors:
        if number >= len(names) or names[number] in arrays:
            inputs = ", ".join(f"'{name}'" for name in names) or "none"
            raise DataError(
                f"{file}: the model has no input number {number}; its inputs are {inputs}: remove the file"
            )
        arrays[names[number]] = array
    return arrays


def _input_number(name: str) -> int | None:
    match = re.fullmatch(r"input_([0-9]+)\.pb", name)
    return int(match[1]) if match else None


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
            yield Sample(name, {spec.name: arrays[spec.name][chosen] for spec in self.specs}, step=row)


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
