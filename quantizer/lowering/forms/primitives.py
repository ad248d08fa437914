"""Form primitives: Round, Clip, Cast and arithmetic; no quantization operator at all.

=============  ===============================================================================================
quantize       Div by the scale, Round (halves to even), Add the zero point, Clip to the codes, Cast
dequantize     Cast to float32, Sub the zero point, Mul with the scale
Conv, Gemm,    the float operator on codes without their zero points (weight and bias too: integers, so that
MatMul, Conv-  the sums are exact below 2 ** 24), then one rescale: Mul with scale(x) * scale(w) / scale(y),
Transpose      Round, Add the zero point, Clip, Cast. See `products`
moves, tables  as in form integer
DYNAMIC        scale and zero point from ReduceMin and ReduceMax as ONNX defines DynamicQuantizeLinear
others         dequantize, the operator, quantize
=============  ===============================================================================================
"""

from __future__ import annotations

from functools import partial

import numpy as np
import onnx_ir as ir

from ....profiles.base.errors import PlanError
from ...numerics.affine import UINT8, QuantParams
from ...plan.plan import Kind, QuantPlan
from ..writers.emitter import Dynamic, Emitter
from ..writers.graph_walk import Writers, write
from ..writers.graph_writer import integer_type, new_value
from ..writers.moves import direct
from ..writers.products import dynamic_product, fits, float_sums, static_product
from ..writers.task import Task
from ..written import Lowered
from .integer import WRITERS as INTEGER_WRITERS

SMALLEST = np.array(np.finfo(np.float32).tiny)


class PrimitiveEmitter(Emitter):
    """An emitter that spells conversions in arithmetic."""

    def _quantize_nodes(self, real: ir.Value, name: str, params: QuantParams) -> list[ir.Node]:
        scale, zero_point = self._spread(name, params, real)
        low, high = (np.float32(code) for code in (params.qtype.low, params.qtype.high))
        steps = []
        if any(s != 1.0 for s in params.scale):
            steps.append(("Div", [scale], "unscaled"))
        steps.append(("Round", [], "rounded"))
        if any(params.zero_point):
            steps.append(("Add", [zero_point], "moved"))
        bounds = [self.constant("lowest_code", np.array(low)), self.constant("highest_code", np.array(high))]
        steps.append(("Clip", bounds, "clipped"))
        nodes: list[ir.Node] = []
        for op_type, others, suffix in steps:
            made = new_value(self._free(f"{name}_{suffix}"), ir.DataType.FLOAT, real)
            nodes.append(self._node(op_type, [real, *others], [made], None))
            real = made
        codes = new_value(self._free(f"{name}_quantized"), integer_type(params), real)
        return [*nodes, self._node("Cast", [real], [codes], {"to": int(integer_type(params))})]

    def _dequantize_nodes(
        self, codes: ir.Value, name: str, output: str, params: QuantParams
    ) -> list[ir.Node]:
        scale, zero_point = self._spread(name, params, codes)
        real = new_value(self._free(f"{name}_float"), ir.DataType.FLOAT, codes)
        nodes = [self._node("Cast", [codes], [real], {"to": int(ir.DataType.FLOAT)})]
        if any(params.zero_point):
            centred = new_value(self._free(f"{name}_centred"), ir.DataType.FLOAT, codes)
            nodes.append(self._node("Sub", [real, zero_point], [centred], None))
            real = centred
        result = new_value(output, ir.DataType.FLOAT, codes)
        return [*nodes, self._node("Mul", [real, scale], [result], None)]

    def _quantize_dynamically(self, real: ir.Value, name: str, before: ir.Node | None) -> Dynamic:
        zero = self.constant("zero", np.zeros((), np.float32))
        codes = self.constant("code_count", np.array(UINT8.high, np.float32))

        def add(op_type: str, inputs: list[ir.Value], suffix: str, shape: ir.Shape | None) -> ir.Value:
            made = ir.Value(name=f"{name}_{suffix}", type=ir.TensorType(ir.DataType.FLOAT), shape=shape)
            return self.add(op_type, inputs, made, before, {"keepdims": 0} if "Reduce" in op_type else None)

        scalar = ir.Shape(())
        least = add("Min", [add("ReduceMin", [real], "least", scalar), zero], "low", scalar)
        most = add("Max", [add("ReduceMax", [real], "most", scalar), zero], "high", scalar)
        step = add("Div", [add("Sub", [most, least], "span", scalar), codes], "step", scalar)
        # Data that is all 0 has no span; any scale above 0 will do for it.
        scale = add("Max", [step, self.constant("least_scale", SMALLEST)], "scale", scalar)
        start = add("Div", [add("Sub", [zero, least], "below", scalar), scale], "start", scalar)
        zero_point = add("Round", [add("Clip", [start, zero, codes], "held", scalar)], "zero_point", scalar)
        steps = add("Round", [add("Div", [real, scale], "unscaled", real.shape)], "rounded", real.shape)
        moved = add("Add", [steps, zero_point], "moved", real.shape)
        return Dynamic(add("Clip", [moved, zero, codes], "quantized", real.shape), scale, zero_point)

    def _spread(self, name: str, params: QuantParams, value: ir.Value) -> tuple[ir.Value, ir.Value]:
        """Return scale and zero point as float32, in shapes that stand beside a tensor."""
        if params.block_size is not None:
            raise PlanError(
                f"tensor '{name}': form primitives cannot write codes in blocks; use a scale for each "
                "channel, or form qdq"
            )
        shape: tuple[int, ...] = ()
        if params.axis is not None:
            if value.shape is None:
                raise PlanError(
                    f"tensor '{name}': its rank is not known, so form primitives cannot write a scale for "
                    "each channel; use form qdq"
                )
            shape = tuple(len(params.scale) if i == params.axis else 1 for i in range(len(value.shape)))
        zero_point = np.array(params.zero_point, np.float32).reshape(shape)
        return (
            self.constant(f"{name}_scale", params.scale_array.reshape(shape)),
            self.constant(f"{name}_zero_point", zero_point),
        )


def _integer(task: Task) -> bool:
    return static_product(task, float_sums) if fits(task) else direct(task)


WRITERS: Writers = {
    **INTEGER_WRITERS,
    (Kind.QUANTIZED, ""): _integer,
    (Kind.DYNAMIC, ""): partial(dynamic_product, sums=float_sums),
}
"""Every way to write a node, by kind and implementation."""


def lower_primitives(model: ir.Model, plan: QuantPlan) -> Lowered:
    """Return the model that `plan` describes in form primitives; see `lower`.

    Raises:
        PlanError: the plan has no entry for a node, or something in it that cannot be written.
    """
    return write(model, plan, "primitives", WRITERS, PrimitiveEmitter)
