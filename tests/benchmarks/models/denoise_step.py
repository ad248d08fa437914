"""A step of a diffusion model, trained here: a noisy digit and how noisy it is -> the noise in it.

A small U-Net with group norms, SiLU, attention and an embedding of the time (Ho et al., 2020). What is scored
is the digit that the estimate leaves: whether its nearest clean digit is of the same kind.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache

import numpy as np
from record import Counts, Feed, Outputs, by_name, per_feed, split_remainders
from scipy.ndimage import zoom
from sklearn.datasets import load_digits
from trained import trained_model

SIDE, TIMES = 16, 1000
PARTS = split_remainders(12, 14, 16, 20)
"""Digits by split: the remainder of their place by 20."""


@cache
def digits(part: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the digits of a split, float32 (digits, 1, SIDE, SIDE) in -1 to 1, and their kinds."""
    found = load_digits()
    chosen = np.isin(np.arange(len(found.target)) % 20, list(PARTS[part]))
    large = np.stack([zoom(image, 2, order=1) for image in found.images[chosen]])
    return (large[:, None] / 8 - 1).astype(np.float32), found.target[chosen]


def kept(time: np.ndarray | int) -> np.ndarray:
    """Return the share of a picture's power that is left at a time (Nichol and Dhariwal, 2021)."""
    return np.asarray(np.cos((np.asarray(time) / TIMES + 0.008) / 1.008 * np.pi / 2) ** 2)


def _pairs(seed: int, part: str, count: int) -> Iterator[tuple[Feed, list[int]]]:
    rng, (clean, kinds) = np.random.default_rng(seed), digits(part)
    for _ in range(count):
        place, time = int(rng.integers(len(clean))), int(rng.integers(300, 800))
        share = float(kept(time))
        noise = rng.standard_normal(clean[0].shape)
        noisy = share**0.5 * clean[place] + (1 - share) ** 0.5 * noise
        feed = {"noisy": noisy[None].astype(np.float32), "time": np.array([time], np.float32)}
        # What the estimate is subtracted from, in thousandths, since a label is what JSON holds.
        yield feed, [int(kinds[place]), time, *np.round(noisy.ravel() * 1000).astype(int).tolist()]


@per_feed
def count(values: Outputs, label: Sequence[int]) -> Counts:
    """Whether the nearest of the clean training digits is of the same kind."""
    clean, kinds = digits("training")
    kind, time, *noisy = label
    share = float(kept(time))
    left = np.array(noisy) / 1000 - (1 - share) ** 0.5 * values[0].ravel().astype(np.float64)
    guess = np.clip(left / share**0.5, -1, 1)
    nearest = ((clean.reshape(len(clean), -1) - guess) ** 2).sum(axis=1).argmin()
    return kinds[nearest] == kind, 1


MODEL = trained_model(
    name="denoise-step",
    data="scikit-learn's digits",
    kind="diffusion step, U-Net with attention",
    task="500 digits in noise: share whose nearest clean digit, once the noise is taken off, is the same",
    samples=_pairs,
    splits=by_name(641, 64, 200, 500),
    count=count,
)
