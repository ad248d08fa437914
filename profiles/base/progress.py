"""Progress of long work: a bar of tqdm in a notebook or on request, else plain lines."""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable
from importlib import import_module
from typing import Any

from .tool import LOGGER, Progress

Shown = Progress | bool | None
"""Who is told of progress: a function that is called, True for a bar, False for nobody, None for a bar in a
notebook and nobody elsewhere."""

Stage = Callable[[str], Progress]
"""Called with the name of a step that begins; returns what is called after each of its units."""


def asked_for(shown: Shown) -> Shown:
    """Return the receiver of the progress of a public function: for None, whether a notebook runs it."""
    if shown is not None:
        return shown
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return shell is not None and "IPKernelApp" in shell.config


def stages(shown: Shown) -> Stage:
    """Return a function that begins the steps of another; None shows nothing."""
    if callable(shown):
        return lambda name: shown
    return _Bars() if shown else lambda name: lambda done, total: None


class _Bars:
    """A bar for each step, which ends when the step is done or the next begins; plain lines without tqdm."""

    def __init__(self) -> None:
        self._bar: Any = None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that ipywidgets is not installed: the bar is text then
            try:
                self._make: Any = import_module("tqdm.auto").tqdm
            except ImportError:
                self._make = None

    def __call__(self, name: str) -> Progress:
        """Begin a step."""
        self._close()
        if self._make is None:
            return plain_lines(name, LOGGER.warning)

        def report(done: int, total: int | None) -> None:
            if self._bar is None:
                self._bar = self._make(desc=name, total=total, leave=False)
            self._bar.update(done - self._bar.n)
            if done == total:
                self._close()

        return report

    def _close(self) -> None:
        if self._bar is not None:
            self._bar.close()
        self._bar = None


SECONDS_BETWEEN_LINES = 5.0
"""Until the first line; the next ones wait twice as long as the one before."""


def plain_lines(
    task: str,
    write: Callable[[str], None],
    clock: Callable[[], float] = time.monotonic,
    unit: str = "sample",
) -> Progress:
    """Return a `Progress` that writes a line after 5 seconds, after 10 more, 20 more, and at a late end."""
    start = clock()
    wait = SECONDS_BETWEEN_LINES

    def report(done: int, total: int | None) -> None:
        nonlocal wait
        now = clock()
        if now - start >= wait or (done == total and wait > SECONDS_BETWEEN_LINES):
            wait = 2 * wait + SECONDS_BETWEEN_LINES
            left = ""
            if total is not None and done < total:
                left = f", {(now - start) / max(done, 1) * (total - done):.0f} s left"
            write(f"{task}: {counted(done, total, unit)}, {rate(done, now - start)}{left}")

    return report


def counted(done: int, total: int | None, unit: str) -> str:
    """Return how many units are done, of how many."""
    of = done if total is None else total
    several = "" if of == 1 else "es" if unit.endswith("x") else "s"
    return f"{done} {unit}{several}" if total is None else f"{done} of {total} {unit}{several}"


def rate(done: int, seconds: float) -> str:
    """Return how many units are done a second, or how many seconds each takes."""
    if done > 0 and seconds > 2.0 * done:
        return f"{seconds / done:.0f} s each"
    return f"{done / max(seconds, 1e-9):.1f} a second"
