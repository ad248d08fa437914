"""Classes of pictures that lie in a folder for each class."""

from __future__ import annotations

import os
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ...base.errors import DataError, nearest
from ...base.names import natural_key
from ...base.tool import note
from ...storage.files import entries_of, is_file, is_folder, joined, shown_location
from .folders import NAMES, image_files

SHOWN = 8
"""Classes that a note names."""


@dataclass(frozen=True, eq=False)
class FolderClasses:
    """The classes of the pictures of a folder.

    Attributes:
        names: of the classes by number; "" for one without a folder.
        labels: class of each picture, int64, in the order in which `image_files` has them.
        rule: where the numbers come from, in words.
        is_order: whether the numbers are the order of the folders, and so right only where there is a folder
            for each class of the model.
    """

    names: tuple[str, ...]
    labels: npt.NDArray[np.int64]
    rule: str
    is_order: bool


def noted_classes(source: str | os.PathLike[str]) -> FolderClasses:
    """Return the classes of the pictures of a folder, and note them.

    Args:
        source: folder with a folder for each class.

    Raises:
        DataError: see `folder_classes`.
    """
    found = folder_classes(source)
    named = [f"{number} '{name}'" for number, name in enumerate(found.names) if name]
    more = f" and {len(named) - SHOWN} more" if len(named) > SHOWN else ""
    note(
        f"{shown_location(os.fspath(source))}: the folders are {len(named)} classes, numbered {found.rule}: "
        f"{', '.join(named[:SHOWN])}{more}; if the model has others, write them into {NAMES} in that folder"
    )
    return found


def folder_classes(source: str | os.PathLike[str]) -> FolderClasses:
    """Return the classes of the pictures of a folder.

    The number of a class is the line of its folder's name in `classes.txt`, counted from 0; without that file
    the name itself where all names are exactly the numbers from 0 on, with or without leading zeros, else its
    place in order: of the numbers where all names are some, else alphabetical, as in torchvision and Keras.

    Raises:
        DataError: there are no pictures; one lies in no folder, or in one that `classes.txt` has not.
    """
    root = os.fspath(source)
    folders = [file.name.split("/") for file in image_files(root)]
    outside = next((parts for parts in folders if len(parts) < 2), None)
    if outside is not None:
        raise DataError(
            f"{joined(root, outside[0])}: lies in no folder of a class; put each picture into the folder of "
            "its class, or give a file of labels"
        )
    names, rule, is_order = _names(root)
    number_of = {name: number for number, name in enumerate(names) if name}
    for parts in folders:
        if parts[0] not in number_of:
            raise DataError(
                f"{joined(root, parts[0])}: is no class of {joined(root, NAMES)}; add its line."
                f"{nearest(parts[0], number_of)}"
            )
    labels = np.array([number_of[parts[0]] for parts in folders], np.int64)
    return FolderClasses(names, labels, rule, is_order)


def _names(root: str) -> tuple[tuple[str, ...], str, bool]:
    """Return the names of the classes by number, where the numbers come from, and whether from an order."""
    names = joined(root, NAMES)
    if is_file(names.location):
        return tuple(line.strip() for line in names.text().splitlines()), f"by {NAMES}", False
    entries = (name for name in entries_of(root) if not name.startswith("."))
    folders = sorted(name for name in entries if is_folder(joined(root, name).location))
    if all(name.isascii() and name.isdigit() and len(name) < 7 for name in folders):
        folders.sort(key=natural_key)
        if [int(name) for name in folders] == list(range(len(folders))):
            return tuple(folders), "as they are named", False
        return tuple(folders), "in the order of the numbers", True
    return tuple(folders), "in alphabetical order", True
