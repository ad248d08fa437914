"""Options described once: the field of a frozen dataclass says name, type, default, unit, help and group.

    threads: Annotated[int, option("Speed", metavar="N")] = 1

From such fields follow the options of the command line, the readers of YAML, the JSON Schema and the pages.
The help is the sentence that the docstring of the dataclass has on the field, up to "In Python:"; one that is
computed is given.
Nothing here is slow to import: `--help` needs it.
"""

from __future__ import annotations

import builtins
import json
import re
import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import MISSING, dataclass, fields, replace
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from msgspec import Meta

Group = Literal["Basic", "Output format", "Calibration and precision", "Quality", "Speed", "Files"]
"""Under which heading `--help` lists an option."""

Takes = Literal["", "file", "new file", "truth", "data", "recipe", "size", "share", "points"]
"""Meaning of the text of an option that is neither a word nor a number: a file that is read or written, the
labels of a metric (a file or folder), samples, a recipe of preprocessing; bytes ("size"), a share, in percent
where it says so ("share"), or points, with or without a sign of percent ("points")."""


@dataclass(frozen=True)
class Option:
    """One field of a record of options.

    Attributes:
        group: heading in `--help`; "" for a setting of a file.
        description: one sentence, in `--help` and in the JSON Schema; "Gate: ..." for a limit.
        words: that it may be, or that complete it; empty for a number or a free text.
        flag: on the command line; "" for a setting of a file.
        metavar: stands for a value that is no word.
        takes: kind of thing that its text names.
        least: smallest value on the command line.
        check: called with the value, raises MalformedError.
        name: of the field.
        kind: bool, int, float, str, or tuple for a list of texts.
        default: default of the field; None if it has no default, or one that cannot be written as text.
    """

    group: Group | Literal[""]
    description: str
    words: tuple[str, ...]
    flag: str
    metavar: str
    takes: Takes
    least: float | None
    check: Callable[[Any], object] | None
    name: str = ""
    kind: type = str
    default: Any = None

    def given(self, value: object) -> tuple[str, ...]:
        """Return the words of the command line that give it a value; none of an empty list."""
        if isinstance(value, tuple) and (self.flag or not value):
            return tuple(word for one in value for word in (self.flag, str(one)))
        if isinstance(value, tuple):
            return ("--set", f"{self.name}={json.dumps(value, ensure_ascii=False)}")
        text = f"{value:g}" if isinstance(value, float) else str(value)
        return (self.flag, text) if self.flag else ("--set", f"{self.name}={text}")


def option(
    group: Group | Literal[""],
    description: str = "",
    *,
    words: Collection[str] = (),
    flag: str = "",
    metavar: str = "",
    takes: Takes = "",
    least: float | None = None,
    check: Callable[[Any], object] | None = None,
) -> Meta:
    """Return the description of an option; the words may follow from its type, the flag from its name."""
    described = Option(group, description, tuple(words), flag, metavar, takes, least, check)
    return Meta(description=description or None, extra={"option": described})


def setting(
    description: str = "", *, words: Collection[str] = (), check: Callable[[Any], object] | None = None
) -> Meta:
    """Return the description of a setting of a file that has no option, only `--set`."""
    return option("", description, words=words, check=check)


class _Names(dict[str, Any]):
    """Names as modules see them; those that only type checkers import may be any type."""

    def __init__(self, *modules: str) -> None:
        super().__init__()
        for module in modules:
            self.update(vars(sys.modules[module]))

    def __missing__(self, name: str) -> Any:
        return getattr(builtins, name, Any)


@cache
def types_of(record: type) -> Mapping[str, Any]:
    """Return the types of the fields of a record, with their descriptions."""
    modules = (base.__module__ for base in reversed(record.__mro__))
    return get_type_hints(record, localns=_Names(*modules), include_extras=True)


def types_of_function(function: Callable[..., object]) -> Mapping[str, Any]:
    """Return the types of the parameters of a function."""
    return get_type_hints(function, localns=_Names(function.__module__))


ATTRIBUTES = "\n\n    Attributes:\n"
"""What stands before the attributes in the docstring of a record."""


def sentences_of(docstring: str) -> dict[str, str]:
    """Return the sentence that the docstring of a record has on each of its fields."""
    entries = re.findall(
        r"^ {8}(\w[\w, ]*): (.*(?:\n {12}.*)*)", docstring.partition(ATTRIBUTES)[2], re.MULTILINE
    )
    return {name: " ".join(text.split()) for names, text in entries for name in names.split(", ")}


@cache
def options_of(record: type) -> Mapping[str, Option]:
    """Return the options of a record, in the order of its fields: those whose type has an `option`."""
    hints, sentences = types_of(record), dict[str, str]()
    for base in reversed(record.__mro__):
        sentences |= sentences_of(base.__doc__ or "")
    options = {}
    for field in fields(record):
        if get_origin(hints[field.name]) is not Annotated:
            continue
        kind, *metas = get_args(hints[field.name])
        sentence = sentences.get(field.name, "").partition(" In Python: ")[0]
        for meta in metas:
            if isinstance(meta, Meta) and meta.extra:
                described: Option = meta.extra["option"]
                value_kind, words = _kind_and_words(kind)
                options[field.name] = replace(
                    described,
                    description=described.description or sentence.replace(" [default: ", "  [default: "),
                    words=described.words or words,
                    flag=described.flag or (f"--{field.name.replace('_', '-')}" if described.group else ""),
                    name=field.name,
                    kind=value_kind,
                    default=None if field.default is MISSING else field.default,
                )
    return options


def _kind_and_words(kind: Any) -> tuple[type, tuple[str, ...]]:
    """Return the kind of an option's value and the words of its type; of a union, of its first member."""
    if get_origin(kind) in (Union, UnionType):
        members = [member for member in get_args(kind) if member is not NoneType]
        return _kind_and_words(members[0])
    if get_origin(kind) is Literal:
        return str, get_args(kind)
    if kind is Any:
        return str, ()
    plain: type = get_origin(kind) or kind
    if plain in (bool, int, float, str):
        return plain, ()
    return (tuple if issubclass(plain, Collection) else str), ()
