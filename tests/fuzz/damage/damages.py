"""Damage to a file: to its bytes, to its text, to a value of its JSON, to a field of its ONNX message."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

import onnx
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from damage.cases import Content, whole

Damage = Callable[[bytes, random.Random], Content]

PIECES = (b"\0", b"\xff", b"\x1b[31m", b"\n", b"\t", b"\r", b"\xc3", b" ", b"\xef\xbb\xbf", b"\\", b"&a ")
WORD = re.compile(r'"(?:[^"\\\n]|\\.)*"|[^\s,:\[\]{}"]+')
VALUE = re.compile(r"(?<=: )[^\s,\[\]{}][^,\]}\n]*|\[[^\]\n]*\]|\{[^}\n]*\}")
PLAIN = """
    null ~ true no nan .nan .inf -.inf NaN Infinity -1 0 1 -0.0 1e400 1e-5 1e-400 3.5 5.9 1000 0x10 0o17 1_000
    12:30 2020-01-01 [] {} [a] [[[]]] *a << @a `a %a 'open { } [ ] : # --- ... é ../x %s%n int8 uint8 int4
    float Conv quantized static
"""
WORDS = (
    *PLAIN.split(),
    *("", "{a: b}", '""', '"\\u0000"', '"\\x1b[31mred"', '"\\ud800"', "!!int 3", "&a b", "<<: {a: 1}", "- a"),
    *("!!python/object/apply:os.system ['touch owned']", "? a", "| a", "> a", '"open', "\u202ex"),
    *("\U0001f600", str(10**18), str(2**63), str(10**30), "9" * 5000, "x" * 3000, "\u0663"),
)
LINES = (
    *(
        "",
        " ",
        "\t",
        "...",
        "---",
        "a",
        "a: b",
        "- a",
        "? b",
        "  a: b",
        "<<: *a",
        "&a",
        "%YAML 9.9",
        "# comment",
    ),
    *(
        "\x00",
        "\x1b[2J",
        "\x85",
        "\u2028",
        "\ufeff",
        "!!python/name:os.system x",
        "a: " + "[" * 60,
        "[" * 2000,
    ),
)


def flip(data: bytes, rng: random.Random) -> Content:
    """One bit."""
    at = rng.randrange(len(data))
    return whole(data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :])


def cut(data: bytes, rng: random.Random) -> Content:
    """The end is missing."""
    return whole(data[: rng.randrange(len(data))])


def insert(data: bytes, rng: random.Random) -> Content:
    """A few bytes too many."""
    at = rng.randrange(len(data) + 1)
    return whole(data[:at] + rng.choice(PIECES) * rng.choice((1, 1, 3)) + data[at:])


def overwrite(data: bytes, rng: random.Random) -> Content:
    """Some bytes are zeros, others, twice or missing."""
    at, size = rng.randrange(len(data)), rng.choice((1, 4, 64))
    piece = rng.choice((bytes(size), rng.randbytes(size), data[at : at + size] * 2, b""))
    return whole(data[:at] + piece + data[at + size :])


def word(data: bytes, rng: random.Random) -> Content:
    """Another value, or another key."""
    text = data.decode()
    place = rng.choice(list(WORD.finditer(text)))
    return whole(text[: place.start()] + rng.choice(WORDS) + text[place.end() :])


def value(data: bytes, rng: random.Random) -> Content:
    """Another value behind a key."""
    text = data.decode()
    place = rng.choice(list(VALUE.finditer(text)) or list(WORD.finditer(text)))
    return whole(text[: place.start()] + rng.choice(WORDS) + text[place.end() :])


def lines(data: bytes, rng: random.Random) -> Content:
    """A line is gone, doubled, indented or another one, or there is one more."""
    rows = data.decode().split("\n")
    at, other = rng.randrange(len(rows)), rng.choice(rows)
    row = rows[at]
    new = rng.choice(([], [row, row], [other], ["  " + row], [row.lstrip()], [rng.choice(LINES), row]))
    return whole("\n".join((*rows[:at], *new, *rows[at + 1 :])))


def replaced(data: bytes, rng: random.Random) -> Content:
    """Something else under this name."""
    short = (b"", b"\n", b"...", b"null\n...\n", b"[]\n...\n", b"3", b"{}", b"\x89PNG\r\n\x1a\n" + bytes(200))
    made = (b"PK\x03\x04" + data, data + data, data.replace(b"\n", b"\r\n"), data.replace(b": ", b":"))
    return whole(
        rng.choice((*short, *made, rng.randbytes(300), b"\xff\xfe" + data.decode().encode("utf-16-le")))
    )


def large(data: bytes, rng: random.Random) -> Content:
    """Too long, too deep, too many."""
    at = data.find(b"\n") + 1
    head, rest = data[:at], data[at:]
    return rng.choice(
        (
            ((head, 1), (b"a" * 1000, 100_000), (b": 1\n" + rest, 1)),
            ((head + b"long: ", 1), (b"a" * 1000, 100_000), (b"\n" + rest, 1)),
            ((head + b"many: [", 1), (b"1, ", 200_000), (b"1]\n" + rest, 1)),
            ((head + b"deep: ", 1), (b"[", 100_000), (b"\n" + rest, 1)),
            ((head + b"deep: ", 1), (b"{a: ", 1000), (b"1", 1), (b"}", 1000), (b"\n" + rest, 1)),
            whole(head + b"a: &a [x]\nb: &b [*a, *a]\nc: &c [*b, *b]\nd: [*c, *c]\n" + rest),
            ((b"- ", 1000), (b"a", 1)),
            ((b'{"a":', 100_000), (b"1", 1), (b"}", 100_000)),
            ((b"#", 30_000_000), (b"\n" + data, 1)),
        )
    )


OF_BYTES: tuple[Damage, ...] = (flip, overwrite, flip, insert, overwrite, cut)
OF_TEXT: tuple[Damage, ...] = (word, value, value, lines, word, value, lines, value, replaced)


def of_bytes(data: bytes, rng: random.Random, number: int) -> tuple[str, Content]:
    """Return the damage that was done, each kind in turn, and the file."""
    kind = OF_BYTES[number % len(OF_BYTES)]
    return kind.__doc__ or "", kind(data, rng)


def of_text(data: bytes, rng: random.Random, number: int) -> tuple[str, Content]:
    """Return the damage to a text, the costly kind once in forty, and the file."""
    often = (*OF_TEXT, *OF_BYTES)
    kind = large if number % 40 == 39 else often[number % len(often)]
    return kind.__doc__ or "", kind(data, rng)


# JSON ------------------------------------------------------------------------------------------------------

NUMBERS = (
    0,
    1,
    -1,
    3,
    6,
    8,
    31,
    1000,
    -1000,
    2**31,
    2**63,
    10**30,
    10**400,
    0.5,
    5.9,
    -0.0,
    1e-45,
    1e39,
    1e308,
)
VALUES = (
    *(None, True, False, *NUMBERS, float("inf"), float("nan"), "5", "", "x", "inf", "nan", "int8", "../x"),
    *("\x1b[31m", "x" * 3000, [], {}, [[]], [1, 2], [0.1, 0.1], {"a": 1}, [None]),
)


def of_json(data: bytes, rng: random.Random) -> tuple[str, Content]:
    """Return a JSON text in which one value is another one, or one entry is gone or new."""
    document = json.loads(data)
    parent, key = rng.choice(list(_places(document)))
    kind = rng.randrange(8)
    if kind == 0:
        del parent[key]
        what = f"without {key!r}"
    elif kind == 1 and isinstance(parent, dict):
        parent[str(rng.choice(VALUES))] = parent[key]
        what = f"one key more beside {key!r}"
    elif kind == 2 and isinstance(parent[key], list):
        parent[key] = parent[key] * 2
        what = f"{key!r} twice as long"
    else:
        parent[key] = rng.choice(VALUES)
        what = f"{key!r} is {str(parent[key])[:40]!r}"
    return what, whole(json.dumps(document))


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in list(items):
        yield value, key
        yield from _places(item)


# ONNX ------------------------------------------------------------------------------------------------------

MARK = "QQmarkQQ"
"""Stands in messages for a text that is no UTF-8, which Python's protobuf does not take."""
INTEGERS = (0, 1, -1, 2, 5, 71, 99, 2**31 - 1, 2**40, 2**62, 2**63 - 1, -(2**63))
SMALL = (0, 1, -1, 2, 6, 9, 10, 11, 16, 99, 2**31 - 1, -(2**31))
FLOATS = (0.0, -1.0, float("nan"), float("inf"), 1e38)
TEXTS = (
    "",
    MARK,
    *["x", "y", "w", "Conv", "If", "N", "../x", "/dev/zero", "abc", "-5"],
    "\n",
    "\x1b[31m",
    "a" * 10_000,
    "'\"{}%s",
)
"""Some of them are names in the models."""
Site = tuple[str | int, ...]


@lru_cache
def sites(data: bytes) -> list[Site]:
    """Return the path of each field of a model, those that are not set too."""
    return list(_fields(onnx.ModelProto.FromString(data), ()))


def _fields(message: Message, path: Site) -> Iterator[Site]:
    for field in message.DESCRIPTOR.fields:
        yield (*path, field.name)
        if field.message_type is None:
            continue
        if field.is_repeated:
            for index, item in enumerate(getattr(message, field.name)):
                yield from _fields(item, (*path, field.name, index))
        elif message.HasField(field.name):
            yield from _fields(getattr(message, field.name), (*path, field.name))


def of_onnx(data: bytes, rng: random.Random, site: Site) -> tuple[str, Content]:
    """Return a model with one field gone, doubled, empty, or with a value that it must not have."""
    model = onnx.ModelProto.FromString(data)
    message: Any = model
    for step in site[:-1]:
        message = getattr(message, step) if isinstance(step, str) else message[step]
    what = _edit(message, message.DESCRIPTOR.fields_by_name[site[-1]], rng)
    changed = model.SerializeToString().replace(MARK.encode(), b"\xff" * len(MARK))
    return f"{'.'.join(map(str, site))}: {what}", whole(changed)


def _edit(message: Any, field: FieldDescriptor, rng: random.Random) -> str:
    """Change one field of a message and return what was done."""
    if not field.is_repeated:
        if message.HasField(field.name) and rng.random() < 0.25:
            message.ClearField(field.name)
            return "cleared"
        if field.message_type is not None:
            getattr(message, field.name).SetInParent()
            return "empty"
        new = _value(field, getattr(message, field.name), rng)
        setattr(message, field.name, new)
        return f"set to {str(new)[:30]!r}"
    items = getattr(message, field.name)
    kind = rng.randrange(5)
    if items and kind == 0:
        del items[rng.randrange(len(items))]
        return "one missing"
    if items and kind == 1:
        items.extend(list(items)[: rng.randrange(1, len(items) + 1)])
        return "some twice"
    if items and kind == 2:
        message.ClearField(field.name)
        return "all missing"
    if field.message_type is not None:
        items.add()
        return "one empty more"
    count = rng.choice((1, 1, 2, 70))
    items.extend([_value(field, None, rng) for _ in range(count)])
    return f"{count} more"


def _value(field: FieldDescriptor, old: Any, rng: random.Random) -> Any:
    kinds = FieldDescriptor
    if field.type == kinds.TYPE_BYTES:
        data: bytes = old or b"abcd"
        return rng.choice((b"", data[:-1], data + data, data + b"x", b"\xff" * 8, b"\0" * 1000))
    if field.cpp_type == kinds.CPPTYPE_ENUM:
        return rng.choice([value.number for value in field.enum_type.values])
    unsigned = tuple(number for number in INTEGERS if number >= 0)
    of = {kinds.CPPTYPE_STRING: TEXTS, kinds.CPPTYPE_FLOAT: FLOATS, kinds.CPPTYPE_DOUBLE: FLOATS}
    of |= {kinds.CPPTYPE_INT32: SMALL, kinds.CPPTYPE_UINT64: unsigned}
    return rng.choice(of.get(field.cpp_type, INTEGERS))
