"""Integers at the border of a written model: inputs and outputs (setting `io`), caches (`kv_cache`)."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from ..model.editing import FreeNames, add_initializer, discard, free_name, value_names
from ..numerics.affine import QuantParams
from ..operators.caches import PLACES
from ..operators.graph import index
from ..plan.plan import QuantPlan
from .emitter import integer_type, new_value

CACHE_BITS = "kv_cache_bit_width"
"""Attribute of GroupQueryAttention."""


def write_caches(model: ir.Model, plan: QuantPlan) -> None:
    """Let the attentions of a written model that have parameters for it keep their cache in int8, in place.

    The model then takes and returns int8 in the inputs and outputs that hold the cache. Their scales are
    inputs `k_scale` and `v_scale` of each node.

    Args:
        model: as a form has written it.
        plan: its plan.
    """
    if not plan.int8_caches:
        return
    taken = value_names(model)
    for node in index(model).nodes:
        entry = plan.nodes.get(node.name)
        if entry is None or not entry.keeps_int8_cache:
            continue
        for place in PLACES:
            params, made = entry.inputs.get(place.past), node.ir_node
            if params is None:
                continue
            past, present = made.inputs[place.past], made.outputs[place.present]
            assert past is not None
            name = free_name(f"{present.name}_scale", taken)
            scale = add_initializer(model.graph, name, np.array([params.tensor_scale], np.float32))
            made.resize_inputs(max(len(made.inputs), place.scale + 1))
            made.replace_input_with(place.scale, scale)
            made.attributes[place.type_attribute] = ir.AttrString(place.type_attribute, "PER_TENSOR")
            made.attributes[CACHE_BITS] = ir.AttrInt64(CACHE_BITS, params.qtype.bits)
            past.type = present.type = ir.TensorType(ir.DataType.INT8)


def write_borders(model: ir.Model, plan: QuantPlan) -> None:
    """Let a written model take and give the integers of the plan's borders, in place; names stay.

    An input's QuantizeLinear and an output's DequantizeLinear with the parameters of the border go: the
    integers inside are those outside. Elsewhere DequantizeLinear follows an input and QuantizeLinear an
    output. Either way the model computes what the one with a float border does between the two.
    """
    taken = FreeNames(value_names(model))
    for value in list(model.graph.inputs):
        params = plan.borders.get(str(value.name))
        if params is not None:
            _take_integers(model.graph, value, params, taken)
    for place, value in enumerate(model.graph.outputs):
        params = plan.borders.get(str(value.name))
        if params is not None:
            _give_integers(model.graph, place, params, taken)


def _take_integers(graph: ir.Graph, value: ir.Value, params: QuantParams, taken: FreeNames) -> None:
    quantized = [
        node
        for node, at in value.uses()
        if at == 0
        and node.op_type == "QuantizeLinear"
        and _has(node, params)
        and not node.outputs[0].is_graph_output()
    ]
    left = [use for use in value.uses() if use.node not in quantized]
    value.type = ir.TensorType(integer_type(params))
    for node in quantized:
        node.outputs[0].replace_all_uses_with(value)
        discard(node)
    if not left:
        return
    made = new_value(taken.take(f"{value.name}_dequantized"), ir.DataType.FLOAT, value)
    inputs = [value, *_constants(graph, str(value.name), params, taken)]
    node = ir.Node("", "DequantizeLinear", inputs, outputs=[made], name=made.name)
    for use in left:
        use.node.replace_input_with(use.idx, made)
    graph.insert_before(graph[0], node)


def _give_integers(graph: ir.Graph, place: int, params: QuantParams, taken: FreeNames) -> None:
    value = graph.outputs[place]
    name, node = str(value.name), value.producer()
    if node is not None and node.op_type == "DequantizeLinear" and _has(node, params):
        inner = node.inputs[0]
        assert inner is not None
        if inner.producer() is not None and not inner.is_graph_output():
            value.name, inner.name = taken.take(f"{name}_dequantized"), name
            inner.type, inner.shape = ir.TensorType(integer_type(params)), value.shape
            graph.outputs[place] = inner
            if not value.uses():
                discard(node)
            return
    if value.is_graph_input():
        return
    value.name = taken.take(f"{name}_float")
    made = new_value(name, integer_type(params), value)
    inputs = [value, *_constants(graph, name, params, taken)]
    graph.append(ir.Node("", "QuantizeLinear", inputs, outputs=[made], name=taken.take(name)))
    graph.outputs[place] = made


def _constants(
    graph: ir.Graph, name: str, params: QuantParams, taken: FreeNames
) -> tuple[ir.Value, ir.Value]:
    """Return new initialisers of the scale and the zero point of a border."""
    scale = np.array(params.tensor_scale, np.float32)
    point = np.array(params.tensor_zero_point, integer_type(params).numpy())
    return (
        add_initializer(graph, taken.take(f"{name}_border_scale"), scale),
        add_initializer(graph, taken.take(f"{name}_border_zero_point"), point),
    )


def _has(node: ir.Node, params: QuantParams) -> bool:
    """Whether a conversion of the main graph has these parameters and this type, as constants."""
    scale, point = (value.const_value if value is not None else None for value in node.inputs[1:3])
    if node.domain not in ("", "ai.onnx", "com.microsoft") or len(node.inputs) < 3:
        return False
    if scale is None or point is None or point.dtype is not integer_type(params):
        return False
    numbers = scale.numpy().reshape(-1), point.numpy().reshape(-1)
    return (
        numbers[0].size == 1
        and numbers[0][0] == np.float32(params.tensor_scale)
        and int(numbers[1][0]) == params.tensor_zero_point
    )
