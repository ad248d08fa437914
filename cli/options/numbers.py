"""Numbers on the command line: every float option is a finite one."""

from __future__ import annotations

import math
from typing import Any

import click


class FiniteNumber(click.FloatRange):
    """A number, between limits if it has some, and neither NaN nor infinite.

    A comparison with NaN is always false and one with infinity always the same: a limit or a time
    that is one of them would be no limit at all, or could never be met.
    """

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number; fail with a sentence for another value."""
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value} is not finite; give a number, or leave the option out", param, ctx)
        return float(number)
