"""The parameters of every tensor of a plan: activations by their ranges, constants by their values. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from ...profiles.base.errors import QprofError
from ..noise.mask_fillers import saturating_low, without_fillers
from ..numerics.affine import TYPES, QuantParams, unsigned_equivalent
from ..numerics.schemas import SCHEMAS, choose_params
from ..operators.conditions import attribute_value
from ..operators.facts import Arithmetic
from ..operators.graph import Graph, Node
from ..operators.saturating import slope_params
from ..operators.table import is_clip
from ..plan.plan import Implementation, Kind, QuantPlan
from ..plan.reasons import FloatReason, ReasonCode, UnfitNodesError, because
from .facts import PlanningFacts, params_with_bias
from .selection import Choice
from .shared_scales import ScaleGroup

InputParams = dict[int, QuantParams]  # index of an input -> its parameters
TANH_SCALE = 1.0 / 128.0  # the scale in which the sigmoid look-up table gives tanh, whatever was profiled

MAX_SCALE_RATIO = 2.0**15
"""Scale of a term over that of the sum. QLinearAdd of onnxruntime 1.31 adds zero point times ratio to both in
float32: 128 * 2 ** 15 * 2 ** -24 is a quarter of a step, and beyond a step nothing is left of the sum."""


@dataclass(frozen=True)
class Parameters:
    """The parameters that a plan gives to tensors."""

    activations: Mapping[str, QuantParams]  # that a quantized node reads or makes, in graph order
    tensors: Mapping[str, QuantParams]  # stored quantized: activations in graph order, then constants
    inputs: Mapping[str, InputParams]  # by node, where it reads others than its tensor is stored in

    def touches_16_bits(self, node: Node, choice: Choice) -> bool:
        """Whether a quantized node reads or makes activations with more than 8 bits."""
        names = (*node.activations, *node.results) if choice.quantized else ()
        return any(self.activations[name].qtype.bits > 8 for name in names if name in self.activations)


def choose_parameters(
    facts: PlanningFacts, choices: Mapping[str, Choice], groups: Sequence[ScaleGroup]
) -> Parameters:
    """Return the parameters of all tensors."""
    graph = facts.graph
    by_schema = _activation_params(facts, choices, groups)
    activations = {name: _stored(facts, params) for name, params in by_schema.items()}
    tensors = dict(activations)
    weights = _all_weight_params(facts, choices, activations)
    inputs: dict[str, InputParams] = {}
    for node in graph.nodes:
        name, choice = node.name, choices[node.name]
        operands = _operand_params(facts, node, choice)
        constants = {index: _stored(facts, params) for index, params in operands.items()}
        constants |= choice.weights or weights[name]
        inputs[name] = {}
        for index, params in constants.items():
            if tensors.setdefault(node.input(index), params) != params:
                inputs[name][index] = params
    return Parameters(activations, tensors, inputs)


def _stored(facts: PlanningFacts, params: QuantParams) -> QuantParams:
    """Return the parameters as the target stores them: perhaps unsigned ones of the same float values."""
    return unsigned_equivalent(params) if facts.target.unsigned_activations else params


def _activation_params(
    facts: PlanningFacts, choices: Mapping[str, Choice], groups: Sequence[ScaleGroup]
) -> dict[str, QuantParams]:
    """Return the parameters of every activation that is quantized, as the schema has them, in graph order."""
    qtype, own_schema = TYPES[facts.config.activation_type], SCHEMAS[facts.config.schema]
    symmetric = {
        name
        for node in facts.graph.nodes
        if choices[node.name].quantized and node.op_type in facts.target.symmetric_inputs
        for name in node.activations
    } | _misread_joins(facts, choices, "zero")
    unsigned = _misread_joins(facts, choices, "unsigned")
    zero_point_0 = replace(
        SCHEMAS["symmetric" if qtype.signed else "symmetric-uint8"], power_of_two=own_schema.power_of_two
    )
    params: dict[str, QuantParams] = {}
    for group in groups:
        if group.fixed_by is not None:
            own = QuantParams((TANH_SCALE,), (0 if qtype.signed else 128,), qtype)
        else:
            schema = own_schema if symmetric.isdisjoint(group.members) else zero_point_0
            own = choose_params(group.range.low, group.range.high, schema, qtype)
            own = own if unsigned.isdisjoint(group.members) else unsigned_equivalent(own)
        params.update(dict.fromkeys(group.members, own))
    return {name: params[name] for name in facts.graph.values if name in params}


def _misread_joins(facts: PlanningFacts, choices: Mapping[str, Choice], want: str) -> set[str]:
    """Return the activations behind a Concat that a kernel of the target reads in one way only."""
    graph, found = facts.graph, set[str]()
    for node in graph.nodes:
        if facts.target.joined_inputs.get(node.op_type) != want or not choices[node.name].quantized:
            continue
        for name in node.activations:
            maker = graph.producer(name)
            while maker is not None and is_clip(maker):
                maker = graph.producer(maker.input(0))
            if maker is None or not maker.facts.joins_inputs:
                continue
            shape = graph.shape(maker.output)
            last = shape is not None and attribute_value(maker, "axis", 0) in (-1, len(shape) - 1)
            if want == "unsigned" or not last:
                found.add(name)
    return found


def _operand_params(facts: PlanningFacts, node: Node, choice: Choice) -> InputParams:
    """Return the parameters of constants in the place of activations: of the type of those beside them."""
    if choice.kind is not Kind.QUANTIZED or node.rule is None:
        return {}
    params: InputParams = {}
    schema, qtype = SCHEMAS[facts.config.schema], TYPES[facts.config.activation_type]
    for index in node.rule.activations(node):
        constant = node.constant(index)
        if constant is None:
            continue
        is_saturating = facts.target.implementations.get(node.op_type) == Implementation.SATURATING.value
        if is_saturating and qtype.bits == 8:  # slopes of PRelu
            params[index] = slope_params(constant, qtype, power_of_two=schema.power_of_two)
            continue
        low, high = float(constant.min()), float(constant.max())
        saturated = saturating_low(facts.graph, node.input(index), facts.profile.tensors)
        if saturated is not None:  # the fillers of a mask
            low = min(saturated, float(constant[without_fillers(constant)].min()))
        params[index] = choose_params(low, high, schema, qtype)
    return params


def _all_weight_params(
    facts: PlanningFacts, choices: Mapping[str, Choice], activations: Mapping[str, QuantParams]
) -> dict[str, InputParams]:
    """Return the parameters of the constant weights and biases of quantized nodes, by node name."""
    params: dict[str, InputParams] = {}
    unfit: dict[str, FloatReason] = {}
    for node in facts.graph.nodes:
        choice = choices[node.name]
        try:
            params[node.name] = _weight_params(facts, node, activations) if choice.quantized else {}
        except QprofError as error:
            unfit[node.name] = because(ReasonCode.NO_PARAMETERS, text=str(error))
        result = activations.get(node.outputs[0]) if choice.kind is Kind.QUANTIZED else None
        if node.facts.arithmetic is Arithmetic.SUM and len(node.inputs) == 2 and result is not None:
            for name in node.inputs:
                term = activations.get(name)
                ratio = 0.0 if term is None else float(term.scale.max()) / float(result.scale.min())
                if ratio > MAX_SCALE_RATIO:
                    text = f"the scale of '{name}' is {ratio:.2g} times that of the sum"
                    unfit[node.name] = because(ReasonCode.NO_PARAMETERS, text=text)
                    break
    if unfit:
        name, reason = next(iter(unfit.items()))
        raise UnfitNodesError(f"node '{name}': {reason}", unfit)
    return params


def with_other_biases(facts: PlanningFacts, graph: Graph, plan: QuantPlan) -> QuantPlan | None:
    """Return a plan with parameters for the biases in another graph; None if that takes another decision."""
    changed: dict[str, QuantParams] = {}
    for node in graph.nodes:
        if node.rule is None or node.rule.bias is None or not plan.nodes[node.name].kind.reads_quantized:
            continue
        data = plan.params_read(node.name, 0, node.input(0))
        if data is None:
            continue
        try:
            earlier = _weight_params(facts, facts.graph.node(node.name), {node.input(0): data})
            params = _weight_params(facts, node, {node.input(0): data}, node.constant(node.rule.bias))
        except QprofError:
            return None
        for index, own in params.items():
            name = node.input(index)
            known = plan.params_read(node.name, index, name)  # None: a copy of a shared bias, or a new one
            if own == known:
                continue
            is_own = known in (None, earlier.get(index)) and known == plan.tensors.get(name)
            if not is_own or len(graph.consumers(name)) > 1:
                return None
            changed[name] = own
    return replace(plan, tensors={**plan.tensors, **changed})


def _weight_params(
    facts: PlanningFacts,
    node: Node,
    activations: Mapping[str, QuantParams],
    other_bias: npt.NDArray[np.float32] | None = None,
) -> InputParams:
    """Return the parameters of the constant weight and bias of a quantized node, or with another bias."""
    rule, config = node.rule, facts.config
    weight = None if rule is None or rule.weight is None else node.constant(rule.weight.index)
    if rule is None or rule.weight is None or weight is None:
        return {}
    schema = SCHEMAS[config.weight_schema]
    one_scale = config.granularity != "per-channel" or rule.weight.is_stack(weight.ndim)
    axis = None if one_scale else rule.weight.axis(node, weight.ndim)
    params = facts.product_params(node, rule.weight, axis, schema, TYPES[config.weight_type])
    if rule.bias is None or not node.has_constant(rule.bias):
        return {rule.weight.index: params}
    data = activations[node.input(0)]
    if other_bias is None:
        of_weight, of_bias = facts.on.params_with_bias(params, data, node.input(rule.bias), schema)
    else:
        of_weight, of_bias = params_with_bias(params, data, other_bias, schema)
    both = {rule.weight.index: of_weight, rule.bias: of_bias}
    if facts.target.bias == "float":
        del both[rule.bias]
    return both
