"""YAML as qprof writes and reads it: exact scalars out, strict documents in.

This module writes text itself, without a YAML emitter: the layouts are few and fixed, long lines are not
wrapped, and the bytes do not depend on whether libyaml is installed. Reading uses PyYAML's parser (libyaml's
if installed) for the syntax. This module resolves scalars by the core schema of YAML 1.2: `1e-5` is a number,
while `no`, `on` and `12:30` are text. Keys are always text, because tensors may be called `123`. Anchors,
tags and duplicate keys are rejected.
"""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import yaml

from .errors import MalformedError

INT = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
FLOAT = re.compile(
    r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"
)
NULL = ("null", "Null", "NULL", "~", "")
BOOL = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}

_PLAIN = re.compile(r"[A-Za-z_/][A-Za-z0-9_/.+-]*( [A-Za-z0-9_/.+-]+)*")
_TAKEN_WORDS = frozenset({"null", "true", "false", "yes", "no", "on", "off", "y", "n"})  # by YAML 1.1 or 1.2
_ESCAPED = "[^ !#-\\[\\]-~\u00a1-\u2027\u202a-\ud7ff\uf900-\ufdcf\uff01-\uffef\U00010000-\U0010ffff]"
_KEY_LIMIT = 1000
"""A key on the line of its value may have 1024 characters in YAML."""
_DEPTH_LIMIT = 50
"""Lists and mappings in each other."""


# Writing ---------------------------------------------------------------------------------------------------


def flow_text(value: object) -> str:
    """Return scalars, lists and mappings on one line, bytes in base 64; ValueError for NaN and infinity."""
    if isinstance(value, str):  # most are
        return text(value)
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int():
            return str(int(value))
        case float():
            if not math.isfinite(value):
                raise ValueError(f"{value} is not finite")
            digits = repr(float(value))  # YAML 1.1 wants a dot
            return digits.replace("e", ".0e") if "e" in digits and "." not in digits else digits
        case bytes():
            return f'"{base64.b64encode(value).decode()}"'
        case Mapping():
            return "{" + ", ".join(f"{flow_text(k)}: {flow_text(v)}" for k, v in value.items()) + "}"
        case Sequence():
            return "[" + ", ".join(map(flow_text, value)) + "]"
    raise TypeError(f"{type(value).__name__} cannot be written in YAML")


def text(value: str) -> str:
    """Return a string unchanged if every YAML reader takes it for a string, else double-quoted."""
    if _PLAIN.fullmatch(value) and value.lower() not in _TAKEN_WORDS:
        return value
    if not (value.isascii() and value.isprintable()) or '"' in value or "\\" in value:
        value = re.sub(_ESCAPED, _escape, value)
    return f'"{value}"'


def _escape(match: re.Match[str]) -> str:
    if match[0] == '"':
        return '\\"'
    if "\ud800" <= match[0] <= "\udfff":  # half a pair, of an undecodable file name: no text file has it
        return "\\ufffd"
    return match[0].encode("unicode_escape").decode()


def entry(key: str, value: str, indent: int = 0) -> str:
    """Return the lines of one entry of a block mapping; `value` is YAML text, or starts with "\\n"."""
    pad = " " * indent
    name = text(key)
    gap = "" if value.startswith("\n") else " "
    if len(name) > _KEY_LIMIT:
        return f"{pad}? {name}\n{pad}:{gap}{value}\n"
    return f"{pad}{name}:{gap}{value}\n"


def block(mapping: Mapping[str, object], indent: int = 0, levels: int = 1) -> str:
    """Return a mapping with one entry a line, as mappings in it to a depth of `levels`; others in flow."""
    lines = []
    for key, value in mapping.items():
        if levels > 1 and isinstance(value, Mapping) and value:
            written = "\n" + block(value, indent + 2, levels - 1).rstrip("\n")
        else:
            written = flow_text(value)
        lines.append(entry(key, written, indent))
    return "".join(lines)


# Reading ---------------------------------------------------------------------------------------------------


def parse(document: str) -> object:
    """Return the one document in a text; MalformedError, with the line, if the text is not one document."""
    documents = parse_all(document)
    if len(documents) != 1:
        raise MalformedError(f"contains {len(documents)} YAML documents instead of one")
    return documents[0]


def parse_all(documents: str) -> list[object]:
    """Return all documents in a text; see `parse`."""
    at = documents.find("\ufeff", 1)
    if at >= 0:  # libyaml takes it for white space, other readers for text
        where = documents.count("\n", 0, at) + 1
        raise MalformedError(f"line {where}: a byte order mark amid the text", "remove it")
    try:
        return _built(yaml.parse(documents, _loader()))
    except yaml.MarkedYAMLError as problem:
        mark = problem.problem_mark or problem.context_mark
        line = f"line {mark.line + 1}: " if mark else ""
        at = 0 if mark is None else mark.index
        if "cannot start any token" in (problem.problem or "") and documents[at : at + 1] == "\t":
            raise MalformedError(f"{line}YAML does not allow this tab", "write blanks") from None
        if "nesting depth" in (problem.problem or ""):  # libyaml 0.2.6 has a limit of its own
            raise MalformedError(f"{line}lists and mappings are nested too deeply") from None
        raise MalformedError(f"{line}not YAML: {problem.problem or problem.context}") from None
    except yaml.YAMLError as problem:  # a character that YAML forbids
        raise MalformedError(f"not YAML: {' '.join(str(problem).split())}") from None


def _loader() -> Any:
    return getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # some PyYAML has no libyaml


def _built(events: Iterable[Any]) -> list[object]:
    """Return the documents of some events, with a stack: libyaml's own composer crashes on deep nesting."""
    documents: list[object] = []
    frame: list[object] | dict[str, object] = documents
    key: str | None = None  # of the frame, which waits for its value
    above: list[tuple[list[object] | dict[str, object], str | None]] = []
    for event in events:
        kind = type(event)
        value: object
        if kind is yaml.ScalarEvent:
            if event.anchor is not None or event.tag is not None:
                raise _unused(event)
            is_text = event.style or (key is None and isinstance(frame, dict))
            value = event.value if is_text else _resolved(event)
        elif kind is yaml.MappingEndEvent or kind is yaml.SequenceEndEvent:
            value = frame
            frame, key = above.pop()
        elif getattr(event, "anchor", None) is not None or getattr(event, "tag", None) is not None:
            raise _unused(event)
        elif isinstance(event, yaml.CollectionStartEvent):
            if key is None and isinstance(frame, dict):
                raise MalformedError(f"{_line(event)}: a key must be a single word or a quoted text")
            if len(above) >= _DEPTH_LIMIT:
                raise MalformedError(f"{_line(event)}: lists and mappings are nested too deeply")
            above.append((frame, key))
            frame, key = ({} if kind is yaml.MappingStartEvent else []), None
            continue
        else:  # starts and ends of stream and documents
            continue
        if isinstance(frame, list):
            frame.append(value)
        elif key is not None:
            frame[key] = value
            key = None
        elif value in frame:
            raise MalformedError(f"{_line(event)}: duplicate key '{value}'", "keep one of the two entries")
        else:
            key = str(value)
    return documents


def _unused(event: Any) -> MalformedError:
    """Return the error about an anchor, an alias or a tag."""
    if getattr(event, "anchor", None) is not None:
        return MalformedError(f"{_line(event)}: anchors and aliases are not used here", "write the value out")
    return MalformedError(f"{_line(event)}: the tag '{event.tag}' is not used here", "remove the tag")


def _line(event: yaml.Event) -> str:
    """Return the line of an event, for messages."""
    return f"line {event.start_mark.line + 1}" if event.start_mark else "the document"


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


# A file of qprof ----------------------------------------------------------------------------------------


def parse_file(document: str, form: str, advice: str) -> dict[str, object]:
    """Return the top mapping of a file of qprof, complete and of this `form`, as "qprof-plan/1"."""
    if document.startswith(f"format: {form}\n"):
        _check_whole(document)
    top = parse(document)
    if not isinstance(top, dict):
        raise MalformedError("the document must be a mapping with the key 'format'", advice)
    if "format" not in top:
        raise MalformedError("key 'format' is missing", advice)
    if (written := top["format"]) != form:
        family, other = (str(one).removeprefix("qprof-").partition("/")[0] for one in (form, written))
        if family == other:
            advice = "write it again with this qprof, or read it with the one that wrote it"
        elif str(written).startswith("qprof-"):
            raise MalformedError(f"is a {other}, not a {family}", advice)
        raise MalformedError(f"unknown format '{str(written)[:40]}': this qprof only reads '{form}'", advice)
    _check_whole(document)
    return top


def _check_whole(document: str) -> None:
    """Raise MalformedError when a text does not end with the line "..." that every file of qprof has."""
    if document.rstrip().rpartition("\n")[2] != "...":
        raise MalformedError(
            "the file is cut off: its last line is not '...'",
            "copy or write it again; if it is whole, put the line back",
        )
