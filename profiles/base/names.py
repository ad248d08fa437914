"""Names: the next free one, and the order in which people count them."""

from __future__ import annotations

import re
from collections.abc import Callable, Container
from itertools import count

NaturalKey = tuple[list[tuple[int, str]], str]


def free_name(name: str, taken: Container[str], numbered: Callable[[int], str] | None = None) -> str:
    """Return `name` where it is free, else the first free one of its numbered forms.

    Args:
        name: the name that is preferred.
        taken: names in use.
        numbered: returns the form of a number, which counts from 1; None for "name_1", "name_2" and so on.
    """
    if name not in taken:
        return name
    form = numbered or (lambda number: f"{name}_{number}")
    return next(candidate for candidate in map(form, count(1)) if candidate not in taken)


def natural_key(name: str) -> NaturalKey:
    """Return a sort key that puts "2" before "10"."""
    parts = re.split(r"([0-9]+)", name)
    return [(int(part), "") if number % 2 else (0, part) for number, part in enumerate(parts)], name
