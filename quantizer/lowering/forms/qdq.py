"""Form qdq: standard ONNX, integers spelled as DequantizeLinear -> operator -> QuantizeLinear.

What a reader of the format executes is up to it: onnxruntime, OpenVINO and TensorRT look for this pattern and
put an integer kernel in its place; a plain evaluator computes the same in float. What becomes of each kind
of node, with `codes` for a tensor's integers:

============  =========  ===============================================================================
kind          implementation   written as
============  =========  ===============================================================================
INTEGER       ""         DequantizeLinear for each input with parameters, the operator, QuantizeLinear
                         for each output with parameters
MOVE          ""         the same; but a Relu or Clip that changes no code is left out
MOVE          codes      the operator directly on codes (unsigned); Relu and Clip as Clip
                         with bounds in codes, Pad with its value in codes, where these are constants (else
                         as ""). Also for INTEGER Max and Min
MOVE          leaky      Relu (or Clip from 0) as LeakyRelu with slope 0 between conversions: onnxruntime has
                         an integer kernel of LeakyRelu only
TABLE         runtime    as INTEGER; for runtimes that make the table themselves
TABLE         sigmoid    Tanh as 2 sigmoid(2x) - 1: codes read with twice their scale, Sigmoid, QuantizeLinear
                         with scale 1/256 and zero point 0. The same codes are tanh in 128ths, uint8
TABLE         portable   Cast to int32 (unsigned), Gather from a constant table: exact everywhere, slow in
                         onnxruntime
TABLE         any, and   nothing where the table behind it is portable, else the operator in float: a part of
              no output  that table (see `chains`)
              in codes
DYNAMIC       ""         DynamicQuantizeLinear, ConvInteger or MatMulInteger, Cast, Mul, Add; see `products`
DYNAMIC       runtime    LSTM as onnxruntime's own DynamicQuantizeLSTM; see `recurrent`
WEIGHT_ONLY   ""         DequantizeLinear for constants with parameters, the operator in float
WEIGHT_ONLY   codes      Gather of codes from a constant table, and of a scale for each entry; Cast, Mul
FLOAT         ""         as it was, reading real numbers
============  =========  ===============================================================================

What onnxruntime 1.31 makes of it on x86-64 (opset 13 to 23, found by experiment). Integer kernels: Conv (its
output must be in codes), Gemm with alpha = beta = 1, MatMul (both also with float output), Add, Mul, Concat,
Where, AveragePool, GlobalAveragePool, Softmax, Sigmoid, LeakyRelu. On codes where input and output have equal
parameters: MaxPool, ReduceMax, ReduceMin, Reshape, Flatten, Transpose, Squeeze, Unsqueeze, Slice, Gather,
GatherElements, Split, Expand, Tile, DepthToSpace, Resize (nearest); ArgMax. Float between conversions:
ConvTranspose, Sub, Div, Max, Min, Pad, Tanh, HardSigmoid, HardSwish, Gelu, Erf, Exp, ReduceMean, ReduceSum,
Resize (linear), GlobalMaxPool, GatherND, SpaceToDepth, Relu and Clip that saturation does not cover, 16 bits.
The constant operand of Add, Mul, Concat, Where, and a constant first operand of MatMul, must be uint8. An
int8 activation with two readers, or that is a graph output too, makes its neighbours float there: x86-64
wants uint8 activations (or the session option session.qdqisint8allowed = 1).
"""

from __future__ import annotations

import onnx_ir as ir

from ...plan.plan import Kind, QuantPlan
from ..writers.embeddings import look_up_codes
from ..writers.emitter import Emitter
from ..writers.graph_walk import Writers, write
from ..writers.lstm import dynamic_lstm
from ..writers.moves import leaky_relu, move, on_codes
from ..writers.products import dynamic_product
from ..writers.task import between_conversions, float_node, portable_table, tanh_through_sigmoid, weight_only
from ..written import Lowered

WRITERS: Writers = {
    (Kind.QUANTIZED, ""): between_conversions,
    (Kind.QUANTIZED, "integer"): on_codes,
    (Kind.PASS_THROUGH, ""): move,
    (Kind.PASS_THROUGH, "integer"): on_codes,
    (Kind.PASS_THROUGH, "leaky-relu"): leaky_relu,
    (Kind.LOOKUP_TABLE, ""): between_conversions,
    (Kind.LOOKUP_TABLE, "runtime"): between_conversions,
    (Kind.LOOKUP_TABLE, "sigmoid"): tanh_through_sigmoid,
    (Kind.LOOKUP_TABLE, "portable"): portable_table,
    (Kind.DYNAMIC, ""): dynamic_product,
    (Kind.DYNAMIC, "runtime"): dynamic_lstm,
    (Kind.WEIGHT_ONLY, ""): weight_only,
    (Kind.WEIGHT_ONLY, "integer"): look_up_codes,
    (Kind.FLOAT, ""): float_node,
}
"""Every way to write a node, by kind and implementation."""


def lower_qdq(model: ir.Model, plan: QuantPlan) -> Lowered:
    """Return the model that `plan` describes in form qdq; see `lower`.

    Raises:
        PlanError: the plan has no entry for a node, or something in it that cannot be written.
    """
    return write(model, plan, "qdq", WRITERS, Emitter)
