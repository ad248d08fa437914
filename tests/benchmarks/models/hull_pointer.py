"""A pointer network with its loop inside the graph, trained here: points -> their convex hull, in order.

Vinyals et al., 2015: a transformer reads the points, a decoder points at one of them at a time, in an ONNX
Loop that ends when it points at "end". The outputs are the log-probabilities of each step and the choices.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from record import Counts, Feed, Outputs, Rng, per_feed
from trained import trained_model

MOST = 16  # steps of the loop


def hull(points: np.ndarray) -> list[int]:
    """Return the places of the convex hull's corners, turning left, from the lowest x on (Andrew, 1979)."""
    order = sorted(range(len(points)), key=lambda k: tuple(points[k]))

    def half(places: Sequence[int]) -> list[int]:
        found: list[int] = []
        for place in places:
            while len(found) >= 2:
                a, b = points[found[-1]] - points[found[-2]], points[place] - points[found[-1]]
                if a[0] * b[1] - a[1] * b[0] > 0:
                    break
                found.pop()
            found.append(place)
        return found[:-1]

    return half(order) + half(order[::-1])


def clouds(rng: Rng, count: int, size: int | None = None) -> Iterator[tuple[np.ndarray, list[int]]]:
    """Yield points, float32 (points, 2), and their hull; 10 to 24 of them without a size."""
    while count:
        points = rng.uniform(0, 1, (size or int(rng.integers(10, 25)), 2)).astype(np.float32)
        found = hull(points.astype(np.float64))
        if len(found) < MOST:
            count -= 1
            yield points, found


def _pairs(seed: int, count: int) -> Iterator[tuple[Feed, list[int]]]:
    for points, found in clouds(np.random.default_rng(seed), count):
        yield {"points": points[None]}, found


@per_feed
def count(values: Outputs, corners: Sequence[int]) -> Counts:
    """Whether all of a cloud's choices are right."""
    chosen = values[1].ravel().tolist()
    return chosen[: len(corners)] == list(corners) and len(chosen) == len(corners) + 1, 1


MODEL = trained_model(
    name="hull-pointer",
    data="made points",
    kind="pointer network, a Loop with its own end",
    task="500 clouds of 10 to 24 points: share whose convex hull is told without an error",
    samples=_pairs,
    splits={"calibration": (681, 64), "tuning": (682, 200), "evaluation": (683, 500)},
    count=count,
)
