"""Numbers as the report shows them. Pure."""

from __future__ import annotations

import math
import re

DASH, MINUS = "\N{EN DASH}", "\N{MINUS SIGN}"


def number(value: float | None, digits: int = 4) -> str:
    """Return a number with some significant digits; an en dash for none."""
    if value is None:
        return DASH
    if not math.isfinite(value):
        return {math.inf: "\N{INFINITY}", -math.inf: f"{MINUS}\N{INFINITY}"}.get(value, "NaN")
    return f"{value:.{digits}g}".replace("-", MINUS)


def decibel_text(value: float | None) -> str:
    """Return an SQNR with one digit after the point; "equal" for no difference."""
    if value is None:
        return DASH
    if value == math.inf:
        return "equal"
    return f"{value:.1f}".replace("-", MINUS) if math.isfinite(value) else number(value)


def percent_text(share: float | None) -> str:
    """Return a share in percent, with the digits that tell it from 0 and 100."""
    if share is None:
        return DASH
    if share == 0.0:
        return "0 %"
    percent = 100.0 * share
    if percent < 0.01:
        return "< 0.01 %"
    return (
        f"{percent:.2f} %" if percent < 0.1 else f"{percent:.1f} %" if percent < 99.95 else f"{percent:.0f} %"
    )


def duration(microseconds: float | None) -> str:
    """Return a time in microseconds, or in milliseconds from one on; an en dash for none."""
    if microseconds is None:
        return DASH
    if microseconds < 999.5:
        return f"{number(microseconds, 2 if microseconds < 10.0 else 3)} \N{MICRO SIGN}s"
    return f"{number(microseconds / 1e3, 3)} ms"


def count_text(count: float) -> str:
    """Return a large number with a unit, as in "12.3 M"."""
    for unit, power in (("G", 9), ("M", 6), ("k", 3)):
        if count >= 10**power:
            return f"{count / 10**power:.3g} {unit}"
    return f"{count:.0f}"


def plural(count: int, word: str) -> str:
    """Return a count with its word, as in "3 nodes"."""
    return f"{count:,} {word}{'' if count == 1 else 's'}"


def visible(text: str) -> str:
    """Return a text with a sign for each character that would hide, reorder or break the text around it."""
    return re.sub(
        r"[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]", "\N{REPLACEMENT CHARACTER}", text
    )
