"""ddddocr's detector, a YOLOX with a concatenated head: a picture -> the boxes of its characters.

The last Concat joins centres, sizes and two scores of 3549 places; boxes are worked out outside the model.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import cv2
import numpy as np
import text
from boxes import f1, matched, overlaps, suppressed
from PIL import Image, ImageDraw, ImageFont
from record import Counts, Feed, Outputs, RealModel, package_folder, per_feed

SIDE, STRIDES = 416, (8, 16, 32)
LETTERS = "ABCDEFGHJKLMNPQRSTUVWXYZabdefghkmnpqrstuy23456789"


def _picture(
    rng: np.random.Generator, fonts: Sequence[tuple[str, str]]
) -> tuple[Image.Image, list[list[float]]]:
    """Return a puzzle as web pages show them, with the boxes of its characters."""
    width, height = int(rng.integers(240, 420)), int(rng.integers(120, 260))
    _, paper = text.colours(rng)
    picture = text.paper_image(rng, width, height, paper)
    draw = ImageDraw.Draw(picture)
    for _ in range(int(rng.integers(0, 9))):
        shade = tuple(int(v) for v in rng.integers(0, 256, 3))
        ends = [int(v) for v in rng.integers(0, [width, height, width, height])]
        if rng.random() < 0.5:
            draw.line(ends, fill=shade, width=int(rng.integers(1, 4)))
        else:
            draw.ellipse([ends[0], ends[1], ends[0] + 6, ends[1] + 6], fill=shade)
    boxes: list[list[float]] = []
    for _ in range(int(rng.integers(3, 8))):
        ink, _ = text.colours(rng)
        if abs(float(np.subtract(ink, paper) @ np.array([0.299, 0.587, 0.114]))) < 60:
            ink = (0, 0, 0) if sum(paper) > 380 else (255, 255, 255)
        font = ImageFont.truetype(text.font_file(*fonts[rng.integers(len(fonts))]), int(rng.integers(28, 64)))
        letter = LETTERS[rng.integers(len(LETTERS))]
        tile = Image.new("L", (96, 96))
        ImageDraw.Draw(tile).text((48, 48), letter, fill=255, font=font, anchor="mm")
        tile = tile.rotate(float(rng.uniform(-40, 40)), Image.Resampling.BICUBIC)
        inked = tile.getbbox()
        assert inked is not None
        tile = tile.crop(inked)
        free = width - tile.width - 4, height - tile.height - 4
        if min(free) < 4:
            continue
        at = int(rng.integers(4, free[0] + 1)), int(rng.integers(4, free[1] + 1))
        box = [at[0], at[1], at[0] + tile.width, at[1] + tile.height]
        # Characters keep a distance: crowded ones could be boxed in more than one right way.
        if any(
            box[0] < b[2] + 5 and b[0] < box[2] + 5 and box[1] < b[3] + 5 and b[1] < box[3] + 5 for b in boxes
        ):
            continue
        picture.paste(Image.new("RGB", tile.size, ink), at, tile)
        boxes.append([float(v) for v in box])
    return text.weathered(rng, picture), boxes


def _pictures(
    seed: int, count: int, fonts: Sequence[tuple[str, str]]
) -> Iterator[tuple[Feed, list[list[float]]]]:
    rng = np.random.default_rng(seed)
    for _ in range(count):
        picture, boxes = _picture(rng, fonts)
        scale = min(SIDE / picture.width, SIDE / picture.height)
        size = int(picture.width * scale), int(picture.height * scale)
        padded = np.full((SIDE, SIDE, 3), 114, np.uint8)
        padded[: size[1], : size[0]] = cv2.resize(text.bgr(picture), size)
        yield (
            {"images": padded.transpose(2, 0, 1)[None].astype(np.float32)},
            [[v * scale for v in box] for box in boxes],
        )


def boxes_of(output: np.ndarray) -> np.ndarray:
    """Return the boxes (count, 4) in an output (places, 6), with the package's thresholds.

    YOLOX (Ge et al., 2021): centres are offsets to a grid of each stride, sizes are exponents.
    """
    grids = [np.indices((SIDE // s, SIDE // s))[::-1].reshape(2, -1).T for s in STRIDES]
    strides = np.concatenate([np.full((len(g), 1), s) for g, s in zip(grids, STRIDES, strict=True)])
    score = output[:, 4] * output[:, 5]
    likely = score > 0.1
    centre = ((output[:, :2] + np.concatenate(grids)) * strides)[likely]
    half = np.exp(np.minimum(output[:, 2:4], 10))[likely] * strides[likely] / 2
    found = np.concatenate([centre - half, centre + half], axis=1)
    return found[suppressed(found, score[likely], 0.45)]


@per_feed
def count(values: Outputs, boxes: Sequence[Sequence[float]]) -> Counts:
    """Characters found, boxes given and characters there are; found is an overlap (IoU) of 0.5."""
    found, wanted = boxes_of(values[0][0].astype(np.float64)), np.array(boxes).reshape(-1, 4)
    return matched(overlaps(found, wanted), 0.5), len(found), len(wanted)


MODEL = RealModel(
    name="captcha-det",
    source="ddddocr",
    kind="detector with a concatenated head (YOLOX)",
    task="200 made puzzles: F1 of the characters' boxes at an overlap of 0.5",
    path=lambda folder: package_folder("ddddocr") / "common_det.onnx",
    samples=_pictures,
    splits={
        "calibration": (71, 32, text.CALIBRATION_FONTS),
        "tuning": (72, 100, text.CALIBRATION_FONTS),
        "evaluation": (73, 200, text.EVALUATION_FONTS),
    },
    count=count,
    score=f1,
    helpers=("text", "boxes"),
)
