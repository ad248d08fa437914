"""Arguments of public functions, and keywords that become fields, held against the types that they declare.

Python accepts any type, and a list in place of a path fails deep inside. These messages name the expected
type.
"""

from __future__ import annotations

import inspect
import numbers
from collections.abc import Callable, Iterable, Mapping
from functools import cache, wraps
from itertools import chain, cycle
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, ParamSpec, TypeVar, Union, get_args, get_origin

from .errors import ConfigError
from .options import types_of, types_of_function

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
    """Return a function that refuses arguments of other types than it declares, and shows their order."""
    name = function.__name__

    @wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        types, kinds = _types_of(function), inspect.signature(function).parameters
        rest = [one for one in types if kinds[one].kind is inspect.Parameter.VAR_POSITIONAL]
        places = chain((one for one in types if one not in rest), cycle(rest))
        for parameter, value in zip(places, args, strict=False):  # more than there are: Python's own error
            if not is_of_type(value, types[parameter]):
                named = (
                    n for n in types if kinds[n].kind is not inspect.Parameter.KEYWORD_ONLY and n != "self"
                )
                wrong = _of_wrong_type(f"{name}: {parameter}", value, types[parameter])
                raise ConfigError(f"{wrong}. The order is {name}({', '.join(named)})")
        check_types(name, types, kwargs)
        return function(*args, **kwargs)

    return checked


def check_types(function: str, types: Mapping[str, Any], keywords: Mapping[str, object]) -> None:
    """Refuse keywords of a call of another type than that of their name; Python refuses other names."""
    for name, value in keywords.items():
        if name in types and not is_of_type(value, types[name]):
            raise ConfigError(_of_wrong_type(f"{function}: {name}", value, types[name]))


def check_fields(function: str, record: type, keywords: Mapping[str, object]) -> None:
    """Refuse keywords of a call whose types differ from those of the fields of a dataclass."""
    # No latency, or no progress, may be called False too.
    others = {name: value for name, value in keywords.items() if not isinstance(value, bool)}
    check_types(function, types_of(record), others)


@cache
def _types_of(function: Callable[..., object]) -> Mapping[str, Any]:
    """Return the types of the parameters that are named, in order."""
    hints = types_of_function(function)
    kinds = inspect.signature(function).parameters
    return {name: hints.get(name, Any) for name, one in kinds.items() if one.kind is not one.VAR_KEYWORD}


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
        return isinstance(value, tuple({type(word) for word in get_args(hint)}))
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
    takes_all = not items or items[0] in (Any, int, str)
    is_wrong_mapping = isinstance(value, Mapping) and not issubclass(kind, Mapping) and not takes_all
    if isinstance(value, str | bytes) or is_wrong_mapping:
        return False
    is_one = isinstance(value, kind) or (kind is Iterable and hasattr(value, "__getitem__"))
    if not is_one or takes_all or not isinstance(value, list | tuple):
        return is_one
    return all(is_of_type(item, items[0]) for item in value)


def _of_wrong_type(where: str, value: object, hint: Any) -> str:
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
