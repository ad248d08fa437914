"""A matcher in the manner of LightGlue, trained here: points of two views -> log-probabilities of pairs.

Descriptors are ambiguous, as those of repeated windows are: where a point lies among the others decides. The
output has a row and a column for "nobody": its exponentials, not it, are what a user reads.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from boxes import f1
from record import Counts, Feed, Outputs, Rng, per_feed
from trained import trained_model

WIDTH, KINDS, LEAST = 32, 10, 0.2  # of a descriptor; kinds of surroundings; the probability of a pair


def _moved(rng: Rng, points: np.ndarray) -> np.ndarray:
    """Return points of (-1, 1) in another view: turned, scaled, moved, a little in perspective."""
    turn, scale = rng.uniform(-0.9, 0.9), rng.uniform(0.7, 1.3)
    matrix = np.eye(3)
    matrix[:2, :2] = scale * np.array([[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]])
    matrix[:2, 2], matrix[2, :2] = rng.uniform(-0.3, 0.3, 2), rng.uniform(-0.2, 0.2, 2)
    whole = np.concatenate([points, np.ones((len(points), 1))], axis=1) @ matrix.T
    return np.asarray(whole[:, :2] / whole[:, 2:])


def views(
    rng: Rng, sizes: tuple[int, int] | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return points and descriptors of two views, float32, and for each point of the first its partner or -1.

    Args:
        rng: of all that is drawn.
        sizes: points of the views; from 48 to 96 each where it is left out.
    """
    first, second = sizes or tuple(int(n) for n in rng.integers(48, 97, 2))
    shared = int(min(first, second) * rng.uniform(0.3, 0.85))
    count = first + second - shared
    looks = np.random.default_rng(7).standard_normal((KINDS, WIDTH))  # the same for all samples
    looks = looks[rng.integers(KINDS, size=count)] + 0.55 * rng.standard_normal((count, WIDTH))
    places = rng.uniform(-1, 1, (count, 2))
    one = places[:first] + rng.normal(0, 0.01, (first, 2))
    other = _moved(rng, places[first - shared :]) + rng.normal(0, 0.01, (second, 2))
    told = looks[:first] + 0.6 * rng.standard_normal((first, WIDTH))
    again = looks[first - shared :] + 0.6 * rng.standard_normal((second, WIDTH))
    order, turn = rng.permutation(first), rng.permutation(second)
    partner = np.full(first, -1)
    partner[first - shared :] = np.argsort(turn)[:shared]

    def unit(rows: np.ndarray) -> np.ndarray:
        return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), np.float32)

    ones, others = one[order].astype(np.float32), other[turn].astype(np.float32)
    return ones, unit(told[order]), others, unit(again[turn]), partner[order]


def _pairs(seed: int, count: int) -> Iterator[tuple[Feed, list[int]]]:
    rng = np.random.default_rng(seed)
    for _ in range(count):
        points0, looks0, points1, looks1, partner = views(rng)
        first = {"points0": points0[None], "looks0": looks0[None]}
        yield {**first, "points1": points1[None], "looks1": looks1[None]}, partner.tolist()


@per_feed
def count(values: Outputs, partner: Sequence[int]) -> Counts:
    """Right pairs, pairs given, pairs there are; a pair is given where each is the other's best."""
    inner, truth = np.exp(values[0][0].astype(np.float64))[:-1, :-1], np.array(partner)
    best, back = inner.argmax(axis=1), inner.argmax(axis=0)
    places = np.arange(len(best))
    given = (back[best] == places) & (inner[places, best] > LEAST)
    return (given & (best == truth)).sum(), given.sum(), (truth >= 0).sum()


MODEL = trained_model(
    name="matcher",
    data="made views",
    kind="matching transformer, log assignment (LightGlue)",
    task="300 pairs of made views of 48 to 96 points: F1 of the pairs of points",
    samples=_pairs,
    splits={"calibration": (521, 32), "tuning": (522, 150), "evaluation": (523, 300)},
    count=count,
    score=f1,
    helpers=("boxes",),
)
