"""Arguments of public functions, and keywords that become fields, held against the types that they declare.

Python accepts any type, and a list in place of a path fails deep inside. These messages name the expected
type.
"""

from __future__ import annotations

import inspect
import math
import numbers
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cache, wraps
from types import GenericAlias, NoneType, UnionType
from typing import Annotated, Any, Literal, ParamSpec, TypeVar, Union, get_args, get_origin

from .errors import IN_COMMAND, ConfigError, QprofError, in_python, nearest_option
from .options import options_of, types_of, types_of_function

P = ParamSpec("P")
R = TypeVar("R")

NUMBERS: Mapping[type, tuple[type, str]] = {
    int: (numbers.Integral, "a whole number"),
    float: (numbers.Real, "a number"),
}
"""What a number may be, as those of numpy are too, and how it is called."""

WORDS = {
    "str": "a text",
    "bool": "True or False",
    "PathLike": "a path",
    "Callable": "a function",
    "Iterable": "an iterable",
    "Sequence": "a list",
    "Collection": "a list",
    "Mapping": "a mapping",
    "Reader": "a reader",
    "ndarray": "an array",
    "ModelProto": "an onnx.ModelProto",
    "Model": "an onnx_ir.Model",
}
"""Words for types whose name is not used in messages."""

ARRAYS = ("__array__", "__array_interface__", "__dlpack__")


def checks_arguments(function: Callable[P, R]) -> Callable[P, R]:
    """Return a function that refuses arguments of other types than it declares, and names those of Python."""
    name = function.__name__

    @wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        types, kinds = _types_of(function), inspect.signature(function).parameters
        places = [one for one in types if kinds[one].kind is not inspect.Parameter.KEYWORD_ONLY]
        order = ", ".join(one for one in places if one != "self")
        given: dict[str, object] = dict(zip(places, args, strict=False))  # of too many Python tells
        if kinds[places[-1]].kind is inspect.Parameter.VAR_POSITIONAL:
            given[places[-1]] = args[len(places) - 1 :]
        check_types(f"{name}: ", types, given, f". The order is {name}({order})")
        check_types(f"{name}: ", types, kwargs)
        if not any(one.kind is one.VAR_KEYWORD for one in kinds.values()):
            check_names(name, kwargs, types)
        try:
            return function(*args, **kwargs)
        except QprofError as error:
            if not IN_COMMAND.get():
                error.args = tuple(in_python(str(part)) for part in error.args)
            raise

    return checked


def check_names(function: str, keywords: Iterable[str], known: Collection[str]) -> None:
    """Refuse keywords of a call that are not known, with the nearest one."""
    for name in keywords:
        if name not in known:
            near = nearest_option(name, known) or " docs/migration.md has the names of other quantizers."
            raise ConfigError(f"{function}: there is no keyword '{name}'; see help.{near}")


def check_types(where: str, types: Mapping[str, Any], given: Mapping[str, object], more: str = "") -> None:
    """Refuse values of a call of another type than that of their name; other names pass."""
    for name, value in given.items():
        if name in types and not is_of_type(value, types[name]):
            raise ConfigError(_of_wrong_type(f"{where}{name}", value, types[name]) + more)


def check_record(record: object) -> None:
    """Refuse fields of another type than they declare, not finite, or below the least that may be given."""
    kind: type = type(record)
    described = options_of(kind)
    check_types("", types_of(kind), vars(record))
    for name, value in vars(record).items():
        is_fraction = isinstance(value, numbers.Real) and not isinstance(value, numbers.Integral)
        if is_fraction and not math.isfinite(value):
            raise ConfigError(f"{name}: {value} is not finite; give a number, or leave it out")
        least = described[name].least if name in described else None
        if least is not None and value is not None and value < least:
            raise ConfigError(f"{name}: {value:g} is below {least:g}; give {least:g} or more")


@cache
def _types_of(function: Callable[..., object]) -> Mapping[str, Any]:
    """Return the types of the parameters that are named, in order."""
    hints = types_of_function(function)
    kinds = inspect.signature(function).parameters
    types = {name: hints.get(name, Any) for name, one in kinds.items() if one.kind is not one.VAR_KEYWORD}
    rest = [name for name in types if kinds[name].kind is inspect.Parameter.VAR_POSITIONAL]
    return {**types, **{one: GenericAlias(Sequence, types[one]) for one in rest}}


def is_of_type(value: object, hint: Any) -> bool:
    """Return whether a value may be given for a type; types that are not known here accept anything.

    An array is anything that numpy can read, an iterable has at least items by number, and a text is not a
    collection of texts.
    """
    origin = get_origin(hint)
    if origin is Annotated:
        return is_of_type(value, get_args(hint)[0])
    if origin in (Union, UnionType):
        return any(is_of_type(value, member) for member in get_args(hint))
    if origin is Literal:
        return isinstance(value, str) and value in get_args(hint)
    if hint is None or hint is NoneType:
        return value is None
    kind = origin or hint
    if not isinstance(kind, type) or kind in (Any, object):
        return True
    if kind in NUMBERS:
        return isinstance(value, NUMBERS[kind][0]) and not isinstance(value, bool)
    if kind.__module__.partition(".")[0] == "numpy":
        return any(hasattr(value, name) for name in ARRAYS)
    if getattr(kind, "_is_protocol", False):
        return all(hasattr(value, name) for name in vars(kind) if not name.startswith("_"))
    if kind.__name__ == "Callable":
        return callable(value)
    if not issubclass(kind, Iterable) or issubclass(kind, str):
        return isinstance(value, kind)
    items = get_args(hint)
    takes_all = not items or items[0] is Any
    is_wrong_mapping = isinstance(value, Mapping) and not issubclass(kind, Mapping) and not takes_all
    if isinstance(value, str | bytes) or is_wrong_mapping:
        return False
    is_one = isinstance(value, kind) or (kind is Iterable and hasattr(value, "__getitem__"))
    if not is_one or takes_all or not isinstance(value, list | tuple):
        return is_one
    return all(is_of_type(item, items[0]) for item in value)


def _of_wrong_type(where: str, value: object, hint: Any) -> str:
    for one in get_args(hint) if get_origin(hint) in (Union, UnionType) else [hint]:
        if isinstance(value, list | tuple) and is_of_type(value[:0], one):  # so it is one of its items
            kind = get_args(one)[0]
            number = next(i for i, item in enumerate(value) if not is_of_type(item, kind))
            return _of_wrong_type(f"{where}[{number}]", value[number], kind)
    *words, last = _words(hint)
    if isinstance(value, str | numbers.Number):
        given = f"{value!r}"[:80]
    elif isinstance(value, type):
        given = f"the class {value.__name__}"
    else:
        given = "a function" if inspect.isroutine(value) else f"of type {type(value).__name__}"
    return f"{where}: is {given}; give {', '.join(words)}{' or ' if words else ''}{last}"


def _words(hint: Any) -> list[str]:
    """Return how the values of a type are called, each once."""
    origin = get_origin(hint)
    if origin is Annotated:
        return _words(get_args(hint)[0])
    if origin in (Union, UnionType):
        words = [word for one in get_args(hint) if one is not NoneType for word in _words(one)]
        without = {"a text"} if "a path" in words else set[str]()
        return [word for word in dict.fromkeys(words) if word not in without]
    if origin is Literal:
        return [f"'{word}'" for word in get_args(hint)]
    kind = origin or hint
    if kind in NUMBERS:
        return [NUMBERS[kind][1]]
    name = str(getattr(kind, "__name__", kind))
    return [WORDS.get(name, f"{'an' if name[0] in 'AEIO' else 'a'} {name}")]
