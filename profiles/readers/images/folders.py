"""Which files of a folder are pictures, and the classes that the folders in it stand for."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from ...base.errors import DataError
from ...base.names import natural_key

SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".tif", ".tiff")


def is_image_name(name: str) -> bool:
    """Return whether a file of this name is a picture, by its ending."""
    return name.lower().endswith(SUFFIXES)


def holds_images(source: str) -> bool:
    """Return whether a source is a picture, or a folder that holds some; it is read up to the first one."""
    if is_image_name(source) and os.path.isfile(source):
        return True
    return os.path.isdir(source) and next(_images(Path(source)), None) is not None


def image_paths(source: str) -> list[Path]:
    """Return the pictures of a folder and of the folders in it, in natural order, but for hidden ones.

    Args:
        source: the folder, or one picture.

    Raises:
        DataError: it holds none, or a folder cannot be read.
    """
    if os.path.isfile(source):
        return [Path(source)]
    try:
        found = list(_images(Path(source)))
    except OSError as error:
        raise DataError(
            f"{error.filename}: cannot be read: {error.strerror}; check its permissions"
        ) from error
    if not found:
        raise DataError(f"{source}: holds no pictures; give a folder with {', '.join(SUFFIXES)} files")
    return found


def _images(folder: Path) -> Iterator[Path]:
    """Yield the pictures of a folder in natural order: its own files first, then those of its folders."""
    entries = sorted((e for e in os.scandir(folder) if e.name[0] != "."), key=lambda e: natural_key(e.name))
    for entry in entries:
        if is_image_name(entry.name) and entry.is_file():
            yield Path(entry.path)
    for entry in entries:
        if entry.is_dir():
            yield from _images(Path(entry.path))
