"""Records read from the plain values of a file, and made plain values again.

A record is a frozen dataclass. Its fields are the keys of a mapping, with their types. A field without a
default is required, and no other keys are allowed. msgspec converts every value strictly, and keeps the
bounds and patterns of `Annotated[..., Meta(...)]`. This module walks from record to record, so that an error
names the place, the value, the allowed values and the nearest known word.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta

from .errors import MalformedError, not_one_of, same_word, unknown_key

Record = TypeVar("Record")
Decoders = Mapping[Any, Callable[[Any, str], Any]]
"""A type of a field -> function of the plain value and its place that returns what the field holds; for types
with a special notation in files."""
Encoders = Mapping[type, Callable[[Any], object]]
"""The other way round: a type of a value -> function that returns its plain value."""

Digest = Annotated[str, Meta(pattern="^[0-9a-f]{32}$", description="32 hexadecimal digits")]
Count = Annotated[int, Meta(ge=0)]
OutputKind = Literal["decision", "detections", "embedding", "signal", "state", "values"]
"""The kinds of outputs; `quantizer/noise/output_kinds.py` decides them."""


def read_record(
    value: object,
    record: type[Record],
    where: str = "",
    decoders: Decoders | None = None,
    without: Collection[str] = (),
) -> Record:
    """Return the record of a mapping, called `where` in messages; MalformedError names the first fault."""
    kind: Any = record
    values = read_fields(value, kind, where, decoders, without)
    for name, (_, is_required, is_argument) in _fields_read(kind).items():
        if is_required and name not in values:
            raise MalformedError(f"{where or 'the document'}: key '{name}' is missing")
        if not is_argument:  # it follows from the others
            values.pop(name, None)
    return record(**values)


def read_fields(
    value: object,
    record: type,
    where: str = "",
    decoders: Decoders | None = None,
    without: Collection[str] = (),
) -> dict[str, Any]:
    """Return those fields of a record that a mapping has, perhaps not all; see `read_record`."""
    if not isinstance(value, Mapping):
        raise MalformedError(f"{where or 'the document'} must be a mapping, not {_shown(value)}")
    hints = {name: hint for name, (hint, _, _) in _fields_read(record).items() if name not in without}
    prefix = f"{where}: " if where else ""
    for key in value:
        if key not in hints:
            raise unknown_key(where or "the document", str(key), hints)
    return {key: read_value(item, hints[key], f"{prefix}{key}", decoders) for key, item in value.items()}


@cache
def _fields_read(record: Any) -> Mapping[str, tuple[Any, bool, bool]]:
    """Return the type of each field, whether it has no default, and whether it is an argument."""
    hints = get_type_hints(record, include_extras=True)
    return {
        f.name: (hints[f.name], f.default is MISSING and f.default_factory is MISSING, f.init)
        for f in fields(record)
    }


def read_value(value: object, hint: Any, where: str, decoders: Decoders | None = None) -> Any:
    """Return a plain value as its type: a record, a mapping or list of some, or one of msgspec's own."""
    if decoders and hint in decoders:
        return decoders[hint](value, where)
    kind, args = _type_and_args(hint)
    if kind in (Any, object):  # its reader knows more
        return value
    if _is_record(kind):
        return read_record(value, kind, where, decoders)
    if kind is Mapping and isinstance(value, Mapping):
        plural = "es" if where.endswith("ses") else "s"
        place = where.removesuffix(plural)  # an entry of "tensors" is "tensor 'x'", of "biases" "bias 'x'"
        return {
            _converted(key, args[0], f"{place} '{key}'", strict=False): read_value(
                item, args[1], f"{place} '{key}'", decoders
            )
            for key, item in value.items()
        }
    if (kind is list or (kind is tuple and args[-1] is ...)) and isinstance(value, list | tuple):
        return kind(read_value(item, args[0], where, decoders) for item in value)
    if kind is UnionType and len(args) == 2 and NoneType in args:
        one = args[0] if args[1] is NoneType else args[1]
        return None if value is None else read_value(value, one, where, decoders)
    return _converted(value, hint, where)


_is_record = cache(is_dataclass)


def _converted(value: object, hint: Any, where: str, strict: bool = True) -> Any:
    try:
        converted = msgspec.convert(value, hint, strict=strict)
    except msgspec.ValidationError:
        if isinstance(value, float) and not math.isfinite(value):
            raise MalformedError(f"{where} must be finite, not {value}") from None
        kind, args = _type_and_args(hint)
        lists = [arg for arg in args if kind is UnionType and _type_and_args(arg)[0] is tuple]
        if lists and isinstance(value, list | tuple):
            return read_value(value, lists[0], where)
        words = _words(hint)
        if isinstance(value, Enum):  # of another tool, as QuantType.QUInt8
            return _converted(same_word(value.name, words) or value.name.lower(), hint, where)
        if words and isinstance(value, str):
            raise not_one_of(where, value, words) from None
        is_text = kind is str or (kind is UnionType and str in args)
        advice = "put it in quotes" if is_text and isinstance(value, int | float) else ""
        raise MalformedError(f"{where} must be {_expected(hint)}, not {_shown(value)}", advice) from None
    if isinstance(converted, float | tuple):
        for number in converted if isinstance(converted, tuple) else (converted,):
            if isinstance(number, float) and not math.isfinite(number):
                raise MalformedError(f"{where} must be finite, not {number}")
    return converted


@cache
def _type_and_args(hint: Any) -> tuple[Any, tuple[Any, ...]]:
    """Return the origin of a type, such as tuple or Literal, and its arguments; without annotations."""
    while get_origin(hint) is Annotated:
        hint = get_args(hint)[0]
    origin = get_origin(hint)
    return UnionType if origin is Union else origin or hint, get_args(hint)


def _words(hint: Any) -> list[str]:
    kind, args = _type_and_args(hint)
    if kind is Literal:
        return [str(word) for word in args]
    return [str(word) for word in kind] if isinstance(kind, type) and issubclass(kind, Enum) else []


def _expected(hint: Any) -> str:
    kind, args = _type_and_args(hint)
    metas = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
    bounds = next((meta for meta in metas if isinstance(meta, Meta)), Meta())
    if bounds.pattern is not None and bounds.description:
        return bounds.description
    if words := _words(hint):
        return f"one of {', '.join(words)}"
    if kind is tuple and args[-1] is ...:
        return "a list of names" if args[0] is str else f"a list, each {_expected(args[0])}"
    if kind is tuple:
        return f"a list of {len(args)} {'whole ' if _type_and_args(args[0])[0] is int else ''}numbers"
    if kind is UnionType:
        return " or ".join(
            _expected(arg) for arg in args if arg is not NoneType and not (arg is int and float in args)
        )
    if is_dataclass(kind):
        return "a mapping"
    low, high = bounds.ge, bounds.le
    span = f" from {low} to {high}" if high is not None else f" from {low} on" if low is not None else ""
    return _EXPECTED[kind] + span


_EXPECTED: Mapping[Any, str] = {
    str: "text",
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    list: "a list",
    dict: "a mapping",
    Mapping: "a mapping",
}


def _shown(value: object) -> str:
    if value is None:
        return "empty"
    if isinstance(value, Mapping | list | tuple):
        return "a mapping" if isinstance(value, Mapping) else "a list"
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."


def plain_value(value: object, encoders: Encoders | None = None) -> Any:
    """Return a value as plain ones; of a record without fields that are None by default."""
    kind: Any = type(value)
    if encoders and kind in encoders:
        return encoders[kind](value)
    if kind in _PLAIN:
        return value
    if _is_record(kind):
        return {
            name: plain_value(item, encoders)
            for name, is_none_told in _fields_of(kind)
            if (item := getattr(value, name)) is not None or is_none_told
        }
    if isinstance(value, Mapping):
        return {str(key): plain_value(item, encoders) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [plain_value(item, encoders) for item in value]
    return value


_PLAIN = frozenset({str, int, float, bool, NoneType})


@cache
def _fields_of(record: type) -> tuple[tuple[str, bool], ...]:
    """Return the names of the fields, each with whether None is written because it is not the default."""
    return tuple((field.name, field.default is not None) for field in fields(record))


def keys_at(value: object, where: str, keys: Collection[str]) -> dict[str, object]:
    """Return a mapping that has these keys and no others, else raise MalformedError."""
    mapping: dict[str, object] = read_value(value, dict[str, object], where)
    for key in mapping:
        if key not in keys:
            raise unknown_key(where, key, keys)
    for key in keys:
        if key not in mapping:
            raise MalformedError(f"{where}: key '{key}' is missing")
    return mapping
