"""Form qdq: standard ONNX, quantized operators written as DequantizeLinear -> operator -> QuantizeLinear.

What onnxruntime 1.31 executes on x86-64 (opset 13 to 23, found by experiment). Integer kernels: Conv (its
output must be quantized), Gemm with alpha = beta = 1, MatMul (both also with float output), Add, Mul, Concat,
Where, AveragePool, GlobalAveragePool, Softmax, Sigmoid, LeakyRelu. On integers if input and output have equal
parameters: MaxPool, ReduceMax, ReduceMin, Reshape, Flatten, Transpose, Squeeze, Unsqueeze, Slice, Gather,
GatherElements, Split, Expand, Tile, DepthToSpace, Resize (nearest); ArgMax. Float between conversions:
ConvTranspose, Sub, Div, Max, Min, Pad, Tanh, HardSigmoid, HardSwish, Gelu, Erf, Exp, ReduceMean, ReduceSum,
Resize (linear), GlobalMaxPool, GatherND, SpaceToDepth, Relu and Clip that saturation does not cover, 16 bits.
The constant operand of Add, Mul, Concat, Where, and a constant first operand of MatMul, must be uint8. An
int8 activation with two readers, or that is also a graph output, leaves its neighbours in float: x86-64 needs
uint8 activations (or the session option session.qdqisint8allowed = 1).
"""

from __future__ import annotations

from functools import partial

import onnx_ir as ir

from ...plan.plan import Implementation, Kind, QuantPlan
from ..embedding_tables import gather_quantized
from ..emitter import Emitter
from ..lower import write
from ..lowered import LoweredModel
from ..lstm import dynamic_lstm
from ..pass_through import channels_last, leaky_relu, on_integers, pass_through
from ..products import dynamic_product
from ..saturating import prelu
from ..writers import (
    Writers,
    as_max,
    between_conversions,
    float_node,
    fused,
    lookup_table,
    packed_weight,
    tanh_through_sigmoid,
    weight_only,
)

WRITERS: Writers = {
    (Kind.QUANTIZED, Implementation.USUAL): between_conversions,
    (Kind.QUANTIZED, Implementation.INTEGER): on_integers,
    (Kind.QUANTIZED, Implementation.FOLDED): partial(between_conversions, folded=True),
    (Kind.QUANTIZED, Implementation.SATURATING): prelu,
    (Kind.PASS_THROUGH, Implementation.USUAL): pass_through,
    (Kind.PASS_THROUGH, Implementation.INTEGER): on_integers,
    (Kind.PASS_THROUGH, Implementation.LEAKY_RELU): leaky_relu,
    (Kind.PASS_THROUGH, Implementation.CHANNELS_LAST): partial(channels_last, otherwise=pass_through),
    (Kind.LOOKUP_TABLE, Implementation.USUAL): between_conversions,
    (Kind.LOOKUP_TABLE, Implementation.RUNTIME): between_conversions,
    (Kind.LOOKUP_TABLE, Implementation.SIGMOID): tanh_through_sigmoid,
    (Kind.LOOKUP_TABLE, Implementation.PORTABLE): partial(lookup_table, unsigned=True),
    (Kind.LOOKUP_TABLE, Implementation.FUSED): fused,
    (Kind.DYNAMIC, Implementation.USUAL): dynamic_product,
    (Kind.DYNAMIC, Implementation.RUNTIME): dynamic_lstm,
    (Kind.WEIGHT_ONLY, Implementation.USUAL): weight_only,
    (Kind.WEIGHT_ONLY, Implementation.FOLDED): partial(weight_only, folded=True),
    (Kind.WEIGHT_ONLY, Implementation.INTEGER): gather_quantized,
    (Kind.WEIGHT_ONLY, Implementation.RUNTIME): packed_weight,
    (Kind.WEIGHT_ONLY, Implementation.RUNTIME_FLOAT): packed_weight,
    (Kind.FLOAT, Implementation.USUAL): float_node,
    (Kind.FLOAT, Implementation.MAX): as_max,
    (Kind.FLOAT, Implementation.FUSED): fused,
}
"""Every way to write a node, by kind and implementation."""


def lower_model(model: ir.Model, plan: QuantPlan) -> LoweredModel:
    """Return the model that `plan` describes in form qdq; see `lower`."""
    return write(model, plan, "qdq", WRITERS, Emitter)
