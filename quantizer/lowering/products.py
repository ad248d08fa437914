"""Convolutions and matrix products as exact sums of integers, and one requantization.

Products of quantized values are summed after subtracting the zero points, so every scale can be factored out
of the sum. The sums are integers, and are requantized in one place, in this order (float32 throughout):

1. sums = sum((x - zero_point(x)) * (w - zero_point(w))) + bias, int32; the bias has scale(x) * scale(w);
2. multiplier = (scale(x) * scale(w)) / scale(y), a constant for each output channel;
3. y = saturate(round(sums * multiplier) + zero_point(y)), halves to even.

A node that returns float ends with y = sums * (scale(x) * scale(w)). With dynamic quantization parameters
(`Kind.DYNAMIC`) the multiplier is computed at run time too, and the bias is added in float, after the
multiplication. Padding is the zero point of the data in every operator of integers, which is 0 in the sums.

ConvTranspose has no integer operator in ONNX: it is written as Conv (see `plan.rewrites`), or static between
conversions.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from ..model.graph import constant_of
from ..numerics.affine import INT32, QuantParams
from ..operators.table import product_layout
from ..operators.weight_layout import Kernel
from .emitter import Emitter, Factor, become, new_value
from .writers import Task

Floats = npt.NDArray[np.float32]


WriteSums = Callable[[Task, Factor, Factor, ir.Value | None], ir.Value]
"""Adds the nodes that compute the sums: task, data, weight, int32 bias -> sums, int32 or float32."""


def integer_sums(task: Task, data: Factor, weight: Factor, bias: ir.Value | None) -> ir.Value:
    """Write the sums with ConvInteger or MatMulInteger, and the bias with an Add of int32."""
    node, emitter = task.node, task.emitter
    layout = product_layout(node)
    assert layout is not None
    left = _transposed(task, data.quantized, layout.data_swapped_by)
    right = _transposed(task, weight.quantized, layout.swapped_by)
    inputs: list[ir.Value | None] = [left, right, data.zero_point, weight.zero_point]
    if data.zero_point is None and weight.zero_point is not None:
        assert left.dtype is not None
        inputs[2] = emitter.constant(f"{left.name}_zero_point", np.zeros((), left.dtype.numpy()))
    while inputs[-1] is None:
        inputs.pop()
    output, name = node.outputs[0], emitter.name(node.outputs[0])
    sums = new_value(f"{name}_sums", ir.DataType.INT32, output)
    if layout.kernel is Kernel.GATHERS:
        emitter.add("ConvInteger", inputs, sums, node, dict(node.attributes))
    else:
        emitter.add("MatMulInteger", inputs, sums, node)
    if bias is None:
        return sums
    biased = new_value(f"{name}_biased", ir.DataType.INT32, output)
    return emitter.add("Add", [sums, _spread_bias(task, bias)], biased, node)


def dynamic_product(task: Task, write_sums: WriteSums = integer_sums) -> bool:
    """Write a product of data with dynamic parameters and an 8-bit weight; the result is float."""
    node, emitter = task.node, task.emitter
    layout = product_layout(node)
    weight = None if layout is None else task.params(layout.index)
    fits = layout is not None and layout.kernel is not Kernel.SCATTERS
    if weight is None or not fits or not _is_integer_weight(task, weight):
        raise task.error(
            "dynamic parameters are for Conv, ConvTranspose as sub-pixel, Gemm (alpha = beta = 1) and MatMul "
            "with a weight of 8 bits; change this node in the plan"
        )
    value, bias = node.inputs[0], node.inputs[2] if len(node.inputs) > 2 else None
    assert value is not None
    data = emitter.dynamic(value, node)
    sums = write_sums(task, data, factor(task, 1, weight), None)
    name, output = emitter.name(node.outputs[0]), node.outputs[0]
    weight_scale = emitter.constant(f"{name}_weight_scale", beside_result(task, weight.scale_array))
    multiplier = new_value(f"{name}_multiplier", ir.DataType.FLOAT, weight_scale)
    emitter.add("Mul", [data.scale, weight_scale], multiplier, node)
    unscaled_sums = as_float(emitter, sums, node)
    if bias is None:
        become(node, "Mul", [unscaled_sums, multiplier])
        return False
    scaled = new_value(f"{name}_scaled", ir.DataType.FLOAT, output)
    emitter.add("Mul", [unscaled_sums, multiplier], scaled, node)
    become(node, "Add", [scaled, _spread_bias(task, emitter.floating(bias, node))])
    return False


def is_integer_product(task: Task) -> bool:
    """Return whether all operands have 8 bits, and every scale can be factored out of the sums."""
    node = task.node
    if product_layout(node) is None:
        return False
    data, weight, result = task.params(0), task.params(1), task.result()
    if data is None or weight is None or data.axis is not None or data.qtype.bits != 8:
        return False
    if not _is_integer_weight(task, weight) or (result is not None and result.axis is not None):
        return False
    if len(node.inputs) < 3 or node.inputs[2] is None:
        return True
    bias = task.params(2)
    if bias is None or bias.qtype != INT32 or bias.zero_point.any():
        return False
    return bool(np.array_equal(bias.scale_array.reshape(-1), product_scale(data, weight).reshape(-1)))


def _is_integer_weight(task: Task, weight: QuantParams) -> bool:
    """Return whether the weight has 8 bits, and one scale or one for each output channel."""
    node, value = task.node, task.node.inputs[1]
    if any(node.attributes.get_float(name, 1.0) != 1.0 for name in ("alpha", "beta")):  # of Gemm
        return False
    if weight.qtype.bits not in (7, 8) or weight.block_size is not None:
        return False
    if weight.axis is None:
        return True
    if weight.zero_point.any() or value is None or value.shape is None:
        return False
    layout = product_layout(node)
    return layout is not None and weight.axis == layout.axis(node, len(value.shape))


def product_scale(data: QuantParams, weight: QuantParams) -> Floats:
    """Return scale(x) * scale(w), rounded to float32: the scale of the sums, and of the bias."""
    return np.asarray(data.scale_array * weight.scale_array, np.float32)


def as_float(emitter: Emitter, value: ir.Value, before: ir.Node) -> ir.Value:
    """Return the integers of a tensor as float32."""
    if value.dtype == ir.DataType.FLOAT:
        return value
    cast = new_value(f"{value.name}_float", ir.DataType.FLOAT, value)
    return emitter.add("Cast", [value], cast, before, {"to": int(ir.DataType.FLOAT)})


def factor(task: Task, index: int, params: QuantParams) -> Factor:
    """Return an input as a factor of a product."""
    value = task.node.inputs[index]
    assert value is not None
    quantized = task.emitter.quantized(value, params, task.node)
    if not params.zero_point.any():
        return Factor(quantized, None)
    return Factor(quantized, task.emitter.param_values(task.emitter.name(value), params)[1])


def beside_result(task: Task, numbers: Floats) -> Floats:
    """Return a number, or one for each output channel, in a shape that broadcasts with the output."""
    return numbers if numbers.ndim == 0 else numbers.reshape(_shape_beside_result(task, numbers.size))


def _shape_beside_result(task: Task, size: int) -> tuple[int, ...]:
    layout, value = product_layout(task.node), task.node.inputs[1]
    assert layout is not None
    assert value is not None
    assert value.shape is not None
    return layout.shape_beside_result(size, len(value.shape))


def _spread_bias(task: Task, bias: ir.Value) -> ir.Value:
    """Return the bias in a shape that broadcasts with the output."""
    shape = _shape_beside_result(task, -1)
    if shape == (-1,):
        return bias
    emitter, array = task.emitter, constant_of(bias)
    if array is not None:
        return emitter.constant(f"{emitter.name(task.node.outputs[0])}_bias", array.reshape(shape))
    target = emitter.constant("bias_shape", np.array(shape, np.int64))
    spread = ir.Value(name=f"{bias.name}_spread", type=bias.type)
    return emitter.add("Reshape", [bias, target], spread, task.node)


def _transposed(task: Task, quantized: ir.Value, attribute: str) -> ir.Value:
    if not attribute or not task.node.attributes.get_int(attribute, 0):
        return quantized
    array, name = constant_of(quantized), f"{quantized.name}_transposed"
    if array is not None:
        return task.emitter.constant(name, np.ascontiguousarray(array.T))
    transposed = ir.Value(name=name, type=quantized.type)
    return task.emitter.add("Transpose", [quantized], transposed, task.node, {"perm": [1, 0]})
