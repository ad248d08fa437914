"""Photographs that PyPI packages ship, by split: no picture is in two of them."""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import IO

import numpy as np
from frame import WORK
from PIL import Image
from record import package_folder

ARCHIVES = ("face_recognition",)  # their pictures are in the source archive only

CALIBRATION = (
    ("skimage", "data/coffee.png"),
    ("skimage", "data/ihc.png"),
    ("skimage", "data/motorcycle_left.png"),
)
TUNING = (
    ("skimage", "data/chelsea.png"),
    ("skimage", "data/rocket.jpg"),
)
EVALUATION = (
    ("skimage", "data/astronaut.png"),
    ("skimage", "data/hubble_deep_field.jpg"),
    ("skimage", "data/retina.jpg"),
    ("sklearn", "datasets/images/china.jpg"),
    ("sklearn", "datasets/images/flower.jpg"),
    ("matplotlib", "mpl-data/sample_data/grace_hopper.jpg"),
)


@cache
def photograph(package: str, inside: str) -> np.ndarray:
    """Return a picture, uint8 (height, width, 3), RGB, its longer side at most 800.

    Made smaller by area, which takes JPEG's traces away.
    """
    with _opened(package, inside) as file:
        image = Image.open(file).convert("RGB")
    if max(image.size) > 800:
        scale = 800 / max(image.size)
        image = image.resize((int(image.width * scale), int(image.height * scale)), Image.Resampling.BOX)
    return np.asarray(image)


def _opened(package: str, inside: str) -> IO[bytes]:
    """Open a file of an installed package, or of a source archive in the work folder (see README.md)."""
    if package not in ARCHIVES:
        return (package_folder(package) / inside).open("rb")
    found = sorted(Path(os.environ[WORK]).glob(f"{package}-*.tar.gz"))
    if not found:
        raise SystemExit(f"no source archive of {package} in the work folder; see tests/benchmarks/README.md")
    with tarfile.open(found[0]) as archive:
        content = archive.extractfile(f"{found[0].name.removesuffix('.tar.gz')}/{inside}")
        assert content is not None
        return io.BytesIO(content.read())


def crops(
    rng: np.random.Generator, names: Sequence[tuple[str, str]], count: int, side: int
) -> Iterator[np.ndarray]:
    """Yield square pieces of the pictures in turn, uint8 (side, side, 3); flat ones are drawn again."""
    for index in range(count):
        whole = photograph(*names[index % len(names)])
        for _ in range(20):
            top, left = (int(rng.integers(0, size - side + 1)) for size in whole.shape[:2])
            piece = whole[top : top + side, left : left + side]
            if piece.std() > 20:
                break
        yield piece[:, ::-1] if rng.random() < 0.5 else piece
