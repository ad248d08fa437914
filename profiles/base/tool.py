"""The progress callback's type, notes for the user, and name and version of this program."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache

from .errors import in_python
from .findings import Finding


@cache
def _version() -> str:
    """Return the version of this program, from the metadata of the installed package."""
    from importlib.metadata import version  # slow to import, and `qprof --help` needs none

    return version("qprof-onnx")


def __getattr__(name: str) -> str:
    """Return `__version__`, which is read when it is first asked for."""
    if name == "__version__":
        return _version()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


Progress = Callable[[int, int | None], None]
"""Called with the number of samples done and, if known, their total."""

LOGGER = logging.getLogger("qprof_onnx")
"""Takes the notes: Python prints warnings on stderr unless told otherwise, the command line each once."""


def note(finding: Finding) -> None:
    """Note an assumption that nobody stated."""
    LOGGER.warning("%s", in_python(str(finding)), extra={"finding": finding})


@contextmanager
def notes_once() -> Iterator[None]:
    """While it lasts, a note is not made twice: one step after another opens the same data."""
    noted: set[str] = set()

    def is_new(record: logging.LogRecord) -> bool:
        text = record.getMessage()
        was_noted = text in noted
        noted.add(text)
        return not was_noted

    LOGGER.addFilter(is_new)
    try:
        yield
    finally:
        LOGGER.removeFilter(is_new)


def tool_name() -> str:
    """Return name and version of this program, as files record them."""
    return f"qprof {_version()}"
