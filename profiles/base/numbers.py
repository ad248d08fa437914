"""The check of numbers that are settings: each is finite."""

from __future__ import annotations

import math
from typing import get_type_hints

from .errors import ConfigError


def check_finite(settings: object) -> None:
    """Check the fields of a record of settings that are floats, or None.

    A comparison with NaN is always false and one with infinity always the same: a limit that is one of them
    would be no limit, or could never be met.

    Raises:
        ConfigError: one is NaN or infinite, naming the field.
    """
    for name, hint in get_type_hints(type(settings)).items():
        value = getattr(settings, name)
        if hint in (float, float | None) and value is not None and not math.isfinite(value):
            raise ConfigError(f"{name}: {value} is not finite; give a number, or leave it out")
