"""Look-up tables: a function of one variable, from codes to codes.

A table has one entry for each code of its input, from the lowest to the highest, so the entry of code c is at
index c - low. It holds what the float function gives for the real number that c stands for, quantized with
the output's parameters: no rounding but the last.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ....profiles.base.errors import PlanError
from ...numerics.affine import QuantParams, Rounding, dequantize, quantize
from ...numerics.arrays import Curve, Floats

Codes = npt.NDArray[Any]

MAX_BITS = 16
FLOAT32_MAX = float(np.finfo(np.float32).max)


def build_table(
    curve: Curve, source: QuantParams, result: QuantParams, rounding: Rounding = Rounding.ONNX
) -> Codes:
    """Return the code of curve(x) for every code of x.

    Where the function is not defined (the logarithm of a negative number) the entry is that of the nearest
    code where it is; where it is infinite, the entry saturates.

    Args:
        curve: the function.
        source: parameters of the input, one scale, 16 bits at most.
        result: parameters of the output, one scale.
        rounding: as for `quantize`.

    Returns:
        An array of 2 ** bits codes of the type of `result`, from the lowest input code to the highest.

    Raises:
        PlanError: more than one scale, too many bits, a function without any defined value, or one that does
            not work element by element.
    """
    if source.axis is not None or result.axis is not None or source.qtype.bits > MAX_BITS:
        raise PlanError(
            f"table: needs one scale on either side and {MAX_BITS} bits at most; keep this node float"
        )
    codes = np.arange(source.qtype.low, source.qtype.high + 1).astype(source.qtype.numpy_dtype)
    x = dequantize(codes, source).astype(np.float64)
    with np.errstate(all="ignore"):
        y = curve(x)
    if y.shape != x.shape:
        raise PlanError("table: the operator does not work element by element; keep this node float")
    return quantize(np.clip(_continued(y), -FLOAT32_MAX, FLOAT32_MAX), result, rounding)


def _continued(values: Floats) -> Floats:
    """Give every NaN the value of the nearest number; the lower one where two are as near."""
    defined = np.flatnonzero(~np.isnan(values))
    if defined.size == values.size:
        return values
    if defined.size == 0:
        raise PlanError("table: the function is not defined for any code of its input; keep this node float")
    places = np.arange(values.size)
    above = np.minimum(np.searchsorted(defined, places), defined.size - 1)
    below = np.maximum(above - 1, 0)
    nearer = np.abs(defined[below] - places) <= np.abs(defined[above] - places)
    return values[np.where(nearer, defined[below], defined[above])]
