"""Look-up tables (LUT): a function of one variable, from quantized values to quantized values.

A table has one entry for each quantized value of its input, from the lowest to the highest: that of q is at
index q - low. It is the float function of the dequantized q, quantized with the output's parameters; nothing
is rounded before that.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ...profiles.base.errors import PlanError
from .affine import Floats, QuantParams, Rounding, UnaryFunction, dequantize, quantize
from .schemas import FLOAT32_MAX

Quantized = npt.NDArray[Any]

MAX_BITS = 16


def build_table(
    function: UnaryFunction, source: QuantParams, result: QuantParams, rounding: Rounding = Rounding.ONNX
) -> Quantized:
    """Return the quantized function(x) for every quantized x, in their order.

    If the function is undefined (the logarithm of a negative number), the entry is that of the nearest
    defined value; if it is infinite, the entry saturates. Raises PlanError for more scales or bits, a
    function without any defined value, or one that does not work element by element.
    """
    if source.axis is not None or result.axis is not None or source.qtype.bits > MAX_BITS:
        raise PlanError(
            f"table: needs one scale on either side and {MAX_BITS} bits at most; keep this node float"
        )
    inputs = np.arange(source.qtype.low, source.qtype.high + 1).astype(source.qtype.numpy_dtype)
    x = dequantize(inputs, source).astype(np.float64)
    with np.errstate(all="ignore"):
        y = function(x)
    if y.shape != x.shape:
        raise PlanError("table: the operator does not work element by element; keep this node float")
    return quantize(np.clip(_continued(y), -FLOAT32_MAX, FLOAT32_MAX), result, rounding)


def _continued(values: Floats) -> Floats:
    """Replace every NaN by the nearest number, the lower one of two equally near."""
    defined = np.flatnonzero(~np.isnan(values))
    if defined.size == values.size:
        return values
    if defined.size == 0:
        raise PlanError("table: the function is not defined for any value of its input; keep this node float")
    places = np.arange(values.size)
    above = np.minimum(np.searchsorted(defined, places), defined.size - 1)
    below = np.maximum(above - 1, 0)
    nearer = np.abs(defined[below] - places) <= np.abs(defined[above] - places)
    return values[np.where(nearer, defined[below], defined[above])]
