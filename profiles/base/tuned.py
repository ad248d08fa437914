"""Tuned constants: a value beside the models and the figure that chose it.

Numbers that follow from a format, a kernel or mathematics are not tuned constants. `python docs/printed.py
tuned` prints the table of all; `tests/benchmarks/run.py constants` finds the range in which nothing changes.
"""

from __future__ import annotations

from typing import TypeVar

T = TypeVar("T")


def tuned(value: T, *, figure: str, chosen_on: str, holds: tuple[float, float] | None = None) -> T:
    """Return the value of a tuned constant.

    Args:
        value: itself.
        figure: the measurement that chose it.
        chosen_on: the models of that measurement; "by hand" for none.
        holds: smallest and largest value, of this, 20 % less and 25 % more, with which none of six trained
            models got another plan (digits, bytes, poses, corners, a segmentation, a vocoder);
            None if none of them comes by it.
    """
    return value
