"""A ConvNeXt whose weights are float16, trained here: a piece of a photograph -> which of 16 it is of.

The inputs, outputs and arithmetic are float32: each weight goes through a Cast, as converters write a file
"with float16 weights". Each split has columns of the photographs of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import numpy as np
import pictures
from record import Feed, Rng, by_name, classified
from scipy.ndimage import rotate
from trained import trained_model

SIDE = 48
PHOTOGRAPHS = (
    *(
        ("skimage", f"data/{name}.png")
        for name in ("coffee", "ihc", "motorcycle_left", "chelsea", "astronaut")
    ),
    *(("skimage", f"data/{name}.jpg") for name in ("rocket", "hubble_deep_field", "retina")),
    *(("skimage", f"data/{name}.png") for name in ("brick", "grass", "gravel", "coins", "moon", "page")),
    *(("sklearn", f"datasets/images/{name}.jpg") for name in ("china", "flower")),
)
COLUMNS = {  # shares of the width
    "training": (0.0, 0.55),
    "calibration": (0.55, 0.7),
    "tuning": (0.55, 0.75),
    "evaluation": (0.75, 1.0),
}


@cache
def _grey(place: int) -> np.ndarray:
    return pictures.photograph(*PHOTOGRAPHS[place]).astype(np.float64) @ np.array([0.299, 0.587, 0.114])


def pieces(rng: Rng, part: str, count: int) -> Iterator[tuple[np.ndarray, int]]:
    """Yield pieces, uint8 (1, SIDE, SIDE), grey, turned, dimmed, noisy, and the number of the photograph."""
    low, high = COLUMNS[part]
    for _ in range(count):
        place = int(rng.integers(len(PHOTOGRAPHS)))
        whole = _grey(place)
        first, last = int(low * whole.shape[1]), int(high * whole.shape[1])
        large = SIDE + 20
        for _ in range(10):
            top = int(rng.integers(0, max(1, whole.shape[0] - large + 1)))
            left = int(rng.integers(first, max(first + 1, last - large + 1)))
            cut = whole[top : top + large, left : min(last, left + large)]
            cut = np.pad(cut, [(0, large - size) for size in cut.shape], mode="reflect")
            if cut.std() > 6:
                break
        turned = rotate(cut, float(rng.uniform(-12, 12)), reshape=False, order=1, mode="reflect")
        piece = turned[10:-10, 10:-10][:, :: int(rng.choice([-1, 1]))]
        piece = (piece - piece.mean()) * rng.uniform(0.5, 1.4) + rng.uniform(80, 170)
        noisy = piece + rng.normal(0, rng.uniform(3, 25), piece.shape)
        yield np.clip(noisy, 0, 255).astype(np.uint8)[None], place


def _pairs(seed: int, part: str, count: int) -> Iterator[tuple[Feed, int]]:
    for piece, place in pieces(np.random.default_rng(seed), part, count):
        yield {"piece": (piece / 255).astype(np.float32)[None]}, place


MODEL = trained_model(
    name="surfaces",
    data="photographs of packages",
    kind="classifier (ConvNeXt), weights in float16",
    task="600 pieces of 16 photographs, turned and noisy: share whose photograph is told right",
    samples=_pairs,
    splits=by_name(691, 48, 250, 600),
    count=classified,
    helpers=("pictures",),
)
