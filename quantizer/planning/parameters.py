"""The parameters of every tensor of a plan: activations by their ranges, constants by their values. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from ...profiles.base.errors import QprofError
from ..noise.mask_fillers import saturating_low, without_fillers
from ..numerics.affine import TYPES, QuantParams, unsigned_equivalent
from ..numerics.schemas import SCHEMAS, Schema, bias_params, channel_params, choose_params, weight_for_bias
from ..operators.facts import Arithmetic
from ..operators.graph import Node
from ..operators.saturating import slope_params
from ..operators.table import Rule
from ..plan.plan import Kind
from ..plan.reasons import FloatReason, ReasonCode, UnfitNodesError, because
from .candidates import Choice, wants_symmetric_inputs
from .facts import PlanningFacts, type_16bit
from .shared_scales import ScaleGroup

NodeParams = Mapping[str, Mapping[int, QuantParams]]
"""Node name -> index of an input -> its parameters."""


@dataclass(frozen=True)
class Parameters:
    """The parameters that a plan gives to tensors.

    Attributes:
        activations: of every activation that a quantized node reads or makes, in graph order.
        tensors: of every tensor that is stored quantized: activations in graph order, then constants.
        inputs: where a node reads other parameters than its tensor is stored in.
        retyped: how many tensors are stored unsigned for the target's sake.
    """

    activations: Mapping[str, QuantParams]
    tensors: Mapping[str, QuantParams]
    inputs: NodeParams
    retyped: int


def choose_parameters(
    facts: PlanningFacts, choices: Mapping[str, Choice], groups: Iterable[ScaleGroup], hybrids: NodeParams
) -> Parameters:
    """Return the parameters of all tensors.

    Args:
        facts: the model.
        choices: what becomes of its nodes.
        groups: the activations that are quantized, with their ranges.
        hybrids: parameters of the constants of dynamic and weight-only nodes.

    Raises:
        UnfitNodesError: constants of nodes have no parameters, such as a bias that does not fit.
    """
    chosen = _activation_params(facts, choices, groups)
    activations = {name: _stored(facts, params) for name, params in chosen.items()}
    left_float = _left_float(facts, choices)
    tensors = {name: params for name, params in activations.items() if name not in left_float}
    signed = {name for name in tensors if chosen[name].qtype.signed}
    inputs: dict[str, dict[int, QuantParams]] = {}
    weights = _all_weight_params(facts, choices, activations)
    for node in facts.graph.nodes:
        name, choice = node.name, choices[node.name]
        own = hybrids[name] if name in hybrids else weights[name]
        operands = _operand_params(facts, node, choice, activations)
        signed |= {node.input(index) for index, params in operands.items() if params.qtype.signed}
        wanted = {**{i: _stored(facts, params) for i, params in operands.items()}, **own}
        inputs[name] = {}
        for index, params in wanted.items():
            if tensors.setdefault(node.input(index), params) != params:
                inputs[name][index] = params
        for index, read in enumerate(node.inputs if choice.quantized else ()):
            if read in left_float:
                inputs[name][index] = activations[read]
    retyped = len(signed & tensors.keys()) if facts.target.unsigned_activations else 0
    return Parameters(activations, tensors, inputs, retyped)


def _stored(facts: PlanningFacts, params: QuantParams) -> QuantParams:
    """Return what stands for parameters in the target: unsigned ones of the same float values where it
    wants."""
    return unsigned_equivalent(params) if facts.target.unsigned_activations else params


def _left_float(facts: PlanningFacts, choices: Mapping[str, Choice]) -> frozenset[str]:
    """Return the results that kernels leave in float and whose quantized readers convert them themselves."""
    if facts.config.inter_layer != "float":
        return frozenset()
    return frozenset(
        name
        for node in facts.graph.nodes
        if choices[node.name].returns_float
        for name in node.results
        if not any(choices[r.name].kind is Kind.PASS_THROUGH for r, _ in facts.graph.consumers(name))
    )


def _activation_params(
    facts: PlanningFacts, choices: Mapping[str, Choice], groups: Iterable[ScaleGroup]
) -> dict[str, QuantParams]:
    """Return the parameters of every activation that is quantized, as the schema has them, in graph order."""
    qtype = TYPES[facts.config.activation_type]
    groups, symmetric = list(groups), _symmetric(facts, choices)
    in_16_bits = {name for group in groups if _has_16_bits(facts, group) for name in group.members}
    params: dict[str, QuantParams] = {}
    for group in groups:
        if group.fixed_by is not None and not in_16_bits & _activations(facts, group.fixed_by, choices):
            own = QuantParams((TANH_SCALE,), (0 if qtype.signed else 128,), qtype)
        else:
            wide = _has_16_bits(facts, group)
            schema = _schema(facts, is_symmetric=not symmetric.isdisjoint(group.members))
            own = choose_params(
                group.range.low, group.range.high, schema, type_16bit(facts.config) if wide else qtype
            )
        params.update(dict.fromkeys(group.members, own))
    return {name: params[name] for name in facts.graph.values if name in params}


def _symmetric(facts: PlanningFacts, choices: Mapping[str, Choice]) -> frozenset[str]:
    """Return the activations that a quantized node reads whose kernel wants zero point 0."""
    return frozenset(
        name
        for node in facts.graph.nodes
        if (choice := choices[node.name]).quantized
        and choice.rule is not None
        and wants_symmetric_inputs(node, choice.rule, facts)
        for name in node.activations
    )


def _schema(facts: PlanningFacts, *, is_symmetric: bool) -> Schema:
    """Return the schema of an activation: with zero point 0 where a reader wants that."""
    own = SCHEMAS[facts.config.schema]
    if not is_symmetric:
        return own
    zero_point_0 = "symmetric" if TYPES[facts.config.activation_type].signed else "symmetric-uint8"
    return replace(SCHEMAS[zero_point_0], power_of_two=own.power_of_two)


TANH_SCALE = 1.0 / 128.0
"""The scale in which the sigmoid look-up table gives tanh, whatever was profiled."""


def _has_16_bits(facts: PlanningFacts, group: ScaleGroup) -> bool:
    """Whether one activation of a group has 16 bits where the others have 8, so that all get them."""
    return any(facts.has_16_bits(name) for name in group.members)


def _activations(facts: PlanningFacts, node: Node, choices: Mapping[str, Choice]) -> set[str]:
    rule = choices[node.name].rule
    return set() if rule is None else {*node.activations, *node.results}


def touches_16_bits(
    facts: PlanningFacts, node: Node, choice: Choice, tensors: Mapping[str, QuantParams]
) -> bool:
    """Whether a quantized node reads or makes activations with more than 8 bits."""
    if not choice.quantized or choice.rule is None:
        return False
    names = [*node.activations, *node.results]
    return any(tensors[name].qtype.bits > 8 for name in names if name in tensors)


def _operand_params(
    facts: PlanningFacts, node: Node, choice: Choice, activations: Mapping[str, QuantParams]
) -> dict[int, QuantParams]:
    """Return the parameters of constants in the place of activations: of the type of those beside them."""
    if choice.kind is not Kind.QUANTIZED or choice.rule is None:
        return {}
    config, found = facts.config, {}
    wide = touches_16_bits(facts, node, choice, activations)
    qtype = type_16bit(config) if wide else TYPES[config.activation_type]
    for index in choice.rule.activations(node):
        constant = node.constant(index)
        if constant is None:
            continue
        if facts.target.implementations.get(node.op_type) == "saturating" and not wide:  # slopes of PRelu
            powers = SCHEMAS[config.schema].power_of_two
            found[index] = slope_params(constant, qtype, power_of_two=powers)
        else:
            low, high = float(constant.min()), float(constant.max())
            saturated = saturating_low(facts.graph, node.input(index), facts.profile.tensors)
            if saturated is not None:  # the fillers of a mask
                low = min(saturated, float(constant[without_fillers(constant)].min()))
            found[index] = choose_params(low, high, SCHEMAS[config.schema], qtype)
    return found


def _all_weight_params(
    facts: PlanningFacts, choices: Mapping[str, Choice], activations: Mapping[str, QuantParams]
) -> NodeParams:
    """Return the parameters of the constant weights and biases of quantized nodes, by node name."""
    found: dict[str, Mapping[int, QuantParams]] = {}
    unfit: dict[str, FloatReason] = {}
    for node in facts.graph.nodes:
        name = node.name
        try:
            found[name] = _weight_params(facts, node, choices[name], activations)
        except QprofError as error:
            unfit[name] = because(ReasonCode.NO_PARAMETERS, text=str(error))
        if text := _scales_far_apart(node, choices[name], activations):
            unfit[name] = because(ReasonCode.NO_PARAMETERS, text=text)
    if unfit:
        name, reason = next(iter(unfit.items()))
        raise UnfitNodesError(f"node '{name}': {reason}", unfit)
    return found


LARGEST_RATIO = 2.0**15
"""Scale of a term over that of the sum. QLinearAdd of onnxruntime 1.31 adds zero point times ratio to both in
float32: 128 * 2 ** 15 * 2 ** -24 is a quarter of a step, and beyond a step nothing is left of the sum."""


def _scales_far_apart(node: Node, choice: Choice, activations: Mapping[str, QuantParams]) -> str:
    """Return why a sum of tensors of such scales has no integer form, "" where it has one."""
    result = activations.get(node.outputs[0]) if choice.kind is Kind.QUANTIZED else None
    if node.facts.arithmetic is not Arithmetic.SUM or len(node.inputs) != 2 or result is None:
        return ""
    for index in range(2):
        term = activations.get(node.input(index))
        ratio = 0.0 if term is None else float(term.scale.max()) / float(result.scale.min())
        if ratio > LARGEST_RATIO:
            return f"the scale of '{node.input(index)}' is {ratio:.2g} times that of the sum"
    return ""


def _weight_params(
    facts: PlanningFacts, node: Node, choice: Choice, activations: Mapping[str, QuantParams]
) -> dict[int, QuantParams]:
    """Return the parameters of the constant weight and bias of a quantized node."""
    rule = choice.rule
    if not choice.quantized or rule is None or rule.weight is None:
        return {}
    if facts.graph.constant(node.input(rule.weight.index)) is None:
        return {}
    found = _weight_and_bias(facts, node, rule, activations)
    if rule.bias is not None and facts.target.bias == "float":
        found.pop(rule.bias, None)
    return found


def _weight_and_bias(
    facts: PlanningFacts, node: Node, rule: Rule, activations: Mapping[str, QuantParams]
) -> dict[int, QuantParams]:
    assert rule.weight is not None
    graph, config = facts.graph, facts.config
    constant = graph.constant(node.input(rule.weight.index))
    assert constant is not None
    weight = constant.astype(np.float32, copy=False)
    one_scale = config.granularity != "per-channel" or rule.weight.is_stack(weight.ndim)
    axis = None if one_scale else rule.weight.axis(node, weight.ndim)
    params = channel_params(weight, axis, SCHEMAS[config.weight_schema], TYPES[config.weight_type])
    bias = None
    if rule.bias is not None and rule.bias < len(node.inputs):
        bias = graph.constant(node.input(rule.bias))
    if bias is None or rule.bias is None:
        return {rule.weight.index: params}
    data = activations[node.input(0)]
    params = weight_for_bias(data, params, bias.astype(np.float32, copy=False), SCHEMAS[config.weight_schema])
    return {rule.weight.index: params, rule.bias: bias_params(data, params)}
