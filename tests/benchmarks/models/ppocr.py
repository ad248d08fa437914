"""What the three PP-OCR models have in common: the package that ships them, and how a picture goes in."""

from __future__ import annotations

import math
from pathlib import Path

import cv2
import numpy as np
from record import package_folder

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
