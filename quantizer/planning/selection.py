"""Which nodes are quantized with static parameters, and why the others stay float. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from ...profiles.base.once import computed_once
from ...profiles.instrumentation.subgraphs import FLOAT_TYPES, activations_of
from ..model.graph import name_of, subgraphs
from ..numerics.affine import QuantParams
from ..operators.facts import KernelSizes
from ..operators.functions import CHAIN, chain_of, operator_of
from ..operators.graph import Graph, Node
from ..operators.table import Constraint, Rule, is_clip
from ..plan.plan import Implementation, Kind
from ..plan.reasons import FloatReason, FloatReasons, ReasonCode, because
from ..plan.rewrites import SUB_PIXEL, rewrite_refusal
from ..targets.target import FLOAT, QUANTIZED, lut_implementation
from .facts import PlanningFacts


@dataclass(frozen=True)
class Choice:
    """The kind that was selected for one node."""

    kind: Kind  # as in `NodePlan`; a clip is PASS_THROUGH here, and becomes one where it shares parameters
    reason: FloatReason | str = ""  # why it stays float, or a remark
    implementation: str = Implementation.USUAL  # of a look-up table, a dynamic or a weight-only node
    returns_float: bool = False  # whether a quantized node gives float outputs
    weights: Mapping[int, QuantParams] = field(default_factory=dict)  # by input, if dynamic or weight-only
    starts: bool = False  # whether quantization starts there

    @property
    def quantized(self) -> bool:
        """Whether the node reads and computes quantized values."""
        return self.kind.reads_quantized


@computed_once
def candidates_of(facts: PlanningFacts) -> dict[str, Choice]:
    """Return the best that could become of every node, neighbours and floats of a decision not considered."""
    candidates = {}
    for node in facts.graph.nodes:
        choice = _candidate(node, facts)
        starts = choice.kind in (Kind.QUANTIZED, Kind.PASS_THROUGH) and is_compute_bound(node, facts)
        candidates[node.name] = replace(choice, starts=starts)
    return candidates


def select(facts: PlanningFacts, own: Mapping[str, Choice], floats: FloatReasons) -> dict[str, Choice]:
    """Return the choice for every node of the main graph, by node name in graph order.

    `own` are the candidates of the facts, `floats` nodes that must stay float.

    Quantization starts at the compute-bound operators (convolutions and matrix products) and spreads over the
    memory-bound ones between them, as far as that saves conversions:

    1. A memory-bound node joins if an activation that it reads is quantized and the rest is, or can be,
       too.
    2. A node that only passes values through, and a memory-bound convolution, also joins if all its readers
       need quantized input and no more elements must be converted before it than after it.
    3. A quantized kernel that can return float (MatMul, Gemm) does so unless all its readers are quantized:
       no rounding is lost on the way into a float operator. From such a node only clips, pass-through nodes
       and look-up tables spread, and only if they lead to quantized nodes again.
    4. If the target runs float operators between quantized ones at no more than the price of the
       conversions, a memory-bound node without a quantized reader leaves again: quantizing its output would
       only add error.

    All that saves time: with `cost_model` off quantization starts at every node that can be quantized, as
    on targets with slow float operators (`Target.start_everywhere`).
    """
    graph = facts.graph
    candidates = {
        name: Choice(Kind.FLOAT, floats[name])
        if name in floats and name not in facts.requested_float
        else candidate
        for name, candidate in own.items()
    }
    compute_bound = {name for name, candidate in own.items() if candidate.starts and name not in floats}
    quantized = {name for name, candidate in candidates.items() if candidate.quantized}
    everywhere = facts.starts_everywhere
    spread = _Spread(facts, candidates, compute_bound, quantized if everywhere else set(compute_bound))
    if not everywhere:
        spread.run()

    choices: dict[str, Choice] = {}
    origins: dict[str, tuple[str, ...]] = {}  # float result -> operators that its float comes from
    for node in graph.nodes:
        candidate = candidates[node.name]
        if not candidate.quantized:
            choices[node.name] = candidate
        elif node.name in spread.quantized:
            choices[node.name] = replace(
                candidate, returns_float=candidate.kind is Kind.QUANTIZED and _returns_float(node, spread)
            )
        else:
            integers, either, floating = spread.inputs(node)
            operators: dict[str, None] = {}
            for name in floating:
                producer = graph.producer(name)
                maker = "the model's inputs" if producer is None else operator_of(producer)
                operators |= dict.fromkeys(origins.get(name, (maker,)))
            origins |= dict.fromkeys(node.results, tuple(operators)[:3] or (operator_of(node),))
            if integers or either:
                code = ReasonCode.MIXED_INPUTS if floating else ReasonCode.NO_INT8_CONSUMER
                choices[node.name] = Choice(Kind.FLOAT, because(code))
            else:
                names = sorted(operators)
                origin = ", ".join(names[:2]) + " and others" if len(names) > 2 else " and ".join(names)
                choices[node.name] = Choice(Kind.FLOAT, because(ReasonCode.CONVERSION_COST, origin=origin))
    return choices


# What could become of a node by itself --------------------------------------------------------------------


def _candidate(node: Node, facts: PlanningFacts) -> Choice:
    rule = node.rule
    reason = facts.requested_float.get(node.name) or _unsupported(node, facts)
    if reason is not None or rule is None:
        return Choice(Kind.FLOAT, reason or "")
    if node.op_type not in facts.target.operators:
        return Choice(Kind.LOOKUP_TABLE, "", _lut(node, rule, facts))
    moves = rule.constraint in (Constraint.SAME, Constraint.CLAMP)
    return Choice(Kind.PASS_THROUGH if moves else Kind.QUANTIZED)


def _lut(node: Node, rule: Rule, facts: PlanningFacts) -> Implementation:
    """Return the implementation of a node as a look-up table, or USUAL."""
    if node.op_type == CHAIN and chain_of(node.ir_node).quantized_fused:
        return Implementation.FUSED
    return Implementation(lut_implementation(node.op_type, facts.target) if rule.unary else "")


def _unsupported(node: Node, facts: PlanningFacts) -> FloatReason | None:
    """Return why the node can never be quantized, or None."""
    graph, target, rule = facts.graph, facts.target, node.rule
    if reason := shape_arithmetic(node, graph):
        return reason
    if rule is None:
        return because(ReasonCode.UNSUPPORTED_OPERATOR, operator=operator_of(node))
    if node.op_type not in target.operators and not _lut(node, rule, facts):
        return because(ReasonCode.NO_KERNEL, target=target.name, operator=operator_of(node))
    as_sub_pixels = target.implementations.get(node.op_type) == SUB_PIXEL
    refusal = rule.refusal(node, graph)
    if as_sub_pixels and not refusal:
        refusal = rewrite_refusal(SUB_PIXEL, node, regards_time=facts.config.regards_time)
    if refusal:
        return because(ReasonCode.UNSUPPORTED_USE, text=refusal)
    weight = "" if rule.weight is None else node.input(rule.weight.index)
    if weight and graph.is_constant(weight) and facts.config.regards_time:
        for reader, index in graph.consumers(weight):
            if reader is not node and (index < 0 or reader.rule is None):
                # onnxruntime would dequantize the weight in every run besides.
                what = f"its weight is read by {operator_of(reader)} too, in float: it would be stored twice"
                return because(ReasonCode.UNSUPPORTED_USE, text=what)
    # Often a picture or a sound: with limits of noise.
    rounds_output = as_sub_pixels and any(graph.is_result(name) for name in node.results)
    if rounds_output and facts.config.regards_time:
        return because(ReasonCode.UNSUPPORTED_USE, text="its result is an output of the model, in 8 bits")
    readers = [reader for name in node.results for reader, _ in graph.consumers(name)]
    if node.op_type in target.full_range and any(map(is_clip, readers)):
        return because(ReasonCode.CLIPPED_FULL_RANGE, operator=node.op_type)
    if reason := unfit_tensor(node, facts):
        return reason
    may_return_float = FLOAT in target.operators.get(node.op_type, ()) and is_compute_bound(node, facts)
    quantized = node.activations if may_return_float else (*node.activations, *node.results)
    return next((facts.imprecise[name] for name in quantized if name in facts.imprecise), None)


def shape_arithmetic(node: Node, graph: Graph) -> FloatReason | None:
    """Return the reason for a node that computes no floats, None for any other."""
    types = [graph.dtype(name) for name in node.outputs if name]
    if types and all(dtype is not None and dtype not in FLOAT_TYPES for dtype in types):
        return because(ReasonCode.SHAPE_ARITHMETIC)
    return None


def unfit_tensor(node: Node, facts: PlanningFacts) -> FloatReason | None:
    """Return why one of the node's tensors cannot be quantized, None when all can."""
    graph, profile = facts.graph, facts.profile
    if all(graph.is_constant(name) for name in node.activations):
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
            kind = "of no known type" if dtype is None else dtype.name.lower()
            return because(ReasonCode.NOT_FLOAT32, tensor=name, type=kind)
        elif name not in profile:
            return because(ReasonCode.NO_PROFILE, tensor=name)
        elif profile[name].dtype != "float":
            return because(ReasonCode.NOT_FLOAT32, tensor=name, type=profile[name].dtype)
        elif profile[name].count == 0:
            return _not_observed(facts, name)
    return None


def _not_observed(facts: PlanningFacts, name: str) -> FloatReason:
    """Return the reason for a tensor without values, which is the outermost body around it that never ran."""
    for runner, body in facts.graph.bodies_around(name):
        observed = (facts.profile.get(name_of(value)) for value in activations_of(body))
        counts = [tensor.count for tensor in observed if tensor is not None]
        if counts and not any(counts):
            part = "a branch" if len(subgraphs(runner.ir_node)) > 1 else "a pass"
            return because(ReasonCode.BODY_NOT_RUN, part=part, node=runner.name, operator=runner.op_type)
    return because(ReasonCode.NOT_OBSERVED, tensor=name)


def is_compute_bound(node: Node, facts: PlanningFacts) -> bool:
    """Whether quantization starts at a node, by its rule or by the target's limits for products."""
    rule, target = node.rule, facts.target
    assert rule is not None
    if not facts.config.regards_time and rule.weight is not None:
        return True
    products = multiplications_per_output(node)
    if products is not None:
        elements = sum(facts.profile[name].count for name in node.results if name in facts.profile)
        if products * elements < target.node_products * facts.profile.data.samples:
            return False
    return rule.compute_bound(node, facts.graph) or node.op_type in target.symmetric_inputs


def multiplications_per_output(node: Node) -> float | None:
    """Return the multiplications for each output element of a product with a constant weight; else None."""
    layout = None if node.rule is None else node.rule.weight
    weight = None if layout is None else node.constant(layout.index)
    if layout is None or weight is None or weight.ndim < 2:
        return None
    axis = layout.axis(node, weight.ndim)
    return None if axis is None else float(weight.size / max(weight.shape[axis], 1))


# How quantization spreads from node to node ---------------------------------------------------------------


class _Spread:
    """The set of quantized nodes, `quantized`, which grows and shrinks over a graph until it is stable."""

    def __init__(
        self,
        facts: PlanningFacts,
        candidates: Mapping[str, Choice],
        compute_bound: set[str],
        quantized: set[str],
    ) -> None:
        self.facts, self.graph = facts, facts.graph
        self.quantized = quantized
        self._candidates, self._compute_bound = candidates, compute_bound

    def run(self) -> None:
        """Let memory-bound nodes join, and those that gain nothing leave again."""
        left: set[str] = set()
        changed = True
        while changed:
            changed = False
            for node in self.graph.nodes:
                name = node.name
                waits = self._candidates[name].quantized and name not in self.quantized and name not in left
                if waits and self._joins(node):
                    self.quantized.add(name)
                    changed = True
            for node in reversed(self.graph.nodes):
                if node.name in self.quantized and node.name not in self._compute_bound:
                    only_adds_error = self.facts.target.float_elementwise and not self._is_wanted(node)
                    if only_adds_error or not self._joins(node):
                        self.quantized.discard(node.name)
                        left.add(node.name)
                        changed = True

    def inputs(self, node: Node) -> tuple[list[str], list[str], list[str]]:
        """Return the activations that a node reads: quantized, of kernels that could return float, float."""
        target, (quantized, either, floating) = self.facts.target, (list[str](), list[str](), list[str]())
        for name in node.activations:
            producer = self.graph.producer(name)
            if self.graph.is_constant(name):
                continue
            if producer is None or producer.name not in self.quantized:
                floating.append(name)
            elif target.float_elementwise and FLOAT in target.operators.get(producer.op_type, ()):
                either.append(name)
            else:
                quantized.append(name)
        return quantized, either, floating

    def _joins(self, node: Node) -> bool:
        """Whether a memory-bound node is better off quantized, with its present neighbours."""
        rule, (quantized, either, floating) = node.rule, self.inputs(node)
        assert rule is not None
        if not floating:
            passes_on = self._candidates[node.name].kind in (Kind.PASS_THROUGH, Kind.LOOKUP_TABLE)
            return bool(quantized) or (passes_on and bool(either) and self._lead_to_quantized(node))
        if not quantized and not either:
            # A conversion before the node instead of after it: worth it for nodes that pass values through
            # and for products, which are cheaper quantized, when no more has to be converted.
            cheaper = rule.constraint is Constraint.SAME or rule.weight is not None
            if not cheaper or self._elements(floating) > self._elements(node.results):
                return False
        return self._lead_to_quantized(node)

    def _elements(self, names: Iterable[str]) -> int:
        tensors = (self.facts.profile[name] for name in names)
        return sum(tensor.count + tensor.nan + tensor.inf for tensor in tensors)

    def _is_wanted(self, node: Node) -> bool:
        """Whether a reader is quantized, or the node passes values through, quantized at no cost."""
        if node.rule is not None and node.rule.constraint is Constraint.SAME:
            return True
        return any(
            reader.name in self.quantized for name in node.results for reader, _ in self.graph.consumers(name)
        )

    def _lead_to_quantized(self, node: Node) -> bool:
        """Whether every reader of every output is quantized, or passes it on to such readers."""
        for name in node.results:
            readers = self.graph.consumers(name)
            if not readers or self.graph.is_result(name):
                return False
            if not all(self._takes_quantized(reader, index) for reader, index in readers):
                return False
        return True

    def _takes_quantized(self, reader: Node, index: int) -> bool:
        rule = reader.rule
        if rule is None:
            return False
        if index not in [*rule.activations(reader), *([rule.weight.index] if rule.weight else [])]:
            return False
        passes_on = self._candidates[reader.name].kind in (Kind.PASS_THROUGH, Kind.LOOKUP_TABLE)
        return reader.name in self.quantized or (passes_on and self._lead_to_quantized(reader))


def _returns_float(node: Node, spread: _Spread) -> bool:
    """Whether a quantized node gives float: its kernel can, and its readers do not all want integers."""
    graph, facts = spread.graph, spread.facts
    kernel_returns = facts.target.operators.get(node.op_type, ())
    if FLOAT not in kernel_returns:
        return False
    if QUANTIZED not in kernel_returns:
        return True
    readers = [[reader for reader, _ in graph.consumers(name)] for name in node.results]
    if all(
        not graph.is_result(name) and own and all(reader.name in spread.quantized for reader in own)
        for name, own in zip(node.results, readers, strict=True)
    ):
        return False
    # onnxruntime makes a FusedGemm of Gemm and the function that alone reads it before it looks for
    # conversions, and dequantizes the weight in every run: three layers of 512 took 541 us, in float 88, with
    # a quantized result 36.
    following = [reader for own in readers for reader in own]
    rule = following[0].rule if len(following) == 1 else None
    fused = rule is not None and (rule.unary or rule.constraint is Constraint.CLAMP)
    return not (fused and node.facts.kernel is KernelSizes.MATRIX and facts.target.folds == "arithmetic")
