"""Facts -> plan. Pure: no data is run and nothing is written.

`make_plan` asks one question after the other, and no answer is changed by a later one:

    what becomes of each node?              `kinds`: selection, then dynamic and weight-only nodes
    which activations share a scale?        `shared_scales.find_groups`
    which parameters has each tensor?       `parameters.choose_parameters`
    how is each node written?               `_node_plan`

The plan is made again with more nodes in float until its noise is within the budget (`noise_budget.budget`).
What is left of that is for int8 weights of the nodes that stay float (`hybrid.with_int8_weights`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import onnx_ir as ir

from ...profiles.base.tool import tool_name
from ..costs.channel_padding import find_padding
from ..costs.float_regions import Prices, find_prices
from ..costs.predicted import CostModel
from ..costs.slower_nodes import slower_nodes
from ..model.graph import Graph, input_name, name_of, output_name
from ..noise_budget.budget import PlanMaker, plan_within_noise_budget
from ..operators.operands import activation_names, outputs_of
from ..operators.table import MICROSOFT, Constraint
from ..plan.plan import Kind, NodePlan, PlanOrigin, QuantPlan
from ..plan.reasons import FloatReason, FloatReasons, UnfitNodesError
from ..targets.config import DATA_FREE
from .candidates import Choice
from .facts import PlanningFacts
from .hybrid import Hybrid, all_float, find_hybrids, with_int8_weights
from .parameters import Parameters, choose_parameters, touches_16_bits
from .selection import select
from .shared_scales import find_groups, shared_scales

NO_FLOATS: FloatReasons = {}
STANDARD_QLINEAR = ("Conv", "MatMul")
"""Operators with a counterpart on quantized values in ONNX itself: QLinearConv and QLinearMatMul."""


def make_plan(
    facts: PlanningFacts, floats: FloatReasons = NO_FLOATS, *, start_everywhere: bool = False
) -> QuantPlan:
    """Decide everything about one model, its noise at the outputs included.

    Args:
        facts: the model.
        floats: nodes that stay float, each with the reason.
        start_everywhere: let quantization start at memory-bound operators too, whatever their neighbours are.

    Raises:
        ConfigError: the settings name something that the model does not have.
    """
    table = facts.recipe.costs
    model = None if table is None else CostModel(facts.graph, facts.profile, table)

    def make(noisy: FloatReasons) -> QuantPlan:
        plan = decide(facts, {**noisy, **floats}, start_everywhere=start_everywhere)
        if model is None:
            return plan
        return _without_slower(facts, {**noisy, **floats}, plan, model, start_everywhere=start_everywhere)

    def prices(plan: QuantPlan) -> Prices:
        assert model is not None
        return find_prices(facts.graph, plan, facts.profile, model.costs(with_padding(plan, model)))

    maker = PlanMaker(
        make,
        lambda plan, without: with_int8_weights(facts, plan, without=without),
        None if model is None else prices,
    )
    return plan_within_noise_budget(maker, facts.activations, facts.noise_limits)


def _without_slower(
    facts: PlanningFacts,
    floats: FloatReasons,
    plan: QuantPlan,
    model: CostModel,
    *,
    start_everywhere: bool,
) -> QuantPlan:
    """Return a plan, or one in which the nodes that are predicted to be slower in int8 stay float too."""
    while True:
        slower = slower_nodes(facts.graph, plan, facts.profile, model.costs(with_padding(plan, model)))
        if slower.keys() <= floats.keys():  # a node may be what it is whatever it costs
            return plan
        floats = {**floats, **slower}
        plan = decide(facts, floats, start_everywhere=start_everywhere)


def with_padding(plan: QuantPlan, model: CostModel) -> QuantPlan:
    """Return a plan with the channels padded where that is predicted to be faster."""
    padded = find_padding(model, plan)
    return replace(plan, adjustments=replace(plan.adjustments, padded_channels=padded))


def decide(facts: PlanningFacts, floats: FloatReasons, *, start_everywhere: bool = False) -> QuantPlan:
    """Return the plan in which these nodes stay float, whatever its noise is. See `make_plan`.

    Nodes whose constants turn out to have no parameters stay float too: each try leaves more of them float.
    """
    unfit: dict[str, FloatReason] = {}
    while True:
        try:
            return _decided(facts, {**floats, **unfit}, start_everywhere=start_everywhere)
        except UnfitNodesError as error:
            if error.reasons.keys() <= unfit.keys():
                raise
            unfit.update(error.reasons)


def _decided(facts: PlanningFacts, floats: FloatReasons, *, start_everywhere: bool) -> QuantPlan:
    choices, hybrids = kinds(facts, floats, start_everywhere=start_everywhere)
    groups = find_groups(facts, choices)
    parameters = choose_parameters(
        facts, choices, groups, {name: hybrid.inputs for name, hybrid in hybrids.items()}
    )
    nodes = {name_of(n): _node_plan(facts, n, choices[name_of(n)], parameters) for n in facts.graph.nodes}
    notes = (*facts.notes, *_note_16_bits(facts, choices, parameters), *_note_retyped(parameters))
    return QuantPlan(
        facts.identity,
        facts.recipe.config,
        parameters.tensors,
        nodes,
        notes,
        tool=tool_name(),
        shared_scales=shared_scales(groups),
        origin=PlanOrigin(facts.profile_digest),
    )


def kinds(
    facts: PlanningFacts, floats: FloatReasons, *, start_everywhere: bool = False
) -> tuple[dict[str, Choice], dict[str, Hybrid]]:
    """Return what becomes of every node, by name in graph order, and of them those that are hybrids."""
    if facts.config.mode in DATA_FREE:
        choices = all_float(facts)
    else:
        choices = select(facts, floats, start_everywhere=start_everywhere)
    hybrids = find_hybrids(facts, choices, floats)
    return choices | {name: hybrid.choice for name, hybrid in hybrids.items()}, hybrids


def _node_plan(facts: PlanningFacts, node: ir.Node, choice: Choice, parameters: Parameters) -> NodePlan:
    shares = _shares_parameters(facts, node, choice, parameters)
    kind = choice.kind
    if kind is Kind.PASS_THROUGH and not shares:
        kind = Kind.QUANTIZED  # a clip with parameters of its own converts
    return NodePlan(
        kind,
        choice.reason,
        parameters.inputs[name_of(node)],
        _implementation(facts, node, choice, shares, parameters),
    )


def _shares_parameters(facts: PlanningFacts, node: ir.Node, choice: Choice, parameters: Parameters) -> bool:
    """Whether all activations that a quantized node reads and makes have the same parameters."""
    if not choice.quantized or choice.rule is None:
        return False
    names = [*activation_names(node, choice.rule, facts.graph), *outputs_of(node)]
    read = [parameters.activations.get(name, parameters.tensors.get(name)) for name in names]
    return read[0] is not None and all(params == read[0] for params in read)


def _implementation(
    facts: PlanningFacts,
    node: ir.Node,
    choice: Choice,
    shares: bool,
    parameters: Parameters,
) -> str:
    """Return how a node is written: the look-up table that was chosen, or the target's way to pass
    through."""
    if name_of(node) in facts.usual:
        return choice.implementation
    if choice.kind is Kind.FLOAT:
        return _float_implementation(facts, node, parameters)
    if facts.config.form == "qoperator" and MICROSOFT not in facts.target.domains and choice.quantized:
        return _in_standard_operators(node, choice)
    if touches_16_bits(facts, node, choice, parameters.activations):  # the other ways are for 8 bits
        return "runtime" if choice.implementation in ("sigmoid", "saturating") else choice.implementation
    own = (
        choice.quantized
        and choice.rule is not None
        and choice.rule.constraint in (Constraint.OWN, Constraint.FIXED)
    )
    preferred = facts.target.implementations.get(node.op_type, "") if shares or own else ""
    return choice.implementation or preferred


def _in_standard_operators(node: ir.Node, choice: Choice) -> str:
    """Return how a quantized node is written in form qoperator without onnxruntime's own operators."""
    if choice.kind is Kind.LOOKUP_TABLE:
        return "portable"
    return "" if node.op_type in STANDARD_QLINEAR and not choice.returns_float else "integer"


def _float_implementation(facts: PlanningFacts, node: ir.Node, parameters: Parameters) -> str:
    """Return how a float node is written, "" for as it is, which it is where the runtime does it no harm."""
    how, name = facts.target.float_implementations.get(node.op_type, ""), output_name(node)
    if how == "clip":
        return how if name in parameters.activations else ""
    if how == "sum":
        harmed = _is_normalized(facts.graph, name) or _is_bias(node, facts.graph, parameters)
        return how if harmed else ""
    return how


def _is_bias(node: ir.Node, graph: Graph, parameters: Parameters) -> bool:
    """Whether an Add is the bias of a quantized MatMul of known shape, both of which become a float Gemm."""
    for value in node.inputs:
        maker = graph.producer(name_of(value))
        if maker is None or maker.op_type != "MatMul" or len(graph.consumers(name_of(value))) != 1:
            continue
        weight, shape = input_name(maker, 1), graph.shape(input_name(maker, 0))
        known = shape is not None and None not in shape
        if known and graph.is_constant(weight) and weight in parameters.tensors:
            return any(graph.is_constant(name_of(other)) for other in node.inputs if other is not value)
    return False


def _is_normalized(graph: Graph, name: str) -> bool:
    """Whether a LayerNormalization reads a tensor, or the operators that it consists of."""
    readers = {reader.op_type for reader, index in graph.consumers(name) if index == 0}
    return "LayerNormalization" in readers or {"ReduceMean", "Sub"} <= readers


def _note_16_bits(
    facts: PlanningFacts, choices: Mapping[str, Choice], parameters: Parameters
) -> tuple[str, ...]:
    """Return a remark when operators with 16-bit activations have no integer kernel for them."""
    activations, target = parameters.activations, facts.target
    wide = sum(params.qtype.bits == 16 for params in activations.values())
    touching = {
        node.op_type
        for node in facts.graph.nodes
        if touches_16_bits(facts, node, choices[name_of(node)], activations)
    }
    lacking = sorted(op_type for op_type in touching if not target.has_16bit_kernel(op_type))
    if not wide or not lacking:
        return ()
    names = ", ".join(lacking[:4]) + (", ..." if len(lacking) > 4 else "")
    return (
        f"{wide} activations have 16 bits; {target.name} has no such kernel of {names}: "
        "float between conversions",
    )


def _note_retyped(parameters: Parameters) -> tuple[str, ...]:
    if not parameters.retyped:
        return ()
    return (
        f"{parameters.retyped} signed tensors are stored as uint8 with the same scale, the zero "
        "point shifted by 128: the runtime's kernels want that",
    )
