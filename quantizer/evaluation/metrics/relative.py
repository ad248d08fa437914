"""The noise of outputs in the worst group of channels of the worst output, over its signal."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ...noise.class_axes import ClassAxis
from ..compare import OutputSums, Sums, by_range, column_axis, common_part, is_float
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


def _noise_shares(pairs: Sequence[ValuePair], classes: ClassAxis) -> Floats:
    """Return the noise of an output in each sample over its mean energy, in the worst group of channels.

    It is inf if a sample has nothing in common with float's, NaN or Inf, or noise without any signal.
    """
    common = [both for both in (common_part(*pair) for pair in pairs) if both is not None]
    total = Sums()
    for both in common:
        total = total.plus(*both)
    if len(common) < len(pairs) or (total.difference and total.difference.sqnr == -math.inf):
        return np.full(len(pairs), math.inf)
    floats, quantized = zip(*common, strict=True)
    groups = [pair for _, *pair in by_range(floats, quantized, column_axis(floats, classes))]
    groups.append([np.sum(of, axis=0) for of in zip(*groups, strict=True)])

    def share(signal: Floats, noise: Floats) -> Floats:
        mean = float(signal.mean())
        return noise / mean if mean > 0.0 else np.where(noise > 0.0, math.inf, 0.0)

    return max((share(*group) for group in groups), key=lambda one: float(one.mean()))
