"""A keypoint net in the manner of SuperPoint, trained here: a grey picture of shapes -> corners, descriptors.

The 65 logits of a cell of 8 x 8 pixels are its pixels and "none" (DeTone, Malisiewicz and Rabinovich, 2018).
What is scored is a peak search after the Softmax, so ties and small shifts of the logits count.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from boxes import f1
from PIL import Image, ImageDraw
from record import Counts, Feed, Outputs, Rng, per_feed
from scipy.ndimage import gaussian_filter, maximum_filter
from scipy.optimize import linear_sum_assignment
from trained import trained_model

HEIGHT, WIDTH, CELL, LARGER = 120, 160, 8, 3
NEAR, APART, LEAST = 2.5, 4, 0.1  # pixels: a hit, the reach of a peak; the probability of one


def _polygon(rng: Rng) -> list[tuple[float, float]]:
    """Return the corners of a convex polygon, or of a square of a grid's field."""
    count, size = int(rng.integers(3, 7)), rng.uniform(8, 40)
    angles = np.sort(rng.uniform(0, 2 * np.pi, count))
    if (np.diff([*angles, angles[0] + 2 * np.pi]) > 2.6).any() or (np.diff(angles) < 0.5).any():
        return _polygon(rng)
    centre = rng.uniform((4, 4), (WIDTH - 4, HEIGHT - 4))
    radii = size * rng.uniform(0.7, 1.0, count)
    return [
        (centre[0] + r * np.cos(a), centre[1] + r * np.sin(a)) for r, a in zip(radii, angles, strict=True)
    ]


def _board(rng: Rng, draw: ImageDraw.ImageDraw) -> list[tuple[float, float]]:
    """Draw a slanted chessboard, and return where its fields meet."""
    rows, columns = (int(n) for n in rng.integers(3, 6, 2))
    step, turn = rng.uniform(9, 18), rng.uniform(-0.6, 0.6)
    across = step * np.array([np.cos(turn), np.sin(turn)])
    down = step * rng.uniform(0.7, 1.2) * np.array([-np.sin(turn + rng.uniform(-0.2, 0.2)), np.cos(turn)])
    start = rng.uniform((5, 5), (WIDTH * 0.6, HEIGHT * 0.6))
    inks = rng.integers(0, 256, 2)
    if abs(int(inks[0]) - int(inks[1])) < 50:
        inks[1] = (int(inks[0]) + 128) % 256
    at = np.array([[start + i * across + j * down for i in range(columns + 1)] for j in range(rows + 1)])
    for j in range(rows):
        for i in range(columns):
            field = [at[j, i], at[j, i + 1], at[j + 1, i + 1], at[j + 1, i]]
            draw.polygon([tuple(p * LARGER) for p in field], int(inks[(i + j) % 2]))
    return [tuple(p) for p in at.reshape(-1, 2)]


def pictures(rng: Rng, count: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield grey pictures, uint8 (HEIGHT, WIDTH), and corners that are seen, float64 (corners, 2: x, y)."""
    for _ in range(count):
        ground = int(rng.integers(0, 256))
        image = Image.new("L", (WIDTH * LARGER, HEIGHT * LARGER), ground)
        draw = ImageDraw.Draw(image)
        corners: list[tuple[float, float]] = []
        for _ in range(int(rng.integers(2, 7))):
            shape = rng.random()
            before = np.asarray(image).copy()
            if shape < 0.2:
                new = _board(rng, draw)
            elif shape < 0.75:
                new = _polygon(rng)
                draw.polygon([(x * LARGER, y * LARGER) for x, y in new], int(rng.integers(0, 256)))
            else:  # a disc has none
                (x, y), r, new = rng.uniform((0, 0), (WIDTH, HEIGHT)), rng.uniform(3, 15), []
                box = [v * LARGER for v in (x - r, y - r, x + r, y + r)]
                draw.ellipse(box, int(rng.integers(0, 256)))
            painted = np.asarray(image) != before
            corners = [c for c in corners if not _covered(painted, c)] + new
        grey = np.asarray(image.resize((WIDTH, HEIGHT), Image.Resampling.BOX), np.float64)
        grey = gaussian_filter(grey, rng.uniform(0.2, 0.9))
        rough = gaussian_filter(rng.standard_normal(grey.shape), rng.uniform(0.8, 3))
        light = gaussian_filter(rng.standard_normal(grey.shape), 30)
        grey = grey + rough / rough.std() * rng.uniform(0, 8) + light / light.std() * rng.uniform(0, 25)
        grey = np.clip(grey + rng.normal(0, rng.uniform(1, 9), grey.shape), 0, 255)
        yield grey.astype(np.uint8), _seen(np.asarray(image), corners)


def _covered(painted: np.ndarray, corner: tuple[float, float]) -> bool:
    x, y = (int(v * LARGER) for v in corner)
    return 0 <= y < painted.shape[0] and 0 <= x < painted.shape[1] and bool(painted[y, x])


def _seen(drawn: np.ndarray, corners: Sequence[tuple[float, float]]) -> np.ndarray:
    """Return the corners inside the picture around which there is some contrast."""
    kept = []
    for x, y in corners:
        if not (3 <= x < WIDTH - 3 and 3 <= y < HEIGHT - 3):
            continue
        top, left = (max(0, int(v * LARGER) - 2 * LARGER) for v in (y, x))
        if np.ptp(drawn[top : top + 4 * LARGER, left : left + 4 * LARGER].astype(int)) >= 30:
            kept.append((x, y))
    return np.array(kept).reshape(-1, 2)


def peaks(logits: np.ndarray) -> np.ndarray:
    """Return the peaks of the probability of a corner, (peaks, 2: x, y), of logits (65, rows, columns)."""
    odds = np.exp(logits - logits.max(axis=0))
    shares = (odds / odds.sum(axis=0))[:-1]
    rows, columns = shares.shape[1:]
    heat = (
        shares.reshape(CELL, CELL, rows, columns).transpose(2, 0, 3, 1).reshape(rows * CELL, columns * CELL)
    )
    top = (heat == maximum_filter(heat, 2 * APART + 1)) & (heat > LEAST)
    return np.argwhere(top)[:, ::-1] + 0.5


def _pairs(seed: int, count: int) -> Iterator[tuple[Feed, list[list[float]]]]:
    for grey, corners in pictures(np.random.default_rng(seed), count):
        yield {"image": (grey / 255).astype(np.float32)[None, None]}, corners.round(2).tolist()


@per_feed
def count(values: Outputs, corners: Sequence[Sequence[float]]) -> Counts:
    """Corners found within NEAR pixels, peaks given and corners there are."""
    found, wanted = peaks(values[0][0].astype(np.float64)), np.array(corners).reshape(-1, 2)
    near = np.hypot(*(found[:, None] - wanted[None]).transpose(2, 0, 1)) <= NEAR
    pairs = linear_sum_assignment(near, maximize=True)
    return near[pairs].sum(), len(found), len(wanted)


MODEL = trained_model(
    name="corners",
    data="drawn shapes",
    kind="keypoints, 65 logits a cell (SuperPoint)",
    task="300 noisy drawings: F1 of the corners found within 2.5 pixels",
    samples=_pairs,
    splits={"calibration": (511, 32), "tuning": (512, 150), "evaluation": (513, 300)},
    count=count,
    score=f1,
    helpers=("boxes",),
)
