"""Gains of noise power for operators that treat noise and signal differently: values of `Rule.gain`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from ...profiles.base.errors import PlanError
from ...profiles.records.profile import Profile, TensorProfile
from ..numerics.affine import Floats, QuantParams, UnaryFunction
from ..numerics.density import Density, density, mean_of
from ..numerics.grid import nearest
from .functions import function_of

if TYPE_CHECKING:
    from .graph import Graph, Node

STEP = 1e-5
"""Fraction of a tensor's largest value over which a slope is computed."""
DRAWS = 8
"""Values of the noise, evenly over the interval of uniform noise, for which a function is computed."""
OCTAVES = 10
"""Number of parts of the bin next to zero, if a slope depends on small values."""


@dataclass(frozen=True)
class NoisyInput:
    """One input of one node, with the graph, profile and powers that its gain follows from."""

    node: Node
    index: int
    source: str
    graph: Graph
    profile: Profile
    powers: Mapping[str, float]
    opset: int

    def constant(self, index: int) -> Floats | None:
        """Return an input that is a constant in float; None for any other."""
        array = self.node.constant(index)
        return None if array is None or array.dtype.kind != "f" else array.astype(np.float64)

    def share(self, result: str) -> float:
        """Return the number of this input's elements over that of the output's."""
        return self.profile[self.source].count / max(self.profile[result].count, 1)

    def slope(self) -> float | None:
        """Return the mean square of the slope of a unary function."""
        function, tensor = self.function, self.profile[self.source]
        if function is None:
            return None
        step = STEP * max(abs(tensor.minimum), abs(tensor.maximum), float(np.finfo(np.float32).tiny))
        return mean_of(
            self._values, lambda x: np.square((function(x + step) - function(x - step)) / (2.0 * step))
        )

    def transmitted(self, power: float) -> float | None:
        """Return the mean square change of a unary function's result by uniform noise of a power, or None."""
        function, values = self.function, self._values
        if function is None:
            return None
        half, highest = math.sqrt(3.0 * power), self.profile[self.source].maximum
        draws = half * ((np.arange(DRAWS) + 0.5) * (2.0 / DRAWS) - 1.0)
        # A function is evaluated once for all draws: that takes longer to begin than to do.
        x, mass = values.middles
        moved = np.stack([x, *(x + by for by in draws.tolist())])
        with np.errstate(all="ignore"):
            arguments = np.clip(moved, self._least_argument, highest)
            results = function(arguments.reshape(-1)).reshape(moved.shape)
            changes = np.square(results[1:] - results[0])
        changes = np.where(np.isfinite(changes), changes, 0.0)
        return float((changes @ mass).sum()) / DRAWS

    @cached_property
    def function(self) -> UnaryFunction | None:
        """The node's function of this input, the others being constants; None for any other node."""
        try:
            return function_of(self.node.ir_node, self.opset)
        except PlanError:
            return None

    @cached_property
    def _values(self) -> Density:
        return octaves_near_zero(density(self.profile[self.source]))

    @cached_property
    def _least_argument(self) -> float:
        assert self.function is not None
        return least_argument(self.function, self.profile[self.source], self._values)


def least_argument(function: UnaryFunction, tensor: TensorProfile, values: Density) -> float:
    """Return the lowest value of a tensor; if a function is not finite there, the lowest known octave."""
    with np.errstate(all="ignore"):
        if np.isfinite(function(np.array([tensor.minimum]))).all():
            return tensor.minimum
    return float(values.edges[values.edges > tensor.minimum].min(initial=tensor.maximum))


def error_after(function: UnaryFunction, tensor: TensorProfile, params: QuantParams) -> float:
    """Return the mean square error of a function of the quantized values of a tensor with one scale.

    Saturation affects the largest values, at which a square is steepest, and rounding to 0 the smallest, at
    which a logarithm is steepest. Power and mean slope predict neither. The least finite value replaces
    infinite ones.
    """
    values = octaves_near_zero(density(tensor))
    least = least_argument(function, tensor, values)
    scale, zero_point = params.tensor_scale, params.tensor_zero_point
    first, last = params.qtype.low - zero_point, params.qtype.high - zero_point

    def error(x: Floats) -> Floats:
        rounded = function(nearest(x / scale, first, last, params.qtype) * scale)
        finite = np.where(np.isfinite(rounded), rounded, function(np.array([least])))
        return np.asarray(np.square(finite - function(x)))

    return mean_of(values, error)


def octaves_near_zero(whole: Density) -> Density:
    """Split the bin next to zero into octaves of equal mass: small values lie as densely in each."""
    first = int(np.argmax(whole.mass > 0.0))
    low, high = whole.edges[first], whole.edges[first + 1]
    if not 0.0 <= low < high / 2.0:
        return whole
    ends = high * 2.0 ** -np.arange(OCTAVES + 1.0)[::-1]
    ends[0] = max(low, 0.0)
    return Density(
        np.concatenate([ends, whole.edges[first + 2 :]]),
        np.concatenate([np.full(OCTAVES, whole.mass[first] / OCTAVES), whole.mass[first + 1 :]]),
        whole.points,
        whole.point_mass,
    )


def product_gain(noisy: NoisyInput, result: str) -> float | None:
    """A product lets noise through as the power of the other factor; of a square, the slope is 2 x."""
    other = 1 - noisy.index
    constant = noisy.constant(other)
    if constant is not None:
        return float(np.square(constant).mean()) if constant.size else None
    name = noisy.node.inputs[other]
    if name == noisy.source:  # each of the two uses carries half of (2 x)^2
        return 2.0 * noisy.powers[noisy.source]
    return noisy.powers.get(name)


def quotient_gain(noisy: NoisyInput, result: str) -> float | None:
    """Divided by a constant, noise is as the constant says."""
    divisor = noisy.constant(1) if noisy.index == 0 else None
    if divisor is None or not divisor.all():
        return None
    return float(np.square(1.0 / divisor).mean())


def power_gain(noisy: NoisyInput, result: str) -> float | None:
    """Return the mean square slope of x to a constant power."""
    exponent = noisy.constant(1) if noisy.index == 0 else None
    if exponent is None or exponent.size != 1:
        return None
    e = float(exponent.reshape(-1)[0])
    return mean_of(density(noisy.profile[noisy.source]), lambda x: np.square(e * np.abs(x) ** (e - 1.0)))


def mean_gain(noisy: NoisyInput, result: str) -> float | None:
    """Divide noise by the number of elements that are averaged."""
    return 1.0 / max(noisy.share(result), 1.0) if noisy.index == 0 else 0.0


def window_gain(noisy: NoisyInput, result: str) -> float | None:
    """Divide noise by the size of the pooling window."""
    return 1.0 / max(math.prod(noisy.node.attributes.get_ints("kernel_shape", (1,))), 1)


def sum_gain(noisy: NoisyInput, result: str) -> float | None:
    """Noise of all elements adds up."""
    return max(noisy.share(result), 1.0) if noisy.index == 0 else 0.0


def unit_gain(noisy: NoisyInput, result: str) -> float | None:
    """Noise passes unchanged."""
    return 1.0


def part_gain(noisy: NoisyInput, result: str) -> float | None:
    """Noise is in one part of the result."""
    return min(noisy.share(result), 1.0)


def normalisation_gain(noisy: NoisyInput, result: str) -> float | None:
    """(x - mean) / deviation * scale: the deviation is at most the root of the power."""
    scale = noisy.constant(1) if noisy.index == 0 else None
    return None if scale is None else float(np.square(scale).mean()) / noisy.powers[noisy.source]


def softmax_gain(noisy: NoisyInput, result: str) -> float | None:
    """Softmax: dy = y (dx - sum of y dx), mostly y (1 - y) dx; the noise itself counts, not its part of x."""
    return mean_of(density(noisy.profile[result]), lambda y: np.square(y * (1.0 - y)))


Gain = Callable[[NoisyInput, str], float | None]
"""Returns the noise power in the named output for one unit of noise power in one input; None for as much as
signal."""
