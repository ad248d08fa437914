"""LSTM with quantized weights and activations quantized at run time: onnxruntime's own operator.

com.microsoft.DynamicQuantizeLSTM quantizes the whole input once, and the hidden state before every step, to
uint8 as DynamicQuantizeLinear does. The sequences of a batch share the scale of the hidden state; with
several threads, those that one thread runs. Sums of products with the quantized weights are exact; they are
multiplied by scale(x) * scale(w), and everything after that is float. Its weights are transposed,
[directions, inputs, 4 * hidden], with a scale for each direction, or each column of it.

Its input may be in two parts (`operators.two_parts`):

    s = (max x - min x) / STEPS;  high = DequantizeLinear(QuantizeLinear(x, s));  low = FINER (x - high)
    operator(Concat(high, low, both ends of 8 bits), weights (W, W / FINER, 0, 0))
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir
from numpy.typing import DTypeLike

from ..model.graph import constant_of, name_of
from ..numerics.affine import UINT8, quantize
from ..operators.table import DEQUANTIZE, MICROSOFT, QUANTIZE
from ..operators.two_parts import END_FEATURES, FINER, MARGIN, STEPS
from .emitter import become
from .writers import Task

STANDARD_INPUTS = 8
"""Inputs of the standard operator; scale and zero point of its two weights follow."""
GATES_AXIS = 1
"""Of the standard weights, [directions, gates * hidden, inputs]."""
FEATURES_AXIS = 2
"""Of these, and of the standard input, [steps, batch, inputs]."""
LEAST_STEP = 1e-30
"""Of an input of zeros alone, whose step would be 0."""


def dynamic_lstm(task: Task, *, in_two_parts: bool = False) -> bool:
    """Make an LSTM the operator with quantized weights; `in_two_parts` splits its input in two."""
    node, emitter = task.node, task.emitter
    if node.op_type != "LSTM" or node.attributes.get_int("layout", 0) != 0:
        raise task.error("only LSTM with layout 0 is dynamic; plan this node otherwise")
    inputs: list[ir.Value | None] = [
        value if value is None or index in (1, 2) else emitter.floating(value, node)
        for index, value in enumerate(node.inputs)
    ]
    inputs += [None] * (STANDARD_INPUTS - len(inputs))
    for index in (1, 2):
        array = constant_of(value := node.inputs[index])
        params = None if array is None else task.params(index)
        if (
            value is None
            or array is None
            or params is None
            or params.block_size is not None
            or params.zero_point.any()
            or params.axis not in (None, GATES_AXIS)
            or params.qtype.bits not in (7, 8)
            or not params.qtype.signed
        ):
            raise task.error(
                "dynamic parameters are for constant 8-bit weights with zero_point 0, one scale or "
                f"one along axis {GATES_AXIS}; plan this node otherwise"
            )
        # The directions share the scale, or one scale for each column.
        columns = () if params.axis is None else (array.shape[GATES_AXIS],)
        scales = np.ascontiguousarray(np.broadcast_to(params.scale_array, (array.shape[0], *columns)))
        codes, is_wide = quantize(array, params), in_two_parts and index == 1
        if is_wide:
            ends = np.zeros((*codes.shape[:FEATURES_AXIS], END_FEATURES), codes.dtype)
            codes = np.concatenate([codes, quantize(array / np.float32(FINER), params), ends], FEATURES_AXIS)
        quantized = np.ascontiguousarray(codes.transpose(0, 2, 1))
        name = f"{emitter.name(value)}_two_parts" if is_wide else emitter.name(value)
        inputs[index] = emitter.constant(f"{name}_quantized", quantized)
        inputs.append(emitter.constant(f"{name}_scale", scales))
        inputs.append(emitter.constant(f"{name}_zero_point", np.zeros(scales.shape, quantized.dtype)))
    if in_two_parts:
        inputs[0] = _two_parts(task, inputs[0])
    attributes = {name: value for name, value in node.attributes.items() if name != "layout"}
    become(node, "DynamicQuantizeLSTM", inputs, attributes, MICROSOFT)
    return False


def _two_parts(task: Task, data: ir.Value | None) -> ir.Value:
    """Return a float input with both parts of its values, and the ends of their range, as its features."""
    if data is None:
        raise task.error("it has no input; plan this node otherwise")
    node, emitter = task.node, task.emitter
    name = f"{name_of(data)}_parts"

    def constant(suffix: str, value: float | Sequence[int], dtype: DTypeLike = np.float32) -> ir.Value:
        return emitter.constant(f"{name}_{suffix}", np.array(value, dtype))

    def add(op_type: str, *inputs: ir.Value, **attributes: int) -> ir.Value:
        dtype = ir.DataType.UINT8 if op_type == QUANTIZE else ir.DataType.FLOAT
        output = ir.Value(name=f"{name}_{op_type}", type=ir.TensorType(dtype))
        return emitter.add(op_type, inputs, output, node, attributes)

    zero = constant("zero", 0.0)
    lowest = add("Min", add("ReduceMin", data, keepdims=0), zero)
    span = add("Sub", add("Max", add("ReduceMax", data, keepdims=0), zero), lowest)
    step = add("Max", add("Mul", span, constant("per_step", 1.0 / STEPS)), constant("least", LEAST_STEP))
    zero_point = add(QUANTIZE, add("Neg", lowest), step, constant("margin", MARGIN, np.uint8))
    high = add(DEQUANTIZE, add(QUANTIZE, data, step, zero_point), step, zero_point)
    low = add("Mul", add("Sub", data, high), constant("finer", FINER))
    bottom, top = (
        add(DEQUANTIZE, constant(f"code_{code}", code, np.uint8), step, zero_point)
        for code in (UINT8.low, UINT8.high)
    )
    first, second, along = (constant(f"at_{i}", [i], np.int64) for i in (0, 1, FEATURES_AXIS))
    feature = add("Slice", data, first, second, along)  # of the shape of an end, and within both
    ends = add("Min", feature, bottom), add("Max", feature, top)
    return add("Concat", high, low, *ends, axis=FEATURES_AXIS)
