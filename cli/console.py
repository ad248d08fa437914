"""What the command line prints, and the streams that it prints to."""

from __future__ import annotations

import os
import re
import sys
from contextlib import suppress
from typing import Any

import click

from ..profiles.base.errors import QprofError

_TAKEN = "qprof.stdout"
STDERR = 2
"""Its file descriptor."""

_CONTROLS = r"\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff"
_ALL, _ALL_BUT_LINES = re.compile(f"[{_CONTROLS}]"), re.compile(f"(?!\n)[{_CONTROLS}]")


def printable(text: str, lines: bool = False) -> str:
    r"""Return a text with control characters escaped, as in "\x1b": names of tensors may hold some.

    A terminal obeys them. Bytes of file names that are no UTF-8 are escaped too: they cannot be printed.

    Args:
        text: what is to be shown.
        lines: whether the text has several lines, whose ends stay.
    """
    return (_ALL_BUT_LINES if lines else _ALL).sub(_escaped, text)


def _escaped(match: re.Match[str]) -> str:
    code = ord(match[0])
    if 0xDC80 <= code <= 0xDCFF:  # how Python keeps a byte of a name that is not UTF-8
        code -= 0xDC00
    plain = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}
    return plain.get(match[0]) or (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}")


class StdoutError(QprofError):
    """A result cannot be printed."""


def echo(text: str, *, nl: bool = True) -> None:
    """Print a result on stdout, or on stderr where a file of the command goes to stdout.

    Raises:
        StdoutError: stdout cannot be written. BrokenPipeError: its reader went away.
    """
    context = click.get_current_context(silent=True)
    try:
        click.echo(printable(text, lines=True), nl=nl, err=context is not None and _TAKEN in context.meta)
    except BrokenPipeError:
        raise
    except OSError as problem:
        message = f"standard output: cannot be written: {problem.strerror or problem}; send it elsewhere"
        raise StdoutError(message) from problem


def keep_stdout_free(context: click.Context) -> None:
    """Print the results of a command on stderr: a file that it writes goes to stdout."""
    context.meta[_TAKEN] = True


def tell(message: str, *, lines: bool = False) -> None:
    """Print on stderr: an error, a note, progress; in one line whatever the names in it are.

    Where that fails, nobody reads it, and that is no reason to stop.

    Args:
        message: what is told.
        lines: whether it has several lines.
    """
    try:
        click.echo(printable(message, lines), err=True)
    except (OSError, ValueError):
        abandon(sys.stderr)


def check_streams() -> str | None:
    """Prepare the streams before any work; return why there is no use in beginning.

    A closed stderr is replaced by one that nobody reads: otherwise a file that is opened would take its
    place, and get what libraries print. A closed stdout cannot take the result.
    """
    if sys.stderr is None:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, STDERR)
        sys.stderr = os.fdopen(STDERR, "w", encoding="utf-8", errors="backslashreplace", closefd=False)
    return "error: standard output is closed; send it to a file or a pipe" if sys.stdout is None else None


def abandon(stream: Any) -> None:
    """Send what a stream still holds to nobody: Python writes it once more at its exit."""
    with suppress(OSError, ValueError, AttributeError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
