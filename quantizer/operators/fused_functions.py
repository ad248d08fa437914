"""Operators of onnxruntime's own that compute a whole pointwise chain in float: SiLU and GELU.

onnxruntime makes them of the written-out nodes itself, but not behind a DequantizeLinear: it gives each
reader a DequantizeLinear of its own, and finds the function no more.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir

from ..model.graph import constant_of
from .functions import Floats, PointwiseChain, function_of_chain

FLOAT_ROUNDING = 2.0**-20
"""By how much of its argument a function may differ from the operator's: constants such as the root of 2 are
rounded to float32."""

ARGUMENTS = np.linspace(-32.0, 32.0, 513)
"""Where the two are compared; beyond, both are 0 or x."""


@dataclass(frozen=True)
class FusedFunction:
    """One operator in the place of a chain.

    Attributes:
        op_type: in domain com.microsoft.
        kernel: its name in a table of kernel times.
        attributes: of the operator.
    """

    op_type: str
    kernel: str
    attributes: Mapping[str, float] = field(default_factory=dict)


def fused_function(chain: PointwiseChain, opset: int) -> FusedFunction | None:
    """Return the operator that computes what a chain does to float rounding, None where there is none.

    QuickGelu(x) is x * sigmoid(alpha x), Gelu(x) is x / 2 * (1 + erf(x / sqrt(2))): the contrib operators'
    definitions (ContribOperators.md of onnxruntime).

    Args:
        chain: the nodes.
        opset: version of the default domain that they are written in.

    Raises:
        PlanError: onnx has no definition of an operator of the chain.
    """
    operators = sorted(node.op_type for node in chain.nodes)
    alpha = _slope_of_gate(chain)
    if operators in (["Mul", "Sigmoid"], ["Mul", "Mul", "Sigmoid"]) and alpha is not None:
        candidate = FusedFunction("QuickGelu", "Silu", {"alpha": alpha})
        return candidate if _is(chain, opset, lambda x: x / (1.0 + np.exp(-alpha * x))) else None
    if "Erf" in operators and len(operators) == 5:
        return FusedFunction("Gelu", "Gelu") if _is(chain, opset, _gelu) else None
    return None


def _slope_of_gate(chain: PointwiseChain) -> float | None:
    """Return what x is multiplied with before its sigmoid, None where that is not a constant number."""
    gate = next((node for node in chain.nodes if node.op_type == "Sigmoid"), None)
    if gate is None or gate.inputs[0] is chain.source:
        return None if gate is None else 1.0
    scaled = gate.inputs[0].producer() if gate.inputs[0] is not None else None
    factors = [] if scaled is None or scaled.op_type != "Mul" else list(scaled.inputs)
    arrays = [array for value in factors if (array := _number(value)) is not None]
    return arrays[0] if len(arrays) == 1 else None


def _number(value: ir.Value | None) -> float | None:
    array = constant_of(value)
    return float(array.reshape(())) if array is not None and array.size == 1 else None


def _gelu(x: Floats) -> Floats:
    erf = np.array([math.erf(value / math.sqrt(2.0)) for value in x])
    return x / 2.0 * (1.0 + erf)


def _is(chain: PointwiseChain, opset: int, function: Callable[[Floats], Floats]) -> bool:
    with np.errstate(over="ignore"):
        expected = function(ARGUMENTS)
    found = function_of_chain(chain, opset)(ARGUMENTS)
    return bool((np.abs(found - expected) <= FLOAT_ROUNDING * np.abs(ARGUMENTS)).all())
