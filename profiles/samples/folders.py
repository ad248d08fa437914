"""Samples on disk: which files of a folder are samples, and the arrays in each of them."""

from __future__ import annotations

import re
import tokenize
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..base.errors import DataError

LAYOUTS = "expected .npz files, .npy files, input_*.pb files or test_data_set_* folders"

_BROKEN = (
    OSError,
    ValueError,
    EOFError,
    SyntaxError,
    tokenize.TokenError,
    zipfile.BadZipFile,
    zlib.error,
    NotImplementedError,
    RuntimeError,
    MemoryError,
)
"""What numpy and zipfile raise for files that are cut off, damaged, encrypted or something else."""


def sample_paths(folder: Path) -> list[Path]:
    """Return the samples of a folder in natural order: `.npz` and `.npy` files, or folders of `input_*.pb`.

    Hidden files are passed over.

    Raises:
        DataError: no such folder, it cannot be read, it has no samples, or it has more than one layout.
    """
    if not folder.is_dir():
        problem = "is a file" if folder.exists() else "no such folder"
        raise DataError(f"{folder}: {problem}; give a folder of samples ({LAYOUTS}) or module:function")
    try:
        entries = sorted((p for p in folder.iterdir() if not p.name.startswith(".")), key=natural)
    except OSError as error:
        raise DataError(f"{folder}: cannot be read: {error.strerror}; check its permissions") from error
    arrays = [p for p in entries if p.suffix.lower() in (".npz", ".npy") and p.is_file()]
    data_sets = [p for p in entries if p.is_dir() and re.fullmatch(r"test_data_set_.*", p.name)]
    single = [folder] if any(_input_number(p) is not None for p in entries) else []
    layouts = [layout for layout in (arrays, data_sets, single) if layout]
    if not layouts:
        held = f"holds '{entries[0].name}' but no samples" if entries else "is empty"
        raise DataError(f"{folder}: {held}; {LAYOUTS}")
    if len(layouts) > 1:
        mixed = " and ".join(f"'{layout[0].name}'" for layout in layouts)
        raise DataError(
            f"{folder}: holds more than one kind of samples ({mixed}); give a folder with one kind"
        )
    return layouts[0]


def is_sample_name(name: str) -> bool:
    """Return whether a file of this name in a folder of samples is, or is part of, a sample."""
    return name.lower().endswith((".npz", ".npy")) or _input_number(Path(name)) is not None


def natural(path: Path) -> tuple[list[tuple[int, str]], str]:
    """Return a sort key that puts "2" before "10"."""
    parts = re.split(r"([0-9]+)", path.name)
    return [(int(part), "") if number % 2 else (0, part) for number, part in enumerate(parts)], path.name


def read_npz(path: Path) -> dict[str, Any]:
    """Return the arrays of an `.npz` file by name.

    Raises:
        DataError: the file is broken, or holds something else than arrays of plain numbers or text.
    """
    arrays: dict[str, Any] = {}
    name = None
    try:
        with zipfile.ZipFile(path) as check:  # a plain .npy under the wrong name ends here
            members = check.namelist()
        if len(set(members)) != len(members):
            raise DataError(f"{path}: holds an array twice; write the file again")
        with np.load(path, allow_pickle=False) as file:
            for name in file.files:
                arrays[name] = file[name]
    except _BROKEN as error:
        raise _unreadable(
            path if name is None else f"{path}: array '{name}'", error, "an .npz file"
        ) from error
    return arrays


def read_npy(path: Path, names: tuple[str, ...]) -> dict[str, Any]:
    """Return the array of an `.npy` file as the sample of a model with one input.

    Raises:
        DataError: the model has not one input, or the file is broken or holds pickled objects.
    """
    if len(names) != 1:
        inputs = ", ".join(f"'{name}'" for name in names) or "none"
        raise DataError(
            f"{path}: an .npy file holds one array, and the model has {len(names)} inputs ({inputs}); "
            "save each sample with numpy.savez, arrays named after the inputs"
        )
    try:
        with open(path, "rb") as file:
            array = np.lib.format.read_array(file, allow_pickle=False)
            rest = file.read(1)
    except _BROKEN as error:
        raise _unreadable(path, error, "an .npy file") from error
    if rest:
        raise DataError(f"{path}: has more data after its array; save one array a file with numpy.save")
    return {names[0]: array}


def _unreadable(where: object, error: BaseException, kind: str) -> DataError:
    text = str(error)
    if "allow_pickle" in text:
        return DataError(
            f"{where}: holds pickled Python objects, which are never loaded; save arrays of plain numbers"
        )
    first = text.splitlines()[0] if text else type(error).__name__
    return DataError(f"{where}: is broken or not {kind} ({first}); write the file again")


def read_data_set(folder: Path, names: tuple[str, ...]) -> dict[str, npt.NDArray[Any]]:
    """Return the `input_*.pb` files of a folder as one sample.

    If every tensor is named after an input, the names count; otherwise input_0.pb is the first input,
    and so on, as in the test data of ONNX.

    Raises:
        DataError: the folder has none, one is broken, or it has more than the model has inputs.
    """
    files = sorted((number, path) for path in folder.iterdir() if (number := _input_number(path)) is not None)
    if not files:
        raise DataError(f"{folder}: holds no input_*.pb; {LAYOUTS}")
    tensors = [(number, path, *_read_pb(path)) for number, path in files]
    named = [name for _, _, name, _ in tensors]
    if set(named) <= set(names) and len(set(named)) == len(named):
        return {name: array for _, _, name, array in tensors}
    arrays: dict[str, npt.NDArray[Any]] = {}
    for number, path, _, array in tensors:
        if number >= len(names) or names[number] in arrays:
            inputs = ", ".join(f"'{name}'" for name in names) or "none"
            raise DataError(
                f"{path}: the model has no input number {number}; its inputs are {inputs}: remove the file"
            )
        arrays[names[number]] = array
    return arrays


def _input_number(path: Path) -> int | None:
    match = re.fullmatch(r"input_([0-9]+)\.pb", path.name)
    return int(match[1]) if match else None


def _read_pb(path: Path) -> tuple[str, npt.NDArray[Any]]:
    import onnx
    from google.protobuf.message import DecodeError

    try:
        tensor = onnx.TensorProto.FromString(path.read_bytes())
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            raise DataError(f"{path}: keeps its data in another file; save the tensor with its data")
        return tensor.name, onnx.numpy_helper.to_array(tensor)
    except (OSError, DecodeError, ValueError, TypeError, KeyError) as error:
        text = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise DataError(
            f"{path}: is broken or not an ONNX TensorProto ({text}); write the file again"
        ) from error
