"""The pictures of a data set as Ultralytics describes it: a `data.yaml`, or `data.yaml:val` for one split.

Ultralytics documents the file: `path` is the folder of the data set; `train`, `val` and `test` are each a
folder of pictures, a `.txt` file with a picture a line, or a list of these. The boxes of a picture are in the
file whose path has `/labels/` for `/images/` and ends with `.txt`.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from ..base import strict_yaml
from ..base.errors import DataError, MalformedError, nearest
from .objects import DataLike, PreprocessedData
from .storage import DataFile, data_files, is_url, joined, local_path

SPLITS = ("train", "val", "test")


def is_data_yaml(source: str) -> bool:
    """Return whether a source is a `data.yaml`, with or without the name of a split; looks at names alone."""
    path, _ = _split_of(source)
    named = path.lower().endswith((".yaml", ".yml")) and not is_url(path)
    return named and os.path.isfile(local_path(path))


def for_evaluation(data: DataLike) -> DataLike:
    """Return data to compare models on: the split val of a `data.yaml` that has one and names none."""
    if isinstance(data, PreprocessedData):
        return PreprocessedData(str(for_evaluation(data.source)), data.preprocess)
    if not isinstance(data, str | os.PathLike) or not is_data_yaml(os.fspath(data)):
        return data
    path, split = _split_of(os.fspath(data))
    return f"{path}:val" if not split and _read(path).get("val") else data


def pictures_of(source: str, suffixes: tuple[str, ...]) -> tuple[DataFile, ...]:
    """Return the pictures of a split, in its order; of train where none is named, or of val without that.

    A picture is named by its path in the data set, so that one name is one picture in all splits.

    Args:
        source: `data.yaml` or `data.yaml:SPLIT`.
        suffixes: endings of pictures, in lower case, with their dot.

    Raises:
        DataError: the file is no such description, has no such split, or names what does not exist.
    """
    path, split = _split_of(source)
    document = _read(path)
    split = split or next((name for name in SPLITS if document.get(name)), "")
    if not document.get(split):
        has = ", ".join(name for name in SPLITS if document.get(name))
        near = nearest(split, SPLITS)
        raise DataError(f"{source}: the file has no split '{split}'; choose one that it has: {has}.{near}")
    folder = _folder(path, document)
    found: list[DataFile] = []
    for entry in document[split] if isinstance(document[split], list) else [document[split]]:
        place = _place(path, split, folder, entry)
        if place.is_file():
            found += [_named(folder, at) for at in _listed(place)]
        else:
            found += [
                _named(folder, Path(file.location)) for file in data_files(str(place), suffixes, deep=True)
            ]
    return tuple(found)


def labels_of(source: str, suffixes: tuple[str, ...]) -> dict[str, tuple[Path, Path]]:
    """Return the picture and the file of its boxes, which need not exist, by the name of the picture.

    Args:
        source: `data.yaml:SPLIT`, or `data.yaml` for all splits.
        suffixes: as in `pictures_of`.

    Raises:
        DataError: as `pictures_of`.
    """
    path, split = _split_of(source)
    found: dict[str, tuple[Path, Path]] = {}
    for name in [split] if split else [name for name in SPLITS if _read(path).get(name)]:
        for file in pictures_of(f"{path}:{name}", suffixes):
            before, images, after = file.location.rpartition(f"{os.sep}images{os.sep}")
            beside = f"{before}{os.sep}labels{os.sep}{after}" if images else file.location
            found[file.name] = Path(file.location), Path(beside).with_suffix(".txt")
    return found


def _split_of(source: str) -> tuple[str, str]:
    path, _, split = source.rpartition(":")
    return (path, split) if path.lower().endswith((".yaml", ".yml")) else (source, "")


def _read(path: str) -> dict[str, Any]:
    try:
        document = strict_yaml.parse(Path(local_path(path)).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, MalformedError) as error:
        reason = " ".join(str(error).split())
        raise DataError(f"{path}: cannot be read as YAML ({reason}); correct it") from error
    if not isinstance(document, dict) or not any(document.get(name) for name in SPLITS):
        raise DataError(
            f"{path}: says no pictures; as data it is the data.yaml of a data set, with train: and val:; "
            "or give a folder of samples"
        )
    return document


def _folder(path: str, document: dict[str, Any]) -> Path:
    """Return the folder of the data set: `path`, from the folder of the file or from the current one."""
    beside = Path(local_path(path)).parent
    given = document.get("path")
    if not given:
        return beside
    places = [beside / str(given), Path(str(given))]
    found = next((place for place in places if place.is_dir()), None)
    if found is None:
        looked = " and ".join(dict.fromkeys(str(place) for place in places))
        raise DataError(
            f"{path}: path: {given}: no such folder ({looked}); download the data set, or correct path:"
        )
    return found


def _place(path: str, split: str, folder: Path, entry: object) -> Path:
    # Exports of labelling sites write ../train/images for what lies beside the file.
    text = str(entry)
    places = [folder / text, *([folder / text[3:]] if text.startswith("../") else [])]
    found = next((place for place in places if place.exists()), None)
    if found is None:
        raise DataError(
            f"{path}: {split}: {entry}: no such folder or file ({places[0]}); download the data set, "
            "or correct the path"
        )
    return found


def _listed(file: Path) -> list[Path]:
    """Return the pictures that a text file lists; those that begin with ./ lie beside it."""
    lines = file.read_text(encoding="utf-8").splitlines()
    listed = [file.parent / line.strip() for line in lines if line.strip()]
    for picture in listed:
        if not picture.is_file():
            raise DataError(f"{file}: {picture}: no such picture; download the data set, or correct the list")
    return listed


def _named(folder: Path, picture: Path) -> DataFile:
    name = os.path.relpath(picture, folder).replace(os.sep, "/")
    return joined(str(folder), name)
