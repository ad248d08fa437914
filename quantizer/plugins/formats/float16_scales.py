"""Numbers of float16: scales that are such, and fillers of masks."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ...numerics.affine import QuantParams

LOWEST_16, LARGEST_16 = 2.0**-14, 65504.0
"""Smallest normal and largest number of float16: smaller ones have fewer than 11 bits, and end at 6e-8."""

FILLER_16 = -LARGEST_16 / 2.0
"""The value in float16 of fillers of masks below its numbers: the sum of two is finite, so that a row
of nothing but fillers is still a row of equal values."""

MAX_ADDED_NOISE = 0.1
"""Fraction by which the rounding power may grow if scales are raised to numbers of float16."""


def with_fillers_16(array: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Return float32 numbers with `FILLER_16` in the place of finite ones that are below those of float16."""
    return np.where(np.isfinite(array) & (array < -LARGEST_16), np.float32(FILLER_16), array)


def in_float16(params: QuantParams) -> QuantParams:
    """Return parameters whose scales are normal numbers of float16, rounded up so that the range is covered.

    They do not change if a scale is too large, or the noise of rounding grows by more than `MAX_ADDED_NOISE`.
    """
    exact = params.scale.astype(np.float64)
    if exact.max() > LARGEST_16:
        return params
    raised = np.maximum(exact, LOWEST_16)
    narrow = raised.astype(np.float16)
    narrow = np.where(narrow < raised, np.nextafter(narrow, np.float16(np.inf)), narrow)
    if not np.isfinite(narrow).all():
        return params
    before, after = np.square(exact).sum(), np.square(narrow.astype(np.float64)).sum()
    if after > (1.0 + MAX_ADDED_NOISE) * before:
        return params
    scale = narrow.astype(np.float32)
    return QuantParams(scale, params.zero_point, params.qtype, params.axis, params.block_size)
