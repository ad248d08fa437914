"""Numbers on the command line: every float option is a finite one."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import click
from click.types import StringParamType


class FiniteNumber(click.FloatRange):
    """A number, between limits if it has some, and neither NaN nor infinite.

    A comparison with NaN is always false and one with infinity always the same: a limit or a time
    that is one of them would be no limit at all, or could never be met.
    """

    name = "number"

    def _describe_range(self) -> str:
        """Return the limits for help; click would write None for those that there are not."""
        return "" if self.min is None and self.max is None else super()._describe_range()

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number; fail with a sentence for another value."""
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value} is not finite; give a number, or leave the option out", param, ctx)
        return float(number)


class Size(StringParamType):
    """A number of bytes: 3000000, 500kB or 1.5MB, in the units that sizes are printed in."""

    name = "size"
    units: Mapping[str, int] = {"gb": 10**9, "mb": 10**6, "kb": 10**3, "b": 1}

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the bytes; fail with a sentence for another value."""
        text = str(value).strip().lower()
        unit = next((unit for unit in self.units if text.endswith(unit)), "")
        try:
            number = float(text.removesuffix(unit)) * self.units.get(unit, 1)
        except ValueError:
            number = 0.0
        if not 1.0 <= number < 2.0**60:
            self.fail(f"'{value}' is not a size; write it like 500kB or 1.5MB", param, ctx)
        return number
