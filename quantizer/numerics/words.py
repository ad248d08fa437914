"""Sentences about words that are not known, for every reader of settings. Imports nothing heavy."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ...profiles.base.errors import nearest

if TYPE_CHECKING:
    from ...profiles.base.strict_yaml import MalformedError


def malformed(what: str, advice: str = "") -> MalformedError:
    """Return the error that says what is wrong, and what to do where that is known."""
    from ...profiles.base.strict_yaml import MalformedError

    return MalformedError(what, advice)


def not_one_of(where: str, word: str, known: Iterable[str]) -> MalformedError:
    """Return the error about a word that is not one of `known`."""
    words = tuple(known)
    return malformed(
        f"{where} '{word}' is not one of {', '.join(words)}", did_you_mean(word, words) or "use one of these"
    )


def unknown_key(where: str, key: str, known: Iterable[str]) -> MalformedError:
    """Return the error about a key that is not one of `known`."""
    words = tuple(known)
    advice = did_you_mean(key, words) or f"known keys are {', '.join(words)}"
    return malformed(f"{where}unknown key '{key}'", advice)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return "did you mean 'x'?" for the known word closest to `word`, or "" when none is close."""
    found = nearest(word, known).strip()
    return found[:1].lower() + found[1:]
