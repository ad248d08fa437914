"""The noise of outputs in the worst group of channels of the worst output, over its signal."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ...noise.class_axes import ClassAxis
from ..compare import OutputSums, Sums, common_part, is_float, sums_along
from .metric import Floats, Outputs

ValuePair = tuple[npt.NDArray[Any], npt.NDArray[Any]]
"""One output on one sample, of the float and of the quantized model."""


def noise_share(
    floats: Sequence[Outputs], quantized: Sequence[Outputs], axes: Mapping[str, ClassAxis]
) -> float:
    """Return the noise over the energy in the worst channels; of integers, the elements that differ."""
    shares = noise_by_output(floats, quantized, axes)
    if shares:
        return max(float(share.mean()) for share in shares)
    pairs = zip(floats, quantized, strict=True)
    differing = [[OutputSums(axes[name]).add(f[name], q[name]) for name in f] for f, q in pairs]
    return float(np.max(np.mean(differing, axis=0), initial=0.0))


def noise_by_output(
    floats: Sequence[Outputs], quantized: Sequence[Outputs], axes: Mapping[str, ClassAxis]
) -> list[Floats]:
    """Return `_noise_shares` of each float output."""
    both = list(zip(floats, quantized, strict=True))
    names = [name for name, values in floats[0].items() if is_float(values)]
    return [_noise_shares([(f[n], q[n]) for f, q in both], axes[n]) for n in names]


def _noise_shares(pairs: Sequence[ValuePair], axis: ClassAxis) -> Floats:
    """Return the noise of an output in each sample over its mean energy, in the worst group of channels.

    It is inf if a sample has nothing in common with float's, NaN or Inf, or noise without any signal.
    """

    def of_channels(sums: Sequence[Sums], channels: npt.NDArray[np.intp]) -> Floats:
        """Return the noise of some channels in each sample over the mean energy that they have."""
        noise = np.array([s.noise[channels].sum() for s in sums])
        signal = float(np.mean([s.signal[channels].sum() for s in sums]))
        return noise / signal if signal > 0.0 else np.where(noise > 0.0, math.inf, 0.0)

    sums = OutputSums(axis)
    for floats, quantized in pairs:
        sums.add(floats, quantized)
    result = sums.result("")
    common = [both for both in (common_part(*pair) for pair in pairs) if both is not None]
    if len(common) < len(pairs):
        return np.full(len(pairs), math.inf)
    if result.difference is None:
        return np.zeros(len(pairs))
    if result.difference.sqnr == -math.inf:
        return np.full(len(pairs), math.inf)
    groups = () if result.channels is None else result.channels.groups
    axes = (None, None if result.channels is None else result.channels.axis)
    whole, along = zip(*(sums_along(floats, quantized, axes) for floats, quantized in common), strict=True)
    shares = [of_channels(whole, np.zeros(1, np.intp))]
    for group in groups:
        channels = np.concatenate([np.arange(first, last + 1) for first, last in group.runs])
        shares.append(of_channels(along, channels))
    return max(shares, key=lambda share: float(share.mean()))
