"""A plan of another tool's decisions, node by node.

A node is quantized if the source quantizes all activations that it reads, and the target supports operator
and parameters. If not, it computes in float, with the quantized constants of the source, or dynamically if
the source does. No decision spreads to other nodes, and no loss is considered: the source has decided.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import onnx_ir as ir

from ....profiles.base.errors import PlanError
from ....profiles.base.findings import Finding
from ....profiles.base.tool import tool_name
from ....profiles.instrumentation.subgraphs import FLOAT_TYPES
from ....profiles.samples.samples import title_of
from ...adjustments.bias_correction import apply_biases
from ...adjustments.equalization import apply_equalization
from ...lowering.lower import lower
from ...lowering.lowered import LoweredModel, planned_nodes
from ...model.identity import model_id
from ...numerics.affine import QuantParams, dequantize, quantize
from ...numerics.schemas import bias_params
from ...operators.functions import operator_of
from ...operators.graph import Graph, Node, index
from ...operators.table import Constraint, Rule, is_clip
from ...plan.plan import (
    NO_ADJUSTMENTS,
    RUNTIME_WEIGHTS,
    Adjustments,
    Implementation,
    Kind,
    NodePlan,
    QuantPlan,
)
from ...plan.reasons import FloatReason, ReasonCode, UnfitNodesError, because
from ...plan.verify import verify_plan
from ...planning.parameters import TANH_SCALE
from ...targets.config import ActivationType, QuantConfig, WeightType
from ...targets.conformance import ConformityError, check_conformity
from ...targets.forms import FORMS
from ...targets.target import Recipe, dynamic_implementation, lut_implementation
from .foreign import assumption


@dataclass(frozen=True)
class SourceNode:
    """Another tool's decision about one node."""

    inputs: Mapping[int, QuantParams] = field(default_factory=dict)  # constants included
    is_dynamic: bool = False  # whether the parameters of its activation are computed at run time
    implementation: str = ""


@dataclass(frozen=True)
class SourceParams:
    """Another tool's decisions about a model."""

    tool: str  # who decided, for people
    tensors: Mapping[str, QuantParams]  # activations that are stored quantized, with their parameters
    nodes: Mapping[str, SourceNode]  # the nodes that read a quantized input; all others are float
    reasons: Mapping[str, FloatReason] = field(default_factory=dict)
    float_biases: bool = False
    adjustments: Adjustments = NO_ADJUSTMENTS  # what makes quantized weights and biases those of the source
    findings: tuple[Finding, ...] = ()  # what was assumed or left out
    has_operators: bool = False  # whether the source has operators on quantized tensors, such as QLinearConv


def plan_of_source(model: ir.Model, source: SourceParams, recipe: Recipe) -> QuantPlan:
    """Return the plan of another tool's decisions; nodes that cannot be written stay float, with the reason.

    Names are those of the model with its channels equalized; of settings only target and form matter.
    """
    equalized = apply_equalization(model, source.adjustments.equalization, source.tool)
    graph = index(apply_biases(equalized, source.adjustments.biases))
    unfit: dict[str, FloatReason] = {}  # nodes that cannot be written, each with the reason
    while True:
        plan = _plan(model, graph, source, recipe, unfit)
        verify_plan(plan, index(apply_biases(equalized, plan.adjustments.biases)), plan.model)
        try:
            lowered = lower(equalized, plan)
            check_conformity(lowered.model, recipe.target, source.tool)
        except UnfitNodesError as error:
            if not error.reasons.keys() - unfit.keys():
                raise
            unfit |= error.reasons
        except ConformityError as error:
            unfit |= _refused_nodes(error, lowered, plan, graph)
        else:
            return plan


def _refused_nodes(
    error: ConformityError, lowered: LoweredModel, plan: QuantPlan, graph: Graph
) -> dict[str, FloatReason]:
    """Return the quantized nodes that the target refuses, and why; raise `error` if it refuses others."""
    reasons: dict[str, FloatReason] = {}
    for breached, sentence in error.breaches:
        nodes = planned_nodes(breached, lowered, plan, graph)
        if not nodes:
            raise error
        reason = because(ReasonCode.REFUSED_BY_TARGET, target=error.target, text=sentence)
        reasons |= dict.fromkeys(nodes, reason)
    return reasons


def _plan(
    model: ir.Model, graph: Graph, source: SourceParams, recipe: Recipe, unfit: Mapping[str, FloatReason]
) -> QuantPlan:
    decider = _Decider(graph, source, recipe, unfit, _with_clip_inputs(graph, source.tensors))
    tensors, nodes = _stored_params(graph, {node.name: decider.decision(node) for node in graph.nodes})
    kept = {name for name, entry in nodes.items() if entry.kind.has_weights}
    adjustments = replace(
        source.adjustments,
        biases={name: delta for name, delta in source.adjustments.biases.items() if name in kept},
        roundings={name: offsets for name, offsets in source.adjustments.roundings.items() if name in kept},
    )
    findings = [
        assumption(f"parameters of {source.tool}"),
        *source.findings,
        *_on_dynamic_nodes(nodes, source),
    ]
    return QuantPlan(
        model_id(model, Path(title_of(model)).name),
        replace(_described_settings(recipe.config, graph, tensors, nodes), float_type="float32"),
        tensors,
        nodes,
        tuple(dict.fromkeys(findings)),
        tool=tool_name(),
        adjustments=adjustments,
    )


def _with_clip_inputs(graph: Graph, tensors: Mapping[str, QuantParams]) -> dict[str, QuantParams]:
    """Return parameters that include activations that only a clip with a quantized output reads."""
    completed = dict(tensors)
    for node in reversed(graph.nodes):
        name, after = node.input(0), completed.get(node.output if node.outputs else "")
        if not is_clip(node) or after is None or name in completed or graph.is_constant(name):
            continue
        maker, alone = graph.producer(name), len(graph.consumers(name)) == 1 and not graph.is_result(name)
        if alone and maker is not None and maker.rule is not None:
            completed[name] = after
    return completed


# What becomes of each node ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Decision:
    """The decision about one node: its plan entry, and the parameters of its quantized inputs and outputs."""

    entry: NodePlan
    inputs: Mapping[int, QuantParams] = field(default_factory=dict)
    outputs: Mapping[str, QuantParams] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class _Decider:
    """The facts that decisions are made from, and the decisions."""

    graph: Graph
    source: SourceParams
    recipe: Recipe
    unfit: Mapping[str, FloatReason]
    tensors: Mapping[str, QuantParams]

    def decision(self, node: Node) -> _Decision:
        said = self.source.nodes.get(node.name, SourceNode())
        if is_clip(node) and 0 not in said.inputs and node.input(0) in self.tensors:
            said = SourceNode({0: self.tensors[node.input(0)]})
        static = self._refusal(node, said) or self._quantized(node, said)
        if isinstance(static, _Decision):
            return static
        hybrid = self._hybrid(node, said)
        return hybrid if isinstance(hybrid, _Decision) else _Decision(NodePlan(Kind.FLOAT, hybrid or static))

    # Quantized, and why not

    def _refusal(self, node: Node, said: SourceNode) -> FloatReason | None:
        """Return why a node cannot be quantized, or lacks parameters; else None."""
        graph, target, rule = self.graph, self.recipe.target, node.rule
        types = [graph.dtype(name) for name in node.outputs if name]
        if types and all(dtype is not None and dtype not in FLOAT_TYPES for dtype in types):
            return because(ReasonCode.SHAPE_ARITHMETIC)
        if node.name in self.unfit:
            return self.unfit[node.name]
        if not said.inputs or said.is_dynamic or said.implementation:
            return self.source.reasons.get(node.name) or self._float_in_source
        if rule is None:
            return because(ReasonCode.UNSUPPORTED_OPERATOR, operator=operator_of(node))
        data, weight = rule.activations(node), rule.weight
        read_quantized = [i for i in data if not (rule.unary and graph.is_constant(node.input(i)))]
        if (
            weight is not None
            and weight.index not in data
            and (weight.is_product or not graph.is_constant(node.input(weight.index)))
        ):
            read_quantized.append(weight.index)
        lacking = [i for i in read_quantized if i not in said.inputs]
        if lacking:
            tensor = node.input(lacking[0])
            return because(ReasonCode.NO_SOURCE_PARAMETERS, source=self.source.tool, tensor=tensor)
        lut = lut_implementation(node.op_type, target)
        if node.op_type not in target.operators and not (rule.unary and lut):
            return because(ReasonCode.NO_KERNEL, target=target.name, operator=operator_of(node))
        if refusal := rule.refusal(node, graph):
            return because(ReasonCode.UNSUPPORTED_USE, text=refusal)
        return None

    @property
    def _float_in_source(self) -> FloatReason:
        return because(ReasonCode.FLOAT_IN_SOURCE, source=self.source.tool)

    def _quantized(self, node: Node, said: SourceNode) -> _Decision | FloatReason:
        """Return the decision on a node without a refusal, or why the target does not take its parameters."""
        rule, target = node.rule, self.recipe.target
        assert rule is not None
        outputs = {name: self.tensors[name] for name in node.results if name in self.tensors}
        inputs = dict(said.inputs)
        if rule.weight is None:
            inputs = {index: inputs[index] for index in rule.activations(node) if index in inputs}
        if problem := next(self._problems(node, rule, inputs, outputs), ""):
            return because(ReasonCode.PARAMETERS_NOT_TAKEN, target=target.name, text=problem)
        if node.op_type not in target.operators:
            if not outputs:
                return self._float_in_source
            table = self._table_implementation(node, outputs)
            return _Decision(NodePlan(Kind.LOOKUP_TABLE, implementation=table), inputs, outputs)
        if not outputs and rule.weight is None and self._are_stored(node, inputs):
            return self._float_in_source  # what is quantized are its neighbours
        kind = Kind.PASS_THROUGH if self._passes_through(node, rule, inputs, outputs) else Kind.QUANTIZED
        implementation = self._implementation(node, kind, inputs, outputs)
        bias = self._bias(node, rule, inputs)
        rest = {index: params for index, params in inputs.items() if index != rule.bias}
        return _Decision(NodePlan(kind, implementation=implementation), {**rest, **bias}, outputs)

    def _problems(
        self,
        node: Node,
        rule: Rule,
        inputs: Mapping[int, QuantParams],
        outputs: Mapping[str, QuantParams],
    ) -> Iterator[str]:
        """Yield why the target does not take the parameters around a node; the bias follows from them."""
        target, graph, weight = self.recipe.target, self.graph, rule.weight
        activation_types = {*target.activation_types}
        few_bits = (word for types in target.weight_only.values() for word in types)
        weight_types = {*target.weight_types, *activation_types, *few_bits}
        around = [(node.input(i), i, params) for i, params in inputs.items() if i != rule.bias]
        around += [(name, -1, params) for name, params in outputs.items()]
        for name, position, params in around:
            is_weight = weight is not None and position == weight.index and graph.is_constant(name)
            if params.qtype.name not in (weight_types if is_weight else activation_types):
                yield f"'{name}' in {params.qtype.name}"
            elif target.zero_points == "zero" and params.zero_point.any():
                yield f"'{name}' with a zero point other than 0"
            elif params.axis is not None and not graph.is_constant(name):
                yield f"'{name}' with a scale for each channel, because it is an activation"

    def _are_stored(self, node: Node, inputs: Mapping[int, QuantParams]) -> bool:
        """Whether a node reads quantized values only because its producer stores them so."""
        for position, params in inputs.items():
            name = node.input(position)
            maker = self.source.nodes.get(self.graph.maker(name))
            if self.tensors.get(name) != params or maker is None or not maker.inputs:
                return False
        return True

    def _passes_through(
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
        if any(outputs.get(n) != params for n in node.results):
            return False
        # What a node puts beside the values that it moves must have a quantized value.
        fill = 0.0 if rule.fill is None else rule.fill.value(node)
        if fill is None:
            return True
        nearest = float(dequantize(quantize(np.float32(fill), params), params))
        return abs(nearest - fill) <= 0.5 * params.tensor_scale

    def _table_implementation(self, node: Node, outputs: Mapping[str, QuantParams]) -> Implementation:
        """Return how a look-up table is written."""
        lut = Implementation(lut_implementation(node.op_type, self.recipe.target))
        if lut is Implementation.SIGMOID and node.op_type == "Tanh":
            (params,) = outputs.values()
            middle = params.qtype.low + 128
            fits = params.qtype.bits == 8 and params == QuantParams((TANH_SCALE,), (middle,), params.qtype)
            return lut if fits else Implementation.RUNTIME
        return lut

    def _implementation(
        self,
        node: Node,
        kind: Kind,
        inputs: Mapping[int, QuantParams],
        outputs: Mapping[str, QuantParams],
    ) -> str:
        """Return the target's variant of a 16-bit node, or of one that passes 8-bit values through."""
        target, weight = self.recipe.target, None if node.rule is None else node.rule.weight
        if weight is not None and kind is Kind.QUANTIZED:
            activations = [*(p for i, p in inputs.items() if i == 0), *outputs.values()]
            wide = any(params.qtype.bits > 8 for params in activations)
            constant = weight.index in inputs and self.graph.is_constant(node.input(weight.index))
            is_folded = wide and constant and target.rounds_16_bits(node.op_type)
            return Implementation.FOLDED if is_folded else Implementation.USUAL
        if kind is not Kind.PASS_THROUGH or any(params.qtype.bits != 8 for params in inputs.values()):
            return Implementation.USUAL
        return target.implementations.get(node.op_type, "")

    def _bias(self, node: Node, rule: Rule, inputs: Mapping[int, QuantParams]) -> dict[int, QuantParams]:
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

    def _hybrid(self, node: Node, said: SourceNode) -> _Decision | FloatReason | None:
        """Return the decision for constants or dynamic parameters, why it cannot be, or None for neither."""
        graph, target, rule = self.graph, self.recipe.target, node.rule
        if rule is None or node.name in self.unfit:
            return None
        names = {index: node.input(index) for index in said.inputs}
        indices = [weight.index for weight in rule.constants]
        stored = {i: said.inputs[i] for i in indices if i in names and graph.is_constant(names[i])}
        if not stored or any(i not in stored and not graph.is_constant(name) for i, name in names.items()):
            return None
        why: FloatReason | str = ""
        if said.is_dynamic and node.op_type not in target.dynamic:
            why = because(ReasonCode.NO_DYNAMIC_KERNEL, target=target.name, operator=node.op_type)
        elif said.is_dynamic:
            problems = (text for i, p in stored.items() if (text := _dynamic_weight_problem(names[i], p)))
            problem = next(problems, "")
            if not problem:
                implementation = dynamic_implementation(node.op_type, target)
                return _Decision(NodePlan(Kind.DYNAMIC, implementation=implementation), stored)
            why = because(ReasonCode.PARAMETERS_NOT_TAKEN, target=target.name, text=problem)
        if node.op_type not in target.weight_only:
            return because(ReasonCode.NO_KERNEL, target=target.name, operator=f"weight-only {node.op_type}")
        types = {*target.weight_only[node.op_type], *target.weight_types}
        others = [f"'{names[i]}' in {p.qtype.name}" for i, p in stored.items() if p.qtype.name not in types]
        if others:
            return because(ReasonCode.PARAMETERS_NOT_TAKEN, target=target.name, text=others[0])
        has_own = FORMS[self.recipe.config.form].runtime_operators
        implementation = said.implementation if has_own else Implementation.USUAL
        if implementation in RUNTIME_WEIGHTS and target.weight_implementations.get(node.op_type) != "runtime":
            implementation = Implementation.USUAL
        if implementation == Implementation.FOLDED and target.folds != "arithmetic":
            implementation = Implementation.USUAL
        if target.folds == "arithmetic" and not implementation and isinstance(why, FloatReason):
            implementation = Implementation.FOLDED
        if implementation not in RUNTIME_WEIGHTS:
            parts = (_part_block_problem(names[i], p, graph.shape(names[i]) or ()) for i, p in stored.items())
            if problem := next(filter(None, parts), ""):
                return because(ReasonCode.PARAMETERS_NOT_TAKEN, target=target.name, text=problem)
        return _Decision(NodePlan(Kind.WEIGHT_ONLY, why, implementation=implementation), stored)


def _part_block_problem(name: str, params: QuantParams, shape: Sequence[int | None]) -> str:
    """Return a phrase on a partly filled last block, which only onnxruntime's own operators read, or ""."""
    axis, block = params.axis, params.block_size
    if axis is None or block is None or axis >= len(shape) or (shape[axis] or 0) % block == 0:
        return ""
    return f"'{name}' in blocks of {block}, which do not divide its {shape[axis]} rows"


def _dynamic_weight_problem(name: str, params: QuantParams) -> str:
    """Return the reason why a dynamic product cannot read a weight, or ""."""
    if params.qtype.bits not in (7, 8) or params.block_size is not None:
        return f"'{name}' in a dynamic product, as it has blocks or not 8 bits"
    if params.axis is not None and params.zero_point.any():
        return f"'{name}' in a dynamic product, as its channels have zero points"
    return ""


# The entries of the plan -----------------------------------------------------------------------------------


def _stored_params(
    graph: Graph, decisions: Mapping[str, _Decision]
) -> tuple[dict[str, QuantParams], dict[str, NodePlan]]:
    """Return the parameters that tensors are stored in, and nodes with their own parameters."""
    results = {name: params for decision in decisions.values() for name, params in decision.outputs.items()}
    activations: dict[str, QuantParams] = dict(results)
    constants: dict[str, QuantParams] = {}
    left_float = {
        name
        for node in graph.nodes
        if decisions[node.name].entry.kind.reads_quantized
        for name in node.outputs
        if name not in results
    }
    nodes: dict[str, NodePlan] = {}
    for node in graph.nodes:
        decision = decisions[node.name]
        own: dict[int, QuantParams] = {}
        for position, params in decision.inputs.items():
            name = node.input(position)
            stored = constants if graph.is_constant(name) else activations
            if name in left_float or stored.setdefault(name, params) != params:
                own[position] = params
        nodes[node.name] = replace(decision.entry, inputs=own)
    ordered = {name: activations[name] for name in graph.values if name in activations}
    return {**ordered, **constants}, nodes


def _on_dynamic_nodes(nodes: Mapping[str, NodePlan], source: SourceParams) -> Iterator[Finding]:
    """Yield the dynamic nodes of the source that are not dynamic here."""
    tool = source.tool
    lost = [n for n, node in source.nodes.items() if node.is_dynamic and nodes[n].kind is not Kind.DYNAMIC]
    if lost:
        sentence = (
            f"{len(lost)} nodes are dynamic in {tool}, such as '{lost[0]}', and have float activations here"
        )
        yield assumption(sentence, lost[0], nodes=len(lost))


def _described_settings(
    config: QuantConfig, graph: Graph, tensors: Mapping[str, QuantParams], nodes: Mapping[str, NodePlan]
) -> QuantConfig:
    """Return the settings that describe a plan; target and form stay, steps that qprof chooses are off."""
    activations = [params for name, params in tensors.items() if not graph.is_constant(name)]
    weights = [p for n, p in tensors.items() if graph.is_constant(n) and p.qtype.name != "int32"]
    kinds = {entry.kind for entry in nodes.values()}
    if any(kind.reads_quantized for kind in kinds):
        mode = "auto" if Kind.DYNAMIC in kinds else "static"
    elif Kind.DYNAMIC in kinds:
        mode = "dynamic"
    else:
        mode = "weight-only" if Kind.WEIGHT_ONLY in kinds else "static"
    words: dict[str, Any] = {
        "mode": mode,
        "schema": _schema(activations),
        "weight_schema": _schema(weights),
        "granularity": "per-channel" if any(p.axis is not None for p in weights) else "per-tensor",
        "activation_type": _commonest_type(activations, get_args(ActivationType)),
        "weight_type": _commonest_type(weights, get_args(WeightType)),
    }
    return replace(
        config,
        block_size=max((params.block_size or 0 for params in weights), default=0),
        equalization="off",
        bias_correction="off",
        rounding="nearest",
        cost_model="off",
        min_output_sqnr=0.0,
        **{name: word for name, word in words.items() if word},
    )


def _commonest_type(params: Iterable[QuantParams], allowed: Collection[str]) -> str:
    counts = Counter(p.qtype.name for p in params if p.qtype.name in allowed)
    return counts.most_common(1)[0][0] if counts else ""


def _schema(params: Collection[QuantParams]) -> str:
    """Return the schema that fits all of these parameters."""
    symmetric = all(p.qtype.signed and not p.zero_point.any() for p in params)
    return "symmetric" if params and symmetric else "asymmetric"
