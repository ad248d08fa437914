"""Estimates the noise that quantization adds to a tensor, from its profile.

Within a bin the values are assumed to be uniform; the squared error of rounding and saturation is integrated
over each bin exactly. For values that the profile knows exactly (zeros, the elements of a constant tensor, a
bin that the exact minimum or maximum fills) the error of that value is used.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ...profiles.base.errors import PlanError
from ...profiles.base.tuned import tuned
from ...profiles.records.profile import TensorProfile
from .affine import Floats, QuantParams, QuantType, UnaryFunction, fake_quantized, fake_quantized_parts
from .density import Density, clipped, cubed, density
from .grid import cubes_up_to, half_of_last_step, nearest

ONE_SIDED = tuned(
    4.0,
    figure=(
        "of 1, 4, 16 and 100 this was best for the outputs of two of three models and within 0.1 "
        "dB of the best for the third (DECISIONS.md, 7)"
    ),
    chosen_on="two detectors, super-resolution",
    holds=(4.0, 4.0),
)
"""Weight of the errors of saturated values after a function."""

ROWS = 8
"""Parameters whose noise is computed at once: their arrays stay in the processor's cache."""


def weight_error(
    weight: npt.NDArray[Any], params: QuantParams, rounded: npt.NDArray[np.float32] | None = None
) -> npt.NDArray[Any]:
    """Return the error of each element of a constant, or of `rounded`, if a rounding method chose it."""
    return np.asarray(fake_quantized(weight if rounded is None else rounded, params) - weight)


def relative_weight_error(weight: npt.NDArray[np.float32], params: QuantParams) -> float:
    """Return the energy of the errors of a quantized constant over its own, which is not 0."""
    noise = signal = 0.0
    for part, rounded in fake_quantized_parts(weight, params):
        exact = weight[part]
        noise += _energy(np.subtract(rounded, exact, out=rounded))
        signal += _energy(exact)
    return noise / signal


def _energy(values: npt.NDArray[np.float32]) -> float:
    """Return the sum of the squares of some values, of float64."""
    wide = values.astype(np.float64)
    return float(np.multiply(wide, wide, out=wide).sum())


def decibels(signal_power: float, noise_power: float) -> float:
    """Return the SQNR, 10 log10(signal / noise), of two powers or energies, in dB."""
    if noise_power == 0.0:
        return math.inf
    if signal_power <= 0.0 or math.isinf(noise_power):
        return -math.inf
    ratio = signal_power / noise_power
    if ratio == 0.0 or math.isinf(ratio):  # beyond float64
        return 10.0 * (math.log10(signal_power) - math.log10(noise_power))
    return 10.0 * math.log10(ratio)


def weight_sqnr(weight: npt.NDArray[np.generic], params: QuantParams) -> float:
    """Return the SQNR (dB) of a quantized constant; infinite if quantization is exact."""
    exact = weight.astype(np.float32, copy=False)
    noise = float(np.mean(np.square(weight_error(exact, params)), dtype=np.float64))
    return decibels(float(np.mean(np.square(exact), dtype=np.float64)), noise)


@dataclass(frozen=True)
class Noise:
    """Mean squares per element, in the square of the tensor's unit."""

    signal_power: float
    rounding_power: float  # of the errors of the values within the quantized range
    clipping_power: float  # of the errors of the values that saturate

    @property
    def power(self) -> float:
        """That of all errors."""
        return self.rounding_power + self.clipping_power

    @property
    def sqnr_db(self) -> float:
        """The SQNR in dB; infinite without noise."""
        return decibels(self.signal_power, self.power)


def expected_noise(
    profile: TensorProfile,
    params: QuantParams,
    effective: tuple[float, float] = (-math.inf, math.inf),
    values: Density | None = None,
) -> Noise:
    """Return the expected noise of quantizing and dequantizing a tensor with one scale.

    Consumers do not distinguish values outside the range `effective`: signal and noise are those of the
    values clipped to it. `values` is the density of the profile, if it was computed already.
    """
    if len(params.scale) != 1:
        raise PlanError(
            f"noise: {len(params.scale)} scales; a profile has the noise of one only; give one per tensor"
        )
    if profile.histogram.total == 0:
        return Noise(0.0, 0.0, 0.0)
    values = values or density(profile)
    if effective != (-math.inf, math.inf):
        values = clipped(values, *effective)
    scale, zero_point, qtype = params.tensor_scale, params.tensor_zero_point, params.qtype
    first, last = qtype.low - zero_point, qtype.high - zero_point
    beyond = half_of_last_step(qtype)
    steps, at = values.edges / scale, values.points / scale
    low, high = values.edges[:-1], values.edges[1:]
    signal = values.mass @ ((low * low + low * high + high * high) / 3.0) + values.point_mass @ np.square(
        values.points
    )
    inner = np.clip(steps, first - beyond, last + beyond)
    rounding = _mean(_rounding_integral(inner, first, last, qtype), steps)
    error = np.square(at - nearest(at, first, last, qtype))
    saturated = (at < first - beyond) | (at > last + beyond)
    if np.array_equal(inner, steps) and not saturated.any():
        rounded = values.mass @ rounding + values.point_mass @ error
        return Noise(float(signal), float(rounded) * scale**2, 0.0)
    below = _mean(_square_integral(np.minimum(steps, first - beyond) - first), steps)
    above = _mean(_square_integral(np.maximum(steps, last + beyond) - last), steps)
    rounded = values.mass @ rounding + values.point_mass @ np.where(saturated, 0.0, error)
    lost = values.mass @ (below + above) + values.point_mass @ np.where(saturated, error, 0.0)
    return Noise(float(signal), float(rounded) * scale**2, float(lost) * scale**2)


def total_noise(values: Density, scales: Floats, zero_points: Floats, low: int, high: int) -> Floats:
    """Return the expected noise power (rounding and clipping) for many parameters at once.

    The sum over bins is rearranged for speed, which costs accuracy if bins are much narrower than a step:
    `expected_noise` is the definition.
    """
    first, last = (low - zero_points)[:, None], (high - zero_points)[:, None]
    # sum over bins of height * (F(high end) - F(low end)), gathered by edge
    edges, falls = values.changes
    integral = np.empty(scales.size)
    space = np.empty((3, ROWS, edges.size))
    for start in range(0, scales.size, ROWS):
        part = slice(start, start + ROWS)
        steps, rounded, cubes = space[:, : scales[part].size]
        np.divide(edges, scales[part, None], out=steps)
        np.rint(steps, out=rounded)  # `np.clip` between arrays is slower than these two
        np.maximum(rounded, first[part], out=rounded)
        np.minimum(rounded, last[part], out=rounded)
        steps -= rounded
        np.multiply(steps, steps, out=cubes)
        cubes *= steps
        cubes *= 4.0
        cubes += rounded
        integral[part] = cubes @ falls
    integral /= 12.0
    at = values.points / scales[:, None]
    error = np.square(at - np.clip(np.rint(at), first, last)) @ values.point_mass
    return np.asarray((integral * scales + error) * np.square(scales), np.float64)


def noise_after(
    distribution: Density, scales: Floats, zero_points: Floats, low: int, high: int, *, curve: UnaryFunction
) -> Floats:
    """Return the mean squared error of a function of the quantized values, for many parameters at once.

    Errors of saturated values count `ONE_SIDED` times: they have one sign and are similar in neighbours, so
    they do not cancel out in sums after the function. Each bin counts as its middle.
    """
    (values, mass), levels, noise = distribution.middles, np.arange(low, high + 1), np.empty(scales.size)
    exact, dequantized = curve(values), (levels - zero_points[:, None]) * scales[:, None]
    results = curve(dequantized.reshape(-1)).reshape(dequantized.shape)
    for start in range(0, scales.size, ROWS):
        part = slice(start, start + ROWS)
        unlimited = np.rint(values / scales[part, None]) + zero_points[part, None]
        quantized = np.minimum(np.maximum(unlimited, low), high)
        places = (quantized - low).astype(np.intp) + levels.size * np.arange(len(quantized))[:, None]
        error = np.square(results[part].reshape(-1).take(places) - exact)
        noise[part] = np.multiply(error, ONE_SIDED, out=error, where=quantized != unlimited) @ mass
    return noise


def _rounding_integral(steps: Floats, first: float, last: float, qtype: QuantType) -> Floats:
    """Return the integral of the squared rounding error over each [steps[i], steps[i + 1]], in steps cubed.

    The antiderivative beside a quantized value q is `cubes_up_to` it / 12 + (x - q)^3 / 3.
    """
    rounded = nearest(steps, first, last, qtype)
    rest = steps - rounded
    across = np.diff(cubes_up_to(rounded, qtype)) / 12.0 + np.diff(cubed(rest)) / 3.0
    return np.where(rounded[1:] == rounded[:-1], _square_integral(rest), across)


def _square_integral(ends: Floats) -> Floats:
    """Return the integral of x^2 over each [ends[i], ends[i + 1]], without cancellation."""
    low, high = ends[:-1], ends[1:]
    return (high - low) * (low * low + low * high + high * high) / 3.0


def _mean(integral: Floats, steps: Floats) -> Floats:
    width = np.diff(steps)
    return np.divide(integral, width, out=np.zeros_like(integral), where=width > 0.0)
