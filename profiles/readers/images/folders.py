"""Which files of a folder are pictures."""

from __future__ import annotations

from ...base.errors import DataError
from ...storage.files import DataFile, data_files, shown_location

SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".tif", ".tiff")
NAMES = "classes.txt"
"""File of the names of the classes beside their folders, one a line, in the order of the model's."""


def image_files(source: str) -> tuple[DataFile, ...]:
    """Return the pictures of a folder and of the folders in it, in natural order, but for hidden ones.

    Args:
        source: the folder, or one picture, or its URL.

    Raises:
        DataError: it holds none, or a folder cannot be read.
    """
    found, _ = image_and_other_files(source)
    return found


def image_and_other_files(source: str) -> tuple[tuple[DataFile, ...], int]:
    """Return the pictures as `image_files` does, and how many other files but `classes.txt`."""
    files = data_files(source, deep=True)
    found = tuple(file for file in files if file.suffix in SUFFIXES)
    if not found:
        raise DataError(
            f"{shown_location(source)}: holds no pictures; give a folder with {', '.join(SUFFIXES)} files"
        )
    return found, sum(file.name != NAMES for file in files) - len(found)
