"""The profile of a model after equalization, estimated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from ...profiles.base.errors import ProfileError
from ...profiles.records.channel_statistics import Channels, divided
from ...profiles.records.histogram import EqualBins
from ...profiles.records.profile import Profile, TensorProfile
from ..model.graph import Graph
from ..numerics.channel_density import ChannelDensities, equalized
from ..plan.adjustments import EqualizationScales
from .apply import equalized_name
from .paths import find_path

Floats = npt.NDArray[np.float64]


def equalized_profile(
    graph: Graph,
    profile: Profile,
    scales: Mapping[str, EqualizationScales],
    densities: ChannelDensities | None = None,
) -> Profile:
    """Return the profile of a model after `apply_equalization`, as far as it is known without data.

    Args:
        graph: the prepared model, before equalization.
        profile: its profile.
        scales: what was applied.
        densities: of the profile's channels, as far as they are known; None for nothing.

    Raises:
        ProfileError: the profile has no records of the channels of such an activation.
    """
    densities = densities or ChannelDensities(profile)
    replaced: dict[str, dict[str, TensorProfile]] = {}
    for name, entry in scales.items():
        divisors, density = np.asarray(entry.scales), densities.of(name)
        if density is None:
            raise ProfileError(f"tensor '{name}': the profile has no records of its channels; profile again")
        new = replace(equalized(profile[name], density, divisors), channels=_divided(profile[name], divisors))
        replaced[name] = {name: profile[name]} if entry.inserted else {}
        replaced[name][equalized_name(name)] = new
        if not entry.inserted:
            replaced |= _along_path(graph, profile, name, entry, new)
    tensors: dict[str, TensorProfile] = {}
    for name, tensor in profile.items():
        tensors |= replaced.get(name, {name: tensor})
    return replace(profile, tensors=tensors)


def _along_path(
    graph: Graph, profile: Profile, name: str, entry: EqualizationScales, new: TensorProfile
) -> dict[str, dict[str, TensorProfile]]:
    """Return what stands for the activations between the divided constants and an activation.

    Args:
        graph, profile: before equalization.
        name: the activation.
        entry: its equalization scales.
        new: its profile after equalization.
    """
    path = find_path(graph, name, entry.axis, len(entry.scales))
    assert path is not None
    scales = np.asarray(entry.scales)
    return {
        tensor.name: {
            equalized_name(tensor.name): new if tensor.keeps_range else _bounded(profile[tensor.name], scales)
        }
        for tensor in path.tensors
        if tensor.name in profile
    }


def _divided(tensor: TensorProfile, scales: Floats) -> Channels | None:
    """Return the statistics of the channels after they were divided."""
    channels = tensor.channels
    return None if channels is None else divided(channels, scales)


def _bounded(tensor: TensorProfile, scales: Floats) -> TensorProfile:
    """Return a profile whose range is wide enough whichever channel the ends were in."""
    least = float(scales.min())
    low, high = min(tensor.minimum, 0.0) / least, max(tensor.maximum, 0.0) / least
    histogram = EqualBins(low, high, np.array([float(tensor.count)]))
    return replace(tensor, minimum=low, maximum=high, histogram=histogram, channels=None, extremes=None)
