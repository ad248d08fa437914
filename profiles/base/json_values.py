"""Results as values that `json.dumps` takes, and JSON read strictly."""

from __future__ import annotations

import json
import math
import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, NoReturn

from .errors import MalformedError
from .findings import Code, Finding
from .tool import note

NOT_IN_JSON = {"json": False}
"""Marks a field excluded from JSON."""


def to_jsonable(value: Any) -> Any:
    """Return a result as plain values; inf, -inf and nan, which JSON lacks, become texts."""
    if is_dataclass(value) and not isinstance(value, type):
        return {
            field.name: to_jsonable(getattr(value, field.name))
            for field in fields(value)
            if field.metadata.get("json", True)
        }
    if isinstance(value, Mapping):
        return {str(key): to_jsonable(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [to_jsonable(item) for item in value]
    if hasattr(value, "tolist"):  # numpy is not imported for this
        return to_jsonable(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if value is None or isinstance(value, str | bool | int | float):
        return value
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")


def parse_json(text: str, *, non_finite: bool = False) -> Any:
    """Return the value of a JSON text, strictly; with `non_finite`, NaN and Infinity are floats."""
    try:
        constant = float if non_finite else _no_number
        return json.loads(text, parse_constant=constant, object_pairs_hook=_without_duplicates)
    except json.JSONDecodeError as problem:
        raise MalformedError(f"line {problem.lineno}: not JSON: {problem.msg}") from None
    except RecursionError:
        raise MalformedError("lists and mappings are nested too deeply") from None
    except _RefusedError as problem:
        raise MalformedError(str(problem)) from None
    except ValueError:  # Python's limit on digits
        raise MalformedError("a number has too many digits") from None


MAX_SETTINGS_BYTES = 1 << 24
"""Bytes of a file of settings beside a model; those that exporters write have some thousands."""


def settings_beside(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the entries of a JSON file found beside a model; note a file that cannot be used."""
    if not os.path.isfile(path):
        return {}
    try:
        with open(path, "rb") as file:
            content = file.read(MAX_SETTINGS_BYTES + 1)
        if len(content) > MAX_SETTINGS_BYTES:
            raise MalformedError(f"has more than {MAX_SETTINGS_BYTES >> 20} MB")
        document = parse_json(content.decode("utf-8-sig"), non_finite=True)
        if not isinstance(document, dict):
            raise MalformedError("contains no JSON object")
    except UnicodeDecodeError:
        reason = "is not UTF-8 text"
    except OSError as problem:
        reason = f"cannot be read: {problem.strerror}"
    except MalformedError as problem:
        reason = str(problem)
    else:
        return document
    name = os.fspath(path)
    note(Finding(Code.FILE_PASSED_OVER, f"{name}: {reason}; passed over", name))
    return {}


class _RefusedError(ValueError):
    """Invalid JSON that Python's reader would accept."""


def _no_number(word: str) -> NoReturn:
    raise _RefusedError(f"{word} is not a number in JSON")


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    mapping = dict(pairs)
    if len(mapping) < len(pairs):
        counts = Counter(name for name, _ in pairs)
        raise _RefusedError(f"duplicate key '{next(name for name, count in counts.items() if count > 1)}'")
    return mapping
