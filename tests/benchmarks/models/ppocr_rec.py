"""PP-OCRv4 recogniser: a picture of one line of text -> characters."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import onnx
import text
from record import Feed, Outputs, RealModel, Scores

from models import ppocr

FILE = "ch_PP-OCRv4_rec_infer.onnx"


def _lines(seed: int, count: int, part: int, fonts: Sequence[tuple[str, str]]) -> Iterator[tuple[Feed, str]]:
    rng = np.random.default_rng(seed)
    for _ in range(count):
        line = text.line_text(rng, part)
        image = text.line_image(rng, line, fonts)
        # The package pads to 320 and lets longer lines be wider.
        width = max(320, math.ceil(48 * image.shape[1] / image.shape[0]))
        yield {"x": ppocr.line_input(image, width)}, line


def calibration() -> Iterator[Feed]:
    return (feed for feed, _ in _lines(1, 48, 0, text.CALIBRATION_FONTS))


def evaluation() -> Iterator[tuple[Feed, str]]:
    return _lines(2, 300, 1, text.EVALUATION_FONTS)


def decode(probabilities: np.ndarray, characters: Sequence[str]) -> str:
    """Greedy CTC: the best class of each step, repeats joined, blanks (class 0) left out."""
    best = probabilities.argmax(axis=1)
    kept = [c for before, c in zip([0, *best[:-1]], best, strict=True) if c not in (0, before)]
    return "".join(characters[c] for c in kept)


def score(outputs: Iterable[Outputs], labels: Sequence[str]) -> Scores:
    """Share of lines read without an error; spaces do not count, as in PaddleOCR's own metric."""
    listed = {p.key: p.value for p in onnx.load(ppocr.model_path(FILE)).metadata_props}["character"]
    characters = ["", *listed.splitlines(), " "]
    exact, similar = 0, 0.0
    for (probabilities,), label in zip(outputs, labels, strict=True):
        read, wanted = decode(probabilities[0], characters).replace(" ", ""), label.replace(" ", "")
        exact += read == wanted
        similar += difflib.SequenceMatcher(None, read, wanted, autojunk=False).ratio()
    return Scores(exact / len(labels), {"lines": exact / len(labels), "characters": similar / len(labels)})


MODEL = RealModel(
    name="ppocr-rec",
    source=ppocr.SOURCE,
    task="300 rendered lines of text, 14 fonts: share read without an error",
    path=lambda folder: ppocr.model_path(FILE),
    calibration=calibration,
    evaluation=evaluation,
    score=score,
    helpers=("models.ppocr", "text"),
)
