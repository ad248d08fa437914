"""Form integer: integers and int32 sums as plain nodes, for compilers that fuse them themselves.

============  ================================================================================================
Conv, Gemm,   ConvInteger or MatMulInteger, Add of the int32 bias, then one rescale: Cast to float32, Mul with
MatMul        scale(x) * scale(w) / scale(y), QuantizeLinear with scale 1 (round, halves to even; add the zero
              point; saturate). A float result ends with the Mul, by scale(x) * scale(w). See `products`
PASS_THROUGH  the operator on integers; a Relu or Clip that changes no value is left out. MaxPool of float
              numbers, between two Cast, which more readers have
LOOKUP_TABLE  Cast to int32 and Gather from a constant table, for every implementation in the plan
DYNAMIC       as in form qdq
others        between conversions, as in form qdq: arithmetic, pooling, and static ConvTranspose, which has no
              integer operator
============  ================================================================================================

onnxruntime has no fast ConvInteger: on x86-64 form integer is several times as slow as form qdq.
"""

from __future__ import annotations

from functools import partial

import onnx_ir as ir

from ...lowering.embedding_tables import gather_quantized
from ...lowering.emitter import Emitter, integer_type, new_value
from ...lowering.lower import write
from ...lowering.lowered import LoweredModel
from ...lowering.pass_through import direct, works_on_integers
from ...lowering.products import dynamic_product, integer_sums, is_integer_product
from ...lowering.saturating import prelu
from ...lowering.writers import (
    Task,
    Writers,
    between_conversions,
    float_node,
    lookup_table,
    weight_only,
)
from ...plan.plan import Implementation, Kind, QuantPlan
from .static_products import static_product


def _direct_or_cast(task: Task) -> bool:
    """As `direct`, but MaxPool of the quantized values as float numbers, between two Cast.

    OpenCV 5.0 refuses MaxPool of integers, and IREE 3.13 reads int8 as uint8; onnxruntime takes no longer.
    """
    node, emitter, result = task.node, task.emitter, task.result()
    value, output = node.inputs[0], node.outputs[0]
    if node.op_type != "MaxPool" or len(node.outputs) > 1 or value is None or result is None:
        return direct(task)
    if task.params(0) != result or not works_on_integers(task, result):
        return direct(task)
    name, float32 = emitter.name(output), ir.DataType.FLOAT
    integers = emitter.quantized(value, result, node)
    numbers = new_value(f"{name}_float", float32, value)
    largest = new_value(f"{name}_largest", float32, output)
    quantized = new_value(f"{name}_quantized", integer_type(result), output)
    emitter.add("Cast", [integers], numbers, node, {"to": int(float32)})
    emitter.add("MaxPool", [numbers], largest, node, dict(node.attributes))
    emitter.add("Cast", [largest], quantized, node, {"to": int(integer_type(result))})
    emitter.store(output, quantized, result)
    return True


def _integer(task: Task) -> bool:
    if task.node.op_type == "ConvTranspose":
        return between_conversions(task)
    return static_product(task, integer_sums) if is_integer_product(task) else direct(task)


WRITERS: Writers = {
    (Kind.QUANTIZED, Implementation.USUAL): _integer,
    (Kind.QUANTIZED, Implementation.INTEGER): direct,
    (Kind.QUANTIZED, Implementation.FOLDED): partial(between_conversions, folded=True),
    (Kind.QUANTIZED, Implementation.SATURATING): prelu,
    (Kind.PASS_THROUGH, Implementation.USUAL): _direct_or_cast,
    (Kind.PASS_THROUGH, Implementation.INTEGER): _direct_or_cast,
    (Kind.PASS_THROUGH, Implementation.LEAKY_RELU): direct,
    (Kind.PASS_THROUGH, Implementation.CHANNELS_LAST): _direct_or_cast,
    (Kind.LOOKUP_TABLE, Implementation.USUAL): lookup_table,
    (Kind.LOOKUP_TABLE, Implementation.RUNTIME): lookup_table,
    (Kind.LOOKUP_TABLE, Implementation.SIGMOID): lookup_table,
    (Kind.LOOKUP_TABLE, Implementation.PORTABLE): lookup_table,
    (Kind.DYNAMIC, Implementation.USUAL): dynamic_product,
    (Kind.WEIGHT_ONLY, Implementation.USUAL): weight_only,
    (Kind.WEIGHT_ONLY, Implementation.FOLDED): partial(weight_only, folded=True),
    (Kind.WEIGHT_ONLY, Implementation.INTEGER): gather_quantized,
    (Kind.FLOAT, Implementation.USUAL): float_node,
}
"""Every way to write a node, by kind and implementation."""


def lower_model(model: ir.Model, plan: QuantPlan) -> LoweredModel:
    """Return the model that `plan` describes in form integer; see `lower`."""
    return write(model, plan, "integer", WRITERS, Emitter)
