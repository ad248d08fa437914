"""The progress of a long run: a bar on a terminal, a plain line every few seconds elsewhere; on stderr."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from ...profiles.base.tool import Progress
from ..console import tell, tell_note

SECONDS_BETWEEN_LINES = 5.0


UNITS = {"trying": "fixes"}
"""What stages count that do not count samples."""


@contextmanager
def progress(task: str, unit: str = "samples") -> Iterator[Progress]:
    """Yield the function that a run calls after each of its units; `task` names it, as in "profiling"."""
    if sys.stderr.isatty():
        with _bar(task, unit) as report:
            yield report
    else:
        yield plain_lines(task, unit=unit)


class Stages:
    """The stages of a command, each with its progress; one that begins ends the one before."""

    def __init__(self) -> None:
        self._open = ExitStack()
        self._shown: Progress | None = None

    def __enter__(self) -> Stages:
        return self

    def __exit__(self, *error: object) -> None:
        self._open.close()

    def __call__(self, name: str) -> Progress:
        """Begin a stage, and return what is called after each of its units."""
        self._end()
        unit = UNITS.get(name, "samples")
        self._shown = self._open.enter_context(progress(name, unit))

        def report(done: int, total: int | None) -> None:
            if self._shown is None:  # it ended for a remark
                self._shown = self._open.enter_context(progress(name, unit))
            self._shown(done, total)

        return report

    def note(self, text: str) -> None:
        """Print a remark, and not into the bar of a stage."""
        self._end()
        tell_note(text)

    def _end(self) -> None:
        self._open.close()
        self._shown = None


def on_demand(stage: Callable[[str], Progress], name: str) -> Progress:
    """Return what begins a stage when it is called first."""
    begun: list[Progress] = []

    def report(done: int, total: int | None) -> None:
        if not begun:
            begun.append(stage(name))
        begun[0](done, total)

    return report


def plain_lines(
    task: str,
    write: Callable[[str], None] = tell,
    clock: Callable[[], float] = time.monotonic,
    unit: str = "samples",
) -> Progress:
    """Return a `Progress` that writes a line at most every five seconds, and one for the last sample.

    Args:
        task: first word of each line.
        write: takes a line without its end.
        clock: seconds from any fixed moment.
        unit: what is counted.
    """
    start = last = clock()

    def report(done: int, total: int | None) -> None:
        nonlocal last
        now = clock()
        if done == total or now - last >= SECONDS_BETWEEN_LINES:
            last = now
            rate, left = _rate(done, now - start), _left(done, total, now - start)
            write(f"{task}: {_count(done, total, unit)}, {rate}{left}")

    return report


@contextmanager
def _bar(task: str, unit: str) -> Iterator[Progress]:
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as RichProgress

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[count]}, {task.fields[rate]}"),
        TimeRemainingColumn(),
    )
    start = time.monotonic()
    with RichProgress(*columns, console=Console(stderr=True), transient=True) as bar:
        row = bar.add_task(task, total=None, count="", rate="starting")

        def report(done: int, total: int | None) -> None:
            rate = _rate(done, time.monotonic() - start)
            bar.update(row, completed=done, total=total, count=_count(done, total, unit), rate=rate)

        yield report


def _count(done: int, total: int | None, unit: str) -> str:
    return f"{done} {unit}" if total is None else f"{done} of {total} {unit}"


def _rate(done: int, seconds: float) -> str:
    return f"{done / max(seconds, 1e-9):.1f} a second"


def _left(done: int, total: int | None, seconds: float) -> str:
    if total is None or done == 0 or done >= total:
        return ""
    return f", {seconds / done * (total - done):.0f} s left"
