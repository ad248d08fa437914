"""Form primitives: Round, Clip, Cast and arithmetic; no quantization operator at all.

=============  ===============================================================================================
quantize       Div by the scale, Round (halves to even), Add the zero point, Clip to the integer range, Cast
dequantize     Cast to float32, Sub the zero point, Mul with the scale
Conv, Gemm,    the float operator on integers without zero points (weight and bias too: integers, so that
MatMul, Conv-  the sums are exact below 2 ** 24), then one rescale: Mul with scale(x) * scale(w) / scale(y),
Transpose      Round, Add the zero point, Clip, Cast. See `products`
PASS_THROUGH,  as in form integer
LOOKUP_TABLE
DYNAMIC        scale and zero point from ReduceMin and ReduceMax as ONNX defines DynamicQuantizeLinear
others         dequantize, the operator, quantize
=============  ===============================================================================================
"""

from __future__ import annotations

from functools import partial

import numpy as np
import onnx_ir as ir

from ...lowering.emitter import Emitter, Factor, integer_type, new_value
from ...lowering.lower import write
from ...lowering.lowered import LoweredModel
from ...lowering.pass_through import direct
from ...lowering.products import dynamic_product, is_integer_product
from ...lowering.writers import Task, Writers
from ...numerics.affine import UINT8, QuantParams
from ...plan.plan import Implementation, Kind, QuantPlan
from .integer import WRITERS as INTEGER_WRITERS
from .static_products import float_sums, static_product

SMALLEST = np.array(np.finfo(np.float32).tiny)


class PrimitiveEmitter(Emitter):
    """An emitter that writes conversions as arithmetic."""

    def _quantize_nodes(self, value: ir.Value, name: str, params: QuantParams) -> list[ir.Node]:
        scale, zero_point = self._broadcast_params(name, params, value)
        low, high = np.float32(params.qtype.low), np.float32(params.qtype.high)
        steps = []
        if (params.scale != 1.0).any():
            steps.append(("Div", [scale], "unscaled"))
        steps.append(("Round", [], "rounded"))
        if params.zero_point.any():
            steps.append(("Add", [zero_point], "moved"))
        bounds = [self.constant("lowest_code", np.array(low)), self.constant("highest_code", np.array(high))]
        steps.append(("Clip", bounds, "clipped"))
        nodes: list[ir.Node] = []
        for op_type, others, suffix in steps:
            step = new_value(self._free(f"{name}_{suffix}"), ir.DataType.FLOAT, value)
            nodes.append(self._node(op_type, [value, *others], [step], None))
            value = step
        quantized = new_value(self._free(f"{name}_quantized"), integer_type(params), value)
        return [*nodes, self._node("Cast", [value], [quantized], {"to": int(integer_type(params))})]

    def _dequantize_nodes(
        self, quantized: ir.Value, name: str, output: str, params: QuantParams
    ) -> list[ir.Node]:
        return self._cast_nodes(quantized, name, output, params)

    def _quantize_dynamically(self, value: ir.Value, name: str, before: ir.Node | None) -> Factor:
        zero = self.constant("zero", np.zeros((), np.float32))
        highest = self.constant("code_count", np.array(UINT8.high, np.float32))

        def add(op_type: str, inputs: list[ir.Value], suffix: str, shape: ir.Shape | None) -> ir.Value:
            output = ir.Value(name=f"{name}_{suffix}", type=ir.TensorType(ir.DataType.FLOAT), shape=shape)
            return self.add(op_type, inputs, output, before, {"keepdims": 0} if "Reduce" in op_type else None)

        scalar = ir.Shape(())
        least = add("Min", [add("ReduceMin", [value], "least", scalar), zero], "low", scalar)
        most = add("Max", [add("ReduceMax", [value], "most", scalar), zero], "high", scalar)
        step = add("Div", [add("Sub", [most, least], "span", scalar), highest], "step", scalar)
        # The range of all zeros has no width; any scale above 0 will do.
        scale = add("Max", [step, self.constant("least_scale", SMALLEST)], "scale", scalar)
        start = add("Div", [add("Sub", [zero, least], "below", scalar), scale], "start", scalar)
        zero_point = add("Round", [add("Clip", [start, zero, highest], "held", scalar)], "zero_point", scalar)
        steps = add("Round", [add("Div", [value, scale], "unscaled", value.shape)], "rounded", value.shape)
        moved = add("Add", [steps, zero_point], "moved", value.shape)
        return Factor(add("Clip", [moved, zero, highest], "quantized", value.shape), zero_point, scale)


def _integer(task: Task) -> bool:
    return static_product(task, float_sums) if is_integer_product(task) else direct(task)


WRITERS: Writers = {
    **INTEGER_WRITERS,
    (Kind.QUANTIZED, Implementation.USUAL): _integer,
    (Kind.DYNAMIC, Implementation.USUAL): partial(dynamic_product, write_sums=float_sums),
}
"""Every way to write a node, by kind and implementation."""


def lower_model(model: ir.Model, plan: QuantPlan) -> LoweredModel:
    """Return the model that `plan` describes in form primitives; see `lower`."""
    return write(model, plan, "primitives", WRITERS, PrimitiveEmitter)
