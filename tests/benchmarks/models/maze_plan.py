"""A value iteration network, trained here: a map with a goal -> in which of 8 directions to go, everywhere.

Tamar et al., 2016: the same convolution and maximum over actions forty times, so that what is known of the
goal reaches the far end of the map.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

import numpy as np
from record import Counts, Feed, Outputs, Rng, per_feed
from trained import trained_model

SIDE = 20
STEPS = ((-1, 0), (-1, 1), (0, 1), (1, 1), (1, 0), (1, -1), (0, -1), (-1, -1))


def _distances(walls: np.ndarray, goal: tuple[int, int]) -> np.ndarray:
    """Return how many steps each place is from the goal; -1 where no way leads there."""
    far = np.full(walls.shape, -1)
    far[goal] = 0
    waiting = deque([goal])
    while waiting:
        row, column = waiting.popleft()
        for down, right in STEPS:
            place = (row + down, column + right)
            if not walls[place] and far[place] < 0:
                far[place] = far[row, column] + 1
                waiting.append(place)
    return far


def maps(rng: Rng, count: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield maps, float32 (2, SIDE, SIDE): walls, goal; and the best directions, bool (8, SIDE, SIDE)."""
    while count:
        walls = np.ones((SIDE, SIDE), bool)
        walls[1:-1, 1:-1] = rng.random((SIDE - 2, SIDE - 2)) < rng.uniform(0.02, 0.2)
        for _ in range(int(rng.integers(2, 9))):
            row, column, high, wide = rng.integers((1, 1, 1, 1), (SIDE - 1, SIDE - 1, 7, 7))
            if rng.random() < 0.6:
                high, wide = (1, wide) if rng.random() < 0.5 else (high, 1)
            walls[row : row + high, column : column + wide] = True
        free = np.argwhere(~walls)
        if len(free) < 60:
            continue
        goal = tuple(int(v) for v in free[rng.integers(len(free))])
        far = _distances(walls, (goal[0], goal[1]))
        if (far > 0).sum() < 50:
            continue
        near = np.full((8, SIDE, SIDE), 10**6)
        for place, (down, right) in enumerate(STEPS):
            moved = np.roll(far, (-down, -right), (0, 1))
            near[place][moved >= 0] = moved[moved >= 0]
        best = (near == near.min(axis=0)) & (far > 0)
        told = np.zeros((2, SIDE, SIDE), np.float32)
        told[0], told[1][goal] = walls, 10.0
        count -= 1
        yield told, best


def _pairs(seed: int, count: int) -> Iterator[tuple[Feed, list[int]]]:
    for told, best in maps(np.random.default_rng(seed), count):
        bits = (best * (1 << np.arange(8))[:, None, None]).sum(axis=0)
        yield {"map": told[None]}, bits.ravel().tolist()


@per_feed
def count(values: Outputs, directions: Sequence[int]) -> Counts:
    """Places of each map from which the chosen direction is a best one, of how many."""
    bits, chosen = np.array(directions), values[0][0].argmax(axis=0).ravel()
    return ((bits >> chosen) & 1).sum(), (bits > 0).sum()


MODEL = trained_model(
    name="maze-plan",
    data="made maps",
    kind="policy, value iteration (VIN)",
    task="200 made maps of 20 x 20: share of the places from which a shortest way is taken",
    samples=_pairs,
    splits={"calibration": (621, 48), "tuning": (622, 100), "evaluation": (623, 200)},
    count=count,
)
