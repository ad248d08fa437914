"""YAML as qprof writes and reads it: exact scalars out, strict documents in.

The text is written here and not by a YAML emitter: the layouts are few and fixed, long lines are not wrapped,
and the bytes do not depend on whether libyaml is installed. Reading uses PyYAML's parser (libyaml's where
installed) for the syntax; the scalars are resolved here, by the core schema of YAML 1.2: `1e-5` is a number,
while `no`, `on` and `12:30` are text, and keys are always text, as tensors may be called `123`. Anchors, tags
and duplicate keys are refused, so a document means what it looks like.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence

import yaml

from .errors import nearest

try:
    from yaml import CSafeLoader as _Loader
except ImportError:  # PyYAML without libyaml
    from yaml import SafeLoader as _Loader  # type: ignore[assignment]

INT = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
FLOAT = re.compile(
    r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"
)
NULL = ("null", "Null", "NULL", "~", "")
BOOL = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}

_PLAIN = re.compile(r"[A-Za-z_/][A-Za-z0-9_/.+-]*( [A-Za-z0-9_/.+-]+)*")
_TAKEN_WORDS = frozenset({"null", "true", "false", "yes", "no", "on", "off", "y", "n"})  # by YAML 1.1 or 1.2
_ESCAPED = re.compile(
    "[^ !#-\\[\\]-~\u00a1-\u2027\u202a-\ud7ff\uf900-\ufdcf\uff01-\uffef\U00010000-\U0010ffff]"
)
_SHORT = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}
_KEY_LIMIT = 1000
"""A key on the line of its value may have 1024 characters in YAML."""
_DEPTH_LIMIT = 50


class MalformedError(ValueError):
    """A document is not what it must be. `advice` is what to do, "" to use the caller's."""

    def __init__(self, what: str, advice: str = "") -> None:
        super().__init__(what)
        self.advice = advice

    def message(self, file: object, advice: str) -> str:
        """Return the whole message: file, what is wrong, what to do (`advice` unless it has its own)."""
        return f"{file}: {self}; {self.advice or advice}"


# Writing ---------------------------------------------------------------------------------------------------


def flow_text(value: object) -> str:
    """Return `value` on one line: a scalar, or a list or mapping of scalars in flow style.

    Raises:
        ValueError: a number is not finite.
        TypeError: the value is of another type.
    """
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int():
            return str(int(value))
        case float():
            return float_text(value)
        case str():
            return text(value)
        case Mapping():
            return "{" + ", ".join(f"{text(str(k))}: {flow_text(v)}" for k, v in value.items()) + "}"
        case Sequence():
            return "[" + ", ".join(map(flow_text, value)) + "]"
    raise TypeError(f"{type(value).__name__} cannot be written in YAML")


def float_text(value: float, shortest: str | None = None) -> str:
    """Return a finite float by `repr`, or the `shortest` decimal given, with the dot that YAML 1.1 wants."""
    if not math.isfinite(value):
        raise ValueError(f"{value} is not finite")
    digits = shortest or repr(float(value))
    return digits.replace("e", ".0e") if "e" in digits and "." not in digits else digits


def text(value: str) -> str:
    """Return a string as it is when no YAML reader can take it for anything else, else double-quoted."""
    if _PLAIN.fullmatch(value) and value.lower() not in _TAKEN_WORDS:
        return value
    return '"' + _ESCAPED.sub(_escape, value) + '"'


def _escape(match: re.Match[str]) -> str:
    char, code = match[0], ord(match[0])
    if char in _SHORT:
        return _SHORT[char]
    if 0xD800 <= code <= 0xDFFF:  # half a pair, from an undecodable file name: no text file can hold it
        return "\\ufffd"
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def entry(key: str, value: str, indent: int = 0) -> str:
    """Return the lines of one entry of a block mapping; `value` is YAML text, or starts with "\\n"."""
    pad = " " * indent
    name = text(key)
    gap = "" if value.startswith("\n") else " "
    if len(name) > _KEY_LIMIT:
        return f"{pad}? {name}\n{pad}:{gap}{value}\n"
    return f"{pad}{name}:{gap}{value}\n"


def block(mapping: Mapping[str, object], indent: int = 0) -> str:
    """Return a mapping with one entry a line, the values in flow style."""
    return "".join(entry(key, flow_text(value), indent) for key, value in mapping.items())


# Reading ---------------------------------------------------------------------------------------------------


def parse(document: str) -> object:
    """Return the one document in a text, as dicts, lists, str, int, float, bool and None.

    Raises:
        MalformedError: not YAML, not one document, or it uses a feature that qprof refuses; the line is
            named.
    """
    documents = parse_all(document)
    if len(documents) != 1:
        raise MalformedError(f"holds {len(documents)} YAML documents instead of one")
    return documents[0]


def parse_all(documents: str) -> list[object]:
    """Return all documents in a text; see `parse`."""
    at = documents.find("\ufeff", 1)
    if at >= 0:  # libyaml takes it for white space, other readers for text
        where = documents.count("\n", 0, at) + 1
        raise MalformedError(f"line {where}: a byte order mark amid the text", "remove it")
    try:
        return _built(yaml.parse(documents, Loader=_Loader))
    except yaml.MarkedYAMLError as problem:
        mark = problem.problem_mark or problem.context_mark
        line = f"line {mark.line + 1}: " if mark else ""
        raise MalformedError(f"{line}not YAML: {problem.problem or problem.context}") from None
    except yaml.YAMLError as problem:  # a character that YAML forbids
        raise MalformedError(f"not YAML: {' '.join(str(problem).split())}") from None


def _built(events: Iterable[yaml.Event]) -> list[object]:
    """Return the documents that a stream of events describes.

    A stack instead of recursion: libyaml's own composer crashes on deep nesting.
    """
    documents: list[object] = []
    frames: list[list[object] | dict[str, object]] = [documents]
    keys: list[str | None] = [None]  # beside each frame: the key that waits for its value
    for event in events:
        if getattr(event, "anchor", None) is not None or getattr(event, "tag", None) is not None:
            raise _refusal(event)
        at_key = isinstance(frames[-1], dict) and keys[-1] is None
        value: object
        if isinstance(event, yaml.ScalarEvent):
            value = event.value if at_key or event.style else _resolved(event)
        elif isinstance(event, yaml.CollectionStartEvent):
            if at_key:
                raise MalformedError(f"{_line(event)}: a key must be a single word or a quoted text")
            if len(frames) > _DEPTH_LIMIT:
                raise MalformedError(f"{_line(event)}: lists and mappings are nested too deeply")
            frames.append({} if isinstance(event, yaml.MappingStartEvent) else [])
            keys.append(None)
            continue
        elif isinstance(event, yaml.CollectionEndEvent):
            value = frames.pop()
            keys.pop()
        else:  # starts and ends of stream and documents
            continue
        keys[-1] = _attached(frames[-1], keys[-1], value, event)
    return documents


def _line(event: yaml.Event) -> str:
    """Return where an event is, for messages."""
    return f"line {event.start_mark.line + 1}" if event.start_mark else "the document"


def _refusal(event: yaml.Event) -> MalformedError:
    """Return the error of an event with an anchor or a tag."""
    if getattr(event, "anchor", None) is not None:
        advice = "write the value out"
        return MalformedError(f"{_line(event)}: anchors and aliases are not used here", advice)
    tag = getattr(event, "tag", None)
    return MalformedError(f"{_line(event)}: the tag '{tag}' is not used here", "remove the tag")


def _attached(
    parent: list[object] | dict[str, object], key: str | None, value: object, event: yaml.Event
) -> str | None:
    """Put a value into its list or mapping, or return it when it is a key that waits for its value."""
    if isinstance(parent, list):
        parent.append(value)
    elif key is not None:
        parent[key] = value
    elif value in parent:
        raise MalformedError(f"{_line(event)}: duplicate key '{value}'", "keep one of the two entries")
    else:
        return str(value)
    return None


def _resolved(event: yaml.ScalarEvent) -> object:
    """Return the value of a word without quotes."""
    word: str = event.value
    if word in NULL:
        return None
    if word in BOOL:
        return BOOL[word]
    try:
        if INT.fullmatch(word):
            return int(word, 0) if word[:2] in ("0x", "0o") else int(word)
        if FLOAT.fullmatch(word):
            return float(word.replace(".", "", 1) if word[-1] in "fFnN" else word)
    except ValueError:  # Python's limit on digits
        raise MalformedError(f"{_line(event)}: a number of {len(word)} digits is too long") from None
    return word


# Checking --------------------------------------------------------------------------------------------------


def fields(
    value: object, where: str, required: Iterable[str], optional: Iterable[str] = ()
) -> dict[str, object]:
    """Return a mapping that has all required keys and none unknown.

    Raises:
        MalformedError: not a mapping, or a key is missing or unknown (the nearest allowed one is suggested).
    """
    mapping, required = mapping_at(value, where), tuple(required)
    allowed = (*required, *optional)
    for key in mapping:
        if key not in allowed:
            raise MalformedError(
                f"{where}: unknown key '{key}'", f"known are {', '.join(allowed)}.{nearest(key, allowed)}"
            )
    for key in required:
        if key not in mapping:
            raise MalformedError(f"{where}: key '{key}' is missing")
    return mapping


def mapping_at(value: object, where: str) -> dict[str, object]:
    """Return `value` when it is a mapping, else raise MalformedError."""
    if not isinstance(value, dict):
        raise MalformedError(f"{where} must be a mapping, not {_kind(value)}")
    return value


def list_at(value: object, where: str) -> list[object]:
    """Return `value` when it is a list, else raise MalformedError."""
    if not isinstance(value, list):
        raise MalformedError(f"{where} must be a list, not {_kind(value)}")
    return value


def text_at(value: object, where: str) -> str:
    """Return `value` when it is text, else raise MalformedError."""
    if not isinstance(value, str):
        raise MalformedError(
            f"{where} must be text, not {_kind(value)}", "put it in quotes if it looks like a number"
        )
    return value


def flag_at(value: object, where: str) -> bool:
    """Return `value` when it is true or false, else raise MalformedError."""
    if not isinstance(value, bool):
        raise MalformedError(f"{where} is {_kind(value)}, expected true or false")
    return value


def integer_at(value: object, where: str, low: int | None = None) -> int:
    """Return `value` when it is an integer of at least `low`, else raise MalformedError."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise MalformedError(f"{where} must be an integer, not {_kind(value)}")
    if low is not None and value < low:
        raise MalformedError(f"{where} is {value}, below {low}")
    return value


def float_at(value: object, where: str) -> float:
    """Return `value` as a float when it is a finite number, else raise MalformedError."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise MalformedError(f"{where} must be a number, not {_kind(value)}")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise MalformedError(f"{where} must be finite, not {number}")
    return number


def _kind(value: object) -> str:
    if value is None:
        return "empty"
    if isinstance(value, dict | list):
        return "a mapping" if isinstance(value, dict) else "a list"
    shown = repr(value)
    return shown if len(shown) <= 40 else shown[:37] + "..."


def check_format(document: object, family: str, version: int, advice: str) -> dict[str, object]:
    """Return the top mapping of a file whose `format` is `family`/1 .. `family`/`version`.

    Raises:
        MalformedError: not a mapping, no format, another family (`advice` says what to give), or newer.
    """
    top = mapping_at(document, "the document")
    if "format" not in top:
        raise MalformedError("key 'format' is missing", advice)
    written = top["format"]
    name, _, number = written.partition("/") if isinstance(written, str) else (str(written), "", "")
    if name != family or not re.fullmatch("[1-9][0-9]*", number):
        raise MalformedError(f"unknown format '{written}', expected '{family}/{version}'", advice)
    if len(number) > 9 or int(number) > version:
        raise MalformedError(
            f"format '{written}' is newer than this qprof, which reads up to '{family}/{version}'",
            "upgrade qprof-onnx",
        )
    return top


def check_whole(document: str) -> None:
    """Raise MalformedError when a text does not end with the line "..." that every file of qprof has."""
    if document.rstrip().rpartition("\n")[2] != "...":
        raise MalformedError(
            "the file is cut off: its last line is not '...'",
            "copy or write it again; if it is whole, put the line back",
        )
