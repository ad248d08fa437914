"""Schemas: how a range of float values gives scale and zero point.

Adding a schema is adding an entry of `SCHEMAS`, and its name to `SchemaName` of the settings.

The arithmetic is that of Glow's profile-guided quantization, bit for bit (Glow SPEC D.1, D.2, D.4, D.5),
except if Glow loses data. These are all deliberate differences:

==================  ================================================  =====================================
case                Glow                                              here
==================  ================================================  =====================================
tiny range          zero point 0 if |low + high| <= 2**-23: half of   the test is relative to the range, so
                    a range such as [0, 1e-7] saturates               every range is covered
unsigned middle     zero point 0 for a range [-x, x] in uint8 too:    zero point 128, the counterpart of 0
                    all negative values are lost                      in int8
vanished scale      0.0 when the scale underflows float32             the smallest normal float32
negative data in    refused                                           values of the signed type
unsigned symmetric
==================  ================================================  =====================================

(Two more belong to other modules: a range from KL calibration always contains 0 here, see `calibrators`, and
infinite values saturate, see `affine`.)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from ...profiles.base.errors import ModelError, PlanError
from ...profiles.base.tuned import tuned
from .affine import INT32, TYPES, UINT8, Floats, QuantParams, QuantType

FLOAT32_MAX = float.fromhex("0x1.fffffep+127")
FLOAT32_EPSILON = 2.0**-23
FLOAT32_TINY = 2.0**-126
"""The smallest normal number of float32."""
ZERO_RANGE_SCALE = 0.1
"""Scale of a tensor of zeros (Glow SPEC D.2.6); any scale would do."""


HEADROOM = tuned(
    2.0,
    figure=(
        "costs 0.0 dB of 31.6 in the median and 0.5 in the worst of 144 activations, and leaves an octave "
        "for values that were not calibrated; with 1, 2 and 4 an encoder keeps 22.66, 22.70 and 22.61 dB, "
        "descriptors of corners 35.91, 35.94 and 35.95"
    ),
    chosen_on="a sentence encoder, a vision transformer, a net of corners",
)
"""Largest value of a type of floats over the largest that was recorded of an activation."""


@dataclass(frozen=True)
class Schema:
    """A quantization schema, as orthogonal properties."""

    symmetric: bool = False  # the zero point is 0 and as much room is on either side of it
    # a range without negative values spends all values on the positive side
    unsigned_when_positive: bool = False
    power_of_two: bool = False  # the scale is rounded up to a power of two


SCHEMAS: Mapping[str, Schema] = {
    "asymmetric": Schema(),
    "symmetric": Schema(symmetric=True),
    "symmetric-uint8": Schema(symmetric=True, unsigned_when_positive=True),
    "symmetric-power2": Schema(symmetric=True, power_of_two=True),
}
"""The schemas by the names that options and files use."""


@lru_cache(maxsize=4096)  # plan after plan of one model asks for the same
def choose_params(low: float, high: float, schema: Schema, qtype: QuantType) -> QuantParams:
    """Return the parameters that cover the float values from `low` to `high`, and 0.

    A schema with `unsigned_when_positive` turns an unsigned type into the signed one of the same width if the
    range has negative numbers: read `QuantParams.qtype`. Raises PlanError if low > high, an end is NaN, or a
    symmetric schema gets an unsigned type.
    """
    scales, zero_points, chosen = choose_arrays([low], [high], schema, qtype)
    return QuantParams(scales, zero_points, chosen)


def dynamic_params(low: float, high: float) -> QuantParams:
    """Return the parameters that ONNX DynamicQuantizeLinear computes for data from `low` to `high`."""
    return choose_params(low, high, SCHEMAS["asymmetric"], UINT8)


def choose_arrays(
    low: npt.ArrayLike, high: npt.ArrayLike, schema: Schema, qtype: QuantType
) -> tuple[Floats, npt.NDArray[np.int64], QuantType]:
    """Return scales (float32-exact) and zero points of n ranges, and the type of the quantized values."""
    lows, highs, symmetric, qtype = _covered_ranges(low, high, schema, qtype)
    first, last = _quantized_range(qtype)
    scale = (highs - lows) / (last - first)
    scale[scale == 0.0] = ZERO_RANGE_SCALE
    # The quantized value of 0, from the end of the range that gives the smaller rounding error.
    below, above = lows / scale, highs / scale
    from_below = abs(first) + np.abs(below) < abs(last) + np.abs(above)
    exact = np.where(from_below, first - below, last - above)
    whole = np.trunc(exact)
    zero_point = whole + np.where(np.abs(exact - whole) >= 0.5, np.sign(exact), 0.0)  # halves away from zero
    largest = np.maximum(-lows, highs)
    centred = (np.abs(lows + highs) <= FLOAT32_EPSILON * largest) & (largest > 0.0)
    zero_point = np.where(centred, (first + last + 1) // 2, zero_point)
    zero_point = np.where(largest == 0.0, 0.0, np.clip(zero_point, first, last))
    zero_point[symmetric] = 0.0
    if schema.power_of_two:
        scale = np.minimum(_raised_to_power_of_two(scale), 2.0**127)  # the largest of float32
    scale = _float32(scale)
    scale[scale == 0.0] = FLOAT32_TINY
    return scale, zero_point.astype(np.int64), qtype


def channel_params(
    weight: npt.NDArray[np.floating], axis: int | None, schema: Schema, qtype: QuantType
) -> QuantParams:
    """Return parameters that cover every channel of a constant from its smallest to its largest element.

    All channels have one type. Raises ModelError if the constant has NaN or infinity, and PlanError if it has
    no such axis, or as `choose_params` does.
    """
    if axis is not None and not 0 <= axis < weight.ndim:
        raise PlanError(
            f"weight of shape {list(weight.shape)}: axis {axis} is not one of its axes; use one from 0 to "
            f"{weight.ndim - 1}, or one scale for the whole weight"
        )
    if not np.isfinite(weight).all():
        raise ModelError(
            f"weight of shape {list(weight.shape)}: contains NaN or infinity; repair the model, "
            "or keep the node float"
        )
    others = tuple(i for i in range(weight.ndim) if i != axis)
    # A channel without elements has the range of zero, hence the initial value; all ranges contain 0 anyway.
    low, high = weight.min(axis=others, initial=0.0), weight.max(axis=others, initial=0.0)
    scales, zero_points, chosen = choose_arrays(np.atleast_1d(low), np.atleast_1d(high), schema, qtype)
    return QuantParams(scales, zero_points, chosen, axis)


def bias_params(data: QuantParams, weight: QuantParams) -> QuantParams:
    """Return the parameters of an int32 bias: zero point 0, scale = scale(data) * scale(weight) in float32.

    The accumulator and the bias are in the same unit (ONNX QLinearConv). Whether the bias fits into int32:
    see `weight_for_bias`. Raises PlanError if a product vanishes or overflows.
    """
    if len(data.scale) != 1:
        raise PlanError(
            f"bias: the activations have {len(data.scale)} scales; give them one for the whole tensor"
        )
    with np.errstate(over="ignore"):
        product = data.scale * weight.scale
    bad = ~(np.isfinite(product) & (product > 0.0))
    if bad.any():
        scales = f"{data.tensor_scale!r} * {float(weight.scale[int(np.argmax(bad))])!r}"
        raise PlanError(
            f"bias: {scales} is not a float32 above 0; raise the scale of the weight (weight_for_bias), or "
            "keep the node float"
        )
    axis = None if weight.axis is None else 0
    return QuantParams(product, np.zeros(product.size, np.int32), INT32, axis)


def weight_for_bias(
    data: QuantParams,
    weight: QuantParams,
    bias: npt.NDArray[np.floating],
    schema: Schema = SCHEMAS["symmetric"],
) -> QuantParams:
    """Return the parameters of the weight, with scales raised if the bias would not fit into int32.

    A bias is in units of scale(data) * scale(weight). If that is too small for its largest element, the scale
    of the weight becomes own / scale(data) (Glow SPEC D.5), with `own` the scale that `choose_params` gives
    the bias in int32 (30 bits, so that the accumulator does not overflow).
    """
    flat = np.asarray(bias, np.float32).reshape(-1)
    if weight.axis is None:
        flat = np.atleast_1d(np.abs(flat).max(initial=0.0))
    if flat.size != len(weight.scale):
        raise PlanError(
            f"bias: {flat.size} elements for a weight with {len(weight.scale)} scales; give one each"
        )
    own, _, _ = choose_arrays(flat, flat, SCHEMAS["symmetric"], INT32)
    unit, scale = data.scale, weight.scale
    with np.errstate(over="ignore"):  # an infinite scale is refused by QuantParams
        product = unit * scale
        needed = np.where(flat == 0.0, np.float32(FLOAT32_TINY), own.astype(np.float32))
        least = needed / unit
        if schema.power_of_two:
            least = _raised_to_power_of_two(least.astype(np.float64)).astype(np.float32)
        raised = np.where((product >= needed) | ((flat == 0.0) & (product > 0.0)), scale, least)
    return QuantParams(raised, weight.zero_point, weight.qtype, weight.axis, weight.block_size)


def raised_scales(params: QuantParams, least: Floats, schema: Schema) -> QuantParams:
    """Return the parameters with scales of at least so much each; a schema of powers of two raises to one."""
    least = np.maximum(least, FLOAT32_TINY)
    if schema.power_of_two:
        least = _raised_to_power_of_two(least)
    scale = np.maximum(params.scale, least.astype(np.float32))
    return QuantParams(scale, params.zero_point, params.qtype, params.axis, params.block_size)


def widened_range(low: float, high: float, schema: Schema, qtype: QuantType) -> tuple[float, float]:
    """Return the range that the quantized values will cover (Glow SPEC D.2, steps 1 to 4)."""
    lows, highs, _, _ = _covered_ranges([low], [high], schema, qtype)
    return float(lows[0]), float(highs[0])


def signed_type_of(qtype: QuantType) -> QuantType:
    """Return the signed type of the same width."""
    return TYPES[f"int{qtype.bits}"]


def _raised_to_power_of_two(scale: Floats) -> Floats:
    """Return the smallest powers of two that are not below positive numbers; infinite ones stay."""
    fraction, exponent = np.frexp(scale)
    finite = np.where(np.isfinite(scale), scale, 1.0)
    exponent = np.where(fraction == 0.5, exponent - 1, np.ceil(np.log2(finite)).astype(np.int64))
    return np.where(np.isfinite(scale), np.ldexp(1.0, exponent), scale)


def _float32(values: Floats) -> Floats:
    with np.errstate(over="ignore"):
        return values.astype(np.float32).astype(np.float64)


def _quantized_range(qtype: QuantType) -> tuple[float, float]:
    """Return the smallest and largest quantized value that ranges are mapped to.

    Those of int32 leave two bits free, so that differences and sums with bias fit (Glow SPEC D.1).
    """
    return (-(1 << 29), (1 << 29) - 1) if qtype.name == "int32" else (qtype.low, qtype.high)


def _covered_ranges(
    low: npt.ArrayLike, high: npt.ArrayLike, schema: Schema, qtype: QuantType
) -> tuple[Floats, Floats, npt.NDArray[np.bool_], QuantType]:
    """Return the ranges to cover, which of them are symmetric, and the type of the quantized values."""
    lows, highs = _float32(np.asarray(low, np.float64)), _float32(np.asarray(high, np.float64))
    bad = ~(lows <= highs)
    if bad.any():
        i = int(np.argmax(bad))
        raise PlanError(f"range [{lows[i]!s}, {highs[i]!s}]: not a range; give low <= high, both numbers")
    lows, highs = np.minimum(lows, 0.0), np.maximum(highs, 0.0)
    symmetric = np.full(lows.shape, schema.symmetric or qtype.is_float)
    if qtype.is_float:
        pass
    elif schema.unsigned_when_positive:
        symmetric &= lows < 0.0
        if symmetric.any() and not qtype.signed:  # one type for all channels
            symmetric[:], qtype = True, signed_type_of(qtype)
    elif schema.symmetric and not qtype.signed:
        raise PlanError(
            f"symmetric schema: has zero point 0, so {qtype.name} cannot represent negative numbers; "
            f"use {signed_type_of(qtype).name}, or a schema that is not symmetric"
        )
    first, last = _quantized_range(qtype)
    if symmetric.any():
        below, above = lows / first, highs / last
        # Sides that differ by float32 rounding at most are equal already, and the range stays as it is.
        with np.errstate(invalid="ignore"):
            settled = np.isfinite(below + above) & (
                np.abs(below - above) <= FLOAT32_EPSILON * (below + above)
            )
        wider_below = symmetric & ~settled & (below > above)
        wider_above = symmetric & ~settled & ~(below > above)
        highs = np.where(wider_below, _float32(below * last), highs)
        lows = np.where(wider_above, _float32(above * first), lows)
    return np.maximum(lows, -FLOAT32_MAX), np.minimum(highs, FLOAT32_MAX), symmetric, qtype
