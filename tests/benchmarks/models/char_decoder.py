"""A decoder transformer with a key/value cache, trained here: characters of docstrings -> the next ones.

A run takes some new characters and the cache of those before them, as greedy decoding does.
"""

from __future__ import annotations

import ast
import os
import re
import sysconfig
import zlib
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import numpy as np
from cached_decoder import CachedDecoder
from frame import WORK
from record import Feed, classified, split_remainders
from trained import trained_model

LETTERS = "\n" + "".join(map(chr, range(32, 127)))
LAYERS, HEADS, KEY_HEADS, HEAD_WIDTH = 4, 8, 2, 16
PLACES = 160  # positions that the model was trained for
DECODER = CachedDecoder("letters", LAYERS, KEY_HEADS, HEAD_WIDTH, PLACES, new=(64, 24, 1))
PARTS = split_remainders(17, 18, 20, 23)
"""Files of Python's library by split: the remainder of their names' checksums by 23."""


@cache
def texts(part: str) -> tuple[np.ndarray, ...]:
    """Return the docstrings of a split, each as places in LETTERS, int64, at least PLACES + 1 long."""
    root, known = Path(sysconfig.get_path("stdlib")), {letter: k for k, letter in enumerate(LETTERS)}
    found: dict[str, None] = {}
    for file in sorted(root.rglob("*.py")):
        name = file.relative_to(root).as_posix()
        if re.search(r"site-packages|(^|/)(test|tests|idlelib)/", name):
            continue
        if zlib.crc32(name.encode()) % 23 not in PARTS[part]:
            continue
        for node in ast.walk(_parsed(file)):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                found[re.sub(r"[^\n -~]", "?", ast.get_docstring(node) or "")] = None
    coded = [np.array([known[letter] for letter in text], np.int64) for text in found]
    return tuple(text for text in coded if len(text) > PLACES)


def _parsed(file: Path) -> ast.AST:
    try:
        return ast.parse(file.read_text(encoding="utf-8"))
    except (SyntaxError, UnicodeDecodeError):  # examples of what does not compile
        return ast.Module([], [])


def runs(seed: int, part: str, count: int, mixture: Sequence[float]) -> Iterator[tuple[Feed, list[int]]]:
    """Yield runs from the start of a passage, or inside of it with the float model's caches."""
    file = MODEL.path(Path(os.environ[WORK]) / MODEL.name)
    return DECODER.runs(seed, file, texts(part), count, mixture)


MODEL = trained_model(
    name="char-decoder",
    data="docstrings of Python's library",
    kind="decoder transformer with a key/value cache",
    task="400 runs of 1 to 64 characters of docstrings, most with a cache: share of next characters told",
    samples=runs,
    splits={
        "calibration": (401, "calibration", 48, (0.3, 0.4, 0.3)),
        "tuning": (402, "tuning", 200, (0.2, 0.7, 0.1)),
        "evaluation": (403, "evaluation", 400, (0.2, 0.7, 0.1)),
    },
    count=classified,
    helpers=("cached_decoder",),
)
