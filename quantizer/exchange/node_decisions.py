"""What becomes of each node when another tool has chosen the parameters. Pure.

A node is quantized where the source quantizes all activations that it reads, and the target takes operator
and parameters. Nothing spreads and nothing is weighed: the source has decided.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from ...profiles.base.errors import QprofError
from ..model.graph import FLOAT_TYPES
from ..numerics.affine import QuantParams, dequantize, quantize
from ..numerics.schemas import bias_params
from ..operators.graph import Graph, Node
from ..operators.operands import operator_of
from ..operators.table import Constraint, Rule, is_clip
from ..plan.plan import NONE, RUNTIME_WEIGHTS, Adjustments, Kind, NodePlan
from ..plan.reasons import FloatReason, ReasonCode, because
from ..targets.forms import FORM_ENTRIES
from ..targets.target import Recipe, lut_implementation


@dataclass(frozen=True)
class SourceNode:
    """What another tool decided about one node.

    Attributes:
        inputs: parameters of the inputs that it reads quantized, constants included, by input index.
        is_dynamic: whether the parameters of its activation are computed at run time.
        implementation: as in `NodePlan`, where the source has an operator of a runtime's own; "" elsewhere.
    """

    inputs: Mapping[int, QuantParams] = field(default_factory=dict)
    is_dynamic: bool = False
    implementation: str = ""


@dataclass(frozen=True)
class SourceParams:
    """What another tool decided about a model.

    Attributes:
        tool: who decided, for people.
        tensors: activations that are stored quantized, with their parameters.
        nodes: the nodes that read a quantized input; all others are float.
        reasons: why nodes are float, where more is known than that the source has nothing of them.
        float_biases: whether a bias without parameters stays float; else it has those that products take.
        adjustments: what makes quantized weights and biases those of the source.
        notes: what was assumed or left out, one sentence each.
        has_operators: whether the source has operators on quantized tensors, such as QLinearConv.
    """

    tool: str
    tensors: Mapping[str, QuantParams]
    nodes: Mapping[str, SourceNode]
    reasons: Mapping[str, FloatReason] = field(default_factory=dict)
    float_biases: bool = False
    adjustments: Adjustments = NONE
    notes: tuple[str, ...] = ()
    has_operators: bool = False


NOTHING = SourceNode()
TANH_SCALE = 1.0 / 128.0
"""The scale in which the sigmoid look-up table gives tanh."""


@dataclass(frozen=True)
class Decision:
    """What becomes of one node.

    Attributes:
        entry: its entry in the plan, but for the inputs that are read as they are stored.
        inputs: parameters of the inputs that it reads quantized, by index.
        outputs: parameters of the outputs that it stores quantized, by name.
    """

    entry: NodePlan
    inputs: Mapping[int, QuantParams]
    outputs: Mapping[str, QuantParams]


@dataclass(frozen=True, eq=False)
class Deciding:
    """What decisions are made from.

    Attributes:
        graph: the prepared model.
        source: what another tool decided.
        recipe: settings, and the target.
        unfit: nodes that stay float because they could not be written, each with the reason.
        tensors: parameters of the activations, those before a clip that shares its output's included.
    """

    graph: Graph
    source: SourceParams
    recipe: Recipe
    unfit: Mapping[str, FloatReason]
    tensors: Mapping[str, QuantParams]


def decisions(
    graph: Graph, source: SourceParams, recipe: Recipe, unfit: Mapping[str, FloatReason]
) -> dict[str, Decision]:
    """Return what becomes of every node, by name in graph order.

    Args:
        graph: the prepared model.
        source: what another tool decided.
        recipe: settings, and the target.
        unfit: nodes that stay float, each with the reason.
    """
    deciding = Deciding(graph, source, recipe, unfit, with_clip_inputs(graph, source.tensors))
    return {node.name: _decided(node, deciding) for node in graph.nodes}


def with_clip_inputs(graph: Graph, tensors: Mapping[str, QuantParams]) -> dict[str, QuantParams]:
    """Return parameters with those of activations that only a clip reads, whose output has some.

    Tools quantize after the activation function of a convolution, and not before it. With the same
    parameters on both sides the function changes no quantized value that saturation would not change.
    """
    found = dict(tensors)
    for node in reversed(graph.nodes):
        name, after = node.input(0), found.get(node.output if node.outputs else "")
        if not is_clip(node) or after is None or name in found or graph.is_constant(name):
            continue
        maker, alone = graph.producer(name), len(graph.consumers(name)) == 1 and not graph.is_result(name)
        rule = None if maker is None else maker.rule
        if alone and rule is not None:
            found[name] = after
    return found


def _decided(node: Node, deciding: Deciding) -> Decision:
    given = deciding.source.nodes.get(node.name, NOTHING)
    rule = node.rule
    if is_clip(node) and 0 not in given.inputs and node.input(0) in deciding.tensors:
        given = SourceNode({0: deciding.tensors[node.input(0)]})
    static = _static(node, rule, given, deciding)
    if isinstance(static, Decision):
        return static
    hybrid = _hybrid(node, rule, given, deciding)
    if isinstance(hybrid, Decision):
        return hybrid
    return Decision(NodePlan(Kind.FLOAT, hybrid or static), {}, {})


def _static(node: Node, rule: Rule | None, given: SourceNode, deciding: Deciding) -> Decision | FloatReason:
    """Return the node quantized, or why it is not."""
    reason = _refused(node, rule, given, deciding)
    if reason is not None:
        return reason
    assert rule is not None
    outputs = {name: p for name in node.results if (p := deciding.tensors.get(name)) is not None}
    inputs = dict(given.inputs) if rule.weight is not None else _data_only(rule, node, given)
    if text := _not_taken(node, rule, inputs, outputs, deciding):
        return because(ReasonCode.PARAMETERS_NOT_TAKEN, target=deciding.recipe.target.name, text=text)
    is_table = node.op_type not in deciding.recipe.target.operators
    if is_table:
        if not outputs:
            return _float_in(deciding)
        how = _table(node, outputs, deciding)
        return Decision(NodePlan(Kind.LOOKUP_TABLE, implementation=how), inputs, outputs)
    if not outputs and rule.weight is None and _is_stored(node, inputs, deciding):
        return _float_in(deciding)  # what is quantized are its neighbours
    kind = Kind.PASS_THROUGH if _passes_through(node, rule, inputs, outputs, deciding) else Kind.QUANTIZED
    how = _implementation(node, kind, inputs, outputs, deciding)
    bias = _bias(node, rule, inputs, deciding)
    rest = {index: params for index, params in inputs.items() if index != rule.bias}
    return Decision(NodePlan(kind, implementation=how), {**rest, **bias}, outputs)


def _refused(node: Node, rule: Rule | None, given: SourceNode, deciding: Deciding) -> FloatReason | None:
    """Return why a node cannot be quantized whatever its parameters are, or that it has none."""
    graph, source, target = deciding.graph, deciding.source, deciding.recipe.target
    types = [graph.dtype(name) for name in node.outputs if name]
    if types and all(dtype is not None and dtype not in FLOAT_TYPES for dtype in types):
        return because(ReasonCode.SHAPE_ARITHMETIC)
    if node.name in deciding.unfit:
        return deciding.unfit[node.name]
    if not given.inputs or given.is_dynamic or given.implementation:
        return source.reasons.get(node.name) or _float_in(deciding)
    if rule is None:
        return because(ReasonCode.UNSUPPORTED_OPERATOR, operator=operator_of(node))
    lacking = [index for index in _needed(node, rule, graph) if index not in given.inputs]
    if lacking:
        return because(ReasonCode.NO_SOURCE_PARAMETERS, source=source.tool, tensor=node.input(lacking[0]))
    lut = lut_implementation(node.op_type, target, deciding.recipe.config.lookup_tables)
    if node.op_type not in target.operators and not (rule.unary and lut):
        return because(ReasonCode.NO_KERNEL, target=target.name, operator=operator_of(node))
    if refusal := rule.refusal(node, graph):
        return because(ReasonCode.UNSUPPORTED_USE, text=refusal)
    return None


def _needed(node: Node, rule: Rule, graph: Graph) -> Iterator[int]:
    """Yield the inputs that a quantized node reads quantized."""
    data = rule.activations(node)
    yield from (i for i in data if not (rule.unary and graph.is_constant(node.input(i))))
    if rule.weight is not None and rule.weight.index not in data:
        constant = graph.is_constant(node.input(rule.weight.index))
        if rule.weight.is_product or not constant:
            yield rule.weight.index


def _data_only(rule: Rule, node: Node, given: SourceNode) -> dict[int, QuantParams]:
    return {index: given.inputs[index] for index in rule.activations(node) if index in given.inputs}


def _not_taken(
    node: Node,
    rule: Rule,
    inputs: Mapping[int, QuantParams],
    outputs: Mapping[str, QuantParams],
    deciding: Deciding,
) -> str:
    """Return what the target does not take of the parameters around a node, "" where it takes all."""
    target = deciding.recipe.target
    activations: set[str] = {*target.activation_types}
    weights: set[str] = {*target.weight_types, *activations}
    weights.update(word for types in target.weight_only.values() for word in types)
    for index, params in inputs.items():
        name = node.input(index)
        is_weight = rule.weight is not None and index == rule.weight.index
        is_weight = is_weight and deciding.graph.is_constant(name)
        if index == rule.bias:
            continue  # it has the parameters that products take
        if text := _unfit(name, params, weights if is_weight else activations, deciding):
            return text
    found = (_unfit(name, params, activations, deciding) for name, params in outputs.items())
    return next((text for text in found if text), "")


def _unfit(name: str, params: QuantParams, types: set[str], deciding: Deciding) -> str:
    if params.qtype.name not in types:
        return f"'{name}' in {params.qtype.name}"
    if deciding.recipe.target.zero_points == "zero" and params.zero_point.any():
        return f"'{name}' with a zero point other than 0"
    if params.axis is not None and not deciding.graph.is_constant(name):
        return f"'{name}' with a scale for each channel, as it is an activation"
    return ""


def _is_stored(node: Node, inputs: Mapping[int, QuantParams], deciding: Deciding) -> bool:
    """Whether a node reads quantized values only because what makes them is quantized and stores them so."""
    for index, params in inputs.items():
        name = node.input(index)
        maker = deciding.graph.producer(name)
        given = None if maker is None else deciding.source.nodes.get(maker.name)
        if deciding.tensors.get(name) != params or given is None or not given.inputs:
            return False
    return True


def _passes_through(
    node: Node,
    rule: Rule,
    inputs: Mapping[int, QuantParams],
    outputs: Mapping[str, QuantParams],
    deciding: Deciding,
) -> bool:
    """Whether quantized values pass through a node; else it converts them."""
    if rule.constraint not in (Constraint.SAME, Constraint.CLAMP):
        return False
    params, name = inputs.get(0), node.input(0)
    if params is None or (deciding.tensors.get(name) != params and not deciding.graph.is_constant(name)):
        return False
    return all(outputs.get(n) == params for n in node.results) and _holds_its_fill(node, rule, params)


def _holds_its_fill(node: Node, rule: Rule, params: QuantParams) -> bool:
    value = rule.fill.value(node) if rule.fill is not None and rule.fill.applies(node) else 0.0
    if value is None:
        return True
    nearest = float(dequantize(quantize(np.float32(value), params), params))
    return abs(nearest - value) <= 0.5 * params.tensor_scale


def _table(node: Node, outputs: Mapping[str, QuantParams], deciding: Deciding) -> str:
    """Return how a look-up table is written."""
    how = lut_implementation(node.op_type, deciding.recipe.target, deciding.recipe.config.lookup_tables)
    if how == "sigmoid" and node.op_type == "Tanh":
        (params,) = outputs.values()
        middle = params.qtype.low + 128
        fits = params.qtype.bits == 8 and params == QuantParams((TANH_SCALE,), (middle,), params.qtype)
        return how if fits else "runtime"
    return how


def _implementation(
    node: Node,
    kind: Kind,
    inputs: Mapping[int, QuantParams],
    outputs: Mapping[str, QuantParams],
    deciding: Deciding,
) -> str:
    """Return how the target wants a node written that passes 8-bit values through, or has 16-bit ones."""
    target, weight = deciding.recipe.target, None if node.rule is None else node.rule.weight
    if weight is not None and kind is Kind.QUANTIZED:
        activations = [*(p for i, p in inputs.items() if i == 0), *outputs.values()]
        wide = any(params.qtype.bits > 8 for params in activations)
        constant = weight.index in inputs and deciding.graph.is_constant(node.input(weight.index))
        return "folded" if wide and constant and target.rounds_16_bits(node.op_type) else ""
    if kind is not Kind.PASS_THROUGH or any(params.qtype.bits != 8 for params in inputs.values()):
        return ""
    return target.implementations.get(node.op_type, "")


def _bias(
    node: Node, rule: Rule, inputs: Mapping[int, QuantParams], deciding: Deciding
) -> dict[int, QuantParams]:
    """Return the parameters of a constant bias: there is one choice, or it stays float."""
    if rule.bias is None or rule.weight is None or not node.input(rule.bias):
        return {}
    target, given = deciding.recipe.target, rule.bias in inputs
    wanted = target.bias == "int32" and (given or not deciding.source.float_biases)
    data, weight = inputs.get(0), inputs.get(rule.weight.index)
    if not wanted or data is None or weight is None or not _has_bias(node, rule, deciding.graph):
        return {}
    try:
        return {rule.bias: bias_params(data, weight)}
    except QprofError:
        return {}


def _has_bias(node: Node, rule: Rule, graph: Graph) -> bool:
    assert rule.bias is not None
    return graph.is_constant(node.input(rule.bias))


def _hybrid(
    node: Node, rule: Rule | None, given: SourceNode, deciding: Deciding
) -> Decision | FloatReason | None:
    """Return a node that computes in float with quantized constants, or with dynamic parameters.

    Why it is not that, where the source has it so; None where the source has not.
    """
    if rule is None or node.name in deciding.unfit:
        return None
    graph, target = deciding.graph, deciding.recipe.target
    names = {index: node.input(index) for index in given.inputs}
    indices = [weight.index for weight in rule.constants]
    stored = {i: given.inputs[i] for i in indices if i in names and graph.is_constant(names[i])}
    if not stored or any(i not in stored and not graph.is_constant(name) for i, name in names.items()):
        return None
    why: FloatReason | str = ""
    if given.is_dynamic and node.op_type not in target.dynamic:
        why = because(ReasonCode.NO_DYNAMIC_KERNEL, target=target.name, operator=node.op_type)
    elif given.is_dynamic:
        unfit = next((text for i, p in stored.items() if (text := _unfit_dynamic(names[i], p))), "")
        if not unfit:
            how = "runtime" if rule.is_recurrent else ""
            return Decision(NodePlan(Kind.DYNAMIC, implementation=how), stored, {})
        why = because(ReasonCode.PARAMETERS_NOT_TAKEN, target=target.name, text=unfit)
    if node.op_type not in target.weight_only:
        return because(ReasonCode.NO_KERNEL, target=target.name, operator=f"weight-only {node.op_type}")
    types = {*target.weight_only[node.op_type], *target.weight_types}
    others = [f"'{names[i]}' in {p.qtype.name}" for i, p in stored.items() if p.qtype.name not in types]
    if others:
        return because(ReasonCode.PARAMETERS_NOT_TAKEN, target=target.name, text=others[0])
    how = given.implementation if FORM_ENTRIES[deciding.recipe.config.form].runtime_operators else ""
    if how in RUNTIME_WEIGHTS and target.weight_implementations.get(node.op_type) != "runtime":
        how = ""
    if target.folds == "arithmetic" and not how and isinstance(why, FloatReason):
        how = "folded"
    return Decision(NodePlan(Kind.WEIGHT_ONLY, why, implementation=how), stored, {})


def _unfit_dynamic(name: str, params: QuantParams) -> str:
    """Return what a dynamic product does not take of its weight, "" where it takes it."""
    if params.qtype.bits not in (7, 8) or params.block_size is not None:
        return f"'{name}' in a dynamic product, as it has blocks or not 8 bits"
    if params.axis is not None and params.zero_point.any():
        return f"'{name}' in a dynamic product, as its channels have zero points"
    return ""


def _float_in(deciding: Deciding) -> FloatReason:
    return because(ReasonCode.FLOAT_IN_SOURCE, source=deciding.source.tool)
