"""Whether a difference of two scores is more than the luck of the samples: the paired bootstrap.

Efron and Tibshirani, An Introduction to the Bootstrap (1993), chapter 13: samples are drawn with replacement,
the same ones for both models, and both are scored again; the middle 95 % of the differences is the interval.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

DRAWS = 4000


@dataclass(frozen=True)
class Difference:
    """One score less another, in points (hundredths), with its 95 % interval."""

    points: float
    low: float
    high: float

    def within(self, drop: float) -> str:
        """Say whether at most `drop` points are lost; "?" where the samples do not settle it."""
        settled = self.low >= -drop or self.high < -drop
        return ("yes" if self.points >= -drop else "no") + ("" if settled else " ?")


def difference(
    units: Sequence[Sequence[float]],
    others: Sequence[Sequence[float]],
    value: Callable[[np.ndarray], float],
    seed: int = 0,
) -> Difference:
    """Compare two models on the same samples.

    Args:
        units: of one model, what each sample contributes (samples, counts).
        others: of the model that it is compared with, in the same order.
        value: sums of the counts -> the score in 0..1.
        seed: of the draws.

    Raises:
        ValueError: the two were not judged on the same samples.
    """
    one, other = np.asarray(units, np.float64), np.asarray(others, np.float64)
    if one.shape != other.shape or not len(one):
        raise ValueError(f"cannot compare counts of {one.shape} with {other.shape}: other samples")
    size = len(one)
    drawn = np.random.default_rng(seed).multinomial(size, np.full(size, 1 / size), DRAWS).astype(np.float64)
    gaps = [value(a) - value(b) for a, b in zip(drawn @ one, drawn @ other, strict=True)]
    low, high = np.percentile(gaps, [2.5, 97.5])
    gap = value(one.sum(axis=0)) - value(other.sum(axis=0))
    return Difference(100 * gap, 100 * float(low), 100 * float(high))
