"""Samples on disk: which files of a folder are samples, and which of them belong together."""

from __future__ import annotations

import re
from typing import Any

import numpy.typing as npt

from ...base.errors import DataError
from ...base.names import natural_key
from ...storage.files import (
    DataFile,
    data_file,
    data_files,
    entries_of,
    exists,
    is_file,
    is_folder,
    joined,
    shown_location,
)
from .files import read_pb

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
        problem = "is a file" if exists(source) else "no such folder or file"
        raise DataError(f"{folder}: {problem}; give a folder of samples ({LAYOUTS}) or FILE.py:FUNCTION")
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
