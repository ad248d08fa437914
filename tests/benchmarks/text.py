"""Rendered text with known words: lines and pages from fonts that PyPI packages ship."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from functools import cache
from pydoc_data.topics import topics

import numpy as np
from PIL import Image, ImageDraw, ImageFilter, ImageFont
from record import package_folder

Rng = np.random.Generator

# Calibration sees the first set only; evaluation sees both.
CALIBRATION_FONTS = (
    ("matplotlib", "mpl-data/fonts/ttf/DejaVuSans.ttf"),
    ("matplotlib", "mpl-data/fonts/ttf/DejaVuSerif.ttf"),
    ("matplotlib", "mpl-data/fonts/ttf/DejaVuSansMono-Bold.ttf"),
    ("matplotlib", "mpl-data/fonts/ttf/STIXGeneral.ttf"),
    ("font_roboto", "files/Roboto-Regular.ttf"),
    ("font_roboto", "files/Roboto-BoldItalic.ttf"),
    ("font_source_sans_pro", "files/SourceSansPro-Regular.ttf"),
)
EVALUATION_FONTS = (
    *CALIBRATION_FONTS,
    ("matplotlib", "mpl-data/fonts/ttf/DejaVuSans-Bold.ttf"),
    ("matplotlib", "mpl-data/fonts/ttf/DejaVuSansMono.ttf"),
    ("matplotlib", "mpl-data/fonts/ttf/STIXGeneralBol.ttf"),
    ("font_roboto", "files/Roboto-Medium.ttf"),
    ("font_source_sans_pro", "files/SourceSansPro-Bold.ttf"),
    ("font_source_serif_pro", "files/SourceSerifPro-Regular.ttf"),
    ("font_source_serif_pro", "files/SourceSerifPro-Semibold.ttf"),
)


@cache
def font_file(package: str, inside: str) -> str:
    """Return the path of a font in an installed package."""
    return str(package_folder(package) / inside)


@cache
def sentences() -> tuple[str, ...]:
    """Sentences of Python's own reference manual, in ASCII."""
    text = " ".join(topics[name] for name in sorted(topics))
    text = re.sub(r"[*`\"_|]+|\S*://\S*", " ", text.encode("ascii", "ignore").decode())
    parts = re.split(r"(?<=[.:;])\s+", re.sub(r"\s+", " ", text))
    return tuple(
        dict.fromkeys(part for part in parts if re.fullmatch(r"[A-Za-z][A-Za-z0-9 ,.:;()'-]{20,}", part))
    )


def line_text(rng: Rng, part: int) -> str:
    """Return a line of 4 to about 40 characters; parts 0, 1 and 2 draw from disjoint sentences."""
    kind = rng.integers(10)
    if kind == 0:
        return f"{rng.integers(1, 29):02d}.{rng.integers(1, 13):02d}.{rng.integers(1980, 2030)}"
    if kind == 1:
        return f"{rng.choice(['EUR', 'USD', 'No.', 'Total:', 'Ref'])} {rng.integers(1, 10**6) / 100:.2f}"
    if kind == 2:
        letters = "".join(rng.choice(list("ABCDEFGHJKLMNPQRSTUVWXYZ"), 3))
        return f"{letters}-{rng.integers(10**3, 10**7)}"
    pool = sentences()[part::3]
    words = pool[rng.integers(len(pool))].split(" ")
    count = int(rng.integers(1, 7))
    start = int(rng.integers(max(1, len(words) - count + 1)))
    line = " ".join(words[start : start + count])[:40].strip()
    return line if len(line) >= 4 else line + " value"


def colours(rng: Rng) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return ink and paper, readable: at least 90 levels of luminance apart."""
    while True:
        ink, paper = rng.integers(0, 256, 3), rng.integers(0, 256, 3)
        if abs(float(ink @ [0.299, 0.587, 0.114]) - float(paper @ [0.299, 0.587, 0.114])) >= 90:
            return tuple(map(int, ink)), tuple(map(int, paper))


def paper_image(rng: Rng, width: int, height: int, colour: Sequence[int]) -> Image.Image:
    """Return a sheet of one colour with a slow change of light and grain."""
    slope = rng.uniform(-18, 18, 2)
    light = np.linspace(0, slope[0], width)[None, :, None] + np.linspace(0, slope[1], height)[:, None, None]
    grain = rng.normal(0, rng.uniform(0, 5), (height, width, 1))
    return Image.fromarray(np.clip(np.asarray(colour) + light + grain, 0, 255).astype(np.uint8))


def draw_text(
    image: Image.Image, at: tuple[int, int], text: str, font: ImageFont.FreeTypeFont, ink: tuple[int, ...]
) -> tuple[int, int, int, int]:
    """Draw text with the left upper corner of its ink at a place; return the box of the ink."""
    left, top, right, bottom = font.getbbox(text)
    draw = ImageDraw.Draw(image)
    draw.text((at[0] - left, at[1] - top), text, fill=ink, font=font)
    return at[0], at[1], at[0] + int(right - left), at[1] + int(bottom - top)


def weathered(rng: Rng, image: Image.Image) -> Image.Image:
    """Return the picture as a camera or a scanner would have it: some blur, some JPEG."""
    if rng.random() < 0.4:
        image = image.filter(ImageFilter.GaussianBlur(float(rng.uniform(0.3, 0.9))))
    if rng.random() < 0.5:
        file = io.BytesIO()
        image.save(file, "JPEG", quality=int(rng.integers(40, 90)))
        image = Image.open(file).convert("RGB")
    return image


def line_image(rng: Rng, text: str, fonts: Sequence[tuple[str, str]]) -> np.ndarray:
    """Return a cropped line of text as the detector would cut it out, uint8 (height, width, 3), BGR."""
    font = ImageFont.truetype(font_file(*fonts[rng.integers(len(fonts))]), int(rng.integers(22, 48)))
    left, top, right, bottom = font.getbbox(text)
    margin = rng.integers(2, 9, 4)
    width, height = int(right - left + margin[0] + margin[1]), int(bottom - top + margin[2] + margin[3])
    ink, paper = colours(rng)
    image = paper_image(rng, width, height, paper)
    draw_text(image, (int(margin[0]), int(margin[2])), text, font, ink)
    if rng.random() < 0.5:
        image = image.rotate(float(rng.uniform(-1.2, 1.2)), Image.Resampling.BICUBIC, fillcolor=paper)
    return bgr(weathered(rng, image))


def bgr(image: Image.Image) -> np.ndarray:
    """Return the picture in the channel order that the PP-OCR models were trained with."""
    return np.ascontiguousarray(np.asarray(image.convert("RGB"))[:, :, ::-1])
