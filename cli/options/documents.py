"""Which tensors of a profile or plan are meant."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TypeVar

from ...profiles.base.errors import ConfigError, nearest

T = TypeVar("T")


def chosen(tensors: Mapping[str, T], globs: tuple[str, ...], file: Path) -> dict[str, T]:
    """Return the tensors whose name is, or matches, one of `globs`; all when there is none.

    Raises:
        ConfigError: a glob matches nothing; the nearest name is suggested.
    """
    for glob in globs:
        if not any(_matches(name, glob) for name in tensors):
            raise ConfigError(
                f"{file}: no tensor matches '{glob}'; see 'qprof show {file}'.{nearest(glob, tensors)}"
            )
    return {name: t for name, t in tensors.items() if not globs or any(_matches(name, g) for g in globs)}


def _matches(name: str, glob: str) -> bool:
    return name == glob or fnmatchcase(name, glob)
