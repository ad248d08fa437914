"""Arithmetic of Glow that qprof does not need itself: the reference for comparisons with Glow.

Each function is the plain form of a passage of Glow SPEC and gives Glow's results bit for bit, its mistakes
included, except where C++ leaves the result undefined.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
from qprof_onnx.profiles.base.errors import ConfigError, nearest
from qprof_onnx.quantizer.numerics.affine import INT32, QuantParams, QuantType, Rounding, quantize
from qprof_onnx.quantizer.numerics.kl_divergence import optimize_kl, rescale_histogram
from qprof_onnx.quantizer.numerics.lookup_tables import build_table
from qprof_onnx.quantizer.numerics.schemas import SCHEMAS, Schema, choose_params, widened_range
from qprof_onnx.quantizer.operators.functions import function_of

Counts = npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class RunningHistogram:
    """State of Glow's profiling node (Glow SPEC A.3).

    Attributes:
        counts: float32 counts of equal bins; they stop growing at 2**24.
        minimum, maximum: float32-exact range so far.
    """

    counts: Counts
    minimum: float
    maximum: float


def updated_histogram(state: RunningHistogram, values: npt.NDArray[np.float32]) -> RunningHistogram:
    """Return the state after one more tensor (Glow SPEC A.3; where A.5 finds NaN, the whole count moves).

    Args:
        state: so far; for nothing so far, counts of zero and any range.
        values: float32, at least one element, no NaN.
    """
    f32 = np.float32
    low, high = f32(values.min()), f32(values.max())
    counts, old_low, old_high = state.counts.copy(), f32(state.minimum), f32(state.maximum)
    n = f32(counts.size)
    if not counts.any():
        old_low, old_high = low, high
    new_low, new_high = min(low, old_low), max(high, old_high)
    if low < old_low or high > old_high:
        counts = _regrown(counts, old_low, (old_high - old_low) / n, new_low, (new_high - new_low) / n)
    width = (new_high - new_low) / n
    index = _bin(values.reshape(-1).astype(f32), new_low, width, counts.size)
    added = np.bincount(index, minlength=counts.size)
    # Adding 1 to a float32 stops at 2**24; up to there sums of whole numbers are exact.
    stuck = f32(1 << 24)
    grown = np.minimum(counts.astype(np.float64) + added, np.maximum(counts, stuck))
    counts = np.where(added > 0, grown, counts).astype(f32)
    return RunningHistogram(counts, float(new_low), float(new_high))


def _regrown(
    counts: Counts, low: np.float32, width: np.float32, new_low: np.float32, new_width: np.float32
) -> Counts:
    f32 = np.float32
    out = np.zeros_like(counts)
    for i in np.flatnonzero(counts):
        count = counts[i]
        left = low + width * f32(i)
        target = np.trunc((left - new_low) / new_width)
        end = new_low + new_width * (target + f32(1))
        share = float((end - left) / width) * float(count) if width > 0 else np.inf
        moved = f32(min(_rounded_away(float(f32(share))), float(count)))
        out[_bin(left, new_low, new_width, counts.size)] += moved
        if moved < count:
            out[_bin(left + new_width, new_low, new_width, counts.size)] += count - moved
    return out


def _bin(values: Any, low: np.float32, width: np.float32, bins: int) -> Any:
    if width == 0:
        return np.zeros(np.shape(values), np.int64)
    return np.minimum(np.trunc((values - low) / width).astype(np.int64), bins - 1)


def _rounded_away(value: float) -> float:
    return float(np.floor(value + 0.5)) if np.isfinite(value) else value


def average(counts: Counts, minimum: float, maximum: float) -> float:
    """Return the mean of the centres of the bins, weighted with the counts; float32, summed left to right."""
    f32 = np.float32
    width = (f32(maximum) - f32(minimum)) / f32(counts.size)
    centres = (f32(minimum) + width / f32(2)) + width * np.arange(counts.size, dtype=f32)
    weighted = np.add.accumulate(centres * counts)[-1]
    return float(weighted / np.add.accumulate(counts)[-1])


def choose_params_kl(
    minimum: float, maximum: float, counts: Counts, schema: Schema, qtype: QuantType
) -> QuantParams:
    """Return the parameters that Glow chooses with KL calibration (Glow SPEC D.2 with step 5).

    Always 255 levels, and no word when there are fewer bins.
    """
    low, high = widened_range(minimum, maximum, schema, qtype)
    if minimum != maximum and low != high:
        symmetric = schema.symmetric and not (schema.unsigned_when_positive and low == 0.0)
        counts = rescale_histogram(counts, (minimum, maximum), (low, high))
        low, high = optimize_kl(counts, low, high, 255, symmetric)
    return choose_params(low, high, schema, qtype)


@dataclass(frozen=True)
class IntegerScale:
    """A scale for 32 -> 8 bits as shifts and a factor (Glow SPEC D.6).

    Attributes:
        pre, post: right shifts before and after the multiplication.
        factor: the multiplier.
        offset: added last.
    """

    pre: int
    post: int
    factor: int
    offset: int

    def apply(self, values: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
        """Return the scaled values in 32-bit arithmetic, not clipped."""
        half = np.int32((1 << (self.post - 1)) if self.post > 0 else 0)
        product = (values.astype(np.int32) >> self.pre) * np.int32(self.factor) + half
        return np.asarray((product >> self.post) + np.int32(self.offset), np.int32)


def integer_scale(scale: float, offset: int) -> IntegerScale:
    """Return the shifts and the factor for a float32-exact scale (Glow SPEC D.6)."""
    fraction, exponent = np.frexp(np.float32(scale))
    if fraction == 0.5:
        e = int(exponent) - 1
        return IntegerScale(0, 0, int(scale), offset) if e > 0 else IntegerScale(0, -e, 1, offset)
    pre = post = 0
    value = np.float32(scale)
    while value < 0.5 or (value < 256 and post < 15):
        value *= np.float32(2)
        post += 1
    while value < 255 and pre < post // 2:
        value *= np.float32(2)
        pre += 1
    return IntegerScale(pre, post, int(_rounded_away(float(value))), offset)


def lookup_table(
    function: Callable[[npt.NDArray[np.float32]], npt.NDArray[np.float32]],
    data: QuantParams,
    output: QuantParams,
) -> npt.NDArray[Any]:
    """Return Glow's table of a function, one entry for each quantized value in order (Glow SPEC F.2).

    Its float inputs are summed up step by step in float32, so they drift from the dequantized values.
    """
    unit = np.float32(data.tensor_scale)
    start = np.float32(data.qtype.low - data.tensor_zero_point) * unit
    steps = np.full(1 << data.qtype.bits, unit, np.float32)
    steps[0] = start
    inputs = np.add.accumulate(steps)
    return quantize(function(inputs), output, Rounding.GLOW)


def specialized_bias(bias: QuantParams, data: QuantParams, weight: QuantParams, zero: bool) -> QuantParams:
    """Return the parameters of a per-tensor bias (Glow SPEC D.4).

    Args:
        bias: chosen for the bias alone.
        data, weight: of the activations and the weight.
        zero: whether the bias is all zero.
    """
    product = float(np.float32(data.tensor_scale) * np.float32(weight.tensor_scale))
    zero_point = 0 if bias.qtype == INT32 else bias.tensor_zero_point
    scale = product if product >= bias.tensor_scale or zero else bias.tensor_scale
    return QuantParams((scale,), (zero_point,), bias.qtype)


def specialized_bias_weight(
    bias: QuantParams, data: QuantParams, weight: QuantParams, zero: bool
) -> tuple[QuantParams, QuantParams]:
    """Return the parameters of bias and weight of one channel (Glow SPEC D.5); arguments as above."""
    special = specialized_bias(bias, data, weight, zero)
    product = np.float32(data.tensor_scale) * np.float32(weight.tensor_scale)
    if bias.qtype != INT32 or product >= bias.tensor_scale or zero:
        return special, weight
    raised = np.float32(bias.tensor_scale) / np.float32(data.tensor_scale)
    weight = QuantParams((float(raised),), weight.zero_point, weight.qtype)
    return QuantParams((float(np.float32(data.tensor_scale) * raised),), (0,), INT32), weight


Quantized = npt.NDArray[Any]


GLOW_RANGES: dict[str, tuple[tuple[float, float], tuple[float, float]]] = {
    "Sigmoid": ((-6.0, 6.0), (0.0, 1.0)),
    "Tanh": ((-3.0, 3.0), (-1.0, 1.0)),
}
"""Input and output range of Glow's tables, whatever the profile says (Glow SPEC F.1)."""


def glow_table(op_type: str, qtype: QuantType, schema: str) -> tuple[QuantParams, QuantParams, Quantized]:
    """Return Glow's own table of Sigmoid or Tanh: fixed ranges, whatever was profiled (Glow SPEC F).

    Entries are those of the exact grid of inputs. Glow adds up the grid in float32 and drifts: an int8
    table differs by 1 in a few entries at most, an int16 table in many.

    Args:
        op_type: "Sigmoid" or "Tanh".
        qtype: type of input and output.
        schema: name of the schema that the ranges are turned into parameters with.

    Returns:
        Parameters of the input, parameters of the output, and the table.

    Raises:
        ConfigError: Glow has no fixed table of this operator, or there is no such schema.
    """
    if op_type not in GLOW_RANGES:
        raise ConfigError(f"table of {op_type}: Glow has none; use {' or '.join(GLOW_RANGES)}")
    if schema not in SCHEMAS:
        raise ConfigError(
            f"schema '{schema}': no such schema; use one of {', '.join(SCHEMAS)}.{nearest(schema, SCHEMAS)}"
        )
    (low, high), (least, most) = GLOW_RANGES[op_type]
    source = choose_params(low, high, SCHEMAS[schema], qtype)
    result = choose_params(least, most, SCHEMAS[schema], qtype)
    curve = function_of(ir.node(op_type, [ir.Value(name="x")], name=op_type), opset=13)
    return source, result, build_table(curve, source, result, Rounding.GLOW)
