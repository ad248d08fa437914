"""The progress callback's type, and name and version of this program."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[int, int | None], None]
"""Called with the number of samples done and, where known, their total."""


def tool_name() -> str:
    """Return name and version of this program, as files record them."""
    from .version import __version__

    return f"qprof {__version__}"
