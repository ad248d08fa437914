"""Float functions written out: operators that compute the same in less time than the function's own kernel.

=====================  ======================================  =============================================
function               written out                             error, and where it is another
=====================  ======================================  =============================================
Pow(x, 2)              x * x                                   none: both are rounded once
Pow(x, 0.5)            Sqrt(x)                                 1 unit in the last place; -0 for -0, NaN for
                                                               -infinity, of which Pow makes 0 and infinity
Div(x, constant)       x * (1 / constant)                      1.5 units in the last place, none for powers of
                                                               two; where all reciprocals are normal numbers
Elu(x)                 max(x, exp(min(x, 0)) - 1), or          2 ** -23 of alpha, as that of the operator
                       relu(x) + alpha * (...)
Softplus(x)            max(x, log(1 + exp(x)))                 2 ** -21 of the larger of 1 and the result
Tanh(Softplus(x)),     n / (n + 2), n = e * (e + 2),           2 ** -20 relative, above -60; Mish(-infinity)
and Mish: x times it   e = exp(x)                              is -infinity, by the operators NaN
=====================  ======================================  =============================================

Exponents are cut off at -60 and where the result is the limit to rounding. NaN and infinities else come out
as of the operator. All of it is float32. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from ..model.graph import constant_of

SOURCE = -1
"""Stands for what the node reads among the operands of a `Step`."""

LOWEST = -60.0
"""Exponents below are cut off: exp(-60) is 9e-27, far below the rounding of what it is added to."""

CERTAIN = 20.0
"""Where n / (n + 2) is 1 to rounding: n is 2.4e17."""


@dataclass(frozen=True, eq=False)
class Step:
    """One operator.

    Attributes:
        op_type: of the default domain.
        operands: the numbers of earlier steps, `SOURCE`, and constants.
    """

    op_type: str
    operands: tuple[int | npt.NDArray[np.float32], ...]


@dataclass(frozen=True, eq=False)
class WrittenOut:
    """What is written instead of a node.

    Attributes:
        source: what its steps read.
        steps: in order; the last returns the result.
        replaces: the node before it of which they are a part too, None where there is none.
    """

    source: ir.Value
    steps: tuple[Step, ...]
    replaces: ir.Node | None = None


def written_out(node: ir.Node) -> WrittenOut | None:
    """Return what can be written instead of a node, None where there is nothing."""
    source = node.inputs[0] if node.inputs else None
    if source is None or node.domain or source.dtype != ir.DataType.FLOAT:
        return None
    softplus = softplus_before(node)
    if softplus is not None:
        (first,) = softplus.inputs
        return None if first is None else WrittenOut(first, _tanh_of_softplus(), softplus)
    steps = _steps(node)
    return WrittenOut(source, tuple(steps)) if steps else None


def softplus_before(node: ir.Node) -> ir.Node | None:
    """Return the Softplus that a Tanh alone reads, None where there is none."""
    value = node.inputs[0] if node.op_type == "Tanh" else None
    maker = None if value is None else value.producer()
    if value is None or maker is None or (maker.domain, maker.op_type) != ("", "Softplus"):
        return None
    return maker if len(value.uses()) == 1 and not value.is_graph_output() else None


def _steps(node: ir.Node) -> Sequence[Step]:
    match node.op_type:
        case "Pow":
            return _power(node)
        case "Div":
            divisor = constant_of(node.inputs[1])
            if divisor is None or divisor.dtype != np.float32:
                return ()
            with np.errstate(all="ignore"):
                factor = (1.0 / divisor.astype(np.float64)).astype(np.float32)
            sizes = np.abs(factor)
            is_normal = np.isfinite(factor).all() and (sizes >= np.finfo(np.float32).tiny).all()
            return (Step("Mul", (SOURCE, factor)),) if is_normal else ()
        case "Elu":
            alpha = node.attributes.get_float("alpha", 1.0)
            below = [_exponential(0.0), Step("Exp", (0,)), Step("Sub", (1, _number(1.0)))]
            if alpha == 1.0:
                return (*below, Step("Max", (SOURCE, 2)))
            scaled = Step("Mul", (2, _number(alpha)))
            return (*below, scaled, Step("Relu", (SOURCE,)), Step("Add", (4, 3)))
        case "Softplus":
            ones = Step("Add", (1, _number(1.0)))
            return (
                _exponential(-LOWEST),
                Step("Exp", (0,)),
                ones,
                Step("Log", (2,)),
                Step("Max", (SOURCE, 3)),
            )
        case "Mish":
            return (*_tanh_of_softplus(), Step("Mul", (SOURCE, 5)))
    return ()


def _power(node: ir.Node) -> Sequence[Step]:
    exponent = constant_of(node.inputs[1])
    if exponent is None or exponent.size != 1:
        return ()
    if exponent.item() == 2.0 and not _is_averaged(node.outputs[0]):
        return (Step("Mul", (SOURCE, SOURCE)),)
    return (Step("Sqrt", (SOURCE,)),) if exponent.item() == 0.5 else ()


def _is_averaged(value: ir.Value) -> bool:
    """Whether the squares become a mean: runtimes know a normalisation by its Pow."""
    return any(use.node.op_type == "ReduceMean" for use in value.uses())


def _tanh_of_softplus() -> tuple[Step, ...]:
    two = _number(2.0)
    return (
        _exponential(CERTAIN),
        Step("Exp", (0,)),
        Step("Add", (1, two)),
        Step("Mul", (1, 2)),
        Step("Add", (3, two)),
        Step("Div", (3, 4)),
    )


def _exponential(highest: float) -> Step:
    """Return the step that cuts exponents off."""
    return Step("Clip", (SOURCE, _number(LOWEST), _number(highest)))


def _number(value: float) -> npt.NDArray[np.float32]:
    return np.array(value, np.float32)
