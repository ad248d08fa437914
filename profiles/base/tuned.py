"""Tuned constants: a value that was chosen by what models did with it, beside what chose it.

Numbers of a format, of a kernel or of mathematics are none. `quantizer/TUNED.md` is the table of all,
printed from the source; `tests/benchmarks/ablate.py --constants` finds the range in which nothing changes.
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
        holds: smallest and largest value, as far as they were tried, with which no model of the table's
            header gets another plan; None if that is not known.
    """
    return value
