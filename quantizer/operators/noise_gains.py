"""How much noise power an operator lets through, where that differs from signal: values of `Rule.gain`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ...profiles.base.errors import PlanError
from ...profiles.records.profile import Profile
from ..numerics.density import Density, density, mean_of
from .functions import function_of

if TYPE_CHECKING:
    from .graph import Graph, Node

Floats = npt.NDArray[np.float64]

STEP = 1e-5
"""Share of a tensor's largest value over which a slope is taken."""
OCTAVES = 10
"""Into which the bin next to zero is split, where a slope may depend on how small a value is."""


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
        found = self.node.constant(index)
        return None if found is None or found.dtype.kind != "f" else found.astype(np.float64)

    def share(self, result: str) -> float:
        """Return the number of this input's elements over that of the output's."""
        return self.profile[self.source].count / max(self.profile[result].count, 1)

    def slope(self) -> float | None:
        """Return the mean square of the slope of a unary function."""
        try:
            function = function_of(self.node.ir_node, self.opset)
        except PlanError:
            return None
        tensor = self.profile[self.source]
        step = STEP * max(abs(tensor.minimum), abs(tensor.maximum), float(np.finfo(np.float32).tiny))
        return mean_of(
            _octaves_near_zero(density(tensor)),
            lambda x: np.square((function(x + step) - function(x - step)) / (2.0 * step)),
        )


def _octaves_near_zero(whole: Density) -> Density:
    """Split the bin next to zero into octaves of equal mass.

    Small values lie as densely in each octave as in the next, and a logarithm is the steeper the smaller they
    are: a uniform distribution over the bin would hide that.
    """
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
    """Noise goes through as it is."""
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
