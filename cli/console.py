"""What the command line prints, and the streams that it prints to."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import click

from ..profiles.base.errors import QprofError, escaped
from ..profiles.base.tool import LOGGER

_TAKEN = "qprof.stdout"
_VALUES = "qprof.values"
_ARGUMENTS = "qprof.arguments"
STDERR = 2
"""Its file descriptor."""


class StdoutError(QprofError):
    """A result cannot be printed."""


def echo(text: str, *, nl: bool = True) -> None:
    """Print a result on stdout, or on stderr where a file of the command goes to stdout.

    Raises:
        StdoutError: stdout cannot be written. BrokenPipeError: its reader went away.
    """
    context = click.get_current_context(silent=True)
    try:
        click.echo(escaped(text, lines=True), nl=nl, err=context is not None and _TAKEN in context.meta)
    except BrokenPipeError:
        raise
    except OSError as problem:
        message = f"standard output: cannot be written: {problem.strerror or problem}; send it elsewhere"
        raise StdoutError(message) from problem


def note_values(context: click.Context) -> None:
    """Keep the parameters of a command that begins, for the next command that is told at its end.

    "typed" are the options that were typed: by the name of the parameter the option and its texts.
    """
    context.meta[_VALUES] = {**context.params, "typed": _typed(context)}


def _typed(context: click.Context) -> dict[str, tuple[str, tuple[str, ...]]]:
    texts, _, order = context.command.make_parser(context).parse_args(list(arguments()))
    found = {}
    for parameter in order:
        name = parameter.name or ""
        if isinstance(parameter, click.Option):
            text = texts[name]
            values = () if parameter.is_flag else tuple(text) if parameter.multiple else (text,)
            found[name] = (max(parameter.opts, key=len), values)
    return found


def note_arguments(context: click.Context, words: Sequence[str]) -> None:
    """Keep the words of the command line after the name of the command."""
    context.meta[_ARGUMENTS] = tuple(words)


def arguments() -> tuple[str, ...]:
    """Return the words of the command line after the name of the command."""
    context = click.get_current_context(silent=True)
    words: tuple[str, ...] = () if context is None else context.meta.get(_ARGUMENTS, ())
    return words


def add_finding(**values: object) -> None:
    """Keep what a command found, for the next command that is told at its end."""
    context = click.get_current_context(silent=True)
    if context is not None:
        context.meta.setdefault(_VALUES, {}).update(values)


def noted_values(context: click.Context) -> dict[str, Any] | None:
    """Return the parameters of the command that ran, and what it found; None where it kept none."""
    values: dict[str, Any] | None = context.meta.get(_VALUES)
    return values


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
        click.echo(escaped(message, lines), err=True)
    except (OSError, ValueError):
        abandon(sys.stderr)


def tell_note(text: str) -> None:
    """Print a remark on stderr."""
    tell(f"note: {text}")


class NotesHandler(logging.Handler):
    """Prints the notes of the library on stderr, each once."""

    def __init__(self) -> None:
        super().__init__()
        self._told: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        """Print a note that was not printed before."""
        text = record.getMessage()
        if text not in self._told:
            self._told.add(text)
            tell(f"note: {text}")


@contextmanager
def notes_told() -> Iterator[None]:
    """Print what the library notes (`note`) while a command runs."""
    handler, propagated = NotesHandler(), LOGGER.propagate
    LOGGER.addHandler(handler)
    LOGGER.propagate = False
    try:
        yield
    finally:
        LOGGER.removeHandler(handler)
        LOGGER.propagate = propagated


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
