"""Clips that saturation makes needless, and PRelu as sums and products whose saturation clips.

PRelu is x + (slope - 1) min(x, 0), the second term being the *correction*: a quantized tensor that no profile
knows, whose parameters follow from those of the input and the slopes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ..numerics.affine import QuantParams, QuantType, dequantize, quantize
from ..numerics.schemas import SCHEMAS, choose_params


def saturates_within(params: QuantParams, low: float, high: float) -> bool:
    """Whether clipping to [low, high] changes no quantized value, because they saturate within it."""
    ends = np.array([params.qtype.low, params.qtype.high], params.qtype.numpy_dtype)
    clipped = np.clip(dequantize(ends, params), np.float32(low), np.float32(high))
    return np.array_equal(quantize(clipped, params), ends)


ASYMMETRIC = SCHEMAS["asymmetric"]
FLOAT32_ROUNDING = 1e-6
"""Largest relative difference that comes of rounding a scale to float32."""


def slope_params(slopes: npt.NDArray[Any], qtype: QuantType, *, power_of_two: bool) -> QuantParams:
    """Return parameters of PRelu's slopes that have 0 and 1: less 1 only the zero point differs."""
    low, high = min(float(slopes.min()), 0.0), max(float(slopes.max()), 1.0)
    steps = (qtype.high - qtype.low) // (high - low)
    if steps < 1.0:
        return choose_params(low, high, ASYMMETRIC, qtype)
    if power_of_two:
        steps = 2.0 ** np.floor(np.log2(steps))
    zero_point = qtype.high - steps if high == 1.0 else qtype.low + np.rint(-low * steps)
    return QuantParams((float(np.float32(1.0 / steps)),), (int(zero_point),), qtype)


def correction_of(source: QuantParams, slope: QuantParams) -> tuple[QuantParams, QuantParams, bool] | None:
    """Return how PRelu is corrected, or None without parameters; 1 should be a value of the slopes.

    Parameters of the correction; slopes are stored as slopes less 1, if no slope is above 1.
    """
    if source.axis is not None or slope.axis is not None or not source.qtype.bits == slope.qtype.bits == 8:
        return None
    scale, qtype = slope.tensor_scale, slope.qtype
    one = slope.tensor_zero_point + int(np.rint(1.0 / scale))
    if one > qtype.high or abs(scale * (one - slope.tensor_zero_point) - 1.0) > FLOAT32_ROUNDING:
        return None
    lowest = source.tensor_scale * (source.qtype.low - source.tensor_zero_point)
    params = choose_params(
        lowest * scale * (qtype.high - one), lowest * scale * (qtype.low - one), ASYMMETRIC, source.qtype
    )
    return params, QuantParams(slope.scale, (one,), qtype), one == qtype.high
