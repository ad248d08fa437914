"""Where the external data of a model lies: in its folder, or where the model file is a link, in that of its
target (as model hubs store them); nowhere else."""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path

import onnx
import onnx_ir as ir

from ....profiles.base.errors import ModelError
from .protobuf import all_tensors, is_outside, read_proto
from .tensor_data import bytes_needed


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
    return str(_entries(tensor).get("location", ""))


def _entries(tensor: onnx.TensorProto) -> dict[str, str]:
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


def located(tensor: ir.ExternalTensor, path: str | os.PathLike[str]) -> ir.ExternalTensor:
    """Return a tensor of a model file that knows its folder as an absolute path.

    So it is found after a change of the current folder, and where the files are links.
    """
    file = Path(path)
    folder = _folder_of(file, os.fspath(tensor.location))
    real = os.path.realpath(file.parent / tensor.location)
    is_here = folder == os.path.abspath(file.parent)
    return ir.ExternalTensor(
        tensor.location if is_here else os.path.relpath(real, folder),
        tensor.offset,
        tensor.length,
        tensor.dtype,
        shape=tensor.shape,
        name=tensor.name or "",
        base_dir=folder,
    )


def _number(tensor: onnx.TensorProto, key: str, path: Path) -> int | None:
    text = _entries(tensor).get(key)
    if text is None:
        return None
    if not (text.isascii() and text.isdecimal()) or len(text) > 18:
        raise ModelError(
            f"{path}: tensor '{tensor.name}': the {key} of its data is '{text}', not a number of bytes; "
            "export the model again"
        )
    return int(text)
