"""A transformer in fused operators, trained here: letters without case and marks -> where these stood.

The file is what onnxruntime writes when it optimises the exported graph (level "extended"): SkipLayerNorm,
BiasGelu, FusedMatMul of com.microsoft stand in it, as in files that users bring along.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache

import numpy as np
import text
from record import Counts, Feed, Outputs, Rng, Scores, by_name, per_feed, split_remainders
from trained import trained_model

LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789 "
NOTHING, COMMA, STOP, OTHER, CAPITAL = range(5)
"""What is told of each letter: what stood behind it, or that it was a capital."""
PARTS = split_remainders(13, 14, 16, 20)


@cache
def _sentences(part: str) -> tuple[str, ...]:
    known = text.sentences()
    return tuple(known[k] for k in range(len(known)) if k // 10 % 20 in PARTS[part])


def passages(
    rng: Rng, part: str, count: int, size: int | None = None
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield letters, int64 (letters,), and what is told of each; 60 to 160 letters without a size."""
    known = _sentences(part)
    for _ in range(count):
        wanted, letters, marks = size or int(rng.integers(60, 161)), list[int](), list[int]()
        place = int(rng.integers(len(known)))
        while len(letters) <= wanted:
            for letter in known[place % len(known)] + " ":
                low = letter.lower()
                if low in LETTERS:
                    letters.append(LETTERS.index(low))
                    marks.append(CAPITAL if letter != low else NOTHING)
                elif marks and marks[-1] == NOTHING:
                    marks[-1] = {",": COMMA, ".": STOP}.get(letter, OTHER)
            place += 1
        yield np.array(letters[:wanted]), np.array(marks[:wanted])


def _pairs(seed: int, part: str, count: int) -> Iterator[tuple[Feed, list[int]]]:
    for letters, marks in passages(np.random.default_rng(seed), part, count):
        yield {"letters": letters[None]}, marks.tolist()


@per_feed
def count(values: Outputs, marks: Sequence[int]) -> Counts:
    """Marks told right, marks told, and marks there are."""
    found, truth = values[0][0].argmax(axis=1), np.array(marks)
    return ((found == truth) & (truth > 0)).sum(), (found > 0).sum(), (truth > 0).sum()


def score(totals: np.ndarray) -> Scores:
    """F1 of the marks."""
    hits, found, there = totals
    parts = {"precision": hits / max(found, 1), "recall": hits / max(there, 1)}
    return Scores(float(2 * hits / max(found + there, 1)), parts)


MODEL = trained_model(
    name="marks",
    data="Python's manual",
    kind="transformer in fused operators (com.microsoft)",
    task="300 passages of Python's manual, in small letters: F1 of capitals and marks",
    samples=_pairs,
    splits=by_name(701, 48, 120, 300),
    count=count,
    score=score,
    helpers=("text",),
)
