"""The noise that quantization adds to a tensor, reckoned from its profile alone.

Within a bin the values are taken as evenly spread; the squared error of rounding and saturating is integrated
over each bin exactly. Where the profile knows a value itself (the zeros, the elements of a constant tensor, a
pile at the exact minimum or maximum that fills a bin) its own error is taken.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ...profiles.base.errors import PlanError
from ...profiles.records.profile import TensorProfile
from .affine import QuantParams, dequantize, quantize
from .arrays import Curve
from .density import Density, density, narrowed


def weight_sqnr(weight: npt.NDArray[np.generic], params: QuantParams) -> float:
    """Return signal over noise (dB) of a constant in codes; infinite where they are exact."""
    exact = weight.astype(np.float32, copy=False)
    noise = float(np.mean(np.square(dequantize(quantize(exact, params), params) - exact), dtype=np.float64))
    if noise == 0.0:
        return math.inf
    signal = float(np.mean(np.square(exact), dtype=np.float64))
    return 10.0 * math.log10(signal / noise) if signal > 0.0 else -math.inf


Floats = npt.NDArray[np.float64]


ONE_SIDED = 4.0
"""How much more the error of values that saturate counts behind a function. Of 1, 4, 16 and 100 this was best
for the outputs of two of three models (tuning splits of nudenet, waifu2x and captcha-det) and within 0.1 dB
of the best for the third."""

ROWS = 8
"""Parameters that `total_noise` tries at once: their arrays stay in the processor's cache."""


@dataclass(frozen=True)
class Noise:
    """Mean squares per element, in the square of the tensor's unit.

    Attributes:
        signal_power: of the values.
        rounding_power: of the errors of the values that the codes cover.
        clipping_power: of the errors of the values that saturate.
    """

    signal_power: float
    rounding_power: float
    clipping_power: float

    @property
    def sqnr_db(self) -> float:
        """Signal over noise in dB; infinite without noise."""
        noise = self.rounding_power + self.clipping_power
        if noise == 0.0:
            return math.inf
        return 10.0 * math.log10(self.signal_power / noise) if self.signal_power > 0.0 else -math.inf


def expected_noise(
    profile: TensorProfile,
    params: QuantParams,
    useful: tuple[float, float] = (-math.inf, math.inf),
    known: Density | None = None,
) -> Noise:
    """Return the expected noise of quantizing and dequantizing the tensor.

    Args:
        profile: what the tensor held; a tensor that held nothing has no signal and no noise.
        params: one scale for the whole tensor.
        useful: the interval outside which no reader tells one value from another (see `Rule.useful`): signal
            and noise are those of the values clipped to it.
        known: the density of the profile, where it was computed already.

    Raises:
        PlanError: there are several scales.
    """
    if len(params.scale) != 1:
        raise PlanError(
            f"noise: {len(params.scale)} scales; a profile tells the noise of one only; give one per tensor"
        )
    if profile.histogram.total == 0:
        return Noise(0.0, 0.0, 0.0)
    seen = narrowed(known or density(profile), *useful)
    scale, zero_point = params.scale[0], params.zero_point[0]
    first, last = params.qtype.low - zero_point, params.qtype.high - zero_point
    steps = seen.edges / scale
    inner = np.clip(steps, first - 0.5, last + 0.5)
    rounding = _mean(_rounding_integral(inner, first, last), steps)
    below = _mean(_square_integral(np.minimum(steps, first - 0.5) - first), steps)
    above = _mean(_square_integral(np.maximum(steps, last + 0.5) - last), steps)
    at = seen.points / scale
    error = np.square(at - np.clip(np.rint(at), first, last))
    clipped = (at < first - 0.5) | (at > last + 0.5)
    low, high = seen.edges[:-1], seen.edges[1:]
    signal = seen.mass @ ((low * low + low * high + high * high) / 3.0) + seen.point_mass @ np.square(
        seen.points
    )
    rounded = seen.mass @ rounding + seen.point_mass @ np.where(clipped, 0.0, error)
    lost = seen.mass @ (below + above) + seen.point_mass @ np.where(clipped, error, 0.0)
    return Noise(float(signal), float(rounded) * scale**2, float(lost) * scale**2)


def total_noise(seen: Density, scales: Floats, zero_points: Floats, low: int, high: int) -> Floats:
    """Return the expected noise power (rounding and clipping) for many parameters at once.

    Args:
        seen: how the values are spread.
        scales, zero_points: n scales and zero points, float64.
        low, high: smallest and largest code.

    Returns:
        n mean squares, float64. The sum over bins is rearranged for speed, which costs accuracy where bins
        are much narrower than a step: `expected_noise` is the definition.
    """
    first, last = (low - zero_points)[:, None], (high - zero_points)[:, None]
    width = np.diff(seen.edges)
    weight = np.divide(seen.mass, width, out=np.zeros_like(width), where=width > 0.0)
    # sum of weight[i] * (F(edge[i + 1]) - F(edge[i])), gathered by edge
    by_edge = np.append(0.0, weight) - np.append(weight, 0.0)
    told = by_edge != 0.0  # between bins of equal density an edge has no say
    by_edge = by_edge[told]
    edges, integral = seen.edges[told], np.empty(scales.size)
    space = np.empty((3, ROWS, edges.size))
    for start in range(0, scales.size, ROWS):
        part = slice(start, start + ROWS)
        steps, code, cubes = space[:, : scales[part].size]
        np.divide(edges, scales[part, None], out=steps)
        np.rint(steps, out=code)  # `np.clip` between arrays is slower than these two
        np.maximum(code, first[part], out=code)
        np.minimum(code, last[part], out=code)
        steps -= code
        np.multiply(steps, steps, out=cubes)
        cubes *= steps
        cubes *= 4.0
        cubes += code
        integral[part] = cubes @ by_edge
    integral /= 12.0
    at = seen.points / scales[:, None]
    error = np.square(at - np.clip(np.rint(at), first, last)) @ seen.point_mass
    return np.asarray((integral * scales + error) * np.square(scales), np.float64)


def noise_behind(
    seen: Density, scales: Floats, zero_points: Floats, low: int, high: int, *, curve: Curve
) -> Floats:
    """Return the mean squared error that a function of the values is left with, for many parameters at once.

    Errors of values that saturate count `ONE_SIDED` times: they are of one sign and alike in neighbours, so
    that sums behind the function do not even them out as they do those of rounding.

    Args:
        seen: how the values are spread; of each bin the middle is taken.
        scales, zero_points: n scales and zero points, float64.
        low, high: smallest and largest code.
        curve: the function.

    Returns:
        n mean squares, float64, in the square of the function's unit.
    """
    values = np.concatenate([(seen.edges[:-1] + seen.edges[1:]) / 2.0, seen.points])
    mass = np.concatenate([seen.mass, seen.point_mass])
    values, mass = values[mass > 0.0], mass[mass > 0.0]
    wanted = np.rint(values / scales[:, None]) + zero_points[:, None]
    codes = np.clip(wanted, low, high)
    real = (np.arange(low, high + 1) - zero_points[:, None]) * scales[:, None]
    made = curve(real.reshape(-1)).reshape(real.shape)
    error = np.square(np.take_along_axis(made, (codes - low).astype(np.int64), axis=1) - curve(values))
    return np.asarray(np.where(codes == wanted, error, ONE_SIDED * error) @ mass, np.float64)


def _rounding_integral(steps: Floats, first: int, last: int) -> Floats:
    """Return the integral of the squared rounding error over each [steps[i], steps[i + 1]], in steps cubed.

    A whole step contributes 1/12; the antiderivative within the step of code n is n / 12 + (x - n)^3 / 3.
    """
    code = np.clip(np.rint(steps), first, last)
    rest = steps - code
    across = np.diff(code) / 12.0 + np.diff(rest**3) / 3.0
    return np.where(code[1:] == code[:-1], _square_integral(rest), across)


def _square_integral(ends: Floats) -> Floats:
    """Return the integral of x^2 over each [ends[i], ends[i + 1]], without cancellation."""
    low, high = ends[:-1], ends[1:]
    return (high - low) * (low * low + low * high + high * high) / 3.0


def _mean(integral: Floats, steps: Floats) -> Floats:
    width = np.diff(steps)
    return np.divide(integral, width, out=np.zeros_like(integral), where=width > 0.0)
