"""A second decoder, trained here: pieces of words -> the next ones, as GPT-2 is built.

Other than char_decoder it has LayerNorm, learned positions, one product for queries, keys and values with a
bias, GELU, as many heads of keys as of queries, and one table for both ends. The texts and their splits are
those of char_decoder; the pieces are a byte-pair encoding of the training texts, kept beside the model.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import numpy as np
from frame import WORK
from record import Feed, RealModel, session
from tokenizers import Tokenizer
from trained import trained_file

from models import char_decoder

PIECES, LAYERS, HEADS, HEAD_WIDTH = 2048, 5, 6, 32
PLACES = 96  # positions that the model was trained for
NEW = (48, 16, 1)  # new pieces of a run: the start of a text, a longer part, one piece


def written(part: str) -> list[str]:
    """Return the docstrings of a split."""
    return ["".join(char_decoder.LETTERS[i] for i in text) for text in char_decoder.texts(part)]


@cache
def texts(tokenizer: Path, part: str) -> tuple[np.ndarray, ...]:
    """Return the docstrings of a split as pieces, int64, at least PLACES + 1 long."""
    coded = Tokenizer.from_file(str(tokenizer)).encode_batch(written(part))
    return tuple(np.array(one.ids, np.int64) for one in coded if len(one.ids) > PLACES)


def passages(rng: np.random.Generator, tokenizer: Path, part: str, count: int) -> Iterator[np.ndarray]:
    """Yield passages of PLACES + 1 pieces, int64; longer docstrings are drawn more often."""
    pool = texts(tokenizer, part)
    sizes = np.array([len(text) - PLACES for text in pool], np.float64)
    for place in rng.choice(len(pool), count, p=sizes / sizes.sum()):
        start = int(rng.integers(len(pool[place]) - PLACES))
        yield pool[place][start : start + PLACES + 1]


def feed(pieces: np.ndarray, past: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
    """Return what a run takes: new pieces (1, n) and keys and values of each layer, (1, 6, past, 32)."""
    return {"input_ids": pieces[None], **dict(zip(cache_names("past"), past, strict=True))}


def cache_names(when: str) -> list[str]:
    """Return the names of the caches that are fed ("past") or given back ("present")."""
    return [f"{when}.{layer}.{part}" for layer in range(LAYERS) for part in ("key", "value")]


def nothing() -> list[np.ndarray]:
    """Return the caches of an empty past."""
    return [np.zeros((1, HEADS, 0, HEAD_WIDTH), np.float32)] * (2 * LAYERS)


def _pairs(seed: int, part: str, count: int, mixture: Sequence[float]) -> Iterator[tuple[Feed, list[int]]]:
    """Yield runs from the start of a passage, or inside of it with the float model's caches."""
    rng, file = np.random.default_rng(seed), path(Path(os.environ[WORK]) / MODEL.name)
    opened = session(file, 1)
    for passage in passages(rng, file.with_name("pieces.json"), part, count):
        new = int(rng.choice(NEW, p=mixture))
        before = 0 if new == NEW[0] else int(rng.integers(PLACES // 3, PLACES - new))
        past = opened.run(None, feed(passage[:before], nothing()))[1:] if before else nothing()
        answers = passage[before + 1 : before + new + 1]
        yield feed(passage[before : before + new], past), answers.tolist()


def path(folder: Path) -> Path:
    return trained_file(folder, "piece_decoder")


MODEL = RealModel(
    name="piece-decoder",
    source="training/piece_decoder.py, docstrings of Python's library",
    kind="decoder transformer of word pieces with one table for both ends",
    task="400 runs of 1 to 48 pieces of docstrings, most with a cache: share of next pieces told",
    path=path,
    samples=_pairs,
    splits={
        "calibration": (411, "calibration", 48, (0.3, 0.4, 0.3)),
        "tuning": (412, "tuning", 200, (0.2, 0.7, 0.1)),
        "evaluation": (413, "evaluation", 400, (0.2, 0.7, 0.1)),
    },
    count=char_decoder.count,
    helpers=("trained", "models.char_decoder"),
)
