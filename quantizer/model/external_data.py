"""Where the external data of a model lies: in its folder, or where the model file is a link, in that of its
target (as model hubs store them); nowhere else."""

from __future__ import annotations

import math
import os
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnx.numpy_helper
import onnx_ir as ir

from ...profiles.base.errors import ModelError
from .protobuf import all_tensors, is_outside, read_proto

# What a tensor of a model file says of itself: type, dimensions, and as much data as these need.

MOST_DIMENSIONS = 64
"""Dimensions that numpy knows at most."""

MOST_BYTES = 1 << 48
"""More bytes than a process can address: 2^48."""

MOST_DENSE = 1 << 28
"""Elements of a sparse initialiser that is made dense: 2^28 float32 values take 1 GiB."""

_TYPED_FIELDS = ("float_data", "int32_data", "int64_data", "double_data", "uint64_data", "string_data")
_FIELD_OF = {
    **{"FLOAT": "float_data", "COMPLEX64": "float_data", "INT64": "int64_data", "STRING": "string_data"},
    **dict.fromkeys(("DOUBLE", "COMPLEX128"), "double_data"),
    **dict.fromkeys(("UINT64", "UINT32"), "uint64_data"),
}
"""Field of the elements by type; int32_data for all others."""


def bytes_needed(tensor: onnx.TensorProto) -> int:
    """Return how many bytes the elements take, those of less than a byte packed. The type is known."""
    return (math.prod(map(int, tensor.dims)) * ir.DataType(tensor.data_type).bitwidth + 7) // 8


def check_tensor(tensor: onnx.TensorProto, where: str) -> None:
    """Check type, dimensions and the amount of data of a tensor.

    Args:
        tensor: of an initialiser or attribute.
        where: the file, for messages.

    Raises:
        ModelError: one of them cannot be.
    """
    where = f"{where}: tensor '{tensor.name}'"
    if tensor.data_type not in _known_types():
        raise ModelError(f"{where}: is of type {tensor.data_type}, which ONNX does not have; export it again")
    if len(tensor.dims) > MOST_DIMENSIONS:
        raise ModelError(
            f"{where}: has {len(tensor.dims)} dimensions; at most {MOST_DIMENSIONS} can be; export it again"
        )
    if any(dim < 0 for dim in tensor.dims):
        raise ModelError(f"{where}: has the dimensions {list(tensor.dims)}, one below 0; export it again")
    if ir.DataType(tensor.data_type) == ir.DataType.STRING:
        if is_outside(tensor) or tensor.HasField("raw_data"):
            raise ModelError(f"{where}: holds text as raw bytes, which ONNX does not allow; export it again")
    elif bytes_needed(tensor) > MOST_BYTES:
        raise ModelError(
            f"{where}: has the dimensions {list(tensor.dims)}, too many elements; export it again"
        )
    if not is_outside(tensor):
        _check_amount(tensor, where)


def check_sparse(sparse: onnx.SparseTensorProto, where: str) -> None:
    """Check a sparse tensor: dimensions that a dense one can have, and as many indices, inside, as values.

    Raises:
        ModelError: one of them cannot be.
    """
    values, indices, dims = sparse.values, sparse.indices, list(sparse.dims)
    for tensor in (values, indices):
        check_tensor(tensor, where)
    shape = list(indices.dims)
    fits = not is_outside(values) and not is_outside(indices) and len(values.dims) == 1
    fits = (
        fits
        and all(dim > 0 for dim in dims)
        and math.prod(dims) <= MOST_DENSE
        and len(dims) <= MOST_DIMENSIONS
    )
    if (
        fits
        and indices.data_type == onnx.TensorProto.INT64
        and shape in ([values.dims[0]], [values.dims[0], len(dims)])
    ):
        found = onnx.numpy_helper.to_array(indices)
        limits = math.prod(dims) if found.ndim == 1 else np.array(dims)
        if bool(np.all((found >= 0) & (found < limits))):
            return
    raise ModelError(
        f"{where}: sparse tensor '{values.name}' of dimensions {dims} has indices that do not fit, or too "
        "many elements; export the model with dense weights"
    )


def _check_amount(tensor: onnx.TensorProto, where: str) -> None:
    kind = ir.DataType(tensor.data_type)
    if tensor.HasField("raw_data"):
        twice = [name for name in _TYPED_FIELDS if len(getattr(tensor, name))]
        if twice:
            raise ModelError(f"{where}: has elements in raw_data and in {twice[0]}; export it again")
        have, need, unit = len(tensor.raw_data), bytes_needed(tensor), "bytes"
    else:
        have, need, unit = (
            len(getattr(tensor, _FIELD_OF.get(kind.name, "int32_data"))),
            _entries(tensor),
            "elements",
        )
    if have != need:
        raise ModelError(
            f"{where}: its type {kind.name.lower()} and its dimensions {list(tensor.dims)} take {need} "
            f"{unit}, and it has {have}; the file is damaged: export or download it again"
        )


def _entries(tensor: onnx.TensorProto) -> int:
    """Return how many numbers the typed field holds: two for a complex one, one for a byte of small ones."""
    kind, count = ir.DataType(tensor.data_type), math.prod(map(int, tensor.dims))
    if kind.name.startswith("COMPLEX"):
        return 2 * count
    return count if kind == ir.DataType.STRING or kind.bitwidth >= 8 else bytes_needed(tensor)


def _known_types() -> frozenset[int]:
    return frozenset(int(kind) for kind in ir.DataType if kind != ir.DataType.UNDEFINED)


def external_files(path: str | os.PathLike[str]) -> set[Path]:
    """Return the files beside a model in which its external data is, as the model names them.

    Raises:
        ModelError: the model cannot be read, or is no ONNX model.
    """
    return {Path(path).parent / location for location in _locations(os.fspath(path), _version(path))}


def _version(path: str | os.PathLike[str]) -> tuple[int, ...]:
    """Return what differs when a file is replaced or written to; () where there is none."""
    try:
        status = os.stat(path)
    except OSError:
        return ()
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


@lru_cache(maxsize=16)
def _locations(path: str, version: tuple[int, ...]) -> frozenset[str]:
    """Return the locations that a model names; kept, since one command asks several times for each file."""
    return frozenset(location_of(tensor) for tensor in all_tensors(read_proto(path)) if is_outside(tensor))


def location_of(tensor: onnx.TensorProto) -> str:
    """Return the name of the file that a tensor has its data in, "" where none is given."""
    return str(_entries_of_external(tensor).get("location", ""))


def _entries_of_external(tensor: onnx.TensorProto) -> dict[str, str]:
    return {entry.key: entry.value for entry in tensor.external_data}


def check_external(proto: onnx.ModelProto, path: str | os.PathLike[str]) -> None:
    """Check the external data of every tensor, whose type and dimensions are known to be right.

    Where it is is checked before anything of the file is looked up; then, that it is as long as it has to be.

    Raises:
        ModelError: a place outside the model's folder, a file that is missing or short, or no valid numbers.
    """
    for tensor in all_tensors(proto):
        if is_outside(tensor):
            _check(tensor, Path(path))


def _check(tensor: onnx.TensorProto, path: Path) -> None:
    where, location = f"{path}: tensor '{tensor.name}'", location_of(tensor)
    if not location:
        raise ModelError(f"{where}: has its data in a file that it does not name; export the model again")
    file = path.parent / location
    if not _is_beside(path, location):
        raise ModelError(
            f"{where}: has its data in '{location}', outside the model's folder; put that file beside the "
            "model and export it with a relative name"
        )
    if not file.is_file():
        raise ModelError(
            f"{where}: has its data in '{location}', which is missing; put that file beside the model"
        )
    offset, length, needed = (
        _number(tensor, "offset", path),
        _number(tensor, "length", path),
        bytes_needed(tensor),
    )
    if length not in (None, needed):
        raise ModelError(
            f"{where}: its type and dimensions take {needed} bytes, and its data in '{location}' has "
            f"{length}; export the model again"
        )
    end, size = (offset or 0) + needed, file.stat().st_size
    if size < end:
        raise ModelError(
            f"{file}: {size} bytes, but tensor '{tensor.name}' of {path.name} ends at byte {end}; the file "
            "is cut off, copy it again"
        )


def _is_beside(path: Path, location: str) -> bool:
    """Whether a location names a file in the model's folder, links followed, without touching the file."""
    parts = Path(location).parts
    if Path(location).is_absolute() or ".." in parts or "\0" in location:
        return False
    return bool(_folder_of(path, location))


def _folder_of(path: Path, location: str) -> str:
    """Return the folder of the model in which a location is, links followed, as an absolute path; "" if none.

    The folder is that of the file as it is named, or else that of the file that a link leads to.
    """
    real = os.path.realpath(path.parent / location)
    for folder in (os.path.abspath(path.parent), os.path.dirname(os.path.realpath(path))):
        if os.path.commonpath([real, os.path.realpath(folder)]) == os.path.realpath(folder):
            return folder
    return ""


class SharedFileTensor(ir.ExternalTensor):
    """A tensor whose data is a part of a file that is mapped into memory once, for all tensors in it.

    `ir.ExternalTensor` maps the whole file for each: 142 GB of addresses for 984 MB in 145 tensors, which a
    process with a limit (`ulimit -v`) does not get.
    """

    def __init__(self, tensor: ir.ExternalTensor, file: ir.ExternalTensor) -> None:
        """Take the part of a tensor.

        Args:
            tensor: as the model file has it.
            file: all bytes of the file, as one tensor.
        """
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
        """Return the elements; in memory of their own where they are of another type."""
        return self.numpy().__array__(dtype)

    def tobytes(self) -> bytes:
        """Return a copy of the bytes."""
        return self._bytes().tobytes()

    def release(self) -> None:
        """Close the map of the file, for all its tensors; the next that is read maps it again.

        Raises:
            BufferError: an array still refers to it, which stays valid.
        """
        super().release()
        self._file.release()


def shared_file(tensor: ir.ExternalTensor, path: str | os.PathLike[str]) -> ir.ExternalTensor:
    """Return all bytes of the file of a tensor, which knows its folder as an absolute path.

    So it is found after a change of the current folder, and where the files are links.

    Args:
        tensor: as the model file has it.
        path: of the model file.
    """
    file = Path(path)
    folder = _folder_of(file, os.fspath(tensor.location))
    real = os.path.realpath(file.parent / tensor.location)
    is_here = folder == os.path.abspath(file.parent)
    location = tensor.location if is_here else os.path.relpath(real, folder)
    size = os.path.getsize(real)
    shape = ir.Shape([size])
    return ir.ExternalTensor(
        location, 0, size, ir.DataType.UINT8, shape=shape, name=os.fspath(location), base_dir=folder
    )


def _number(tensor: onnx.TensorProto, key: str, path: Path) -> int | None:
    text = _entries_of_external(tensor).get(key)
    if text is None:
        return None
    if not (text.isascii() and text.isdecimal()) or len(text) > 18:
        raise ModelError(
            f"{path}: tensor '{tensor.name}': the {key} of its data is '{text}', not a number of bytes; "
            "export the model again"
        )
    return int(text)
