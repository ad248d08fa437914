"""Samples on disk: which files of a folder are samples, and which of them belong together."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy.typing as npt

from ...base.errors import DataError
from ...base.names import natural_key
from .files import read_pb

ARRAYS = (".npz", ".npy")
LAYOUTS = "expected .npz files, .npy files, input_*.pb files or test_data_set_* folders"


def sample_paths(folder: Path) -> list[Path]:
    """Return the samples of a folder in natural order: `.npz` and `.npy` files, or folders of `input_*.pb`.

    Hidden files are passed over. An `.npz` or `.npy` file instead of a folder is one sample.

    Raises:
        DataError: no such folder, it cannot be read, it has no samples, or it has more than one layout.
    """
    if folder.suffix.lower() in ARRAYS and folder.is_file():
        return [folder]
    if not folder.is_dir():
        problem = "is a file" if folder.exists() else "no such folder"
        raise DataError(f"{folder}: {problem}; give a folder of samples ({LAYOUTS}) or FILE.py:FUNCTION")
    try:
        entries = sorted(
            (p for p in folder.iterdir() if not p.name.startswith(".")),
            key=lambda path: natural_key(path.name),
        )
    except OSError as error:
        raise DataError(f"{folder}: cannot be read: {error.strerror}; check its permissions") from error
    arrays = [p for p in entries if p.suffix.lower() in ARRAYS and p.is_file()]
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


def holds_arrays(source: str) -> bool:
    """Return whether a source is a file of arrays, or a folder that holds some."""
    path = Path(source)
    if path.suffix.lower() in ARRAYS and path.is_file():
        return True
    with suppress(OSError):
        names = (name for name in os.listdir(source) if name[0] != ".")
        return any(is_array_name(name) or re.fullmatch(r"test_data_set_.*", name) for name in names)
    return False


def is_array_name(name: str) -> bool:
    """Return whether a file of this name in a folder of samples is, or is part of, a sample."""
    return name.lower().endswith(ARRAYS) or _input_number(Path(name)) is not None


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
    tensors = [(number, path, *read_pb(path)) for number, path in files]
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
