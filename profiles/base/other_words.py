"""Answers to unknown words, from the tables of a plug-in."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any


def _table(name: str) -> Mapping[str, Any]:
    """Return a table of the plug-in; an empty one if it is not installed."""
    from .extras import OptionalModule  # which has errors, and these are made with this module

    words = OptionalModule("words of other tools", "quantizer.plugins.other_words.words")
    table: Mapping[str, Any] = getattr(words.load(), name) if words.is_installed else {}
    return table


def _plain(word: str) -> str:
    return re.sub(r"[^a-z0-9]", "", word.lower())


def same_word(word: str, known: Iterable[str]) -> str | None:
    """Return the known word that is meant, in another spelling or another tool's; None for none."""
    names, plain = list(known), _plain(word.rpartition(".")[2])
    written = next((name for name in names if plain and _plain(name) == plain), None)
    return written or next((name for name in _table("WORDS").get(plain, ()) if name in names), None)


def answer_to(word: str, spelt: Callable[[str, str | None], str], given: str = "") -> str:
    """Return the answer to a word of another tool, "" for none.

    `spelt` spells a setting, or an option with -- in front, with a value, None for the user's; "" if it
    cannot be. A number that was `given` replaces the table's.
    """
    plain = _plain(word)
    if (meant := _table("OPTIONS").get(plain)) is None:
        return str(_table("ANSWERS").get(plain, ""))
    name, value = meant
    if value and re.fullmatch(r"[1-9]\d*(\.\d+)?", given):
        value = re.sub(r"(?<=:)[\d.]+$", given, value)
    return spelt(name, value)
