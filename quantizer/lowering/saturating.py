"""PRelu as sums and products of quantized tensors whose saturation cuts off the rest.

It is x + (slope - 1) x. The product is quantized with a range that ends at 0, so it is 0 for positive x; if
some slopes are above 1, it uses min(x, 0) instead of x. onnxruntime has no integer kernel of PRelu, and those
of Add and Mul use vector instructions.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from ..numerics.affine import QuantParams, quantize
from ..operators.saturating import correction_of
from .emitter import new_value
from .writers import Task, between_conversions

Operand = tuple[str, ir.Value, QuantParams]
"""A quantized tensor: the name that those of its readers are formed from, its integers, and the parameters in
which it is read: scale or zero point may differ from those of its quantization."""


def _binary(
    task: Task, op_type: str, operands: tuple[Operand, Operand], result: QuantParams, name: str
) -> Operand:
    """Write DequantizeLinear -> operator -> QuantizeLinear."""
    emitter, node = task.emitter, task.node
    inputs = [emitter.add_dequantize(value, f"{of}_read", params, node) for of, value, params in operands]
    value = emitter.add(op_type, inputs, new_value(name, ir.DataType.FLOAT, node.outputs[0]), node)
    return name, emitter.add_quantize(value, name, result, node), result


def prelu(task: Task) -> bool:
    """Write PRelu; between conversions if 1 is no quantized value by the parameters of its slopes."""
    node, emitter, result = task.node, task.emitter, task.result()
    (first, value), source, slope = node.inputs, task.params(0), task.params(1)
    found = None if source is None or slope is None else correction_of(source, slope)
    if found is None or first is None or value is None or source is None or slope is None or result is None:
        return between_conversions(task)
    name, slopes = emitter.name(node.outputs[0]), emitter.name(value)
    correction, slope_less_one, are_up_to_one = found
    data = emitter.name(first), emitter.quantized(first, source, node), source
    less_one = f"{slopes}_less_one", emitter.quantized(value, slope, node), slope_less_one
    negative = data
    if not are_up_to_one:
        below_zero = QuantParams(source.scale, (source.qtype.high,), source.qtype)
        in_ones = QuantParams((1.0,), (source.qtype.low + 1,), source.qtype)
        number = f"{name}_number"
        one = number, emitter.constant(number, quantize(np.float32(1.0), in_ones)), in_ones
        negative = _binary(task, "Mul", (data, one), below_zero, f"{name}_negative")
    added = _binary(task, "Mul", (negative, less_one), correction, f"{name}_correction")
    _, integers, _ = _binary(task, "Add", (data, added), result, name)
    emitter.store(node.outputs[0], integers, result)
    return True
