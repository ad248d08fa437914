"""Inverse folding in the manner of ProteinMPNN, trained here: a backbone -> log-probabilities of residues.

Backbones are made: helices, strands and turns of fixed geometry, folded onto themselves by chance. Which of
20 residues stands at a place is drawn from a law of what surrounds it (how buried, how curved, which segment,
how near the next chain), so that much of it cannot be told, as with proteins: probabilities are flat, and the
largest of them changes with little noise.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache

import numpy as np
from record import Feed, Rng, classified
from trained import trained_model

RESIDUES, SHARP = 20, 2.6  # how much the law prefers some residues
BOND = 3.8  # angstrom between neighbours of the chain
# Angle of the bond and torsion, in degrees, of the places of a helix, a strand and a turn; how far they vary.
SEGMENTS = ((91.0, 50.0, 4.0), (124.0, -170.0, 14.0), (110.0, 0.0, 90.0))
LENGTHS = ((7, 16), (4, 9), (2, 6))


def _cross(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return the cross product; NumPy's takes ten times as long for single vectors."""
    (x, y, z), (u, v, w) = a.tolist(), b.tolist()
    return np.array([y * w - z * v, z * u - x * w, x * v - y * u])


def _next(chain: Sequence[np.ndarray], angle: float, torsion: float) -> np.ndarray:
    """Return the place of the next residue from internal coordinates, in degrees (Parsons et al., 2005)."""
    a, b, c = chain[-3:]
    along = (c - b) / np.linalg.norm(c - b)
    normal = _cross(b - a, along)
    normal /= np.linalg.norm(normal)
    bend, turn = np.radians(180.0 - angle), np.radians(torsion)
    step = np.array([np.cos(bend), np.sin(bend) * np.cos(turn), np.sin(bend) * np.sin(turn)])
    return np.asarray(c + BOND * (step @ np.stack([along, _cross(normal, along), normal])))


def _chain(rng: Rng, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Return places of residues, (size, 3), and the segment of each; of turns the compact one is kept."""
    chain = [np.array([0.0, 0, 0]), np.array([BOND, 0, 0]), np.array([BOND * 1.5, BOND * 0.86, 0])]
    kinds = [2, 2, 2]
    kind = int(rng.integers(2))
    while len(chain) < size:
        angle, torsion, spread = SEGMENTS[kind]
        tries = []
        length = int(rng.integers(*LENGTHS[kind]))
        for _ in range(6 if kind == 2 else 1):
            grown = list(chain)
            for _ in range(length):
                bend = angle + rng.normal(0, min(spread, 12))
                grown.append(_next(grown, bend, torsion + rng.normal(0, spread)))
            tries.append(grown)
        chain = min(tries, key=lambda grown: float(np.linalg.norm(grown[-1] - np.mean(grown, axis=0))))
        kinds += [kind] * length
        kind = int(rng.integers(2)) if kind == 2 else 2
    places = np.array(chain[:size])
    return places - places.mean(axis=0), np.array(kinds[:size])


@cache
def _law() -> tuple[np.ndarray, np.ndarray]:
    """Return the weights of the law: a layer that is the same for all samples."""
    rng = np.random.default_rng(20)
    return 0.8 * rng.standard_normal((9, 24)), rng.standard_normal((24, RESIDUES)) * (2 / 24) ** 0.5


def _surroundings(places: np.ndarray, kinds: np.ndarray) -> np.ndarray:
    """Return what the law reads of each residue, (residues, 9)."""
    far = np.linalg.norm(places[:, None] - places[None], axis=2)
    apart = np.abs(np.subtract.outer(np.arange(len(places)), np.arange(len(places))))
    buried = (far < 8).sum(axis=1)[:, None]
    touching = ((far < 7) & (apart > 3)).sum(axis=1)[:, None]
    ends = np.pad(places, ((2, 2), (0, 0)), "edge")
    reach = np.stack([np.linalg.norm(ends[2 + k : len(ends) - 2 + k] - places, axis=1) for k in (-2, 2)], 1)
    segment = np.eye(3)[kinds]
    neighbour = np.where(apart > 3, far, 99).argmin(axis=1)
    partner = segment[neighbour][:, :2]
    return np.concatenate(
        [(buried - 12) / 4, (touching - 5) / 3, (reach - 6) / 0.8, segment, partner], axis=1
    )


def chains(rng: Rng, count: int, size: int | None = None) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield places in angstrom, float32 (residues, 3), and residues, int64; without a size 60 to 140."""
    into, out = _law()
    for _ in range(count):
        places, kinds = _chain(rng, size or int(rng.integers(60, 141)))
        logits = SHARP * np.sin(_surroundings(places, kinds) @ into + np.arange(24)) @ out
        residues = (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)
        yield (places + rng.normal(0, 0.05, places.shape)).astype(np.float32), residues


def _pairs(seed: int, count: int) -> Iterator[tuple[Feed, list[int]]]:
    for places, residues in chains(np.random.default_rng(seed), count):
        yield {"places": places[None]}, residues.tolist()


MODEL = trained_model(
    name="backbone",
    data="made chains",
    kind="graph network, log-probabilities (ProteinMPNN)",
    task="300 made backbones of 60 to 140 residues: share of the residues that are told right",
    samples=_pairs,
    splits={"calibration": (531, 48), "tuning": (532, 150), "evaluation": (533, 300)},
    count=classified,
)
