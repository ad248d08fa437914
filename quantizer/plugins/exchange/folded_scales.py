"""Scales of a weight into which a factor for each output channel is folded: BatchNormalization, Mul. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from ...numerics.affine import QuantParams

Array: TypeAlias = npt.NDArray[Any]


def with_folded_factors(
    params: QuantParams, before: Array, after: Array, axis: int
) -> tuple[QuantParams, Array] | None:
    """Return the parameters of a weight after folding a factor into each output channel, and a mask, or None.

    Scales are multiplied by the factors; integers and zero point of a negative one are mirrored (`mirror`),
    as the mask says, which broadcasts to the weight. `axis`, of the output channels, is not negative.
    """
    if before.shape != after.shape or params.axis not in (None, axis) or params.block_size:
        return None
    # The factor of each channel by least squares; 1 for a channel of zeros.
    others, wide = tuple(i for i in range(before.ndim) if i != axis), before.astype(np.float64)
    size = np.sum(wide**2, axis=others, keepdims=True)
    factors = np.sum(wide * after, axis=others, keepdims=True) / np.where(size == 0.0, 1.0, size)
    factors[(size == 0.0) | (factors == 0.0)] = 1.0
    nearly = 1e-6 * float(np.abs(after).max(initial=0.0))
    if not np.allclose(before * factors, after, rtol=1e-3, atol=nearly):
        return None
    scales = np.asarray(params.scale_array.astype(np.float64) * np.abs(factors.reshape(-1)), np.float32)
    if not np.all(np.isfinite(scales) & (scales > 0.0)):
        return None
    points = np.broadcast_to(params.zero_point, scales.shape)
    points = np.where(factors.reshape(-1) < 0.0, mirror(params) - points, points)
    return replace(params, scale=scales, zero_point=points, axis=axis), factors < 0.0


def mirror(params: QuantParams) -> int:
    """Return the sum of an integer and of that which stands for its negative value in mirrored parameters."""
    if params.qtype.signed and not params.zero_point.any():
        return 0
    return int(params.qtype.low) + int(params.qtype.high)
