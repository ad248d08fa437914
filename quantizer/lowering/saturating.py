"""Activation functions as sums and products of quantized tensors whose saturation cuts off the rest.

===========  ================================================================================================
HardSigmoid  alpha x + beta, quantized with parameters whose ends are 0 and at most 1: the input dequantized
             with alpha times its scale, Add of beta, QuantizeLinear
HardSwish    x times its gate: HardSigmoid with alpha 1/6 and beta 1/2, in 255ths
PRelu        x + (slope - 1) x, the product quantized with parameters whose end is 0, so that it is 0 where x
             is positive; where some slopes are above 1, of min(x, 0) instead of x
===========  ================================================================================================

Each is a writer as in `lowering.writers`. onnxruntime has no integer kernels of these functions, and
those of Add and Mul use vector instructions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import onnx_ir as ir

from ..numerics.affine import QuantParams, quantize
from ..operators.saturating import GATE_ALPHA, GATE_BETA, correction_of, gate_params, saturates_to_unit
from ..operators.table import MICROSOFT
from .emitter import integer_type, new_value
from .writers import Task, Writer, between_conversions


@dataclass(frozen=True, eq=False)
class Operand:
    """A quantized tensor and how it is read."""

    name: str  # of the tensor, from which those of the nodes that read it are formed
    quantized: ir.Value
    params: QuantParams  # in which it is read: scale or zero point may differ from those of its quantization


Binary = Callable[[Task, str, tuple[Operand, Operand], QuantParams, str], Operand]
"""Writes Add or Mul: task, operator, operands, parameters and name of the result -> the result."""


def between_conversions_binary(
    task: Task, op_type: str, operands: tuple[Operand, Operand], result: QuantParams, name: str
) -> Operand:
    """Write DequantizeLinear -> operator -> QuantizeLinear."""
    emitter, node = task.emitter, task.node
    inputs = [emitter.add_dequantize(o.quantized, f"{o.name}_read", o.params, node) for o in operands]
    value = emitter.add(op_type, inputs, new_value(name, ir.DataType.FLOAT, node.outputs[0]), node)
    return Operand(name, emitter.add_quantize(value, name, result, node), result)


def qlinear_binary(
    task: Task, op_type: str, operands: tuple[Operand, Operand], result: QuantParams, name: str
) -> Operand:
    """Write QLinearAdd or QLinearMul if all types are equal, as the kernels require."""
    if any(operand.params.qtype != result.qtype for operand in operands):
        return between_conversions_binary(task, op_type, operands, result, name)
    inputs: list[ir.Value] = []
    for operand in operands:
        inputs += (operand.quantized, *task.emitter.param_values(operand.name, operand.params))
    inputs += task.emitter.param_values(name, result)
    output = new_value(f"{name}_quantized", integer_type(result), task.node.outputs[0])
    quantized = task.emitter.add(f"QLinear{op_type}", inputs, output, task.node, domain=MICROSOFT)
    return Operand(name, quantized, result)


def hard_function(
    task: Task, binary: Binary = between_conversions_binary, otherwise: Writer = between_conversions
) -> bool:
    """Write HardSigmoid or HardSwish; `otherwise` one that falls, or whose result does not end at 0 and 1."""
    node, source, result = task.node, task.params(0), task.result()
    if node.op_type not in ("HardSigmoid", "HardSwish"):
        raise task.error("no function that saturates; choose another implementation")
    if source is None or result is None:
        raise task.error("needs parameters of input and output; add them, or make the node float")
    name, data = task.emitter.name(node.outputs[0]), _input(task)
    if node.op_type == "HardSwish":
        gate = _linear(
            task,
            GATE_ALPHA,
            GATE_BETA,
            binary=binary,
            result=gate_params(source.qtype),
            name=f"{name}_gate",
        )
        written = binary(task, "Mul", (data, gate), result, name)
    else:
        alpha, beta = node.attributes.get_float("alpha", 0.2), node.attributes.get_float("beta", 0.5)
        if alpha <= 0.0 or not saturates_to_unit(result):
            return otherwise(task)
        written = _linear(task, alpha, beta, binary=binary, result=result, name=name)
    task.emitter.store(node.outputs[0], written.quantized, result)
    return True


def _linear(
    task: Task, alpha: float, beta: float, *, binary: Binary, result: QuantParams, name: str
) -> Operand:
    """Write alpha x + beta."""
    data = _input(task)
    scale = np.array([data.params.tensor_scale * alpha], np.float32)
    scaled = Operand(f"{data.name}_scaled", data.quantized, replace(data.params, scale=scale))
    return binary(task, "Add", (scaled, _constant(task, beta, data.params)), result, name)


def prelu(
    task: Task, binary: Binary = between_conversions_binary, otherwise: Writer = between_conversions
) -> bool:
    """Write PRelu; `otherwise` writes it if 1 is no quantized value by the parameters of its slopes."""
    node, emitter, result = task.node, task.emitter, task.result()
    source, slope, value = task.params(0), task.params(1), node.inputs[1]
    found = None if source is None or slope is None else correction_of(source, slope)
    if found is None or value is None or source is None or slope is None or result is None:
        return otherwise(task)
    name, data = emitter.name(node.outputs[0]), _input(task)
    correction, slope_less_one, are_up_to_one = found
    less_one = Operand(
        f"{emitter.name(value)}_less_one", emitter.quantized(value, slope, node), slope_less_one
    )
    negative = data
    if not are_up_to_one:
        below_zero = QuantParams(source.scale, (source.qtype.high,), source.qtype)
        one = _constant(task, 1.0, source)
        negative = binary(task, "Mul", (data, one), below_zero, f"{name}_negative")
    added = binary(task, "Mul", (negative, less_one), correction, f"{name}_correction")
    emitter.store(node.outputs[0], binary(task, "Add", (data, added), result, name).quantized, result)
    return True


def _input(task: Task) -> Operand:
    """Return the first input with the parameters that the node reads."""
    value, params = task.node.inputs[0], task.params(0)
    assert value is not None
    assert params is not None
    name = task.emitter.name(value)
    return Operand(name, task.emitter.quantized(value, params, task.node), params)


def _constant(task: Task, number: float, like: QuantParams) -> Operand:
    """Return a constant in the type of `like`, with a scale that makes it exact to float32."""
    step = float(np.float32(abs(number))) or 1.0
    params = QuantParams((step,), (like.qtype.low + 1,), like.qtype)
    name = f"{task.emitter.name(task.node.outputs[0])}_number"
    return Operand(name, task.emitter.constant(name, quantize(np.float32(number), params)), params)
