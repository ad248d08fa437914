"""Density of a tensor's values from its histogram: bins and point masses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ...profiles.records.profile import TensorProfile

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Density:
    """How the values of a tensor are spread.

    Attributes:
        edges: ascending ends of n bins, n + 1 of them.
        mass: share of all elements in each bin, evenly spread over it; with `point_mass` they sum to 1.
        points: single values.
        point_mass: share of all elements that have this value.
    """

    edges: Floats
    mass: Floats
    points: Floats
    point_mass: Floats


def density(profile: TensorProfile) -> Density:
    """Return the spread of the values of `profile`, whose histogram must hold some."""
    counts = profile.histogram.counts.astype(np.float64)
    edges = np.clip(profile.histogram.edges(), profile.minimum, profile.maximum)
    zeros = 0.0
    if profile.zeros and counts.size:  # they are values of their own, not spread over their bin
        holder = min(int(np.searchsorted(edges, 0.0, side="right")) - 1, counts.size - 1)
        zeros = min(float(profile.zeros), counts[holder])
        counts[holder] -= zeros
    total = counts.sum() + zeros
    single = edges[1:] == edges[:-1]
    points = np.append(edges[:-1][single], 0.0)
    point_mass = np.append(counts[single], zeros)
    return Density(edges, np.where(single, 0.0, counts) / total, points, point_mass / total)


def mean_of(seen: Density, of: Callable[[Floats], Floats]) -> float:
    """Return the mean of a function of the values, at the middle of each bin; what is not finite is 0."""
    with np.errstate(all="ignore"):
        bins, points = of((seen.edges[:-1] + seen.edges[1:]) / 2.0), of(seen.points)
    bins, points = (np.nan_to_num(v, nan=0.0, posinf=0.0, neginf=0.0) for v in (bins, points))
    return float(seen.mass @ bins + seen.point_mass @ points)


def signal_power(profile: TensorProfile) -> float:
    """Return the mean square of the values; 0 for a tensor that held nothing."""
    return 0.0 if profile.histogram.total == 0 else mean_of(density(profile), np.square)


def narrowed(seen: Density, low: float, high: float) -> Density:
    """Return the spread after values outside [low, high] have been moved to its ends."""
    edges, points = np.clip(seen.edges, low, high), np.clip(seen.points, low, high)
    single = edges[1:] == edges[:-1]
    return Density(
        edges,
        np.where(single, 0.0, seen.mass),
        np.append(points, edges[:-1][single]),
        np.append(seen.point_mass, seen.mass[single]),
    )
