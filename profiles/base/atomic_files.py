"""Reading and writing whole files: no half-written output, no traceback for a wrong path."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .errors import ConfigError, QprofError


def read_text(path: str | os.PathLike[str], error: type[QprofError]) -> str:
    """Return the text of a UTF-8 file, with a byte order mark taken off and line ends made "\\n".

    Raises:
        error: the file is missing, unreadable or not UTF-8 text.
    """
    try:
        return Path(path).read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as problem:
        raise error(
            f"{path}: not UTF-8 text (byte {problem.start} is 0x{problem.object[problem.start]:02x}); "
            "give a YAML file of qprof or Glow"
        ) from None
    except OSError as problem:
        raise error(f"{path}: cannot be read: {problem.strerror}; check the path") from None


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary path in the folder of `path`; rename it to `path` when the with block ends without
    error.

    When the block fails, or is interrupted by Ctrl-C, the temporary file is removed and `path` stays as it
    was. The temporary name keeps the suffix, for writers that choose a format by it. An existing path
    that is not a regular file (a pipe, a device) cannot be replaced: it is yielded itself.

    Raises:
        ConfigError: the folder is missing or cannot be written, or `path` is a folder.
    """
    target = Path(os.path.realpath(path))  # writing through a link keeps the link
    if target.is_dir():
        raise ConfigError(f"{path}: is a folder; name a file to write")
    special = target.exists() and not target.is_file()
    temporary = target if special else target.with_name(f".{target.stem}.{os.getpid()}.tmp{target.suffix}")
    try:
        yield temporary
        if not special:
            os.replace(temporary, target)
    except OSError as problem:
        raise ConfigError(
            f"{path}: cannot be written: {problem.strerror or problem}; choose another output"
        ) from None
    finally:
        if not special:
            temporary.unlink(missing_ok=True)


def write_atomically(path: str | os.PathLike[str], content: str | bytes) -> None:
    """Write a whole file in one step: afterwards it is complete, or as it was before.

    Text is written as UTF-8 with "\\n" line ends on every system.

    Raises:
        ConfigError: see `replacing`.
    """
    data = content.encode("utf-8") if isinstance(content, str) else content
    with replacing(path) as temporary, open(temporary, "wb") as file:
        file.write(data)
