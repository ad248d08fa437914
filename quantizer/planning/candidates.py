"""What could become of each node by itself, and why it cannot be quantized. Pure; first step of planning."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..model.graph import FLOAT_TYPES
from ..operators.conditions import attribute_value
from ..operators.facts import KernelSizes
from ..operators.functions import CHAIN, chain_of
from ..operators.graph import Graph, Node
from ..operators.operands import operator_of
from ..operators.sub_pixel import sub_pixel_refusal
from ..operators.table import Constraint, Rule, is_clip
from ..plan.plan import FUSED_CHAIN, ON_CODES, SUB_PIXEL, Kind
from ..plan.reasons import FloatReason, FloatReasons, ReasonCode, because
from ..targets.target import FLOAT, lut_implementation
from .facts import PlanningFacts


@dataclass(frozen=True)
class Choice:
    """What was selected for one node.

    Attributes:
        kind: as in `NodePlan`; a clip is PASS_THROUGH here, and becomes one where it shares parameters.
        reason: why it stays float, or a remark.
        rule: its entry in the operator table, when it has one.
        implementation: how a look-up table is written.
        compute_bound: whether quantization starts at this node (see `Rule.compute_bound`).
        returns_float: whether a quantized node gives float outputs.
    """

    kind: Kind
    reason: FloatReason | str = ""
    rule: Rule | None = None
    implementation: str = ""
    compute_bound: bool = False
    returns_float: bool = False

    @property
    def quantized(self) -> bool:
        """Whether the node reads and computes quantized values."""
        return self.kind in ON_CODES


def find_candidates(facts: PlanningFacts, floats: FloatReasons) -> dict[str, Choice]:
    """Return the best that could become of every node, its neighbours not considered, by name in graph order.

    Args:
        facts: the model.
        floats: nodes that stay float, each with the reason.

    Raises:
        ConfigError: a pattern of `keep_float` names nothing in the model.
    """
    return {node.name: _candidate(node, facts, floats) for node in facts.graph.nodes}


def _candidate(node: Node, facts: PlanningFacts, floats: FloatReasons) -> Choice:
    rule, target, name = node.rule, facts.target, node.name
    reason = facts.requested_float.get(name) or floats.get(name) or _unsupported(node, facts)
    if reason is not None or rule is None:
        return Choice(Kind.FLOAT, reason or "", rule)
    if node.op_type not in target.operators:
        return Choice(Kind.LOOKUP_TABLE, "", rule, _lut(node, rule, facts))
    moves = rule.constraint in (Constraint.SAME, Constraint.CLAMP)
    return Choice(
        Kind.PASS_THROUGH if moves else Kind.QUANTIZED,
        "",
        rule,
        compute_bound=is_compute_bound(node, rule, facts),
    )


def is_compute_bound(node: Node, rule: Rule, facts: PlanningFacts) -> bool:
    """Whether quantization starts at a node: the rule says so, or what the target says of products."""
    per_output = _products_per_output(node, rule, facts.graph)
    if per_output is None:
        return rule.compute_bound(node, facts.graph) or (
            rule.weight is not None and wants_symmetric_inputs(node, rule, facts)
        )
    elements = sum(facts.profile[name].count for name in node.results if name in facts.profile)
    if per_output * elements < facts.target.node_products * facts.profile.data.samples:
        return False
    is_convolution = node.facts.kernel is KernelSizes.CONVOLUTION
    ungrouped = is_convolution and attribute_value(node, "group", 1) == 1
    enough = ungrouped and 0 < facts.target.conv_products <= per_output
    return enough or rule.compute_bound(node, facts.graph) or wants_symmetric_inputs(node, rule, facts)


def _products_per_output(node: Node, rule: Rule, graph: Graph) -> float | None:
    """Return the multiplications for each output element of a product with a constant weight; else None."""
    weight = None if rule.weight is None else node.constant(rule.weight.index)
    if rule.weight is None or weight is None or weight.ndim < 2:
        return None
    axis = rule.weight.axis(node, weight.ndim)
    return None if axis is None else float(weight.size / max(weight.shape[axis], 1))


def wants_symmetric_inputs(node: Node, rule: Rule, facts: PlanningFacts) -> bool:
    """Whether the target's kernel wants zero point 0 in the activations that a node reads."""
    wanted = facts.target.symmetric_inputs.get(node.op_type)
    inputs = [name for name in node.inputs if name]
    varying = node.activations
    return wanted == "always" or (
        wanted == "activations"
        and len(varying) == len(inputs)
        and all(facts.graph.constant(name) is None for name in varying)
    )


def _unsupported(node: Node, facts: PlanningFacts) -> FloatReason | None:
    """Return why a node cannot be quantized whatever its neighbours are, None when it can."""
    rule, op = node.rule, operator_of(node)
    if _computes_no_float(node, facts.graph):
        return because(ReasonCode.SHAPE_ARITHMETIC)
    if rule is None:
        return because(ReasonCode.UNSUPPORTED_OPERATOR, operator=op)
    if node.op_type not in facts.target.operators and not _lut(node, rule, facts):
        return because(ReasonCode.NO_KERNEL, target=facts.target.name, operator=op)
    if refusal := rule.refusal(node, facts.graph) or _unfit_implementation(node, facts):
        return because(ReasonCode.UNSUPPORTED_USE, text=refusal)
    if reader := _float_reader(node, rule, facts.graph):
        text = f"its weight is read by {reader} too, in float: it would be stored twice"
        return because(ReasonCode.UNSUPPORTED_USE, text=text)
    if _rounds_an_output(node, facts):
        return because(ReasonCode.UNSUPPORTED_USE, text="its result is an output of the model, in 8 bits")
    if _narrows_full_range(node, facts):
        return because(ReasonCode.CLIPPED_FULL_RANGE, operator=node.op_type)
    return _unfit_tensor(node, rule, facts) or _below_limit(node, rule, facts)


def _unfit_implementation(node: Node, facts: PlanningFacts) -> str:
    """Return why the target's implementation cannot write a node, "" where it can."""
    sub_pixel = facts.target.implementations.get(node.op_type) == SUB_PIXEL
    return sub_pixel_refusal(node) if sub_pixel else ""


def _lut(node: Node, rule: Rule, facts: PlanningFacts) -> str:
    """Return the implementation of a node as a look-up table, "" where it is none."""
    if node.op_type == CHAIN and chain_of(node.ir_node).quantized_fused:
        return FUSED_CHAIN
    return lut_implementation(node.op_type, facts.target, facts.config.lookup_tables) if rule.unary else ""


def _computes_no_float(node: Node, graph: Graph) -> bool:
    """Whether every result is known to be of a type that is not floating-point."""
    names = [name for name in node.outputs if name]
    types = [graph.dtype(name) for name in names]
    return all(dtype is not None and dtype not in FLOAT_TYPES for dtype in types) and bool(types)


def _float_reader(node: Node, rule: Rule, graph: Graph) -> str:
    """Return what else reads the constant weight of a node and can only read float, "" for nothing.

    onnxruntime would dequantize the weight in every run besides.
    """
    name = "" if rule.weight is None else node.input(rule.weight.index)
    if not name or not graph.is_constant(name):
        return ""
    others = [(reader, index) for reader, index in graph.consumers(name) if reader is not node]
    return next((operator_of(reader) for reader, index in others if index < 0 or reader.rule is None), "")


def _rounds_an_output(node: Node, facts: PlanningFacts) -> bool:
    """Whether a transposed convolution, which often makes a picture or a sound, would round an output."""
    how = facts.target.implementations.get(node.op_type, "")
    return how == SUB_PIXEL and any(facts.graph.is_result(name) for name in node.results)


def _narrows_full_range(node: Node, facts: PlanningFacts) -> bool:
    """Whether a clip follows a kernel that needs output parameters for its full range."""
    names = node.results if node.op_type in facts.target.full_range else []
    return any(is_clip(reader) for name in names for reader, _ in facts.graph.consumers(name))


def _unfit_tensor(node: Node, rule: Rule, facts: PlanningFacts) -> FloatReason | None:
    """Return why one of the node's tensors cannot be quantized, None when all can."""
    graph, profile = facts.graph, facts.profile
    if all(graph.constant(name) is not None for name in node.activations):
        return because(ReasonCode.ONLY_CONSTANTS)
    for name in [*node.activations, *node.results]:
        constant = graph.constant(name)
        if constant is not None:
            if constant.dtype != np.float32:
                return because(ReasonCode.CONSTANT_TYPE, tensor=name, type=str(constant.dtype))
            if constant.size == 0 or not np.isfinite(constant).all():
                return because(ReasonCode.CONSTANT_VALUES, tensor=name)
        elif not graph.is_float(name):
            dtype = graph.dtype(name)
            return because(
                ReasonCode.NOT_FLOAT32,
                tensor=name,
                type="of no known type" if dtype is None else dtype.name.lower(),
            )
        elif name not in profile:
            return because(ReasonCode.NO_PROFILE, tensor=name)
        elif profile[name].dtype != "float":
            return because(ReasonCode.NOT_FLOAT32, tensor=name, type=profile[name].dtype)
        elif profile[name].count == 0:
            return because(ReasonCode.NOT_OBSERVED, tensor=name)
    return None


def _below_limit(node: Node, rule: Rule, facts: PlanningFacts) -> FloatReason | None:
    """Return the reason of a tensor that must stay float and would be quantized, None when there is none."""
    names = node.activations
    may_return_float = FLOAT in facts.target.operators.get(node.op_type, ())
    if not (is_compute_bound(node, rule, facts) and may_return_float):
        names += node.results
    precisions = (facts.precisions.get(name) for name in names)
    return next((found for found in precisions if isinstance(found, FloatReason)), None)
