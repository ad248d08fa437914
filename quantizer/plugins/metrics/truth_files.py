"""Truth about samples: files of a folder by the names of samples, or the rows of one array."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ....profiles.base.errors import DataError, QprofError
from ....profiles.base.extras import library
from ....profiles.samples.registry import column_of
from ...evaluation.metrics.truth import Place, table_and_column

OfSample = Callable[[Place, int], tuple[npt.NDArray[Any], int]]
"""place, rows -> the true array, rows of the file used."""


def array_truth(
    path: str, readers: Mapping[str, Callable[[Path], npt.NDArray[Any]]]
) -> tuple[OfSample, Callable[[int, bool], None]]:
    """Return the arrays of a file, one for each row of the samples, or of a folder, by the samples' names.

    The second function raises DataError if a file and the samples differ in their rows (`Metric.finish`).
    """
    place = Path(path)
    if not place.is_dir():
        whole = _read_truth(place, readers)

        def check_rows(rows: int, cut: bool) -> None:
            if rows > len(whole) or (rows < len(whole) and not cut):
                raise DataError(
                    f"{path}: {len(whole)} rows, but the samples have {rows}; give one for each row"
                )

        return lambda at, rows: (whole[at.row : at.row + rows], rows), check_rows
    files, unique_stem = files_by_stem(place, tuple(readers)), unique_stems(path)

    def of_sample(at: Place, rows: int) -> tuple[npt.NDArray[Any], int]:
        file = files.get(unique_stem(at.name))
        if file is None:
            raise DataError(
                f"{path}: has no file for sample {at.name}; name each after its sample, as in "
                f"{stem_of(at.name)}{next(iter(readers))}"
            )
        return _read_truth(file, readers), 0

    return of_sample, lambda rows, cut: None


def files_by_stem(folder: Path, suffixes: Sequence[str]) -> dict[str, Path]:
    """Return the files of a folder by their names without suffix; DataError for an empty folder."""
    files = {f.stem: f for f in sorted(folder.iterdir()) if f.suffix.lower() in suffixes}
    if not files:
        raise DataError(f"{folder}: contains no {' or '.join(suffixes)} file; check the folder of the labels")
    return files


def stem_of(name: str) -> str:
    """Return the name of a sample without folder and suffix."""
    return Path(os.fspath(name)).stem


def unique_stems(path: str) -> Callable[[str], str]:
    """Return a function that gives the stem of a sample's name, and refuses that of another sample."""
    names: dict[str, str] = {}

    def unique_stem(name: str) -> str:
        stem = stem_of(name)
        if names.setdefault(stem, name) != name:
            raise DataError(
                f"{path}: samples {names[stem]} and {name} would both have the labels of '{stem}'; "
                "give each file a unique name, in samples and labels"
            )
        return stem

    return unique_stem


def _read_truth(file: Path, readers: Mapping[str, Callable[[Path], npt.NDArray[Any]]]) -> npt.NDArray[Any]:
    table, column = table_and_column(file)
    reader = readers.get(Path(table).suffix.lower())
    if reader is None:
        raise DataError(f"{file}: is no {' or '.join(readers)} file; give one, or a folder of them")
    try:
        cells = column_of(table, column) if column else ()
        return np.array([[float(str(cell))] for cell in cells]) if column else reader(file)
    except QprofError:
        raise
    except Exception as error:  # NumPy parses headers as Python, which may raise anything
        text = " ".join(str(error).split())[:200] or type(error).__name__
        raise DataError(f"{file}: cannot be read: {text}; check the file of labels") from error


def read_text(path: str) -> str:
    """Return a text file; DataError if it cannot be read."""
    try:
        return Path(path).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read as text: {error}; check the file") from error


def read_picture(file: Path) -> npt.NDArray[Any]:
    """Return a picture as its file has it: uint8 or uint16 of shape [height, width] or [height, width, 3]."""
    with library("PIL.Image", str(file), "metrics").open(file) as picture:
        return np.asarray(picture)
