"""Values of a file as the fields of a record: msgspec converts each strictly, and says what its type allows.

What does not fit becomes a sentence with the place, the value, what is allowed and the nearest known word.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import fields
from functools import cache
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import msgspec

from ...profiles.base.strict_yaml import MalformedError
from .config import QuantConfig, settings
from .words import malformed, not_one_of, unknown_key


def config_from_mapping(value: object, where: str = "") -> QuantConfig:
    """Return the settings that a mapping holds; a setting that is missing has its default.

    Args:
        value: names of settings to values, as read from a file or given by a caller.
        where: what the mapping is called in messages, "" for no name.

    Raises:
        MalformedError: no mapping, an unknown name, a value that is not allowed.
    """
    return QuantConfig(**settings_from_mapping(value, where))


def settings_from_mapping(value: object, where: str = "") -> dict[str, Any]:
    """Return the settings that a mapping holds, as the fields of `QuantConfig` hold them; see
    `config_from_mapping`."""
    found = fields_from_mapping(value, QuantConfig, where)
    for name, item in found.items():
        check = settings()[name].check
        if check is not None:
            try:
                check(item)
            except MalformedError as problem:
                raise malformed(f"{_prefix(where)}{_named(name, str(problem))}", problem.advice) from None
    return found


def _named(name: str, sentence: str) -> str:
    """Return a sentence of a check with the name of the setting before it, unless it begins with that."""
    return sentence if sentence.startswith(name) else f"{name}: {sentence}"


def fields_from_mapping(
    value: object, record: type, where: str = "", without: Iterable[str] = ()
) -> dict[str, Any]:
    """Return the fields of a record that a mapping holds, each converted to its type.

    Args:
        value: names of fields to values.
        record: a dataclass.
        where: what the mapping is called in messages, "" for no name.
        without: fields of the record that the mapping may not hold.

    Raises:
        MalformedError: no mapping, an unknown name, a value that is not of the field's type.
    """
    if not isinstance(value, Mapping):
        raise malformed(f"{where or 'the document'} must be a mapping, not {_shown(value)}")
    hints = {name: hint for name, hint in _hints(record).items() if name not in set(without)}
    for key in value:
        if key not in hints:
            raise unknown_key(_prefix(where), str(key), hints)
    return {key: _converted(item, hints[key], f"{_prefix(where)}{key}") for key, item in value.items()}


@cache
def _hints(record: type) -> Mapping[str, Any]:
    hints = get_type_hints(record, include_extras=True)
    return {field.name: hints[field.name] for field in fields(record)}


def _converted(value: object, hint: Any, where: str) -> Any:
    """Return a value as its type holds it; raise MalformedError about the first part that does not fit."""
    try:
        found = msgspec.convert(value, hint)
    except msgspec.ValidationError:
        kind, args = _plain(hint)
        if kind is Literal and isinstance(value, str):
            raise not_one_of(where, value, args) from None
        if kind is Mapping and isinstance(value, Mapping):
            for key, item in value.items():
                _converted(item, args[1], f"{where}: {key}")
        elif kind is tuple and args[-1] is ... and isinstance(value, list | tuple):
            for item in value:
                _converted(item, args[0], where)
        raise malformed(f"{where} must be {_expected(hint)}, not {_shown(value)}") from None
    if isinstance(found, float) and not math.isfinite(found):
        raise malformed(f"{where} must be finite, not {found}")
    return found


def _plain(hint: Any) -> tuple[Any, tuple[Any, ...]]:
    """Return what a type is, such as tuple or Literal, and its arguments; without what is annotated."""
    if get_origin(hint) is Annotated:
        hint = get_args(hint)[0]
    return get_origin(hint) or hint, get_args(hint)


def _expected(hint: Any) -> str:
    kind, args = _plain(hint)
    if kind in _EXPECTED:
        return _EXPECTED[kind]
    if kind is Literal:
        return f"one of {', '.join(args)}"
    if kind is tuple:
        return "a list of names" if args[-1] is ... else f"a list of {len(args)} whole numbers"
    return _expected(args[0])  # an optional value


_EXPECTED: Mapping[Any, str] = {
    str: "text",
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    Mapping: "a mapping",
}


def _prefix(where: str) -> str:
    return f"{where}: " if where else ""


def _shown(value: object) -> str:
    if value is None:
        return "empty"
    if isinstance(value, Mapping):
        return "a mapping"
    return "a list" if isinstance(value, list | tuple) else repr(value)
