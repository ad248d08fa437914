"""What a case of the fuzzer is: files that replace those of the base, and the command that reads them."""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")

Content = tuple[tuple[bytes, int], ...]
"""A file as pieces, each with how often it is repeated: so that one of 100 MB is small as a case."""


@dataclass(frozen=True)
class Case:
    """One damaged input: files that replace those of the base, and the command.

    A refusal has to name one of `names`; `check` is that of a result; `wants` is "refused" or "done"
    if only that is right; with `quotes` messages may name exceptions, since the user's own code raised them.
    """

    family: str
    what: str
    command: tuple[str, ...]
    files: Mapping[str, Content] = field(default_factory=dict)
    names: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    check: str = ""
    wants: str = ""
    quotes: bool = False


@dataclass(frozen=True)
class Base:
    """The folder of the undamaged files, and the bytes that undisturbed runs write, by name."""

    folder: Path
    results: Mapping[str, bytes] = field(default_factory=dict)

    def bytes(self, name: str) -> bytes:
        return (self.folder / name).read_bytes()

    def text(self, name: str) -> str:
        return (self.folder / name).read_text(encoding="utf-8")


@dataclass(frozen=True)
class Draw:
    """The choices of one case: the same seed, family and number give the same case."""

    seed: int
    family: str
    number: int

    @property
    def rng(self) -> random.Random:
        return random.Random(f"{self.seed} {self.family} {self.number}")

    def pick(self, items: Sequence[T], salt: str = "") -> T:
        """Return the item for this number: all come once, in an order of the seed, before one comes again."""
        order = _order(len(items), f"{self.seed} {self.family} {salt} {self.number // len(items)}")
        return items[order[self.number % len(items)]]


@lru_cache
def _order(count: int, seed: str) -> list[int]:
    return random.Random(seed).sample(range(count), count)


Family = Callable[[Base, Draw], Case]


def whole(data: bytes | str) -> Content:
    """Return a file that is written out."""
    return ((data.encode("utf-8", "surrogateescape") if isinstance(data, str) else data, 1),)


def written(content: Content) -> bytes:
    """Return the bytes of a file."""
    return b"".join(piece * times for piece, times in content)


# Cases that are kept ---------------------------------------------------------------------------------------


def to_json(case: Case) -> str:
    """Return a case as text."""
    document: dict[str, Any] = {name: value for name, value in vars(case).items() if value}
    document["files"] = {path: [_piece(*part) for part in content] for path, content in case.files.items()}
    return json.dumps(document, indent=1, ensure_ascii=True) + "\n"


def from_json(text: str) -> Case:
    """Return the case that a text describes."""
    document = json.loads(text)
    lists = {name: tuple(document.get(name, ())) for name in ("command", "names", "outputs")}
    files = {path: tuple(map(_unpiece, parts)) for path, parts in document.pop("files", {}).items()}
    return Case(**{**document, **lists, "files": files})


def _piece(data: bytes, times: int) -> dict[str, Any]:
    try:
        piece: dict[str, Any] = {"text": data.decode("utf-8")}
    except UnicodeDecodeError:
        piece = {"base64": base64.b64encode(data).decode()}
    return piece if times == 1 else {**piece, "times": times}


def _unpiece(piece: Mapping[str, Any]) -> tuple[bytes, int]:
    if "made" in piece:  # a large model, by the depth of its branches
        from damage.base import nested

        return nested(piece["made"]), 1
    data = piece["text"].encode("utf-8") if "text" in piece else base64.b64decode(piece["base64"])
    return data, piece.get("times", 1)
