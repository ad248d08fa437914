"""External data of a model, in its folder or that of a link's target: all there, and mapped."""

from __future__ import annotations

import math
import mmap
import os
from contextlib import suppress
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import onnx
import onnx_ir as ir

from ...profiles.base.errors import ModelError
from .folders import is_within
from .protobuf import all_tensors, is_outside, read_proto

FLOAT_WEIGHT_TYPES = frozenset(
    number for number in ir.DataType if number.is_floating_point() and number.bitwidth >= 16
)
"""Types of weights that kernels multiply as floats."""

FEW_BIT_FLOATS = frozenset(
    number for number in ir.DataType if number.is_floating_point() and number.bitwidth < 16
)
"""Types of floating-point numbers with fewer than 16 bits."""

CONVERSIONS = b"uantizeLinear"
"""In the names of QuantizeLinear and DequantizeLinear."""


class _Tensors(NamedTuple):
    """Cached facts about the tensors of a model."""

    locations: frozenset[str]
    types: frozenset[int]
    float_bytes: int  # of those of `FLOAT_WEIGHT_TYPES`


def _tensors(proto: onnx.ModelProto) -> _Tensors:
    tensors = list(all_tensors(proto))
    return _Tensors(
        frozenset(map(location_of, filter(is_outside, tensors))),
        frozenset(tensor.data_type for tensor in tensors),
        sum(bytes_needed(tensor) for tensor in tensors if tensor.data_type in FLOAT_WEIGHT_TYPES),
    )


def _tensors_in(path: str | os.PathLike[str]) -> _Tensors:
    """Return those of a file, which is read again if it was replaced or written to."""
    try:
        status = os.stat(path)
    except OSError:
        return _kept(os.fspath(path), ())
    return _kept(os.fspath(path), (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns))


@lru_cache(maxsize=16)
def _kept(path: str, version: tuple[int, ...]) -> _Tensors:
    return _tensors(read_proto(path))


def external_files(path: str | os.PathLike[str]) -> set[Path]:
    """Return the files of a model's external data, as the model names them, beside the model."""
    return {Path(path).parent / location for location in _tensors_in(path).locations}


def _holds(path: str | os.PathLike[str], key: bytes) -> bool:
    """Whether a file that is not empty holds these bytes; it is mapped, and not parsed."""
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return content.find(key) >= 0


def float_weight_bytes(path: str | os.PathLike[str], least: int = 0) -> int:
    """Return the bytes of a model file's float constants, unread; 0 below `least` without another file."""
    with suppress(OSError, ValueError):  # an empty file cannot be mapped
        if os.path.getsize(path) < least and not _holds(path, b"location"):  # the key that names a file
            return 0
    return _tensors_in(path).float_bytes


def has_few_bit_floats(model: str | bytes, types: frozenset[int] = FEW_BIT_FLOATS) -> bool:
    """Whether constants of a model, also zero points, have one of these types; False for no readable file."""
    if isinstance(model, bytes):
        return CONVERSIONS in model and bool(types & _tensors(onnx.ModelProto.FromString(model)).types)
    with suppress(OSError, ValueError, ModelError):
        return _holds(model, CONVERSIONS) and bool(types & _tensors_in(model).types)
    return False


def location_of(tensor: onnx.TensorProto) -> str:
    """Return the name of the tensor's external data file, or "" without one."""
    return next((str(entry.value) for entry in reversed(tensor.external_data) if entry.key == "location"), "")


def bytes_needed(tensor: onnx.TensorProto) -> int:
    """Return how many bytes the elements take, those of less than a byte packed. The type is known."""
    return (math.prod(map(int, tensor.dims)) * ir.DataType(tensor.data_type).bitwidth + 7) // 8


def check_external(proto: onnx.ModelProto, path: str | os.PathLike[str]) -> None:
    """Check the external data of every tensor: the place before the file is accessed, then the length."""
    path = Path(path)
    for tensor in filter(is_outside, all_tensors(proto)):
        where, location = f"{path}: tensor '{tensor.name}'", location_of(tensor)
        if not location:
            raise ModelError(f"{where}: has its data in a file that it does not name; export the model again")
        # Links are followed; the file itself is not touched before its place is known to be right.
        is_relative = not (Path(location).is_absolute() or ".." in Path(location).parts or "\0" in location)
        if not (is_relative and _folder_of(path, location)):
            raise ModelError(
                f"{where}: has its data in '{location}', outside the model's folder; put that file beside "
                "the model and export it with a relative name"
            )
        file = path.parent / location
        if not file.is_file():
            raise ModelError(
                f"{where}: has its data in '{location}', which is missing; put that file beside the model"
            )
        place = {entry.key: entry.value for entry in tensor.external_data}
        numbers = {key: place[key] for key in ("offset", "length") if key in place}  # in bytes
        for key, text in numbers.items():
            if not (text.isascii() and text.isdecimal()) or len(text) > 18:
                raise ModelError(
                    f"{where}: the {key} of its data is '{text}', not a number of bytes; export the model "
                    "again"
                )
        needed = bytes_needed(tensor)
        if int(numbers.get("length", needed)) != needed:
            raise ModelError(
                f"{where}: its type and dimensions take {needed} bytes, and its data in '{location}' has "
                f"{int(numbers['length'])}; export the model again"
            )
        end, size = int(numbers.get("offset", 0)) + needed, file.stat().st_size
        if size < end:
            raise ModelError(
                f"{file}: {size} bytes, but tensor '{tensor.name}' of {path.name} ends at byte {end}; the "
                "file is cut off, copy it again"
            )


def _folder_of(path: Path, location: str) -> str:
    """Return the folder of the model, or of the file that it links to, that contains a location, or ""."""
    real = os.path.realpath(path.parent / location)
    for folder in (os.path.abspath(path.parent), os.path.dirname(os.path.realpath(path))):
        if is_within(real, os.path.realpath(folder)):
            return folder
    return ""


class SharedFileTensor(ir.ExternalTensor):
    """A tensor in a file that is mapped once: `ir.ExternalTensor` maps it for each, beyond `ulimit -v`."""

    def __init__(self, tensor: ir.ExternalTensor, file: ir.ExternalTensor) -> None:
        """Take the part of `tensor` from `file`, all bytes of a file as one tensor."""
        super().__init__(
            file.location,
            tensor.offset,
            tensor.length,
            tensor.dtype,
            shape=tensor.shape,
            name=tensor.name or "",
            base_dir=file.base_dir,
        )
        self._file = file

    def _bytes(self) -> npt.NDArray[np.uint8]:
        start = self.offset or 0
        return self._file.numpy()[start : start + self.nbytes]

    def numpy(self) -> npt.NDArray[Any]:
        """Return the elements, in the memory that the file is mapped to, read-only."""
        if self.dtype.bitwidth < 8 or not self.size:  # these are unpacked into memory, or have no bytes
            return super().numpy()
        dtype = np.dtype(self.dtype.numpy()).newbyteorder("<")
        return self._bytes().view(dtype).reshape(self.shape.numpy())

    def __array__(self, dtype: Any = None) -> npt.NDArray[Any]:
        """Return the elements; a copy if their type differs."""
        return self.numpy().__array__(dtype)

    def tobytes(self) -> bytes:
        """Return a copy of the bytes."""
        return self._bytes().tobytes()

    def release(self) -> None:
        """Close the map of the file, for all its tensors; the next tensor that is read maps it again."""
        super().release()
        self._file.release()


class WidenedTensor(ir.LazyTensor):
    """A constant of 16-bit floats as float32, computed at each reading: the model stays in a mapped file."""

    def __init__(self, narrow: ir.TensorProtocol) -> None:
        super().__init__(
            partial(_widened, narrow), ir.DataType.FLOAT, ir.Shape(narrow.shape.numpy()), name=narrow.name
        )
        self.narrow = narrow

    def first(self, count: int) -> npt.NDArray[np.float32]:
        """Keep the first n elements."""
        array: npt.NDArray[np.float32] = self.narrow.numpy().flat[:count].astype(np.float32)
        return array


def _widened(narrow: ir.TensorProtocol) -> ir.TensorProtocol:
    return ir.Tensor(narrow.numpy().astype(np.float32), dtype=ir.DataType.FLOAT, name=narrow.name)


def in_file(tensor: ir.TensorProtocol) -> ir.ExternalTensor | None:
    """Return the external tensor that backs a constant, or None."""
    source = tensor.narrow if isinstance(tensor, WidenedTensor) else tensor
    return source if isinstance(source, ir.ExternalTensor) else None


def shared_file(tensor: ir.ExternalTensor, path: str | os.PathLike[str]) -> ir.ExternalTensor:
    """Return all bytes of a tensor's file, found through links and after a change of the current folder."""
    file = Path(path)
    folder = _folder_of(file, os.fspath(tensor.location))
    real = os.path.realpath(file.parent / tensor.location)
    is_here = folder == os.path.abspath(file.parent)
    location = tensor.location if is_here else os.path.relpath(real, folder)
    size, name = os.path.getsize(real), os.fspath(location)
    return ir.ExternalTensor(
        location, 0, size, ir.DataType.UINT8, shape=ir.Shape([size]), name=name, base_dir=folder
    )
