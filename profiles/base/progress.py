"""Progress of long work: plain lines, in a notebook or on request."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from .tool import LOGGER, Progress

Shown = Progress | bool | None
"""Receiver of progress: a function, True for printed lines, False for none, None for lines only in a
notebook."""

Stage = Callable[[str], Progress]
"""Called with the name of a step that begins; returns a function to call after each of its units."""


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
    return lambda name: plain_lines(name, LOGGER.warning) if shown else lambda done, total: None


SECONDS_BETWEEN_LINES = 5.0
"""Until the first line; the next ones wait twice as long as the one before."""


def plain_lines(
    task: str, write: Callable[[str], None], clock: Callable[[], float] = time.monotonic, unit: str = "sample"
) -> Progress:
    """Return a `Progress` that writes a line after 5 seconds, after 10 more, 20 more, and at a late end."""
    start = first = clock()
    wait = SECONDS_BETWEEN_LINES

    def report(done: int, total: int | None) -> None:
        nonlocal wait, first
        now = clock()
        first = now if done == 1 else first  # its time has work that comes once, such as loading
        if now - start >= wait or (done == total and wait > SECONDS_BETWEEN_LINES):
            wait = 2 * wait + SECONDS_BETWEEN_LINES
            left = ""
            if total is not None and 1 < done < total:
                left = f", {(now - first) / (done - (first > start)) * (total - done):.0f} s left"
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
