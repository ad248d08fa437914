"""A third decoder, trained here, in the operators of onnxruntime-genai's builder: pieces -> the next ones.

GroupQueryAttention turns by rotary positions itself, sums and RMS norms are SkipSimplifiedLayerNormalization,
the feed-forward net has a SiLU gate. It is wider than char_decoder, of whose kind it is; texts and pieces are
those of piece_decoder.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from cached_decoder import CachedDecoder
from frame import WORK
from record import Feed, classified
from trained import trained_model

from models import piece_decoder

LAYERS, WIDTH, INNER, HEADS, KEY_HEADS, HEAD_WIDTH = 4, 320, 896, 10, 2, 32
PLACES = piece_decoder.PLACES
DECODER = CachedDecoder("input_ids", LAYERS, KEY_HEADS, HEAD_WIDTH, PLACES, (48, 16, 1), "attention_mask")


def runs(seed: int, part: str, count: int, mixture: Sequence[float]) -> Iterator[tuple[Feed, list[int]]]:
    """Yield runs from the start of a passage, or inside of it with the float model's caches."""
    file = MODEL.path(Path(os.environ[WORK]) / MODEL.name)
    texts = piece_decoder.texts(file.with_name("pieces.json"), part)
    return DECODER.runs(seed, file, texts, count, mixture)


MODEL = trained_model(
    name="builder-decoder",
    data="docstrings of Python's library",
    kind="decoder transformer of operators that stand for several",
    task="400 runs of 1 to 48 pieces of docstrings, most with a cache: share of next pieces told",
    samples=runs,
    splits={
        "calibration": (421, "calibration", 48, (0.3, 0.4, 0.3)),
        "tuning": (422, "tuning", 200, (0.2, 0.7, 0.1)),
        "evaluation": (423, "evaluation", 400, (0.2, 0.7, 0.1)),
    },
    count=classified,
    helpers=("cached_decoder", "models.char_decoder", "models.piece_decoder"),
)
