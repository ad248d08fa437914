"""Scales of a weight into which a factor for each output channel was folded: BatchNormalization, a Mul. Pure.

A weight times a factor has the same integers when its scales are multiplied by that factor.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from ..numerics.affine import QuantParams

Array: TypeAlias = npt.NDArray[Any]


def folded_factors(before: Array, after: Array, axis: int) -> Array | None:
    """Return by what each output channel of a weight was multiplied, float64; 1 for a channel of zeros.

    None where the one weight is not the other times a number for each output channel.

    Args:
        before, after: the weight, of one shape.
        axis: of the output channels, not negative.
    """
    if before.shape != after.shape:
        return None
    others = tuple(i for i in range(before.ndim) if i != axis)
    size = np.sum(before.astype(np.float64) ** 2, axis=others)
    factors = np.sum(before.astype(np.float64) * after, axis=others) / np.where(size == 0.0, 1.0, size)
    factors[(size == 0.0) | (factors == 0.0)] = 1.0
    nearly = 1e-6 * float(np.abs(after).max(initial=0.0))
    fits = np.allclose(before * broadcast_to_axis(factors, axis, before.ndim), after, rtol=1e-3, atol=nearly)
    return np.asarray(factors) if fits else None


def broadcast_to_axis(numbers: Array, axis: int, rank: int) -> Array:
    """Reshape a vector with a number for each channel so that it broadcasts along an axis."""
    return numbers.reshape([-1 if i == axis else 1 for i in range(rank)])


def folded_params(params: QuantParams, factors: Array, axis: int) -> QuantParams | None:
    """Return the parameters of a weight after factors are folded in; where one is negative, mirrored ones.

    None where the scales are those of blocks, or of another axis, or a product is no float32 above 0.

    Args:
        params: of the weight before.
        factors: one for each output channel, see `folded_factors`.
        axis: of the output channels, not negative.
    """
    if params.axis not in (None, axis) or params.block_size:
        return None
    scales = np.asarray(params.scale_array.astype(np.float64) * np.abs(factors), np.float32)
    if not np.all(np.isfinite(scales) & (scales > 0.0)):
        return None
    points = np.broadcast_to(params.zero_point, scales.shape)
    points = np.where(factors < 0.0, mirror(params) - points, points)
    return replace(params, scale=scales, zero_point=points, axis=axis)


def mirror(params: QuantParams) -> int:
    """Return the sum of an integer and of that which stands for its negative value in mirrored parameters."""
    return 0 if params.qtype.signed and not params.zero_point.any() else params.qtype.low + params.qtype.high
