"""PP-OCRv4 detector: a picture of a page -> the boxes of its lines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import text
from boxes import f1, matched
from PIL import ImageFont
from rapidocr_onnxruntime.ch_ppocr_det.utils import DBPostProcess
from record import Feed, Outputs, RealModel
from shapely.geometry import Polygon, box

from models import ppocr

FILE = "ch_PP-OCRv4_det_infer.onnx"
HEIGHT, WIDTH = 480, 640


def _pages(
    seed: int, count: int, part: int, fonts: Sequence[tuple[str, str]]
) -> Iterator[tuple[Feed, list[list[int]]]]:
    rng = np.random.default_rng(seed)
    for _ in range(count):
        ink, paper = text.colours(rng)
        page = text.paper_image(rng, WIDTH, HEIGHT, paper)
        boxes: list[list[int]] = []
        for _ in range(int(rng.integers(6, 40))):
            font = ImageFont.truetype(
                text.font_file(*fonts[rng.integers(len(fonts))]), int(rng.integers(13, 44))
            )
            line = text.line_text(rng, part)
            left, top, right, bottom = font.getbbox(line)
            free = WIDTH - int(right - left) - 8, HEIGHT - int(bottom - top) - 8
            if min(free) <= 8:
                continue
            at = int(rng.integers(8, free[0])), int(rng.integers(8, free[1]))
            ends = at[0] + int(right - left), at[1] + int(bottom - top)
            # Lines keep a distance, so that what is one line is never in doubt.
            apart = all(
                ends[0] + 24 < b[0] or b[2] + 24 < at[0] or ends[1] + 12 < b[1] or b[3] + 12 < at[1]
                for b in boxes
            )
            if apart:
                boxes.append(list(text.draw_text(page, at, line, font, ink)))
        pixels = text.bgr(text.weathered(rng, page)).astype(np.float32)
        yield {"x": ((pixels / 255 - 0.5) / 0.5).transpose(2, 0, 1)[None].astype(np.float32)}, boxes


def count(outputs: Iterable[Outputs], labels: Sequence[Sequence[Sequence[int]]]) -> np.ndarray:
    """Lines found, boxes given and lines there are on each page; found is an overlap (IoU) of 0.5.

    The map becomes boxes with the package's own code and settings (its config.yaml).
    """
    boxes_of = DBPostProcess(thresh=0.3, box_thresh=0.5, unclip_ratio=1.6, use_dilation=True)
    pages = []
    for (heat,), truth in zip(outputs, labels, strict=True):
        quads, _ = boxes_of(heat, (HEIGHT, WIDTH))
        shapes = [Polygon(quad) for quad in quads]
        shapes = [shape for shape in shapes if shape.is_valid]
        overlap = np.array([[_iou(shape, box(*line)) for line in truth] for shape in shapes])
        pages.append((matched(overlap, 0.5), len(shapes), len(truth)))
    return np.array(pages)


def _iou(a: Polygon, b: Polygon) -> float:
    shared = a.intersection(b).area
    return float(shared / (a.area + b.area - shared))


MODEL = RealModel(
    name="ppocr-det",
    source=ppocr.SOURCE,
    kind="text detector",
    task="120 rendered pages of 480 x 640: F1 of the lines' boxes at an overlap of 0.5",
    path=lambda folder: ppocr.model_path(FILE),
    samples=_pages,
    splits={
        "calibration": (21, 32, 0, text.CALIBRATION_FONTS),
        "tuning": (23, 60, 2, text.CALIBRATION_FONTS),
        "evaluation": (22, 120, 1, text.EVALUATION_FONTS),
    },
    count=count,
    score=f1,
    helpers=("models.ppocr", "text", "boxes"),
)
