"""Density of a tensor's values from its histogram: bins and point masses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from ...profiles.records.profile import TensorProfile

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Density:
    """Distribution of the values of a tensor.

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

    @cached_property
    def changes(self) -> tuple[Floats, Floats]:
        """Ends of bins at which the density changes, and by how much it falls there, per unit of value."""
        width = np.diff(self.edges)
        height = np.divide(self.mass, width, out=np.zeros_like(width), where=width > 0.0)
        falls = np.append(0.0, height) - np.append(height, 0.0)
        matters = falls != 0.0  # an edge between bins of equal density cancels out
        return self.edges[matters], falls[matters]


def density(profile: TensorProfile) -> Density:
    """Return the distribution of the values of `profile`, whose histogram must not be empty."""
    counts = profile.histogram.counts.astype(np.float64)
    edges = np.clip(profile.histogram.edges(), profile.minimum, profile.maximum)
    zeros = 0.0
    if profile.zeros and counts.size:  # zeros are a point mass, not spread over their bin
        zero_bin = min(int(np.searchsorted(edges, 0.0, side="right")) - 1, counts.size - 1)
        zeros = min(float(profile.zeros), counts[zero_bin])
        counts[zero_bin] -= zeros
    total = counts.sum() + zeros
    single = edges[1:] == edges[:-1]
    points = np.append(edges[:-1][single], 0.0)
    point_mass = np.append(counts[single], zeros)
    return Density(edges, np.where(single, 0.0, counts) / total, points, point_mass / total)


def mean_of(distribution: Density, function: Callable[[Floats], Floats]) -> float:
    """Return the mean of a function of the values, at the middle of each bin; non-finite results are 0."""
    with np.errstate(all="ignore"):
        bins = function((distribution.edges[:-1] + distribution.edges[1:]) / 2.0)
        points = function(distribution.points)
    bins, points = _zeros_where_not_finite(bins), _zeros_where_not_finite(points)
    return float(distribution.mass @ bins + distribution.point_mass @ points)


def _zeros_where_not_finite(values: Floats) -> Floats:
    if np.isfinite(values).all():  # nearly always, and far faster to see than to replace what is not there
        return values
    return np.nan_to_num(values, nan=0.0, posinf=0.0, neginf=0.0)


def signal_power(profile: TensorProfile) -> float:
    """Return the mean square of the values; 0 for a tensor without elements."""
    return 0.0 if profile.histogram.total == 0 else mean_of(density(profile), np.square)


def clipped(distribution: Density, low: float, high: float) -> Density:
    """Return the distribution of the values clipped to [low, high]."""
    edges, points = np.clip(distribution.edges, low, high), np.clip(distribution.points, low, high)
    single = edges[1:] == edges[:-1]
    return Density(
        edges,
        np.where(single, 0.0, distribution.mass),
        np.append(points, edges[:-1][single]),
        np.append(distribution.point_mass, distribution.mass[single]),
    )
