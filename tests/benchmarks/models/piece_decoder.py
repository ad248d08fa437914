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
from cached_decoder import CachedDecoder
from frame import WORK
from record import Feed, classified
from tokenizers import Tokenizer
from trained import trained_model

from models import char_decoder

PIECES, LAYERS, HEADS, HEAD_WIDTH = 2048, 5, 6, 32
PLACES = 96  # positions that the model was trained for
DECODER = CachedDecoder("input_ids", LAYERS, HEADS, HEAD_WIDTH, PLACES, new=(48, 16, 1))


def written(part: str) -> list[str]:
    """Return the docstrings of a split."""
    return ["".join(char_decoder.LETTERS[i] for i in text) for text in char_decoder.texts(part)]


@cache
def texts(tokenizer: Path, part: str) -> tuple[np.ndarray, ...]:
    """Return the docstrings of a split as pieces, int64, at least PLACES + 1 long."""
    coded = Tokenizer.from_file(str(tokenizer)).encode_batch(written(part))
    return tuple(np.array(one.ids, np.int64) for one in coded if len(one.ids) > PLACES)


def runs(seed: int, part: str, count: int, mixture: Sequence[float]) -> Iterator[tuple[Feed, list[int]]]:
    """Yield runs from the start of a passage, or inside of it with the float model's caches."""
    file = MODEL.path(Path(os.environ[WORK]) / MODEL.name)
    return DECODER.runs(seed, file, texts(file.with_name("pieces.json"), part), count, mixture)


MODEL = trained_model(
    name="piece-decoder",
    data="docstrings of Python's library",
    kind="decoder transformer of word pieces with one table for both ends",
    task="400 runs of 1 to 48 pieces of docstrings, most with a cache: share of next pieces told",
    samples=runs,
    splits={
        "calibration": (411, "calibration", 48, (0.3, 0.4, 0.3)),
        "tuning": (412, "tuning", 200, (0.2, 0.7, 0.1)),
        "evaluation": (413, "evaluation", 400, (0.2, 0.7, 0.1)),
    },
    count=classified,
    helpers=("cached_decoder", "models.char_decoder"),
)
