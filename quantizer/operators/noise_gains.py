"""How much noise power operators let through, where that differs from the signal: values of `Rule.gain`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from ...profiles.base.errors import PlanError
from ...profiles.records.profile import Profile
from ..model.graph import Graph, name_of
from ..numerics.density import Density, density, mean_of
from .functions import function_of

Floats = npt.NDArray[np.float64]

STEP = 1e-5
"""Share of a tensor's largest value over which a slope is taken."""
OCTAVES = 10
"""Into which the bin next to zero is split, where a slope may depend on how small a value is."""


@dataclass(frozen=True)
class Step:
    """One input of one node, with the graph, profile and powers that its gain follows from."""

    node: ir.Node
    index: int
    source: str
    graph: Graph
    profile: Profile
    powers: Mapping[str, float]
    opset: int

    def constant(self, index: int) -> Floats | None:
        """Return an input that is a constant in float; None for any other."""
        value = self.node.inputs[index] if index < len(self.node.inputs) else None
        found = None if value is None else self.graph.constant(name_of(value))
        return None if found is None or found.dtype.kind != "f" else found.astype(np.float64)

    def share(self, result: str) -> float:
        """Return the number of this input's elements over that of the output's."""
        return self.profile[self.source].count / max(self.profile[result].count, 1)

    def slope(self) -> float | None:
        """Return the mean square of the slope of a unary function."""
        try:
            function = function_of(self.node, self.opset)
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


def factor(step: Step, result: str) -> float | None:
    """A product lets noise through as the power of the other factor; of a square, the slope is 2 x."""
    other = 1 - step.index
    constant = step.constant(other)
    if constant is not None:
        return float(np.square(constant).mean()) if constant.size else None
    value = step.node.inputs[other]
    name = None if value is None else value.name
    if name == step.source:  # each of the two uses carries half of (2 x)^2
        return 2.0 * step.powers[step.source]
    return step.powers.get(name or "")


def quotient(step: Step, result: str) -> float | None:
    """Divided by a constant, noise is as the constant says."""
    divisor = step.constant(1) if step.index == 0 else None
    if divisor is None or not divisor.all():
        return None
    return float(np.square(1.0 / divisor).mean())


def power_of(step: Step, result: str) -> float | None:
    """Return the mean square slope of x to a constant power."""
    exponent = step.constant(1) if step.index == 0 else None
    if exponent is None or exponent.size != 1:
        return None
    e = float(exponent.reshape(-1)[0])
    return mean_of(density(step.profile[step.source]), lambda x: np.square(e * np.abs(x) ** (e - 1.0)))


def average(step: Step, result: str) -> float | None:
    """Divide noise by the number of elements that are averaged."""
    return 1.0 / max(step.share(result), 1.0) if step.index == 0 else 0.0


def window(step: Step, result: str) -> float | None:
    """Divide noise by the size of the pooling window."""
    return 1.0 / max(math.prod(step.node.attributes.get_ints("kernel_shape", (1,))), 1)


def total(step: Step, result: str) -> float | None:
    """Noise of all elements adds up."""
    return max(step.share(result), 1.0) if step.index == 0 else 0.0


def one(step: Step, result: str) -> float | None:
    """Noise goes through as it is."""
    return 1.0


def part(step: Step, result: str) -> float | None:
    """Noise is in one part of the result."""
    return min(step.share(result), 1.0)


def normalised(step: Step, result: str) -> float | None:
    """(x - mean) / deviation * scale: the deviation is at most the root of the power."""
    scale = step.constant(1) if step.index == 0 else None
    return None if scale is None else float(np.square(scale).mean()) / step.powers[step.source]


def probability(step: Step, result: str) -> float | None:
    """Softmax: dy = y (dx - sum of y dx), which y squared bounds."""
    return step.powers[result]


Gain = Callable[[Step, str], float | None]
"""Returns the noise power in the named output for one unit of noise power in one input; None for as much as
signal."""
