"""Segmentation in the manner of LR-ASPP, trained here: a picture of a drawn figure -> where it is.

Depthwise blocks with HardSwish and squeeze-and-excitation (MobileNetV3), an output of one channel at the size
of the picture.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from PIL import Image, ImageDraw
from record import Counts, Feed, Outputs, Rng, Scores, per_feed
from trained import trained_model

from models import pose

SIDE = pose.SIDE * pose.LARGER


def figures(rng: Rng, count: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield pictures, uint8 (3, SIDE, SIDE), and masks of the figure, bool (SIDE, SIDE)."""
    for _ in range(count):
        image = Image.new("RGB", (SIDE, SIDE), tuple(map(int, rng.integers(0, 256, 3))))
        draw, joints = ImageDraw.Draw(image), pose._skeleton(rng)
        pose._clutter(rng, draw)
        pose._clutter(rng, draw)
        before = np.asarray(image).copy()
        seed = int(rng.integers(2**31))
        pose._dressed(np.random.default_rng(seed), draw, joints)
        # The same strokes on the opposite colours: what is painted differs from one of the two grounds.
        turned = Image.fromarray(255 - before)
        pose._dressed(np.random.default_rng(seed), ImageDraw.Draw(turned), joints)
        mask = (np.asarray(image) == np.asarray(turned)).all(axis=2)
        slope = rng.uniform(-25, 25, 2)
        light = np.linspace(-1, 1, SIDE)[:, None] * slope[0] + np.linspace(-1, 1, SIDE) * slope[1]
        noisy = np.asarray(image, np.float64) + light[..., None]
        noisy += rng.normal(0, rng.uniform(1, 16), noisy.shape)
        yield np.clip(noisy, 0, 255).astype(np.uint8).transpose(2, 0, 1), mask


def _pairs(seed: int, count: int) -> Iterator[tuple[Feed, list[int]]]:
    for picture, mask in figures(np.random.default_rng(seed), count):
        yield {"picture": (picture / 255).astype(np.float32)[None]}, _runs(mask)


def _runs(mask: np.ndarray) -> list[int]:
    """Return where the flat mask changes, which is short."""
    flat = np.concatenate([[0], mask.ravel().astype(int), [0]])
    return np.flatnonzero(np.diff(flat)).tolist()


def _mask(runs: Sequence[int]) -> np.ndarray:
    steps = np.zeros(SIDE * SIDE + 1, int)
    steps[np.array(runs[::2], int)], steps[np.array(runs[1::2], int)] = 1, -1
    return steps.cumsum()[:-1].reshape(SIDE, SIDE) > 0


@per_feed
def count(values: Outputs, runs: Sequence[int]) -> Counts:
    """The overlap (IoU) of each map at a probability of 0.5 with the figure."""
    found, truth = values[0].reshape(SIDE, SIDE) > 0.5, _mask(runs)
    return (found & truth).sum() / max(1, (found | truth).sum()), 1


def score(totals: np.ndarray) -> Scores:
    """Mean overlap."""
    return Scores(float(totals[0] / totals[1]), {"pictures": float(totals[1])})


MODEL = trained_model(
    name="figure-mask",
    data="drawn figures",
    kind="segmentation, depthwise with HardSwish (LR-ASPP)",
    task="240 drawn figures among shapes: mean overlap (IoU) of the map with the figure",
    samples=_pairs,
    splits={"calibration": (551, 32), "tuning": (552, 120), "evaluation": (553, 240)},
    count=count,
    score=score,
    helpers=("models.pose",),
)
