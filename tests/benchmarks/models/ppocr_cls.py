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


def count(outputs: Iterable[Outputs], labels: Sequence[int]) -> np.ndarray:
    """Whether each line's direction is right: upright lines first, then those upside down."""
    pairs = [(int(values[0][0].argmax()), label) for values, label in zip(outputs, labels, strict=True)]
    return np.array([[s == t == 0, t == 0, s == t == 1, t == 1] for s, t in pairs])


def score(totals: np.ndarray) -> Scores:
    """Share of lines whose direction is right."""
    upright, uprights, turned, all_turned = totals
    parts = {"upright": upright / max(uprights, 1), "upside down": turned / max(all_turned, 1)}
    return Scores((upright + turned) / (uprights + all_turned), parts)


MODEL = RealModel(
    name="ppocr-cls",
    source=ppocr.SOURCE,
    kind="classifier, depthwise mobile net",
    task="500 rendered lines of text, half upside down: share told right",
    path=lambda folder: ppocr.model_path(FILE),
    samples=_lines,
    splits={
        "calibration": (11, 48, 0, text.CALIBRATION_FONTS),
        "tuning": (13, 300, 2, text.CALIBRATION_FONTS),
        "evaluation": (12, 500, 1, text.EVALUATION_FONTS),
    },
    count=count,
    score=score,
    helpers=("models.ppocr", "text"),
)
