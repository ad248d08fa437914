"""PP-OCR direction classifier: a picture of one line of text -> upright or upside down."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import text
from record import Feed, Outputs, RealModel, Scores

from models import ppocr

FILE = "ch_ppocr_mobile_v2.0_cls_infer.onnx"


def _lines(seed: int, count: int, part: int, fonts: Sequence[tuple[str, str]]) -> Iterator[tuple[Feed, int]]:
    rng = np.random.default_rng(seed)
    for index in range(count):
        image = text.line_image(rng, text.line_text(rng, part), fonts)
        turned = index % 2
        yield {"x": ppocr.line_input(np.rot90(image, 2 * turned).copy(), 192)}, turned


def calibration() -> Iterator[Feed]:
    return (feed for feed, _ in _lines(11, 48, 0, text.CALIBRATION_FONTS))


def evaluation() -> Iterator[tuple[Feed, int]]:
    return _lines(12, 500, 1, text.EVALUATION_FONTS)


def score(outputs: Iterable[Outputs], labels: Sequence[int]) -> Scores:
    """Share of lines whose direction is right."""
    right = [int(values[0][0].argmax()) == label for values, label in zip(outputs, labels, strict=True)]
    upright, turned = right[0::2], right[1::2]
    return Scores(
        sum(right) / len(right),
        {"upright": sum(upright) / len(upright), "upside down": sum(turned) / len(turned)},
    )


MODEL = RealModel(
    name="ppocr-cls",
    source=ppocr.SOURCE,
    task="500 rendered lines of text, half upside down: share told right",
    path=lambda folder: ppocr.model_path(FILE),
    calibration=calibration,
    evaluation=evaluation,
    score=score,
    helpers=("models.ppocr", "text"),
)
