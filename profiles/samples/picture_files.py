"""Pictures on disk: their files, and the facts that each one's place tells.

Pictures are in a folder, whose subfolders may be their classes. Or the `data.yaml` of a data set lists them,
in the format of Ultralytics, or `data.yaml:val` for one split: `path` is the folder of the data set; `train`,
`val` and `test` are each a folder of pictures, a `.txt` file with a picture a line, or a list of these. The
boxes of a picture are in the file whose path has `/labels/` instead of `/images/` and ends with `.txt`.
"""

from __future__ import annotations

import io
import os
import shlex
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ..base import strict_yaml
from ..base.errors import DataError, MalformedError, natural_key, nearest
from ..base.findings import Code, Finding
from ..base.output_files import read_text
from ..base.tool import note
from .objects import DataLike, PreprocessedData
from .storage import (
    DataFile,
    data_files,
    entries_of,
    is_file,
    is_folder,
    is_url,
    joined,
    local_path,
    shown_location,
)
from .values import Box, OriginalPicture

if TYPE_CHECKING:
    from PIL.Image import Image

SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".tif", ".tiff")
CLASS_NAMES = "classes.txt"
"""File of the names of the classes beside their folders, one a line, in the order of the model's."""


def image_files(source: str) -> tuple[DataFile, ...]:
    """Return the pictures of a folder and of the folders in it, in natural order, without hidden ones."""
    pictures, _ = image_and_other_files(source)
    return pictures


def image_and_other_files(source: str) -> tuple[tuple[DataFile, ...], int]:
    """Return the pictures as `image_files` does, and how many other files but `classes.txt`."""
    if is_data_yaml(source):
        return _files_of_split(source), 0
    files = data_files(source, deep=True)
    pictures = tuple(file for file in files if file.suffix in SUFFIXES)
    if not pictures:
        raise DataError(
            f"{shown_location(source)}: contains no pictures; give a folder with {', '.join(SUFFIXES)} files"
        )
    return pictures, sum(file.name != CLASS_NAMES for file in files) - len(pictures)


def small_picture(image: Image, longest: int, box: Box | None) -> OriginalPicture:
    """Return a picture with sides of at most `longest` pixels in RGB, as the smaller of PNG and JPEG."""
    small, contents = image.copy(), dict[str, bytes]()
    small.thumbnail((longest, longest))
    for kind, options in (("png", {"optimize": True}), ("jpeg", {"quality": 85})):
        file = io.BytesIO()
        small.save(file, kind, **options)
        contents[kind] = file.getvalue()
    kind = min(contents, key=lambda name: len(contents[name]))
    return OriginalPicture(contents[kind], f"image/{kind}", small.size, box)


# Classes of pictures that lie in a folder for each class.

MAX_NOTED_CLASSES = 8
"""Classes that a note names."""


@dataclass(frozen=True, eq=False)
class FolderClasses:
    """The classes of the pictures of a folder."""

    names: tuple[str, ...]  # by number; "" for one without a folder
    labels: npt.NDArray[np.int64]  # in the order of `image_files`
    rule: str
    is_order: bool  # whether the order of the folders numbers them: right only if each class has one


def noted_classes(source: str | os.PathLike[str]) -> FolderClasses:
    """Return the classes of the pictures of a folder, and note them."""
    classes = folder_classes(source)
    named = [f"{number} '{name}'" for number, name in enumerate(classes.names) if name]
    more = f" and {len(named) - MAX_NOTED_CLASSES} more" if len(named) > MAX_NOTED_CLASSES else ""
    where = shown_location(os.fspath(source))
    sentence = (
        f"{where}: the folders are {len(named)} classes, numbered {classes.rule}: "
        f"{', '.join(named[:MAX_NOTED_CLASSES])}{more}"
    )
    remedy = f"if the model has others, write them into {CLASS_NAMES} in that folder"
    note(Finding(Code.CLASSES_NUMBERED, sentence, where, {"classes": len(named)}, remedy))
    return classes


def note_class_folders(source: str, classes: int | None) -> None:
    """Note that a folder has as many folders of pictures as the model has classes: they can be labels."""
    if classes is None or classes < 2 or not os.path.isdir(source):
        return
    with suppress(DataError):
        if len(folder_classes(source).names) == classes:
            sentence = f"{source}: has a folder for each of the model's {classes} classes"
            remedy = f"--labels {shlex.quote(source)} measures the accuracy"
            note(Finding(Code.CLASSES_NUMBERED, sentence, source, {"classes": classes}, remedy))


def folder_classes(source: str | os.PathLike[str]) -> FolderClasses:
    """Return the classes of the pictures of a folder, by `classes.txt` or the names of the folders.

    Names that are the numbers from 0 on are the classes; all others are numbered in order.
    """
    root = os.fspath(source)
    paths = [file.name.split("/") for file in image_files(root)]
    outside = next((path for path in paths if len(path) < 2), None)
    if outside is not None:
        raise DataError(
            f"{joined(root, outside[0])}: lies in no folder of a class; put each picture into the folder of "
            "its class, or give a file of labels"
        )
    listed = joined(root, CLASS_NAMES)
    if is_file(listed.location):
        names = tuple(line.strip() for line in listed.text().splitlines())
        rule, is_order = f"by {CLASS_NAMES}", False
    else:
        # Hidden folders, and those with the plans of models, are of no class.
        entries = (name for name in entries_of(root) if name[0] != "." and not name.endswith(".qprof"))
        folders = sorted(name for name in entries if is_folder(joined(root, name).location))
        rule, is_order = "in alphabetical order", True
        if all(name.isascii() and name.isdigit() and len(name) < 7 for name in folders):
            folders.sort(key=natural_key)
            is_order = [int(name) for name in folders] != list(range(len(folders)))
            rule = "in the order of the numbers" if is_order else "by their names"
        names = tuple(folders)
    number_of = {name: number for number, name in enumerate(names) if name}
    for path in paths:
        if path[0] not in number_of:
            raise DataError(
                f"{joined(root, path[0])}: is not a class of {listed}; add its line."
                f"{nearest(path[0], number_of)}"
            )
    labels = np.array([number_of[path[0]] for path in paths], np.int64)
    return FolderClasses(names, labels, rule, is_order)


# The pictures of a `data.yaml`, and the files of their boxes.

SPLITS = ("train", "val", "test")


def is_data_yaml(source: str) -> bool:
    """Return whether a source is a `data.yaml`, with or without a split, by its name only."""
    path, _ = _path_and_split(source)
    named = path.lower().endswith((".yaml", ".yml")) and not is_url(path)
    return named and os.path.isfile(local_path(path))


def for_evaluation(data: DataLike) -> DataLike:
    """Return data to compare models on: the split val of a `data.yaml` that has one and names none."""
    if isinstance(data, PreprocessedData):
        return replace(data, source=str(for_evaluation(data.source)))
    if not isinstance(data, str | os.PathLike) or not is_data_yaml(os.fspath(data)):
        return data
    path, split = _path_and_split(os.fspath(data))
    return f"{path}:val" if not split and _data_yaml(path).get("val") else data


def box_files(source: str) -> dict[str, tuple[Path, Path]]:
    """Return the file of each picture and that of its boxes, which need not exist, by the picture's name."""
    path, split = _path_and_split(source)
    files: dict[str, tuple[Path, Path]] = {}
    for name in [split] if split else [name for name in SPLITS if _data_yaml(path).get(name)]:
        for picture in _files_of_split(f"{path}:{name}"):
            before, images, after = picture.location.rpartition(f"{os.sep}images{os.sep}")
            beside = f"{before}{os.sep}labels{os.sep}{after}" if images else picture.location
            files[picture.name] = Path(picture.location), Path(beside).with_suffix(".txt")
    return files


def data_yaml_names(source: str) -> dict[int, str]:
    """Return the names of the classes of a `data.yaml` by number; {} without names."""
    names = _data_yaml(_path_and_split(source)[0]).get("names")
    if isinstance(names, list):
        names = dict(enumerate(names))
    if not isinstance(names, dict):
        return {}
    return {int(number): str(name) for number, name in names.items() if str(number).isdigit()}


def _files_of_split(source: str) -> tuple[DataFile, ...]:
    """Return the pictures of a split, else of train or val, named by their path in the data set."""
    path, split = _path_and_split(source)
    document = _data_yaml(path)
    split = split or next((name for name in SPLITS if document.get(name)), "")
    if not document.get(split):
        has = ", ".join(name for name in SPLITS if document.get(name))
        meant = nearest(split, [name for name in SPLITS if document.get(name)])
        lacks = f"its entry '{split}:' is empty or missing" if split in SPLITS else f"no split '{split}'"
        raise DataError(f"{source}: {lacks}; choose one that it has: {has}.{meant}")

    # The folder of the data set: `path`, from the folder of the file or from the current one.
    folder = beside = Path(local_path(path)).parent
    if document.get("path"):
        places = [beside / str(document["path"]), Path(str(document["path"]))]
        existing = next((place for place in places if os.path.isdir(place)), None)
        if existing is None:
            looked = " and ".join(dict.fromkeys(str(place) for place in places))
            raise DataError(
                f"{path}: path: {document['path']}: no such folder ({looked}); download the data set, or "
                "correct path:"
            )
        folder = existing

    pictures: list[Path] = []
    for entry in document[split] if isinstance(document[split], list) else [document[split]]:
        # Exports of labelling sites write ../train/images for what lies beside the file.
        text = str(entry)
        places = [folder / text, *([folder / text[3:]] if text.startswith("../") else [])]
        place = next((place for place in places if os.path.exists(place)), None)
        if place is None:
            raise DataError(
                f"{path}: {split}: {entry}: no such folder or file ({places[0]}); download the data set, "
                "or correct the path"
            )
        if place.is_file():
            pictures += _listed_pictures(place)
        else:
            pictures += [Path(file.location) for file in data_files(str(place), SUFFIXES, deep=True)]
    names = (os.path.relpath(picture, folder).replace(os.sep, "/") for picture in pictures)
    return tuple(joined(str(folder), name) for name in names)


def _listed_pictures(file: Path) -> list[Path]:
    """Return the pictures that a text file lists; those that begin with ./ lie beside it."""
    lines = read_text(file, DataError).splitlines()
    pictures = [file.parent / line.strip() for line in lines if line.strip()]
    for picture in pictures:
        if not os.path.isfile(picture):
            raise DataError(f"{file}: {picture}: no such picture; download the data set, or correct the list")
    return pictures


def _path_and_split(source: str) -> tuple[str, str]:
    path, _, split = source.rpartition(":")
    return (path, split) if path.lower().endswith((".yaml", ".yml")) else (source, "")


def _data_yaml(path: str) -> dict[str, Any]:
    try:
        document = strict_yaml.parse(Path(local_path(path)).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, MalformedError) as error:
        reason = " ".join(str(error).split())
        raise DataError(f"{path}: cannot be read as YAML ({reason}); correct it") from error
    if not isinstance(document, dict) or not any(document.get(name) for name in SPLITS):
        raise DataError(
            f"{path}: lists no pictures; as data it is the data.yaml of a data set, with train: and val:; "
            "or give a folder of samples"
        )
    return document
