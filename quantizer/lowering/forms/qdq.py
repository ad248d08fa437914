"""Form qdq: standard ONNX, quantized operators written as DequantizeLinear -> operator -> QuantizeLinear.

How this is executed is up to the runtime: onnxruntime, OpenVINO and TensorRT look for the pattern and put an
integer kernel in its place; a plain evaluator computes the same in float. How each kind of node is written,
besides `plan.rewrites`:

============  ==============  ================================================================================
kind          implementation  written as
============  ==============  ================================================================================
QUANTIZED     ""              DequantizeLinear for each input with parameters, the operator, QuantizeLinear
                              for each output with parameters
QUANTIZED     folded          the same, its constants by Cast, Sub and Mul, which are done when the model is
                              loaded: onnxruntime makes MatMulNBits of DequantizeLinear -> MatMul, which
                              rounds activations of 16 bits to 8
PASS_THROUGH  ""              as QUANTIZED; but a Relu or Clip that changes no quantized value is left out
PASS_THROUGH  integer         the operator directly on (unsigned) integers; Relu and Clip as Clip with
                              quantized bounds, Pad with a quantized value, where these are constants (else
                              as ""). Also for QUANTIZED Max and Min
PASS_THROUGH  leaky-relu      Relu (or Clip from 0) as LeakyRelu with slope 0 between conversions: onnxruntime
                              has an integer kernel of LeakyRelu only
PASS_THROUGH  channels-last   MaxPool as onnxruntime's own NhwcMaxPool between two Transpose, Resize (nearest,
                              by whole factors, sizes known) as Gather of each axis between them: its MaxPool
                              and Resize of integers take ten times as long. Any other node as ""
LOOKUP_TABLE  runtime         as QUANTIZED; for runtimes that build the table themselves
LOOKUP_TABLE  sigmoid         Tanh as 2 sigmoid(2x) - 1: the input dequantized with twice its scale, Sigmoid,
                              QuantizeLinear with scale 1/256 and zero point 0. The same integers are tanh in
                              128ths, uint8
LOOKUP_TABLE  saturating      HardSigmoid and HardSwish as Add and Mul between conversions that saturate; see
                              `lowering.saturating`. Also for QUANTIZED PRelu
LOOKUP_TABLE  portable        Cast to int32 (unsigned), Gather from a constant table: exact everywhere, slow
                              in onnxruntime
LOOKUP_TABLE  fused           DequantizeLinear, one operator of onnxruntime's own (QuickGelu, Gelu) for all
                              nodes of the chain, QuantizeLinear; see `operators.functions`
LOOKUP_TABLE  any, and a      nothing where the later node that has the table is portable, else the operator
              float output    in float: a part of that table (see `planning.chains`)
DYNAMIC       ""              DynamicQuantizeLinear, ConvInteger or MatMulInteger, Cast, Mul, Add; of
                              ConvTranspose the float operator on integers. See `lowering.products`
DYNAMIC       runtime         LSTM as onnxruntime's own DynamicQuantizeLSTM; see `lowering.lstm`
DYNAMIC       two-parts       the same with its input in two parts of 8 bits
WEIGHT_ONLY   ""              DequantizeLinear for constants with parameters, the operator in float
WEIGHT_ONLY   folded          the same constants by Cast, Sub and Mul, which are done when the model is loaded
WEIGHT_ONLY   runtime         MatMul and Gemm as onnxruntime's own MatMulNBits, which may round the data to
                              8 bits, a scale for each block; Gather as GatherBlockQuantized
WEIGHT_ONLY   runtime-float   MatMulNBits with float activations
WEIGHT_ONLY   integer         Gather from a quantized embedding table, and of a scale for each row; Cast, Mul
FLOAT         ""              unchanged, reading float values
FLOAT         fused           one operator of onnxruntime's own for the chain, behind a DequantizeLinear:
                              there onnxruntime does not find the chain any more
============  ==============  ================================================================================

What onnxruntime 1.31 executes on x86-64 (opset 13 to 23, found by experiment). Integer kernels: Conv (its
output must be quantized), Gemm with alpha = beta = 1, MatMul (both also with float output), Add, Mul, Concat,
Where, AveragePool, GlobalAveragePool, Softmax, Sigmoid, LeakyRelu. On integers where input and output have
equal parameters: MaxPool, ReduceMax, ReduceMin, Reshape, Flatten, Transpose, Squeeze, Unsqueeze, Slice,
Gather, GatherElements, Split, Expand, Tile, DepthToSpace, Resize (nearest); ArgMax. Float between
conversions: ConvTranspose, Sub, Div, Max, Min, Pad, Tanh, HardSigmoid, HardSwish, Gelu, Erf, Exp, ReduceMean,
ReduceSum, Resize (linear), GlobalMaxPool, GatherND, SpaceToDepth, Relu and Clip that saturation does not
cover, 16 bits. The constant operand of Add, Mul, Concat, Where, and a constant first operand of MatMul, must
be uint8. An int8 activation with two readers, or that is a graph output too, leaves its neighbours in float:
x86-64 wants uint8 activations (or the session option session.qdqisint8allowed = 1).
"""

from __future__ import annotations

from functools import partial

import onnx_ir as ir

from ...plan.plan import Implementation, Kind, QuantPlan
from ..bit_packed import packed_weight
from ..embedding_tables import gather_quantized
from ..emitter import Emitter
from ..lower import write
from ..lowered import LoweredModel
from ..lstm import dynamic_lstm
from ..pass_through import channels_last, leaky_relu, on_integers, pass_through
from ..products import dynamic_product
from ..saturating import hard_function, prelu
from ..writers import (
    Writers,
    as_max,
    between_conversions,
    float_node,
    fused,
    lookup_table,
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
    (Kind.LOOKUP_TABLE, Implementation.SATURATING): hard_function,
    (Kind.LOOKUP_TABLE, Implementation.FUSED): fused,
    (Kind.DYNAMIC, Implementation.USUAL): dynamic_product,
    (Kind.DYNAMIC, Implementation.RUNTIME): dynamic_lstm,
    (Kind.DYNAMIC, Implementation.TWO_PARTS): partial(dynamic_lstm, in_two_parts=True),
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
