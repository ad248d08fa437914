"""PP-OCRv4 recogniser: a picture of one line of text -> characters."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import text
from record import Outputs, RealModel

from models import ppocr

FILE = "ch_PP-OCRv4_rec_infer.onnx"


def count(outputs: Iterable[Outputs], labels: Sequence[str]) -> np.ndarray:
    """Whether each line was read without an error, and how alike it is; spaces do not count."""
    characters = ppocr.characters(ppocr.model_path(FILE))
    return ppocr.lines_read((values[0][0] for values in outputs), labels, characters)


MODEL = RealModel(
    name="ppocr-rec",
    source=ppocr.SOURCE,
    kind="text recogniser",
    task="300 rendered lines of text, 14 fonts: share read without an error",
    path=lambda folder: ppocr.model_path(FILE),
    samples=ppocr.lines,
    splits={
        "calibration": (1, 48, 0, text.CALIBRATION_FONTS),
        "tuning": (3, 200, 2, text.CALIBRATION_FONTS),
        "evaluation": (2, 300, 1, text.EVALUATION_FONTS),
    },
    count=count,
    score=ppocr.reading,
    helpers=("models.ppocr", "text"),
)
