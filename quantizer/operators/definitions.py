"""Common operators in numpy, exactly as onnx's reference implementation computes them.

Planning evaluates hundreds of unary functions, of few operators. The reference implementation computes any,
but takes a tenth of a second to import, and a millisecond for a model of each function.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir

from ..numerics.affine import Floats

Definition = Callable[..., Floats]


@dataclass(frozen=True, eq=False)
class Defined:
    """An operator."""

    compute: Definition  # its output from its inputs and, by keyword, its attributes
    attributes: Mapping[str, float] = field(default_factory=dict)
    inputs: tuple[int, int] = (1, 1)  # how many it has at least and at most


def _relu(x: Floats) -> Floats:
    return np.maximum(x, 0)


def _sigmoid(x: Floats) -> Floats:
    grown = np.exp(x)
    return np.where(x > 0, 1.0 / (1.0 + np.exp(-x)), grown / (1.0 + grown))


def _hard_sigmoid(x: Floats, alpha: float, beta: float) -> Floats:
    return np.maximum(0, np.minimum(1, x * alpha + beta))


def _hard_swish(x: Floats) -> Floats:
    return x * _hard_sigmoid(x, float(np.float32(1 / 6)), 0.5)


def _leaky_relu(x: Floats, alpha: float) -> Floats:
    sign = (x > 0).astype(np.float64)
    sign -= (sign - 1) * alpha
    return x * sign


def _erf(x: Floats) -> Floats:
    # The reference implementation rounds to float32.
    values = np.array([math.erf(value) for value in x.reshape(-1).tolist()], np.float32)
    return values.astype(np.float64).reshape(x.shape)


def _clip(x: Floats, low: Floats | None = None, high: Floats | None = None) -> Floats:
    return x if low is high is None else np.asarray(np.clip(x, low, high))


DEFINITIONS: Mapping[str, Defined] = {
    "Abs": Defined(np.absolute),
    "Add": Defined(np.add, inputs=(2, 2)),
    "Clip": Defined(_clip, inputs=(1, 3)),
    "Div": Defined(np.divide, inputs=(2, 2)),
    "Erf": Defined(_erf),
    "Exp": Defined(np.exp),
    "HardSigmoid": Defined(_hard_sigmoid, {"alpha": 0.2, "beta": 0.5}),
    "HardSwish": Defined(_hard_swish),
    "LeakyRelu": Defined(_leaky_relu, {"alpha": 0.01}),
    "Log": Defined(np.log),
    "Mul": Defined(np.multiply, inputs=(2, 2)),
    "Neg": Defined(np.negative),
    "Pow": Defined(np.power, inputs=(2, 2)),
    "Relu": Defined(_relu),
    "Sigmoid": Defined(_sigmoid),
    "Softplus": Defined(lambda x: np.logaddexp(0, x)),
    "Sqrt": Defined(np.sqrt),
    "Sub": Defined(np.subtract, inputs=(2, 2)),
    "Tanh": Defined(np.tanh),
}


def definition_of(node: ir.Node) -> Definition | None:
    """Return the function of float64 arrays, None for an input left out, that a node computes, or None."""
    defined = DEFINITIONS.get(node.op_type) if node.domain == "" else None
    if defined is None or len(node.outputs) != 1 or node.attributes.keys() - defined.attributes.keys():
        return None
    least, most = defined.inputs
    if not least <= len(node.inputs) <= most or None in node.inputs[:least]:
        return None
    if not defined.attributes:
        return defined.compute
    # An attribute of a file has 32 bits.
    numbers = {
        name: float(np.float32(node.attributes.get_float(name, default)))
        for name, default in defined.attributes.items()
    }
    return lambda x: defined.compute(x, **numbers)
