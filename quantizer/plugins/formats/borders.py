"""Integers that a model takes and gives in place of float (setting `io`), but for caches."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import onnx_ir as ir

from ....profiles.base.errors import ConfigError
from ....profiles.instrumentation.subgraphs import STANDARD_DOMAINS, value_names
from ...lowering.emitter import integer_type, new_value
from ...lowering.lowered import LoweredModel
from ...model.editing import FreeNames, add_initializer, discard
from ...numerics.affine import TYPES, QuantParams
from ...numerics.schemas import SCHEMAS, choose_params
from ...operators.table import MICROSOFT
from ...plan.formats import Format, Part
from ...plan.plan import QuantPlan
from ...planning.facts import PlanningFacts


def with_integer_borders(facts: PlanningFacts, plan: QuantPlan) -> QuantPlan:
    """Return a plan with the parameters of the inputs and outputs that are integers, but for int8 caches.

    8-bit tensors that are quantized inside keep their scale: uint8 and int8 of the same scale represent the
    same numbers, 128 apart. Others get the range in their profile.
    """
    config, borders = facts.config, dict(plan.borders)
    qtype = TYPES[config.io]
    schema = SCHEMAS["symmetric" if facts.target.zero_points == "zero" else "asymmetric"]
    caches = {
        name
        for node in facts.graph.nodes
        if (entry := plan.nodes[node.name]).keeps_int8_cache
        for name in (*map(node.input, entry.inputs), *node.outputs[1:])
    }
    for name in float_borders(facts.prepared.model, config.io):
        if name in plan.borders or name in caches:
            continue
        inside = plan.tensors.get(name)
        is_like = inside is not None and not inside.qtype.is_float and inside.qtype.bits == qtype.bits
        if inside is not None and is_like and inside.axis is None:
            moved = inside.zero_point + (qtype.low - inside.qtype.low)
            borders[name] = QuantParams(inside.scale, moved, qtype)
        elif name in facts.profile:
            seen = facts.activations.calibrated(name, qtype)
            borders[name] = choose_params(seen.low, seen.high, schema, qtype)
        else:
            raise ConfigError(
                f"io {config.io}: no profile has '{name}', so its scale is not known; give a profile or "
                "samples (--data)"
            )
    return replace(plan, borders=borders)


def float_borders(model: ir.Model, setting: str) -> tuple[str, ...]:
    """Return the float32 inputs and outputs; ConfigError without any."""
    values = (*model.graph.inputs, *model.graph.outputs)
    names = tuple(str(value.name) for value in values if value.dtype is ir.DataType.FLOAT)
    if not names:
        raise ConfigError(f"io {setting}: the model has no input and no output in float32; use io float")
    return names


def write_borders(lowered: LoweredModel, plan: QuantPlan) -> LoweredModel:
    """Give a written model the integers of the plan's borders as inputs and outputs, in place; names stay.

    An input's QuantizeLinear and an output's DequantizeLinear with the parameters of the border go: the
    integers inside are those outside. Elsewhere DequantizeLinear (`_float_of_border`) follows an input and
    QuantizeLinear an output. Either way the model computes the same between them as one with a float border.
    """
    graph, taken = lowered.model.graph, FreeNames(value_names(lowered.model))
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
    return lowered


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


FORMAT = Format(
    check=lambda prepared, recipe: float_borders(prepared.model, recipe.config.io),
    part=lambda facts, *_: Part(finish=partial(with_integer_borders, facts)),
    write=write_borders,
)
