"""Results as values that `json.dumps` takes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any


def to_jsonable(value: Any) -> Any:
    """Return a result as dicts, lists, strings, numbers, booleans and None.

    A dataclass becomes a dict of its fields in their order. JSON has no infinity: the floats inf, -inf and
    nan become the strings "inf", "-inf" and "nan", so a missing number (None, JSON null) differs from
    an infinite one.

    Raises:
        TypeError: the value contains something else.
    """
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: to_jsonable(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): to_jsonable(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [to_jsonable(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if value is None or isinstance(value, str | bool | int | float):
        return value
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")
