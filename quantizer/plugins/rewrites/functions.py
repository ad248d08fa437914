"""Float functions written out: equivalent operators that are faster than the function's own kernel.

=====================  ======================================  =============================================
function               written out                             error, and other differences
=====================  ======================================  =============================================
Pow(x, 2)              x * x                                   none: both are rounded once
Pow(x, 0.5)            Sqrt(x)                                 1 unit in the last place; -0 for -0 (Pow: 0),
                                                               NaN for -infinity (Pow: infinity)
Div(x, constant)       x * (1 / constant)                      1.5 units in the last place, none for powers of
                                                               two; if all reciprocals are normal numbers
Elu(x)                 max(x, exp(min(x, 0)) - 1), or          2 ** -23 of alpha, as that of the operator
                       relu(x) + alpha * (...)
Softplus(x)            max(x, log(1 + exp(x)))                 2 ** -21 of the larger of 1 and the result
=====================  ======================================  =============================================

Exponents are clamped at -60, and at values beyond which the result equals its limit after rounding. In all
other cases NaN and infinities give the same results as the operator. All of it is float32. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from ...costs.kernels import Sizes, Work
from ...lowering.emitter import become, new_value
from ...lowering.writers import Task, float_node
from ...model.graph import constant_of
from ...operators.graph import Graph, Node

SOURCE = -1
"""Represents the node's input among the operands of a step."""

LOWEST = -60.0
"""Exponents below are clamped: exp(-60) is 9e-27, far below the rounding error of the sum."""

Step = tuple[str, tuple[int | npt.NDArray[np.float32], ...]]
"""An operator of the default domain, and its operands: numbers of earlier steps, `SOURCE`, and constants."""


def written_out(node: ir.Node) -> Sequence[Step]:
    """Return the steps that can replace a node (the last returns the result), or ()."""
    source = node.inputs[0] if node.inputs else None
    if source is None or node.domain or source.dtype != ir.DataType.FLOAT:
        return ()
    return _steps(node)


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
            return (("Mul", (SOURCE, factor)),) if is_normal else ()
        case "Elu":
            alpha = node.attributes.get_float("alpha", 1.0)
            below = [_exponential(0.0), ("Exp", (0,)), ("Sub", (1, _number(1.0)))]
            if alpha == 1.0:
                return (*below, ("Max", (SOURCE, 2)))
            scaled = ("Mul", (2, _number(alpha)))
            return (*below, scaled, ("Relu", (SOURCE,)), ("Add", (4, 3)))
        case "Softplus":
            ones = ("Add", (1, _number(1.0)))
            return (
                _exponential(-LOWEST),
                ("Exp", (0,)),
                ones,
                ("Log", (2,)),
                ("Max", (SOURCE, 3)),
            )
    return ()


def _power(node: ir.Node) -> Sequence[Step]:
    exponent = constant_of(node.inputs[1])
    if exponent is None or exponent.size != 1:
        return ()
    # Runtimes know a normalisation by its Pow, whose squares become a mean.
    is_averaged = any(use.node.op_type == "ReduceMean" for use in node.outputs[0].uses())
    if exponent.item() == 2.0 and not is_averaged:
        return (("Mul", (SOURCE, SOURCE)),)
    return (("Sqrt", (SOURCE,)),) if exponent.item() == 0.5 else ()


def _exponential(highest: float) -> Step:
    """Return the step that cuts exponents off."""
    return ("Clip", (SOURCE, _number(LOWEST), _number(highest)))


def _number(value: float) -> npt.NDArray[np.float32]:
    return np.array(value, np.float32)


def is_written_out(node: Node, _: Graph) -> bool:
    """Whether something can be written instead of a node."""
    return bool(written_out(node.ir_node))


def works_instead(node: Node, sizes: Sizes) -> tuple[Work, ...]:
    """The operators that stand for a function."""
    usual = sizes.float_work(node)
    elements, works = float(max(sizes.elements(node.output), 1)), list[Work]()
    for kernel, operands in written_out(node.ir_node):
        has_constant = any(not isinstance(operand, int) for operand in operands)
        work = Work(kernel, (elements,))
        if has_constant and kernel != "Clip":
            _, colon, broadcast = usual.kernel.partition(":")  # of the divisor
            of_divisor = replace(usual, kernel=f"{kernel}{colon}{broadcast}")
            work = of_divisor if node.op_type == "Div" else replace(work, kernel=f"{kernel}:scalar")
        works.append(work)
    return tuple(works)


def write_operators(task: Task) -> bool:
    """Write a float function as its operators."""
    node, emitter = task.node, task.emitter
    steps, read = written_out(node), node.inputs[0]
    if not steps or read is None:
        return float_node(task)
    name, results = emitter.name(node.outputs[0]), list[ir.Value]()
    source = emitter.floating(read, node)
    for number, (op_type, operands) in enumerate(steps, 1):
        inputs = [
            emitter.constant(f"{name}_number", each)
            if not isinstance(each, int)
            else source
            if each == SOURCE
            else results[each]
            for each in operands
        ]
        if number == len(steps):
            become(node, op_type, inputs)
        else:
            result = new_value(f"{name}_step{number}", ir.DataType.FLOAT, read)
            results.append(emitter.add(op_type, inputs, result, node))
    return False
