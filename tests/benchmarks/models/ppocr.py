"""What the three PP-OCR models have in common: the package that ships them, and how a picture goes in."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import cv2
import numpy as np
import onnx
import text
from record import Feed, Scores, package_folder

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


def characters(model: Path) -> list[str]:
    """Return the classes of a recogniser, from its file: blank, characters, space."""
    listed = {p.key: p.value for p in onnx.load(model).metadata_props}["character"]
    return ["", *listed.splitlines(), " "]


def decode(probabilities: np.ndarray, classes: Sequence[str]) -> str:
    """Greedy CTC: the best class of each step, repeats joined, blanks (class 0) left out."""
    best = probabilities.argmax(axis=1)
    kept = [c for before, c in zip([0, *best[:-1]], best, strict=True) if c not in (0, before)]
    return "".join(classes[c] for c in kept)


def lines_read(lines: Iterable[np.ndarray], labels: Sequence[str], classes: Sequence[str]) -> np.ndarray:
    """Whether each line (steps, classes) was read without an error, how alike it is, and 1; no spaces."""
    rows = []
    for probabilities, label in zip(lines, labels, strict=True):
        read, wanted = decode(probabilities, classes).replace(" ", ""), label.replace(" ", "")
        alike = difflib.SequenceMatcher(None, read, wanted, autojunk=False).ratio()
        rows.append((read == wanted, alike, 1))
    return np.array(rows, np.float64)


def reading(totals: np.ndarray) -> Scores:
    """Share of lines read without an error."""
    exact, alike, count = totals
    return Scores(float(exact / count), {"lines": exact / count, "characters": alike / count})
