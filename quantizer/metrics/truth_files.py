"""What metrics share in reading their truth: files of a folder by the names of samples, arrays, digests."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ...profiles.base.errors import ConfigError, DataError, QprofError
from .labels import Labels
from .table import NamedMetric
from .values import MetricSource, Place


def required(source: MetricSource) -> str:
    """Return the file of the truth; raise ConfigError where a metric that needs it has none."""
    if source.truth is None:
        raise ConfigError(
            f"metric '{source.asked.text}': needs the truth: {source.asked.kind.truth}; "
            "give it with --labels (labels= in Python)"
        )
    return source.truth


def digest_of(asked: NamedMetric, path: str | None, more: str = "", labels: Labels | None = None) -> str:
    """Return a digest of a metric: name, options and the bytes of its truth: a file, a folder or labels."""
    digest = hashlib.sha256(repr((asked.kind.name, asked.number, sorted(asked.options.items()))).encode())
    digest.update(more.encode())
    if labels is not None:
        digest.update(labels.classes.tobytes())
    for file in () if path is None else _files(Path(path)):
        digest.update(file.name.encode())
        digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()[:16]


def _files(path: Path) -> Sequence[Path]:
    return sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]


@dataclass(frozen=True, eq=False)
class ArrayTruth:
    """Arrays that are the truth of samples: one file for each sample, or the rows of one array.

    Attributes:
        path: file or folder.
        of: place of a sample and how many rows it has -> its array, and how many rows of the file it used.
        rows: of the one array; None for a folder.
    """

    path: str
    of: Callable[[Place, int], tuple[npt.NDArray[Any], int]]
    rows: int | None

    def check_rows(self, rows: int, cut: bool) -> None:
        """Raise DataError where the array has another number of rows than the samples (`Metric.finish`)."""
        if self.rows is not None and (rows > self.rows or (rows < self.rows and not cut)):
            raise DataError(
                f"{self.path}: {self.rows} rows, but the samples have {rows}; give one for each row"
            )


def array_truth(path: str, readers: Mapping[str, Callable[[Path], npt.NDArray[Any]]]) -> ArrayTruth:
    """Return the arrays of a file, one for each row of the samples, or of a folder, by the samples' names.

    Args:
        path: file or folder.
        readers: suffix of a file, such as ".npy" -> what reads it.

    Raises:
        DataError: there is no such file, it cannot be read, or the folder has none of these. When it is used:
            a sample has no file.
    """
    place = Path(path)
    if not place.is_dir():
        whole = _read(place, readers)
        return ArrayTruth(path, lambda at, rows: (whole[at.row : at.row + rows], rows), len(whole))
    files, stem_once = by_stem(place, tuple(readers)), stems(path)

    def of(at: Place, rows: int) -> tuple[npt.NDArray[Any], int]:
        file = files.get(stem_once(at.name))
        if file is None:
            raise DataError(
                f"{path}: has no file for sample {at.name}; name each after its sample, as in "
                f"{stem_of(at.name)}{next(iter(readers))}"
            )
        return _read(file, readers), 0

    return ArrayTruth(path, of, None)


def by_stem(folder: Path, suffixes: Sequence[str]) -> dict[str, Path]:
    """Return the files of a folder by their names without suffix; raise DataError where there is none."""
    files = {f.stem: f for f in sorted(folder.iterdir()) if f.suffix.lower() in suffixes}
    if not files:
        raise DataError(f"{folder}: holds no {' or '.join(suffixes)} file; check the folder of the truth")
    return files


def stem_of(name: str) -> str:
    """Return the name of a sample without folder and suffix."""
    return Path(os.fspath(name)).stem


def stems(path: str) -> Callable[[str], str]:
    """Return a function that gives the stem of a sample's name, and refuses that of another sample.

    Args:
        path: of the truth, for messages.

    Raises:
        DataError, in that function: two samples have one stem, as a/1.jpg and b/1.jpg, or rows of one file.
    """
    known: dict[str, str] = {}

    def stem(name: str) -> str:
        found = stem_of(name)
        if known.setdefault(found, name) != name:
            raise DataError(
                f"{path}: samples {known[found]} and {name} would both have the truth of '{found}'; "
                "give each file a name of its own, in samples and truth"
            )
        return found

    return stem


def _read(file: Path, readers: Mapping[str, Callable[[Path], npt.NDArray[Any]]]) -> npt.NDArray[Any]:
    reader = readers.get(file.suffix.lower())
    if reader is None:
        raise DataError(f"{file}: is no {' or '.join(readers)} file; give one, or a folder of them")
    try:
        return reader(file)
    except QprofError:
        raise
    except Exception as error:  # NumPy parses headers as Python, which may raise anything
        text = " ".join(str(error).split())[:200] or type(error).__name__
        raise DataError(f"{file}: cannot be read: {text}; check the file of the truth") from error


def read_npy(file: Path) -> npt.NDArray[Any]:
    """Return the array of an .npy file of numbers; raise ValueError for another one."""
    with file.open("rb") as stream:
        if stream.read(2) == b"PK":
            raise ValueError("it is a zip archive (.npz) and not one array")
    found = np.load(file, mmap_mode="r", allow_pickle=False)
    if not isinstance(found, np.ndarray) or found.dtype.kind not in "fiub" or not found.ndim:
        raise ValueError("it holds no array of numbers")
    return found


def read_text(path: str) -> str:
    """Return a text file; raise DataError where it cannot be read."""
    try:
        return Path(path).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read as text: {error}; check the file") from error


def read_picture(file: Path) -> npt.NDArray[Any]:
    """Return a picture as its file has it: uint8 or uint16 of shape [height, width] or [height, width, 3].

    Palette numbers stay numbers: masks of classes are often stored so.
    """
    try:
        from PIL import Image
    except ModuleNotFoundError as error:
        raise DataError(
            f"{file}: reading pictures needs Pillow; install it with: pip install 'qprof-onnx[metrics]'"
        ) from error
    with Image.open(file) as picture:
        return np.asarray(picture)
