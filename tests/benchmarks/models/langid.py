"""Language identification, a byte transformer trained here: up to 48 bytes of text -> which of 33 languages.

The text is Django's translations; no message is in two splits, in any language. Markup and place-holders are
taken out: they are the same in all languages.
"""

from __future__ import annotations

import re
import zipfile
import zlib
from collections.abc import Iterator
from functools import cache

import numpy as np
from record import Feed, by_name, classified, split_remainders
from trained import archive, trained_model

LANGUAGES = (
    *("af", "nl", "de", "da", "nb", "nn", "sv", "is", "fr", "es", "pt", "gl", "ca", "it", "ro", "cs", "sk"),
    *("pl", "sl", "hr", "et", "fi", "lv", "lt", "hu", "tr", "az", "uk", "ru", "be", "bg", "mk", "sr"),
)
LENGTH = 48  # bytes, with zeros at the end
BATCH = 4  # texts of one run
PARTS = split_remainders(14, 15, 17, 20)
ENTRY = re.compile(r'^msgid ((?:"[^\n]*"\n)+)msgstr ((?:"[^\n]*"\n)+)', re.MULTILINE)


def _clean(quoted: str) -> str:
    joined = "".join(line[1:-1] for line in quoted.splitlines()).replace("\\n", " ").replace('\\"', '"')
    bare = re.sub(r"<[^>]*>|%\([^)]*\)\w|%\w|\{[^}]*\}|&\w+;|[A-Z_]{4,}|\S*[/@]\S*|[0-9]+", " ", joined)
    return re.sub(r"\s+", " ", bare).strip()


@cache
def _messages(part: str) -> dict[str, tuple[str, ...]]:
    """Return the messages of a split, of at least 12 characters, by language."""
    chosen, found = PARTS[part], {language: set[str]() for language in LANGUAGES}
    with zipfile.ZipFile(archive("[dD]jango-*.whl")) as wheel:
        for name in sorted(wheel.namelist()):
            match = re.fullmatch(r".*/locale/(\w+)/LC_MESSAGES/django(?:js)?\.po", name)
            if not match or match[1] not in found:
                continue
            for original, translated in ENTRY.findall(wheel.read(name).decode()):
                text = _clean(translated)
                if (
                    zlib.crc32(original.encode()) % 20 in chosen
                    and len(text) >= 12
                    and original != translated
                ):
                    found[match[1]].add(text)
    return {language: tuple(sorted(texts)) for language, texts in found.items()}


def samples(rng: np.random.Generator, part: str, count: int) -> Iterator[tuple[np.ndarray, int]]:
    """Yield pieces of 12 to 24 characters that begin with a word, as bytes (LENGTH), and their languages."""
    messages = _messages(part)
    for _ in range(count):
        place = int(rng.integers(len(LANGUAGES)))
        texts = messages[LANGUAGES[place]]
        words = texts[rng.integers(len(texts))].split(" ")
        size = int(rng.integers(12, 25))
        first = max((k for k in range(len(words)) if len(" ".join(words[k:])) >= size), default=0)
        piece = " ".join(words[int(rng.integers(first + 1)) :])[:size].strip()
        coded = piece.encode()[:LENGTH]
        yield np.frombuffer(coded.ljust(LENGTH, b"\0"), np.uint8).astype(np.int64), place


def _batches(seed: int, part: str, count: int) -> Iterator[tuple[Feed, list[int]]]:
    """Yield BATCH texts at a time."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        rows, places = zip(*samples(rng, part, BATCH), strict=True)
        yield {"bytes": np.stack(rows)}, list(places)


MODEL = trained_model(
    name="langid",
    data="Django's translations",
    kind="byte transformer, languages",
    task="2000 pieces of text, 12 to 24 letters, in 33 languages (Django's translations): share told right",
    samples=_batches,
    splits=by_name(301, 32, 150, 500),
    count=classified,
)
