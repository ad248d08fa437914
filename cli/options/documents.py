"""The YAML files that commands read: of which kind one is, and which of its tensors are meant."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TypeVar

from ...profiles.base.errors import ConfigError, nearest

T = TypeVar("T")


def read_document(path: Path) -> tuple[str, str]:
    """Return what a file is by what it says about itself, and its text: it may be a pipe, and is read once.

    Returns:
        "profile" (of qprof or Glow) or "plan"; and the text.

    Raises:
        ConfigError: neither; the message says what the command reads.
    """
    from ...profiles.base.atomic_files import read_text
    from ...profiles.records.glow_format import is_glow

    advice = "give a profile of 'qprof dump-profile' or Glow, or a plan of 'qprof quantize --save-plan'"
    if path.suffix == ".onnx":
        raise ConfigError(f"{path}: is a model, not a profile or a plan; {advice}")
    document = read_text(path, ConfigError)
    if is_glow(document):
        return "profile", document
    said = re.search(r"""^["']?format["']?\s*:\s*["']?([^\s"'#]*)""", document, re.MULTILINE)
    family = said[1].partition("/")[0] if said else ""
    if family in ("qprof-profile", "qprof-plan"):
        return family.removeprefix("qprof-"), document
    found = f"format '{said[1]}' is unknown" if said else "key 'format' is missing"
    raise ConfigError(f"{path}: {found}; {advice}")


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
