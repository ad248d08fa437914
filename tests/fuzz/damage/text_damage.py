"""Damage to text files: bytes, lines, words, structure. YAML and JSON alike."""

from __future__ import annotations

import random
import re
from collections.abc import Callable

from damage.cases import Content, whole

WORD = re.compile(r'"(?:[^"\\\n]|\\.)*"|[^\s,:\[\]{}"]+')
WORDS = (
    *(
        "",
        "null",
        "~",
        "true",
        "no",
        "nan",
        ".nan",
        ".inf",
        "-.inf",
        "NaN",
        "Infinity",
        "-1",
        "0",
        "1",
        "-0.0",
        "1e400",
    ),
    *(
        "1e-5",
        "1e-400",
        "3.5",
        "5.9",
        "1000",
        str(10**18),
        str(2**63),
        str(10**30),
        "9" * 5000,
        "0x10",
        "0o17",
        "1_000",
    ),
    *(
        "12:30",
        "2020-01-01",
        "[]",
        "{}",
        "[a]",
        "{a: b}",
        "[[[]]]",
        '""',
        '"\\u0000"',
        '"\\x1b[31mred"',
        '"\\ud800"',
    ),
    *(
        "!!python/object/apply:os.system ['touch owned']",
        "!!int 3",
        "&a b",
        "*a",
        "<<",
        "<<: {a: 1}",
        "- a",
        "? a",
    ),
    *("@a", "`a", "%a", "| a", "> a", "'open", '"open', "{", "}", "[", "]", ":", "#", "---", "..."),
    *(
        "int8",
        "uint8",
        "int4",
        "float",
        "Conv",
        "quantized",
        "static",
        "x" * 3000,
        "../x",
        "%s%n",
        "é",
        "\u202ex",
        "\U0001f600",
    ),
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
Damage = Callable[[bytes, random.Random], Content]


def flip(data: bytes, rng: random.Random) -> Content:
    """One bit."""
    at = rng.randrange(len(data))
    return whole(data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :])


def cut(data: bytes, rng: random.Random) -> Content:
    """The end is missing."""
    return whole(data[: rng.randrange(len(data))])


def tail(data: bytes, rng: random.Random) -> Content:
    """The beginning is missing."""
    return whole(data[rng.randrange(1, len(data)) :])


def insert(data: bytes, rng: random.Random) -> Content:
    """A few bytes too many."""
    at = rng.randrange(len(data) + 1)
    piece = rng.choice(
        (b"\0", b"\xff", b"\x1b[31m", b"\n", b"\t", b"\r", b"\xc3", b" ", b"\xef\xbb\xbf", b"\\", b"&a ")
    )
    return whole(data[:at] + piece * rng.choice((1, 1, 3)) + data[at:])


def word(data: bytes, rng: random.Random) -> Content:
    """Another value, or another key."""
    text = data.decode()
    place = rng.choice(list(WORD.finditer(text)))
    return whole(text[: place.start()] + rng.choice(WORDS) + text[place.end() :])


def value(data: bytes, rng: random.Random) -> Content:
    """Another value behind a key."""
    text = data.decode()
    places = list(re.finditer(r"(?<=: )[^\s,\[\]{}][^,\]}\n]*|\[[^\]\n]*\]|\{[^}\n]*\}", text)) or list(
        WORD.finditer(text)
    )
    place = rng.choice(places)
    return whole(text[: place.start()] + rng.choice(WORDS) + text[place.end() :])


def swap_words(data: bytes, rng: random.Random) -> Content:
    """Two values changed places."""
    text = data.decode()
    first, second = sorted(rng.sample(list(WORD.finditer(text)), 2), key=lambda place: place.start())
    middle = text[first.end() : second.start()]
    return whole(text[: first.start()] + second[0] + middle + first[0] + text[second.end() :])


def lines(data: bytes, rng: random.Random) -> Content:
    """Lines are gone, doubled, moved, indented, or there is one more."""
    rows = data.decode().split("\n")
    at, other = rng.randrange(len(rows)), rng.randrange(len(rows))
    match rng.randrange(6):
        case 0:
            del rows[at]
        case 1:
            rows.insert(at, rows[at])
        case 2:
            rows[at], rows[other] = rows[other], rows[at]
        case 3:
            rows[at] = " " * rng.choice((1, 2, 7)) + rows[at]
        case 4:
            rows[at] = rows[at].lstrip()
        case _:
            rows.insert(at, rng.choice(LINES))
    return whole("\n".join(rows))


def replaced(data: bytes, rng: random.Random) -> Content:
    """Something else under this name."""
    return rng.choice(
        (
            whole(b""),
            whole(b"\n"),
            whole(b"..."),
            whole(b"null\n...\n"),
            whole(b"[]\n...\n"),
            whole(b"3"),
            whole(b"{}"),
            whole(b"\xff\xfe" + data.decode().encode("utf-16-le")),
            whole(b"PK\x03\x04" + data),
            whole(data + data),
            whole(data.replace(b"\n", b"\r\n")),
            whole(data.replace(b": ", b":")),
            whole(bytes(rng.randrange(256) for _ in range(300))),
            whole(b"\x89PNG\r\n\x1a\n" + bytes(200)),
        )
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
            ((head + b"deep: ", 1), (b"[", 1000), (b"]", 1000), (b"\n" + rest, 1)),
            ((head + b"deep: ", 1), (b"[", 100_000), (b"\n" + rest, 1)),
            ((head + b"deep: ", 1), (b"{a: ", 1000), (b"1", 1), (b"}", 1000), (b"\n" + rest, 1)),
            whole(head + "".join(f"k{i}: {i}\n" for i in range(200_000)).encode() + rest),
            whole(head + b"a: &a [x]\nb: &b [*a, *a]\nc: &c [*b, *b]\nd: [*c, *c]\n" + rest),
            whole(head + b"base: &b {x: 1}\nmore:\n  <<: *b\n" + rest),
            ((b"[", 1000), (b"]", 1000)),
            ((b"- ", 1000), (b"a", 1)),
            ((b'{"a":', 100_000), (b"1", 1), (b"}", 100_000)),
            ((b" ", 30_000_000), (data, 1)),
            ((b"#", 30_000_000), (b"\n" + data, 1)),
        )
    )


OFTEN: tuple[Damage, ...] = (
    word,
    word,
    value,
    value,
    value,
    value,
    lines,
    lines,
    flip,
    insert,
    cut,
    swap_words,
    tail,
    replaced,
)


def damaged(data: bytes, rng: random.Random, number: int) -> tuple[str, Content]:
    """Return what was done to a text, and the result; each kind in turn, the costly one once in forty."""
    kind = large if number % 40 == 39 else OFTEN[number % len(OFTEN)]
    return kind.__doc__ or "", kind(data, rng)
