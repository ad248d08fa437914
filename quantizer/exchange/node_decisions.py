"""What becomes of each node when another tool has chosen the parameters. Pure.

A node is quantized where the source quantizes all activations that it reads, and the target takes operator
and parameters. Else it computes in float, with the constants that the source stores quantized, or dynamically
where the source does. Nothing spreads and nothing is weighed: the source has decided.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from ...profiles.base.errors import PlanError
from ..model.graph import FLOAT_TYPES
from ..numerics.affine import QuantParams, dequantize, quantize
from ..numerics.schemas import bias_params
from ..operators.graph import Graph, Node
from ..operators.operands import operator_of
from ..operators.table import Constraint, Rule, is_clip
from ..plan.plan import NONE, RUNTIME_WEIGHTS, Adjustments, Kind, NodePlan
from ..plan.reasons import FloatReason, ReasonCode, because
from ..targets.forms import FORMS
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


@dataclass(frozen=True)
class Decision:
    """What becomes of one node.

    Attributes:
        entry: its entry in the plan, but for the inputs that are read as they are stored.
        inputs: parameters of the inputs that it reads quantized, by index.
        outputs: parameters of the outputs that it stores quantized, by name.
    """

    entry: NodePlan
    inputs: Mapping[int, QuantParams] = field(default_factory=dict)
    outputs: Mapping[str, QuantParams] = field(default_factory=dict)


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
    judge = _Judge(graph, source, recipe, unfit, _with_clip_inputs(graph, source.tensors))
    return {node.name: judge.decision(node) for node in graph.nodes}


def _with_clip_inputs(graph: Graph, tensors: Mapping[str, QuantParams]) -> dict[str, QuantParams]:
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
        if alone and maker is not None and maker.rule is not None:
            found[name] = after
    return found


TANH_SCALE = 1.0 / 128.0
"""The scale in which the sigmoid look-up table gives tanh."""


@dataclass(frozen=True, eq=False)
class _Judge:
    """What decisions are made from, and the decisions.

    Attributes:
        unfit: nodes that stay float because they could not be written, each with the reason.
        tensors: parameters of the activations, those before a clip that shares its output's included.
    """

    graph: Graph
    source: SourceParams
    recipe: Recipe
    unfit: Mapping[str, FloatReason]
    tensors: Mapping[str, QuantParams]

    def decision(self, node: Node) -> Decision:
        given = self.source.nodes.get(node.name, SourceNode())
        if is_clip(node) and 0 not in given.inputs and node.input(0) in self.tensors:
            given = SourceNode({0: self.tensors[node.input(0)]})
        static = self.refusal(node, given) or self.quantized(node, given)
        if isinstance(static, Decision):
            return static
        hybrid = self.hybrid(node, given)
        return hybrid if isinstance(hybrid, Decision) else Decision(NodePlan(Kind.FLOAT, hybrid or static))

    # Quantized, and why not

    def refusal(self, node: Node, given: SourceNode) -> FloatReason | None:
        """Return why a node cannot be quantized whatever its parameters are, or that it has none."""
        graph, target, rule = self.graph, self.recipe.target, node.rule
        types = [graph.dtype(name) for name in node.outputs if name]
        if types and all(dtype is not None and dtype not in FLOAT_TYPES for dtype in types):
            return because(ReasonCode.SHAPE_ARITHMETIC)
        if node.name in self.unfit:
            return self.unfit[node.name]
        if not given.inputs or given.is_dynamic or given.implementation:
            return self.source.reasons.get(node.name) or self.float_in_source
        if rule is None:
            return because(ReasonCode.UNSUPPORTED_OPERATOR, operator=operator_of(node))
        lacking = [index for index in _read_quantized(node, rule, graph) if index not in given.inputs]
        if lacking:
            tensor = node.input(lacking[0])
            return because(ReasonCode.NO_SOURCE_PARAMETERS, source=self.source.tool, tensor=tensor)
        lut = lut_implementation(node.op_type, target, self.recipe.config.lookup_tables)
        if node.op_type not in target.operators and not (rule.unary and lut):
            return because(ReasonCode.NO_KERNEL, target=target.name, operator=operator_of(node))
        if refusal := rule.refusal(node, graph):
            return because(ReasonCode.UNSUPPORTED_USE, text=refusal)
        return None

    @property
    def float_in_source(self) -> FloatReason:
        return because(ReasonCode.FLOAT_IN_SOURCE, source=self.source.tool)

    def quantized(self, node: Node, given: SourceNode) -> Decision | FloatReason:
        """Return the decision on a node without a refusal, or why the target does not take its parameters."""
        rule, target = node.rule, self.recipe.target
        assert rule is not None
        outputs = {name: self.tensors[name] for name in node.results if name in self.tensors}
        inputs = dict(given.inputs)
        if rule.weight is None:
            inputs = {index: inputs[index] for index in rule.activations(node) if index in inputs}
        if text := self.not_taken(node, rule, inputs, outputs):
            return because(ReasonCode.PARAMETERS_NOT_TAKEN, target=target.name, text=text)
        if node.op_type not in target.operators:
            if not outputs:
                return self.float_in_source
            how = self.table(node, outputs)
            return Decision(NodePlan(Kind.LOOKUP_TABLE, implementation=how), inputs, outputs)
        if not outputs and rule.weight is None and self.are_stored(node, inputs):
            return self.float_in_source  # what is quantized are its neighbours
        kind = Kind.PASS_THROUGH if self.passes_through(node, rule, inputs, outputs) else Kind.QUANTIZED
        how = self.implementation(node, kind, inputs, outputs)
        bias = self.bias(node, rule, inputs)
        rest = {index: params for index, params in inputs.items() if index != rule.bias}
        return Decision(NodePlan(kind, implementation=how), {**rest, **bias}, outputs)

    def not_taken(
        self,
        node: Node,
        rule: Rule,
        inputs: Mapping[int, QuantParams],
        outputs: Mapping[str, QuantParams],
    ) -> str:
        """Return what the target does not take of the parameters around a node, "" where it takes all.

        Those of a bias are what products take, whatever the source says.
        """
        target = self.recipe.target
        activations = {*target.activation_types}
        few_bits = (word for types in target.weight_only.values() for word in types)
        weights = {*target.weight_types, *activations, *few_bits}
        for index, params in inputs.items():
            name = node.input(index)
            is_weight = (
                rule.weight is not None and index == rule.weight.index and self.graph.is_constant(name)
            )
            types = weights if is_weight else activations
            if index != rule.bias and (text := self.unfit_params(name, params, types)):
                return text
        found = (self.unfit_params(name, params, activations) for name, params in outputs.items())
        return next((text for text in found if text), "")

    def unfit_params(self, name: str, params: QuantParams, types: Collection[str]) -> str:
        if params.qtype.name not in types:
            return f"'{name}' in {params.qtype.name}"
        if self.recipe.target.zero_points == "zero" and params.zero_point.any():
            return f"'{name}' with a zero point other than 0"
        if params.axis is not None and not self.graph.is_constant(name):
            return f"'{name}' with a scale for each channel, as it is an activation"
        return ""

    def are_stored(self, node: Node, inputs: Mapping[int, QuantParams]) -> bool:
        """Whether a node reads quantized values only because what makes them stores them so."""
        for index, params in inputs.items():
            name = node.input(index)
            maker = self.graph.producer(name)
            given = None if maker is None else self.source.nodes.get(maker.name)
            if self.tensors.get(name) != params or given is None or not given.inputs:
                return False
        return True

    def passes_through(
        self,
        node: Node,
        rule: Rule,
        inputs: Mapping[int, QuantParams],
        outputs: Mapping[str, QuantParams],
    ) -> bool:
        """Whether quantized values pass through a node; else it converts them."""
        params, name = inputs.get(0), node.input(0)
        if rule.constraint not in (Constraint.SAME, Constraint.CLAMP) or params is None:
            return False
        if self.tensors.get(name) != params and not self.graph.is_constant(name):
            return False
        return all(outputs.get(n) == params for n in node.results) and _holds_its_fill(node, rule, params)

    def table(self, node: Node, outputs: Mapping[str, QuantParams]) -> str:
        """Return how a look-up table is written."""
        how = lut_implementation(node.op_type, self.recipe.target, self.recipe.config.lookup_tables)
        if how == "sigmoid" and node.op_type == "Tanh":
            (params,) = outputs.values()
            middle = params.qtype.low + 128
            fits = params.qtype.bits == 8 and params == QuantParams((TANH_SCALE,), (middle,), params.qtype)
            return how if fits else "runtime"
        return how

    def implementation(
        self,
        node: Node,
        kind: Kind,
        inputs: Mapping[int, QuantParams],
        outputs: Mapping[str, QuantParams],
    ) -> str:
        """Return how the target wants a node written that passes 8-bit values through, or has 16-bit ones."""
        target, weight = self.recipe.target, None if node.rule is None else node.rule.weight
        if weight is not None and kind is Kind.QUANTIZED:
            activations = [*(p for i, p in inputs.items() if i == 0), *outputs.values()]
            wide = any(params.qtype.bits > 8 for params in activations)
            constant = weight.index in inputs and self.graph.is_constant(node.input(weight.index))
            return "folded" if wide and constant and target.rounds_16_bits(node.op_type) else ""
        if kind is not Kind.PASS_THROUGH or any(params.qtype.bits != 8 for params in inputs.values()):
            return ""
        return target.implementations.get(node.op_type, "")

    def bias(self, node: Node, rule: Rule, inputs: Mapping[int, QuantParams]) -> dict[int, QuantParams]:
        """Return the parameters of a constant bias: there is one choice, or it stays float."""
        if rule.bias is None or rule.weight is None or not node.input(rule.bias):
            return {}
        wanted = self.recipe.target.bias == "int32" and (rule.bias in inputs or not self.source.float_biases)
        data, weight = inputs.get(0), inputs.get(rule.weight.index)
        if not wanted or data is None or weight is None or not self.graph.is_constant(node.input(rule.bias)):
            return {}
        try:
            return {rule.bias: bias_params(data, weight)}
        except PlanError:  # no float32 is the product of the scales
            return {}

    # In float, with quantized constants

    def hybrid(self, node: Node, given: SourceNode) -> Decision | FloatReason | None:
        """Return a node that computes in float with quantized constants, or with dynamic parameters.

        Why it is not that, where the source has it so; None where the source has not.
        """
        graph, target, rule = self.graph, self.recipe.target, node.rule
        if rule is None or node.name in self.unfit:
            return None
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
                return Decision(NodePlan(Kind.DYNAMIC, implementation=how), stored)
            why = because(ReasonCode.PARAMETERS_NOT_TAKEN, target=target.name, text=unfit)
        if node.op_type not in target.weight_only:
            return because(ReasonCode.NO_KERNEL, target=target.name, operator=f"weight-only {node.op_type}")
        types = {*target.weight_only[node.op_type], *target.weight_types}
        others = [f"'{names[i]}' in {p.qtype.name}" for i, p in stored.items() if p.qtype.name not in types]
        if others:
            return because(ReasonCode.PARAMETERS_NOT_TAKEN, target=target.name, text=others[0])
        how = given.implementation if FORMS[self.recipe.config.form].runtime_operators else ""
        if how in RUNTIME_WEIGHTS and target.weight_implementations.get(node.op_type) != "runtime":
            how = ""
        if target.folds == "arithmetic" and not how and isinstance(why, FloatReason):
            how = "folded"
        return Decision(NodePlan(Kind.WEIGHT_ONLY, why, implementation=how), stored)


def _read_quantized(node: Node, rule: Rule, graph: Graph) -> Iterator[int]:
    """Yield the inputs that a quantized node reads quantized."""
    data = rule.activations(node)
    yield from (i for i in data if not (rule.unary and graph.is_constant(node.input(i))))
    if rule.weight is not None and rule.weight.index not in data:
        constant = graph.is_constant(node.input(rule.weight.index))
        if rule.weight.is_product or not constant:
            yield rule.weight.index


def _holds_its_fill(node: Node, rule: Rule, params: QuantParams) -> bool:
    """Whether what a node puts beside the values that it moves has a quantized value."""
    value = rule.fill.value(node) if rule.fill is not None and rule.fill.applies(node) else 0.0
    if value is None:
        return True
    nearest = float(dequantize(quantize(np.float32(value), params), params))
    return abs(nearest - value) <= 0.5 * params.tensor_scale


def _unfit_dynamic(name: str, params: QuantParams) -> str:
    """Return what a dynamic product does not take of its weight, "" where it takes it."""
    if params.qtype.bits not in (7, 8) or params.block_size is not None:
        return f"'{name}' in a dynamic product, as it has blocks or not 8 bits"
    if params.axis is not None and params.zero_point.any():
        return f"'{name}' in a dynamic product, as its channels have zero points"
    return ""
