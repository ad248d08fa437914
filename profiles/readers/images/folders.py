"""Which files of a folder are pictures."""

from __future__ import annotations

from ...base.errors import DataError
from ...storage.files import DataFile, data_files, shown_location

SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".tif", ".tiff")


def image_files(source: str) -> tuple[DataFile, ...]:
    """Return the pictures of a folder and of the folders in it, in natural order, but for hidden ones.

    Args:
        source: the folder, or one picture, or its URL.

    Raises:
        DataError: it holds none, or a folder cannot be read.
    """
    found = data_files(source, SUFFIXES, deep=True)
    if not found:
        raise DataError(
            f"{shown_location(source)}: holds no pictures; give a folder with {', '.join(SUFFIXES)} files"
        )
    return found
