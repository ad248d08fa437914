"""The parameters of every tensor of a plan: activations by their ranges, constants by their values. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import numpy as np
import onnx_ir as ir

from ..model.graph import Graph, input_name
from ..numerics.affine import TYPES, QuantParams, QuantType
from ..numerics.schemas import SCHEMAS, bias_params, channel_params, choose_params, weight_for_bias
from ..operators.operands import activation_names, outputs_of
from ..operators.table import Rule
from ..plan.plan import Group, Kind
from ..targets.config import QuantConfig
from ..targets.target import Recipe
from .candidates import Choice
from .mixed_precision import wide_type


def activation_params(
    graph: Graph,
    choices: Mapping[str, Choice],
    groups: Iterable[Group],
    wide: Collection[str],
    config: QuantConfig,
) -> dict[str, QuantParams]:
    """Return the parameters of every activation that is in codes, by name in graph order."""
    schema, qtype = SCHEMAS[config.schema], TYPES[config.activation_type]
    params: dict[str, QuantParams] = {}
    for group in groups:
        is_wide = any(name in wide for name in group.members)
        chosen = choose_params(*group.range, schema, wide_type(config) if is_wide else qtype)
        params.update(dict.fromkeys(group.members, chosen))
    for node in graph.nodes:  # the sigmoid table gives tanh in 128ths, whatever was profiled
        spelled = choices[node.name or ""].implementation == "sigmoid"
        if spelled and not touches_wide(node, choices[node.name or ""], graph, params):
            zero_point = 0 if qtype.signed else 128
            fixed = QuantParams((1.0 / 128.0,), (zero_point,), qtype)
            params = _spread_params(graph, choices, params, node.outputs[0].name or "", fixed)
    return {name: params[name] for name in graph.values if name in params}


def _spread_params(
    graph: Graph, choices: Mapping[str, Choice], params: dict[str, QuantParams], name: str, fixed: QuantParams
) -> dict[str, QuantParams]:
    """Give `fixed` to a tensor and to all that is merely moved from it."""
    params = {**params, name: fixed}
    for reader, _ in graph.consumers(name):
        if choices[reader.name or ""].kind is Kind.PASS_THROUGH:
            for value in reader.outputs:
                if value.name in params:
                    params = _spread_params(graph, choices, params, value.name, fixed)
    return params


def constant_params(
    node: ir.Node, choice: Choice, graph: Graph, activations: Mapping[str, QuantParams], recipe: Recipe
) -> dict[int, QuantParams]:
    """Return the parameters of the constant inputs of a quantized node: weight, bias, constant operands."""
    rule, config = choice.rule, recipe.config
    if not choice.quantized or rule is None:
        return {}
    found: dict[int, QuantParams] = {}
    for index in rule.activations(node):
        constant = graph.constant(input_name(node, index))
        if constant is not None and choice.kind is Kind.QUANTIZED:
            found[index] = choose_params(
                float(constant.min()),
                float(constant.max()),
                SCHEMAS[config.schema],
                _operand_type(node, choice, graph, activations, config),
            )
    if rule.weight is not None:
        weight = graph.constant(input_name(node, rule.weight.index))
        if weight is not None:
            found |= _weight_and_bias(node, rule, graph, activations, config)
    if rule.bias is not None and recipe.target.bias == "float":
        found.pop(rule.bias, None)
    return found


def _operand_type(
    node: ir.Node, choice: Choice, graph: Graph, activations: Mapping[str, QuantParams], config: QuantConfig
) -> QuantType:
    """Return the type of a constant operand: that of the activations beside it."""
    return (
        wide_type(config) if touches_wide(node, choice, graph, activations) else TYPES[config.activation_type]
    )


def _weight_and_bias(
    node: ir.Node, rule: Rule, graph: Graph, activations: Mapping[str, QuantParams], config: QuantConfig
) -> dict[int, QuantParams]:
    assert rule.weight is not None
    constant = graph.constant(input_name(node, rule.weight.index))
    assert constant is not None
    weight = constant.astype(np.float32, copy=False)
    schema, qtype = SCHEMAS[config.weight_schema], TYPES[config.weight_type]
    axis = rule.weight.axis(node, weight.ndim) if config.granularity == "per-channel" else None
    params = channel_params(weight, axis, schema, qtype)
    bias = None
    if rule.bias is not None and rule.bias < len(node.inputs):
        bias = graph.constant(input_name(node, rule.bias))
    if bias is None or rule.bias is None:
        return {rule.weight.index: params}
    data = activations[input_name(node, 0)]
    params = weight_for_bias(data, params, bias.astype(np.float32, copy=False))
    return {rule.weight.index: params, rule.bias: bias_params(data, params)}


def touches_wide(node: ir.Node, choice: Choice, graph: Graph, tensors: Mapping[str, QuantParams]) -> bool:
    """Whether a node reads or makes activations with more than 8 bits."""
    if not choice.quantized or choice.rule is None:
        return False
    names = [*activation_names(node, choice.rule, graph), *outputs_of(node)]
    return any(tensors[name].qtype.bits > 8 for name in names if name in tensors)
