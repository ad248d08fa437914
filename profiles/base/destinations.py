"""Where the name of an output leads: to a file that is replaced, or a pipe or device that is written into."""

from __future__ import annotations

import errno
import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from .errors import ConfigError

_DESCRIPTOR = re.compile(r"/proc/[0-9]+/(task/[0-9]+/)?fd/[0-9]+|/dev/fd/[0-9]+")
MOST_LINKS = 40
"""Links that systems follow before they call it a loop."""


@dataclass(frozen=True)
class Destination:
    """Where the name of an output leads.

    Attributes:
        file: the file behind all links, which may not exist yet; for a stream the path as it was given.
        is_stream: whether it is written into and never replaced: a pipe, a device, an open descriptor.
    """

    file: Path
    is_stream: bool


def destination(path: str | os.PathLike[str]) -> Destination:
    """Return where the name of an output leads.

    Raises:
        ConfigError: it names a folder, ends in a slash, is a link to itself, or cannot be looked up.
    """
    name = os.fspath(path)
    if not name:
        raise ConfigError("output: its name is empty; name a file to write")
    if "\0" in name:
        raise ConfigError(f"{path}: has a zero character in its name; choose another name")
    if name.endswith(("/", os.sep)):
        raise ConfigError(f"{path}: ends in a slash, as the name of a folder; name a file to write")
    try:
        mode = os.stat(name).st_mode
    except (FileNotFoundError, NotADirectoryError):
        mode = stat.S_IFREG  # a link whose file is missing leads to that file
    except OSError as problem:
        reason = (
            "is a link that leads to itself"
            if problem.errno == errno.ELOOP
            else f"cannot be written: {system_message(problem)}"
        )
        raise ConfigError(f"{path}: {reason}; choose another output") from None
    if stat.S_ISDIR(mode):
        raise ConfigError(f"{path}: is a folder; name a file to write")
    if not stat.S_ISREG(mode) or _descriptor(name) is not None:
        return Destination(Path(name), is_stream=True)
    return Destination(Path(os.path.realpath(name)), is_stream=False)


def leads_to_stdout(path: str | os.PathLike[str]) -> bool:
    """Return whether what is written to an output goes where this process prints."""
    try:
        return destination(path).is_stream and os.path.samestat(os.stat(path), os.fstat(1))
    except OSError:
        return False


def open_stream(target: Destination) -> BinaryIO:
    """Open what is no regular file for writing; a descriptor of this process goes on where it is."""
    name = _descriptor(os.fspath(target.file)) or ""
    if name.startswith((f"/proc/{os.getpid()}/", "/dev/fd/")):
        return os.fdopen(os.dup(int(Path(name).name)), "wb")
    return open(target.file, "wb")


def system_message(problem: OSError) -> str:
    """Return what the system says about an error, without the name of a file."""
    if problem.errno is not None:
        return os.strerror(problem.errno)
    return str(problem) or type(problem).__name__


def _descriptor(name: str) -> str | None:
    """Return the name of the open descriptor that a name leads to, as /dev/stdout does; None for a file."""
    for _ in range(MOST_LINKS):
        folder, last = os.path.split(name)
        name = os.path.join(os.path.realpath(folder), last)
        if _DESCRIPTOR.fullmatch(name):
            return name
        if not os.path.islink(name):
            return None
        name = os.path.join(os.path.dirname(name), os.readlink(name))
    return None
