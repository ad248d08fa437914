"""HardSigmoid, HardSwish and PRelu written as sums and products whose saturation clips.

HardSigmoid is alpha x + beta, saturated to 0 and 1. HardSwish is x times that with alpha 1/6 and beta 1/2,
the *gate*. PRelu is x + (slope - 1) min(x, 0), the second term being the *correction*. Gate and correction
are quantized tensors that no profile knows: their parameters follow from those of the input and the slopes.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from ..numerics.affine import QuantParams, QuantType, dequantize, quantize
from ..numerics.schemas import SCHEMAS, choose_params


class Saturation(StrEnum):
    """How a function is written with saturating sums and products."""

    CUT_LINE = "cut-line"  # alpha x + beta, cut off at 0 and 1: one sum, as HardSigmoid
    GATED = "gated"  # x times such a line: a sum and a product, as HardSwish
    CORRECTED = "corrected"  # x + (slope - 1) min(x, 0): a product and a sum, as PRelu


def saturates_within(params: QuantParams, low: float, high: float) -> bool:
    """Whether clipping to [low, high] changes no quantized value, because they saturate within it."""
    ends = np.array([params.qtype.low, params.qtype.high], params.qtype.numpy_dtype)
    clipped = np.clip(dequantize(ends, params), np.float32(low), np.float32(high))
    return np.array_equal(quantize(clipped, params), ends)


ASYMMETRIC = SCHEMAS["asymmetric"]
FLOAT32_ROUNDING = 1e-6
"""Largest relative difference that comes of rounding a scale to float32."""
GATE_ALPHA, GATE_BETA = 1.0 / 6.0, 0.5
"""Attributes of the HardSigmoid in HardSwish."""


def gate_params(qtype: QuantType) -> QuantParams:
    """Return the parameters of the gate of HardSwish: its ends 0 and 1 are those of the type."""
    return QuantParams((float(np.float32(1.0 / (qtype.high - qtype.low))),), (qtype.low,), qtype)


def saturates_to_unit(result: QuantParams) -> bool:
    """Whether the range ends at 0, and at 1 or below: then saturation clips all that HardSigmoid clips."""
    if result.axis is not None:
        return False
    ends = quantize(np.array([0.0, 1.0], np.float32), result)
    return list(ends) == [result.qtype.low, result.qtype.high]


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

    Parameters of the correction, those in which slopes are read as slopes less 1, if no slope is above 1.
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
