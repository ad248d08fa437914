"""Arrays in files: `.npz`, `.npy` and `.pb`; what a file says of an array is checked before it is read.

Nothing is unpickled. Whatever numpy, zipfile and protobuf raise on a damaged file becomes a DataError that
names the file and what to do.
"""

from __future__ import annotations

import math
import os
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from ...base.errors import DataError
from ...storage.files import DataFile
from ..values import ArrayHeader

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
