"""Integers at the border of a written model: inputs and outputs (setting `io`); caches are in `caches`."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from ...profiles.instrumentation.subgraphs import STANDARD_DOMAINS, value_names
from ..model.editing import FreeNames, add_initializer, discard
from ..numerics.affine import QuantParams
from ..operators.table import MICROSOFT
from ..plan.plan import QuantPlan
from .emitter import integer_type, new_value


def write_borders(model: ir.Model, plan: QuantPlan) -> None:
    """Give a written model the integers of the plan's borders as inputs and outputs, in place; names stay.

    An input's QuantizeLinear and an output's DequantizeLinear with the parameters of the border go: the
    integers inside are those outside. Elsewhere DequantizeLinear (`_float_of_border`) follows an input and
    QuantizeLinear an output. Either way the model computes the same between them as one with a float border.
    """
    graph, taken = model.graph, FreeNames(value_names(model))
    for value in list(graph.inputs):
        params = plan.borders.get(str(value.name))
        if params is None or value.dtype is not ir.DataType.FLOAT:  # a cache, which is written
            continue
        conversions = [
            use.node
            for use in value.uses()
            if use.idx == 0
            and use.node.op_type == "QuantizeLinear"
            and _has_params(use.node, params)
            and not use.node.outputs[0].is_graph_output()
        ]
        float_uses = [use for use in value.uses() if use.node not in conversions]
        value.type = ir.TensorType(integer_type(params))
        for conversion in conversions:
            conversion.outputs[0].replace_all_uses_with(value)
            discard(conversion)
        if float_uses:
            moves = any(use.node.op_type != "QuantizeLinear" for use in float_uses)
            nodes = _float_of_border(graph, value, params, taken, moves=moves)
            for use in float_uses:
                use.node.replace_input_with(use.idx, nodes[-1].outputs[0])
            graph.insert_before(graph[0], nodes)

    for place, value in enumerate(graph.outputs):
        name, maker = str(value.name), value.producer()
        params = plan.borders.get(name)
        if params is None or value.is_graph_input() or value.dtype is integer_type(params):
            continue
        is_conversion = maker is not None and maker.op_type == "DequantizeLinear"
        integers = maker.inputs[0] if maker is not None and is_conversion else None
        if (
            maker is not None
            and integers is not None
            and _has_params(maker, params)
            and integers.producer() is not None
            and not integers.is_graph_output()
        ):
            value.name, integers.name = taken.take(f"{name}_dequantized"), name
            integers.type, integers.shape = ir.TensorType(integer_type(params)), value.shape
            graph.outputs[place] = integers
            if not value.uses():
                discard(maker)
        else:
            value.name = taken.take(f"{name}_float")
            integers = new_value(name, integer_type(params), value)
            inputs = [value, *_params_of_border(graph, name, params, taken)]
            graph.append(ir.Node("", "QuantizeLinear", inputs, outputs=[integers], name=taken.take(name)))
            graph.outputs[place] = integers


OUTPUT_TYPE_OPSET = 21
"""The first with `output_dtype` in QuantizeLinear."""


def _float_of_border(
    graph: ir.Graph, value: ir.Value, params: QuantParams, taken: FreeNames, *, moves: bool
) -> list[ir.Node]:
    """Return new nodes; the last gives the float values of an integer input.

    Usually that is DequantizeLinear. onnxruntime moves it over a Reshape or Transpose, also over one that it
    makes of MatMul and Add itself. From opset 21 on the QuantizeLinear that it writes there has two types for
    int8, and the model does not load (1.32). Then Cast, Sub and Mul are written, which give the same floats,
    unless only QuantizeLinear reads them, over which DequantizeLinear is not moved (`moves`).
    """
    name = str(value.name)
    floats = new_value(taken.take(f"{name}_dequantized"), ir.DataType.FLOAT, value)
    scale, point = _params_of_border(graph, name, params, taken)
    is_int8 = integer_type(params) is ir.DataType.INT8
    if not (moves and is_int8) or graph.opset_imports.get("", 0) < OUTPUT_TYPE_OPSET:
        return [ir.Node("", "DequantizeLinear", [value, scale, point], outputs=[floats], name=floats.name)]
    cast, centred = (
        new_value(taken.take(f"{name}_{step}"), ir.DataType.FLOAT, value) for step in ("cast", "centred")
    )
    assert point.const_value is not None
    point.const_value = ir.tensor(point.const_value.numpy().astype(np.float32), name=point.name)
    point.type = ir.TensorType(ir.DataType.FLOAT)
    to_float = ir.AttrInt64("to", int(ir.DataType.FLOAT))
    return [
        ir.Node("", "Cast", [value], [to_float], outputs=[cast], name=cast.name),
        ir.Node("", "Sub", [cast, point], outputs=[centred], name=centred.name),
        ir.Node("", "Mul", [centred, scale], outputs=[floats], name=floats.name),
    ]


def _params_of_border(
    graph: ir.Graph, name: str, params: QuantParams, taken: FreeNames
) -> tuple[ir.Value, ir.Value]:
    """Return new initialisers of the scale and the zero point of a border."""
    scale = np.array(params.tensor_scale, np.float32)
    point = np.array(params.tensor_zero_point, integer_type(params).numpy())
    return (
        add_initializer(graph, taken.take(f"{name}_border_scale"), scale),
        add_initializer(graph, taken.take(f"{name}_border_zero_point"), point),
    )


def _has_params(node: ir.Node, params: QuantParams) -> bool:
    """Whether a conversion of the main graph has these parameters and this type, as constants."""
    if node.domain not in (*STANDARD_DOMAINS, MICROSOFT) or len(node.inputs) < 3:
        return False
    scale, point = (None if value is None else value.const_value for value in node.inputs[1:3])
    if scale is None or point is None or point.dtype is not integer_type(params):
        return False
    scales, points = scale.numpy().reshape(-1), point.numpy().reshape(-1)
    return (
        scales.size == 1
        and scales[0] == np.float32(params.tensor_scale)
        and int(points[0]) == params.tensor_zero_point
    )
