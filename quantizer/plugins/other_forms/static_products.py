"""Products with static parameters as sums of integers and one requantization, see `lowering.products`."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from ...lowering.emitter import Factor, become, new_value
from ...lowering.products import WriteSums, as_float, beside_result, factor, product_scale
from ...lowering.writers import Task
from ...model.graph import constant_of
from ...numerics.affine import QuantParams


def float_sums(task: Task, data: Factor, weight: Factor, bias: ir.Value | None) -> ir.Value:
    """Write the sums with the float operator on values less zero points: exact in any order to 2 ** 24."""
    node, emitter = task.node, task.emitter
    inputs = []
    for each in (data, weight):
        values, zero_point = as_float(emitter, each.quantized, node), each.zero_point
        if zero_point is not None:
            constant = constant_of(zero_point)
            if constant is None:
                subtrahend = as_float(emitter, zero_point, node)
            else:
                subtrahend = emitter.constant(f"{zero_point.name}_float", constant.astype(np.float32))
            centred = new_value(f"{each.quantized.name}_centred", ir.DataType.FLOAT, each.quantized)
            values = emitter.add("Sub", [values, subtrahend], centred, node)
        inputs.append(values)
    if bias is not None:
        inputs.append(as_float(emitter, bias, node))
    sums = new_value(f"{emitter.name(node.outputs[0])}_sums", ir.DataType.FLOAT, node.outputs[0])
    return emitter.add(node.op_type, inputs, sums, node, dict(node.attributes))


def static_product(task: Task, write_sums: WriteSums) -> bool:
    """Write a product with static parameters that satisfies `is_integer_product`."""
    node, emitter = task.node, task.emitter
    data, weight, result = task.params(0), task.params(1), task.result()
    assert data is not None
    assert weight is not None
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    bias_params = task.params(2) if bias is not None else None
    quantized_bias = emitter.quantized(bias, bias_params, node) if bias is not None and bias_params else None
    sums = write_sums(task, factor(task, 0, data), factor(task, 1, weight), quantized_bias)
    scale = product_scale(data, weight)
    if result is not None:
        scale = scale / result.scale_array
    name = emitter.name(node.outputs[0])
    multiplier = emitter.constant(f"{name}_multiplier", beside_result(task, scale))
    become(node, "Mul", [as_float(emitter, sums, node), multiplier])
    if result is not None:
        unscaled = QuantParams((1.0,), result.zero_point, result.qtype)
        emitter.store(node.outputs[0], emitter.quantize_after(node.outputs[0], unscaled, node), result)
    return False
