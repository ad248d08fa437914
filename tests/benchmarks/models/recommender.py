"""A recommender in the manner of DLRM, trained here: what a user saw before and forty things -> their order.

Users and things are made: each has a hidden taste; a thing's kind, maker and price say something of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache

import numpy as np
from record import Counts, Feed, Outputs, Rng, per_feed
from trained import trained_model

THINGS, KINDS, MAKERS, TASTE, SEEN, OFFERED = 4000, 40, 150, 12, 20, 40


@cache
def things() -> dict[str, np.ndarray]:
    """Return the things: kind and maker of each, three figures, and the hidden taste, (THINGS, TASTE)."""
    rng = np.random.default_rng(40)
    kind, maker = rng.integers(KINDS, size=THINGS), rng.zipf(1.3, THINGS) % MAKERS
    of_kind, of_maker = rng.standard_normal((KINDS, TASTE)), rng.standard_normal((MAKERS, TASTE))
    taste = 0.8 * of_kind[kind] + 0.5 * of_maker[maker] + 0.5 * rng.standard_normal((THINGS, TASTE))
    price = np.exp(rng.normal(0, 1, THINGS) + 0.5 * taste[:, 0])
    age, liked = rng.exponential(1.0, THINGS), rng.standard_normal(THINGS)
    figures = np.stack([np.log(price), age, liked + 0.3 * rng.standard_normal(THINGS)], axis=1)
    return {
        "kind": kind,
        "maker": maker,
        "figures": figures.astype(np.float32),
        "taste": taste,
        "liked": liked,
    }


def visits(rng: Rng, count: int) -> Iterator[tuple[dict[str, np.ndarray], np.ndarray]]:
    """Yield what the model is fed of visits, and which of the things offered were taken, bool (OFFERED,)."""
    known = things()
    for _ in range(count):
        taste, purse = rng.standard_normal(TASTE), rng.normal(0, 1)
        shown = rng.integers(THINGS, size=400)
        worth = known["taste"][shown] @ taste / 2 + 0.6 * known["liked"][shown]
        worth -= 0.4 * np.abs(known["figures"][shown, 0] - purse)
        seen = shown[np.argsort(-(worth + rng.gumbel(size=400)))[:SEEN]]
        held = int(rng.integers(3, SEEN + 1))
        offered = rng.integers(THINGS, size=OFFERED)
        worth = known["taste"][offered] @ taste / 2 + 0.6 * known["liked"][offered]
        worth -= 0.4 * np.abs(known["figures"][offered, 0] - purse)
        taken = worth + rng.gumbel(size=OFFERED) > np.quantile(worth, 0.85)
        hour = rng.integers(24)
        feed = {
            "seen": np.where(np.arange(SEEN) < held, seen + 1, 0),  # 0 is nothing
            "thing": offered + 1,
            "kind": known["kind"][offered],
            "maker": known["maker"][offered],
            "figures": known["figures"][offered],
            "user": np.array([purse + 0.3 * rng.normal(), hour / 24], np.float32),
        }
        yield feed, taken


def _pairs(seed: int, count: int) -> Iterator[tuple[Feed, list[int]]]:
    for feed, taken in visits(np.random.default_rng(seed), count):
        yield {name: value[None] for name, value in feed.items()}, taken.astype(int).tolist()


@per_feed
def count(values: Outputs, told: Sequence[int]) -> Counts:
    """Pairs of a thing taken and one left that are in the right order, of how many (the area under a ROC)."""
    worth, taken = values[0].ravel(), np.array(told) > 0
    gaps = worth[taken][:, None] - worth[~taken]
    return (gaps > 0).sum() + 0.5 * (gaps == 0).sum(), gaps.size


MODEL = trained_model(
    name="recommender",
    data="made visits",
    kind="recommender, embeddings and their products (DLRM)",
    task="400 made visits, 40 things each: how often one that is taken stands before one that is left",
    samples=_pairs,
    splits={"calibration": (651, 64), "tuning": (652, 200), "evaluation": (653, 400)},
    count=count,
)
