"""An autoencoder trained here: a piece of a surface -> the same without its faults, and how much it differs.

The surfaces are scikit-image's photographs of bricks, grass and gravel; each split has a region of its own.
Of every two pieces one has a fault: a scratch, a spot or a foreign patch.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import numpy as np
from PIL import Image
from record import Counts, Feed, Outputs, Rng, Scores, by_name, package_folder, per_feed
from trained import trained_model

SIDE, PAIRS = 64, 2
SURFACES = ("brick", "grass", "gravel")
FOREIGN = ("coins", "camera", "cell")
REGIONS = {  # columns of each photograph, which has 512
    "training": (0, 256),
    "calibration": (256, 324),
    "tuning": (324, 400),
    "evaluation": (400, 512),
}


@cache
def _photograph(name: str) -> np.ndarray:
    """Return a photograph of scikit-image in grey, float64 (height, width), 0..1."""
    with Image.open(package_folder("skimage") / "data" / f"{name}.png") as image:
        return np.asarray(image.convert("L"), np.float64) / 255


def _piece(rng: Rng, name: str, columns: tuple[int, int]) -> np.ndarray:
    whole = _photograph(name)[:, columns[0] : columns[1]]
    top, left = (int(rng.integers(0, size - SIDE + 1)) for size in whole.shape)
    piece = whole[top : top + SIDE, left : left + SIDE]
    piece = piece[:, ::-1] if rng.random() < 0.5 else piece
    return np.clip((piece - 0.5) * rng.uniform(0.85, 1.15) + 0.5 + rng.uniform(-0.06, 0.06), 0, 1)


def _faulty(rng: Rng, piece: np.ndarray) -> np.ndarray:
    """Return the piece with a fault somewhere."""
    rows, columns = np.mgrid[:SIDE, :SIDE]
    y, x = rng.uniform(12, SIDE - 12, 2)
    kind, turn = rng.integers(3), rng.uniform(0, np.pi)
    along = (columns - x) * np.cos(turn) + (rows - y) * np.sin(turn)
    across = (rows - y) * np.cos(turn) - (columns - x) * np.sin(turn)
    strength = rng.uniform(0.25, 0.6) * rng.choice([-1, 1])
    radius = rng.uniform(4, 9)
    inside = np.clip(radius + 1 - np.hypot(along, across * rng.uniform(1, 1.6)), 0, 1)
    if kind == 0:
        scratch = np.clip(1.7 - np.abs(across + 2 * np.sin(along / 6)), 0, 1) * (np.abs(along) < 3 * radius)
        return np.clip(piece + strength * scratch, 0, 1)
    if kind == 1:
        return np.clip(piece + strength * inside, 0, 1)
    foreign = str(rng.choice(FOREIGN))
    return piece + inside * (_piece(rng, foreign, (0, _photograph(foreign).shape[1])) - piece)


def good(rng: Rng, part: str, count: int) -> np.ndarray:
    """Return pieces without faults, float32 (count, 1, SIDE, SIDE)."""
    pieces = [_piece(rng, str(rng.choice(SURFACES)), REGIONS[part]) for _ in range(count)]
    return np.stack(pieces)[:, None].astype(np.float32)


def _pairs(seed: int, part: str, count: int) -> Iterator[tuple[Feed, int]]:
    """Yield PAIRS of pieces of one surface: those without a fault, then those with one."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        surface = str(rng.choice(SURFACES))
        pieces = [_piece(rng, surface, REGIONS[part]) for _ in range(2 * PAIRS)]
        pieces[PAIRS:] = [_faulty(rng, piece) for piece in pieces[PAIRS:]]
        yield {"pieces": np.stack(pieces)[:, None].astype(np.float32)}, PAIRS


@per_feed
def count(values: Outputs, pairs: int) -> Counts:
    """Of all pairs of a good and a faulty piece in a run: how often the faulty one differs more; how many."""
    difference = values[1].ravel()
    return (difference[None, pairs:] > difference[:pairs, None]).sum(), pairs * pairs


def score(totals: np.ndarray) -> Scores:
    """Probability that a faulty piece differs more than a good one of its surface (area under the ROC)."""
    return Scores(float(totals[0] / totals[1]), {"pairs": float(totals[1])})


MODEL = trained_model(
    name="texture-faults",
    data="scikit-image's photographs",
    kind="autoencoder, anomalies",
    task="400 runs of 4 pieces of brick, grass or gravel: how often a fault makes one differ more",
    samples=_pairs,
    splits=by_name(361, 32, 120, 400),
    count=count,
    score=score,
)
