"""A potential of atoms in the manner of SchNet, trained here: kinds and places of atoms -> their energy.

The law that is learned is made: pairs attract and repel by kind (Morse), and what an atom binds grows slower
than its neighbours do (an embedded atom), so that the energy is not a sum of pairs.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from record import Counts, Feed, Outputs, Rng, Scores, per_feed
from trained import trained_model

KINDS, REACH = 4, 5.0  # of atoms; angstrom
_LAW = np.random.default_rng(30)
DEPTH, RADIUS = _LAW.uniform(0.3, 1.2, (KINDS, KINDS)), _LAW.uniform(1.3, 2.0, (KINDS, KINDS))
DEPTH, RADIUS = (DEPTH + DEPTH.T) / 2, (RADIUS + RADIUS.T) / 2
BOUND = _LAW.uniform(0.8, 2.0, KINDS)
MEAN = 0.6  # nearest an atom comes, as a share of the radius


def energy(kinds: np.ndarray, places: np.ndarray) -> float:
    """Return the energy of a cluster by the law."""
    far = np.linalg.norm(places[:, None] - places[None], axis=2) + 99 * np.eye(len(places))
    depth, radius = DEPTH[kinds[:, None], kinds], RADIUS[kinds[:, None], kinds]
    smooth = np.where(far < REACH, 0.5 * (np.cos(np.pi * np.minimum(far, REACH) / REACH) + 1), 0)
    morse = depth * ((1 - np.exp(-1.6 * (far - radius))) ** 2 - 1)
    crowd = (np.exp(-1.2 * (far - radius)) * smooth).sum(axis=1)
    return float((morse * smooth).sum() / 2 - (BOUND[kinds] * np.sqrt(crowd + 0.01)).sum())


def clusters(rng: Rng, count: int, size: int | None = None) -> Iterator[tuple[np.ndarray, np.ndarray, float]]:
    """Yield kinds, int64 (atoms,), places in angstrom, float32 (atoms, 3), and energies; 8 to 20 atoms."""
    for _ in range(count):
        atoms = size or int(rng.integers(8, 21))
        kinds = rng.choice(KINDS, atoms, p=(0.45, 0.3, 0.15, 0.1))
        places = [np.zeros(3)]
        while len(places) < atoms:
            kind, base = kinds[len(places)], int(rng.integers(len(places)))
            way = rng.standard_normal(3)
            step = RADIUS[kind, kinds[base]] * rng.uniform(0.85, 1.35)
            place = places[base] + step * way / np.linalg.norm(way)
            far = np.linalg.norm(np.array(places) - place, axis=1)
            if (far > 0.8 * RADIUS[kind, kinds[: len(places)]]).all():
                places.append(place)
        found = np.array(places, np.float32)
        yield kinds, found, energy(kinds, found.astype(np.float64))


def _pairs(seed: int, count: int) -> Iterator[tuple[Feed, list[float]]]:
    mean = float(np.mean([e / len(k) for k, _, e in clusters(np.random.default_rng(9), 300)]))
    for kinds, places, told in clusters(np.random.default_rng(seed), count):
        yield {"kinds": kinds[None], "places": places[None]}, [told, mean * len(kinds)]


@per_feed
def count(values: Outputs, energies: tuple[float, float]) -> Counts:
    """How far each energy is off, and how far the mean energy of an atom, times the atoms, would be."""
    told, mean = energies
    return abs(float(values[0].sum()) - told), abs(mean - told)


def score(totals: np.ndarray) -> Scores:
    """One less the error as a share of the error of the mean."""
    return Scores(float(1 - totals[0] / totals[1]), {"error": float(totals[0])})


MODEL = trained_model(
    name="clusters",
    data="made clusters",
    kind="chemistry, continuous filters (SchNet)",
    task="300 made clusters of 8 to 20 atoms: one less the error of the energy over that of the mean",
    samples=_pairs,
    splits={"calibration": (631, 64), "tuning": (632, 150), "evaluation": (633, 300)},
    count=count,
    score=score,
)
