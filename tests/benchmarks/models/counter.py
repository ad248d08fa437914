"""A counter, trained here: a picture of crowded cells -> a density map whose sum is how many there are."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from record import Counts, Feed, Outputs, Rng, Scores, per_feed
from scipy.ndimage import gaussian_filter
from trained import trained_model

SIDE, RATIO = 128, 4  # pixels of a picture, and of a cell of the map


def pictures(rng: Rng, count: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield grey pictures, uint8 (SIDE, SIDE), and the middles of cells, float64 (cells, 2: x, y)."""
    rows, columns = np.mgrid[:SIDE, :SIDE]
    for _ in range(count):
        cells = int(np.exp(rng.uniform(np.log(6), np.log(150))))
        spread = rng.uniform(0.1, 0.5) * SIDE
        crowd = rng.uniform(0, SIDE, 2) + rng.normal(0, spread, (4 * cells, 2))
        crowd = np.concatenate([crowd, rng.uniform(0, SIDE, (cells, 2))])
        crowd = crowd[((crowd >= 0) & (crowd < SIDE)).all(axis=1)]
        middles = crowd[rng.permutation(len(crowd))[:cells]]
        size, bright = rng.uniform(1.8, 3.6), rng.uniform(40, 150)
        picture = np.full((SIDE, SIDE), rng.uniform(30, 120))
        rough = gaussian_filter(rng.standard_normal((SIDE, SIDE)), rng.uniform(3, 12))
        picture += rough / rough.std() * rng.uniform(0, 18)
        for x, y in middles:
            radius, long, turn = size * rng.uniform(0.75, 1.3), rng.uniform(1, 1.7), rng.uniform(0, np.pi)
            top, left = max(0, int(y) - 12), max(0, int(x) - 12)
            part = (slice(top, int(y) + 13), slice(left, int(x) + 13))
            dx, dy = columns[part] - x, rows[part] - y
            along = dx * np.cos(turn) + dy * np.sin(turn)
            across = dy * np.cos(turn) - dx * np.sin(turn)
            inside = np.clip(radius + 0.5 - np.hypot(along / long, across), 0, 1)
            lit = bright * rng.uniform(0.6, 1.2) + 20 * np.cos(3 * along / radius)
            picture[part] += inside * (lit - 0.6 * (picture[part] - picture.mean()))
        picture = gaussian_filter(picture, rng.uniform(0.3, 1.2)) + rng.normal(
            0, rng.uniform(1, 10), picture.shape
        )
        yield np.clip(picture, 0, 255).astype(np.uint8), middles


def density(middles: np.ndarray, width: float = 1.0) -> np.ndarray:
    """Return a map, float64 (SIDE / RATIO,) * 2, whose sum is the count."""
    side = SIDE // RATIO
    found = np.zeros((side, side))
    np.add.at(found, tuple(np.minimum(middles[:, ::-1] // RATIO, side - 1).astype(int).T), 1)
    return np.asarray(gaussian_filter(found, width, mode="reflect"))


def _pairs(seed: int, count: int) -> Iterator[tuple[Feed, int]]:
    for picture, middles in pictures(np.random.default_rng(seed), count):
        yield {"picture": (picture / 255).astype(np.float32)[None, None]}, len(middles)


@per_feed
def count(values: Outputs, cells: int) -> Counts:
    """By how much each count is wrong, and how many there are."""
    return abs(float(values[1].sum()) - cells), cells


def score(totals: np.ndarray) -> Scores:
    """One less the error of the count as a share of the count."""
    return Scores(float(1 - totals[0] / totals[1]), {"cells": float(totals[1])})


MODEL = trained_model(
    name="counter",
    data="drawn cells",
    kind="counter, dilated convolutions (CSRNet)",
    task="300 pictures of 6 to 150 cells: one less the error of the count, as a share of it",
    samples=_pairs,
    splits={"calibration": (611, 32), "tuning": (612, 100), "evaluation": (613, 300)},
    count=count,
    score=score,
)
