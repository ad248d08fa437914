"""LSTM with quantized weights and activations quantized at run time: onnxruntime's own operator.

com.microsoft.DynamicQuantizeLSTM quantizes the whole input once, and the hidden state before every step, to
uint8 as DynamicQuantizeLinear does. The sequences of a batch share the scale of the hidden state; with
several threads, those that one thread runs. Sums of products with the quantized weights are exact; they are
multiplied by scale(x) * scale(w), and everything after that is float. Its weights are transposed,
[directions, inputs, 4 * hidden], with a scale for each direction, or each column of it.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from ..model.graph import constant_of
from ..numerics.affine import quantize
from ..operators.table import MICROSOFT
from .emitter import become
from .writers import Task

STANDARD_INPUTS = 8
"""Inputs of the standard operator; scale and zero point of its two weights follow."""
GATES_AXIS = 1
"""Axis of the gates in the standard weights, [directions, gates * hidden, inputs]."""


def dynamic_lstm(task: Task) -> bool:
    """Make an LSTM the operator with quantized weights."""
    node, emitter = task.node, task.emitter
    if node.op_type != "LSTM" or node.attributes.get_int("layout", 0) != 0:
        raise task.error("only LSTM with layout 0 is dynamic; change this node in the plan")
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
                f"one along axis {GATES_AXIS}; change this node in the plan"
            )
        # The directions share the scale, or one scale for each column.
        columns = () if params.axis is None else (array.shape[GATES_AXIS],)
        scales = np.ascontiguousarray(np.broadcast_to(params.scale_array, (array.shape[0], *columns)))
        quantized = np.ascontiguousarray(quantize(array, params).transpose(0, 2, 1))
        name = emitter.name(value)
        inputs[index] = emitter.constant(f"{name}_quantized", quantized)
        inputs.append(emitter.constant(f"{name}_scale", scales))
        inputs.append(emitter.constant(f"{name}_zero_point", np.zeros(scales.shape, quantized.dtype)))
    attributes = {name: value for name, value in node.attributes.items() if name != "layout"}
    become(node, "DynamicQuantizeLSTM", inputs, attributes, MICROSOFT)
    return False
