"""The profile of a model after equalization, estimated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from ...profiles.base.errors import ProfileError
from ...profiles.records.histogram import EqualBins
from ...profiles.records.profile import Profile, TensorProfile
from ..model.graph import Graph
from ..numerics.channel_density import Spreads, divided
from ..plan.adjustments import EqualizationScales
from .apply import SCALED
from .paths import SAME_RANGE, upstream

Floats = npt.NDArray[np.float64]


def adjusted_profile(
    graph: Graph, profile: Profile, factors: Mapping[str, EqualizationScales], spreads: Spreads | None = None
) -> Profile:
    """Return the profile of a model after `apply_factors`, as far as it can be told without data.

    Args:
        graph: the prepared model, without factors.
        profile: its profile.
        factors: what was applied.
        spreads: of the profile, as far as they are known; None for nothing.

    Raises:
        ProfileError: the profile has no records of the channels of such an activation.
    """
    instead: dict[str, dict[str, TensorProfile]] = {}
    spreads = spreads or Spreads(profile)
    for name, entry in factors.items():
        divisors, spread = np.asarray(entry.scales), spreads.of(name)
        if spread is None:
            raise ProfileError(f"tensor '{name}': the profile has no records of its channels; profile again")
        new = divided(profile[name], spread, divisors)
        if entry.inserted:
            instead[name] = {name: profile[name], f"{name}{SCALED}": new}
            continue
        instead[name] = {f"{name}{SCALED}": new}
        path = upstream(graph, name, entry.axis, divisors.size)
        assert path is not None
        for inner, reader in path.inner:
            if inner in profile:
                between = new if reader in SAME_RANGE else _bounded(profile[inner], divisors)
                instead[inner] = {f"{inner}{SCALED}": between}
    tensors: dict[str, TensorProfile] = {}
    for name, tensor in profile.items():
        tensors |= instead.get(name, {name: tensor})
    return replace(profile, tensors=tensors)


def _bounded(tensor: TensorProfile, divisors: Floats) -> TensorProfile:
    """Return a profile whose range is wide enough whichever channel the ends were in."""
    least = float(divisors.min())
    low, high = min(tensor.minimum, 0.0) / least, max(tensor.maximum, 0.0) / least
    histogram = EqualBins(low, high, np.array([float(tensor.count)]))
    return replace(tensor, minimum=low, maximum=high, histogram=histogram, channels=None)
