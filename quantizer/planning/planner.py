"""Facts -> one plan: `decide`. Pure.

A decision has these steps, and no step changes the result of an earlier one:

    nodes in number formats                 `plan.formats`: the rest is planned around them
    the kind of each node                   `selection.select`, then `hybrid.find_hybrids` for float nodes
    activations that share a scale          `shared_scales.find_groups`
    parameters of each tensor               `parameters.choose_parameters`
    implementation of each node             `_implementation`
    changes by number formats               `plan.formats`

A rule (`FloatRule`) looks at a whole decision and names nodes that are better in float because they are
slower in int8, or too noisy. `decide` repeats the steps with these in float, until no rule names another.
Rules about time are here (`rounded_outputs`, `unprofitable`), others in `noise_budget`, whose `make_plan` has
them in their order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from ...profiles.base.findings import Code, Finding
from ...profiles.base.once import computed_once
from ...profiles.base.seconds import clocked
from ...profiles.base.tool import tool_name
from ...profiles.base.tuned import tuned
from ..costs.float_regions import Crossing, Prices, find_prices, unprofitable_nodes
from ..costs.predicted import CostModel, Costs, find_folds, find_padding
from ..model.graph import name_of
from ..noise.propagation import NoiseFlow, noise_flow
from ..operators.functions import CHAIN, chain_of
from ..operators.graph import Graph, Node
from ..operators.table import MICROSOFT, Constraint
from ..plan.formats import formats_of
from ..plan.plan import Implementation, Kind, NodePlan, PlanOrigin, QuantPlan
from ..plan.reasons import FloatReason, FloatReasons, ReasonCode, UnfitNodesError, because
from ..plan.rewrites import float_rewrites
from ..targets.config import DATA_FREE
from ..targets.forms import FORMS
from .facts import PlanningFacts
from .hybrid import data_free_choices, find_hybrids
from .known import NOTHING, Known
from .parameters import Parameters, choose_parameters
from .selection import Choice, candidates_of, multiplications_per_output, select
from .shared_scales import find_groups, shared_scales

NO_FLOATS: FloatReasons = {}

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Decision:
    """A plan, and intermediate results that it does not contain."""

    facts: PlanningFacts
    known: Known
    plan: QuantPlan

    @cached_property
    def noise(self) -> tuple[NoiseFlow, Mapping[str, Floats]]:
        """The plan's noise flow to the judged tensors, and the noise of each node there."""
        estimator = self.facts.noise_estimator
        flow = noise_flow(estimator.gains_of(self.plan), self.facts.judged)
        return flow, estimator.by_node(flow, self.plan)

    @cached_property
    def costs(self) -> Costs | None:
        """The predicted times of all nodes; None without measured kernels."""
        model = self.facts.cost_model
        return None if model is None else model.costs(with_fitting_shapes(self.plan, model))

    @cached_property
    def prices(self) -> Prices:
        """The times of the plan's quantized nodes and conversions, in int8 and in float."""
        facts = self.facts
        if self.costs is not None:
            return find_prices(facts.graph, self.plan, facts.profile, self.costs)
        return _assumed_prices(facts, self.plan)


FloatRule = Callable[[Decision], FloatReasons]
"""Returns the nodes of a plan that are better in float, each with the reason; those that are already float
may be among them."""


def decide(facts: PlanningFacts, known: Known = NOTHING, rules: Sequence[FloatRule] = ()) -> QuantPlan:
    """Return the plan of `decision_of`."""
    return decision_of(facts, known, rules).plan


@clocked("decide")
def decision_of(facts: PlanningFacts, known: Known, rules: Sequence[FloatRule]) -> Decision:
    """Iterate to the decision at which no rule names another node that is better in float."""
    while True:
        try:
            decision = _decided(facts, known)
        except UnfitNodesError as error:
            if error.reasons.keys() <= known.floats.keys():
                raise
            found = error.reasons
        else:
            answers = (rule(decision) for rule in rules)
            found = next(
                (answer for answer in answers if not answer.keys() <= known.floats.keys()), NO_FLOATS
            )
            if not found:
                return decision
        known = known.with_floats(found)


def _decided(facts: PlanningFacts, known: Known) -> Decision:
    """Return `_decision`, or the same one that was made before."""
    if known == NOTHING:
        return _first_decision(facts)
    before = (one for one in known.decided if one.facts is facts and one.known == known)
    if (decision := next(before, None)) is None:
        decision = _decision(facts, known)
        known.decided.append(decision)
    return decision


@computed_once
def _first_decision(facts: PlanningFacts) -> Decision:
    return _decision(facts, NOTHING)


def plan_with_chains(
    facts: PlanningFacts, known: Known, make: Callable[[PlanningFacts, Known], QuantPlan]
) -> QuantPlan:
    """Return a plan from `make`, called on the contracted model, with chains expanded."""
    return _expanded(make(facts.contracted, known.renamed(facts.by_planned_node)), facts)


def _expanded(plan: QuantPlan, facts: PlanningFacts) -> QuantPlan:
    """Return the plan of a contracted graph as one of the model itself, whose facts are given."""
    if not facts.chains:
        return plan
    entries: dict[str, NodePlan] = {}
    for name, entry in plan.nodes.items():
        chain = facts.chains.get(name)
        if chain is None:
            entries[name] = entry
            continue
        for node in chain.nodes:
            if entry.kind is Kind.FLOAT:
                own = name_of(node)
                spelling = entry.implementation or facts.float_spellings.get(own, "")
                entries[own] = replace(entry, implementation=spelling)
                continue
            remark = f"part of the look-up table of '{chain.name}'"
            if node is chain.nodes[-1]:
                operator = (
                    "float operator" if entry.implementation == Implementation.FUSED else "look-up table"
                )
                remark = f"one {operator} for {chain.operators}"
            reads = [index for index, value in enumerate(node.inputs) if value is chain.source]
            inputs = dict.fromkeys(reads, entry.inputs[0]) if entry.inputs else {}
            entries[name_of(node)] = replace(entry, inputs=inputs, because=remark)
    return replace(plan, nodes={node.name: entries[node.name] for node in facts.graph.nodes})


def _decision(facts: PlanningFacts, known: Known) -> Decision:
    """Return the answers to all questions; raise UnfitNodesError if constants of nodes get no parameters."""
    graph, target, floats = facts.graph, facts.target, {**known.floats, **known.unfit}
    parts = [number_format.part(facts, floats, known) for number_format in formats_of(facts.config)]
    taken = {name: Choice(Kind.FLOAT) for part in parts for name in part.nodes}
    if facts.config.mode in DATA_FREE:
        choices = data_free_choices(facts, floats)
    else:
        without = dict.fromkeys(taken, because(ReasonCode.FLOAT_PRODUCTS, type="", operators=""))
        for part in parts:
            without |= part.floats
        choices = select(facts, candidates_of(facts), without | floats)
    choices |= find_hybrids(facts, choices, known)
    choices |= taken
    groups = find_groups(facts, choices)
    parameters = choose_parameters(facts, choices, groups)

    nodes: dict[str, NodePlan] = {}
    for node in graph.nodes:
        choice = choices[node.name]
        # Whether all activations that the node reads and makes have the same parameters.
        names = (*node.activations, *node.results) if choice.quantized else ()
        params = [parameters.activations.get(name, parameters.tensors.get(name)) for name in names]
        shares = bool(params) and params[0] is not None and all(own == params[0] for own in params)
        kind = choice.kind
        if kind is Kind.PASS_THROUGH and not shares:
            kind = Kind.QUANTIZED  # a clip with parameters of its own converts
        how = _implementation(facts, node, choice, parameters, shares=shares)
        nodes[node.name] = NodePlan(kind, choice.reason, parameters.inputs[node.name], how)
    plan = QuantPlan(
        facts.identity,
        facts.recipe.config,
        parameters.tensors,
        nodes,
        (*facts.findings, *known.findings),
        tool=tool_name(),
        shared_scales=shared_scales(groups),
        origin=PlanOrigin(facts.profile_digest),
    )
    for part in parts:
        plan = part.finish(plan)

    findings = list(plan.findings)
    wide = sum(params.qtype.bits == 16 for params in parameters.activations.values())
    lacking = sorted(
        {
            node.op_type
            for node in graph.nodes
            if parameters.touches_16_bits(node, choices[node.name])
            and not target.has_16bit_kernel(node.op_type)
        }
    )
    if wide and lacking:
        listed = ", ".join(lacking[:4]) + (", ..." if len(lacking) > 4 else "")
        sentence = (
            f"{wide} activations have 16 bits; {target.name} has no such kernel of {listed}: float between "
            "conversions"
        )
        findings.append(Finding(Code.NO_16_BIT_KERNEL, sentence, target.name, {"activations": wide}))
    plan = replace(plan, findings=tuple(findings))
    return Decision(facts, known, plan)


# How each node is written ---------------------------------------------------------------------------------


def _implementation(
    facts: PlanningFacts, node: Node, choice: Choice, parameters: Parameters, *, shares: bool
) -> str:
    """Return the implementation of a node: the selected look-up table, or one of the target's variants."""
    target, rule = facts.target, node.rule
    wide = parameters.touches_16_bits(node, choice)
    layout = None if rule is None else rule.weight
    constant_weight = layout is not None and facts.graph.is_constant(node.input(layout.index))
    if wide and constant_weight and target.rounds_16_bits(node.op_type):
        return Implementation.FOLDED
    if choice.kind is Kind.FLOAT:
        return _float_implementation(facts, node, parameters)
    by_name = FORMS[facts.config.form].names_kernels
    if by_name and MICROSOFT not in target.domains and choice.quantized:
        # Where kernels stand by name, without onnxruntime's own.
        if choice.kind is Kind.LOOKUP_TABLE:
            return Implementation.PORTABLE
        standard = rule is not None and rule.standard_qlinear
        is_usual = standard and not choice.returns_float
        return Implementation.USUAL if is_usual else Implementation.INTEGER
    if wide:  # the other ways are for 8 bits
        needs_8_bits = choice.implementation == Implementation.SIGMOID
        return Implementation.RUNTIME if needs_8_bits else choice.implementation
    own = choice.quantized and rule is not None and rule.constraint in (Constraint.OWN, Constraint.FIXED)
    way = target.implementations.get(node.op_type, "") if shares or own else ""
    return choice.implementation or way


def _float_implementation(facts: PlanningFacts, node: Node, parameters: Parameters) -> str:
    """Return the lowering variant of a float node: a faster one, one that avoids harm, or USUAL."""
    reads_stored = node.input(0) in parameters.tensors
    if reads_stored and node.op_type == CHAIN and chain_of(node.ir_node).fused:
        return Implementation.FUSED  # elsewhere the runtime makes that operator of the chain's nodes itself
    spelling = facts.float_spellings.get(node.name)
    if spelling:
        return spelling
    way = facts.target.float_implementations.get(node.op_type, "")
    rewrite = float_rewrites().get(way)
    is_needed = rewrite is not None and rewrite.is_needed(node, facts.graph, parameters)
    return way if is_needed else Implementation.USUAL


# Rules about time -----------------------------------------------------------------------------------------

MAX_OUTPUT_TIME_SHARE = tuned(
    0.05,
    figure=(
        "one convolution of 0.7 % of the time in float is worth 3.4 points, which check samples do not see "
        "(DECISIONS.md, 70)"
    ),
    chosen_on="a detector of corners",
    holds=(0.04, 0.0625),
)
"""Part of the time of all nodes in float for which a product that makes an output stays float."""

PRODUCT_US = 13.5e-6  # microseconds that int8 saves for each multiplication of a product (DECISIONS.md, 13)
ELEMENT_US = 0.5e-3  # microseconds of converting one element (DECISIONS.md, 13)


def unprofitable(decision: Decision) -> FloatReasons:
    """Return the quantized nodes that save too little in int8, as predicted; none without measured times."""
    if decision.facts.cost_model is None:
        return NO_FLOATS
    return _with_following(decision, unprofitable_nodes(decision.prices))


NEAR = 8
"""Activations between a node that goes to float and the farthest node that may get another price by it."""


def _with_following(decision: Decision, found: FloatReasons) -> FloatReasons:
    """Return nodes that are better in float with those that are so once these are float, and so on.

    Decision after decision would find the same, but here only nodes near the last ones get new prices, while
    no layout changes far away. Near a quantized output `rounded_outputs` is asked first.
    """
    facts, costs, entries = decision.facts, decision.costs, dict(decision.plan.nodes)
    graph, model, tensors = facts.graph, facts.cost_model, decision.plan.tensors
    if model is None or costs is None or facts.config.mode != "static" or formats_of(facts.config):
        return found
    layouts, following = costs.layouts, found
    while found:
        entries |= {name: NodePlan(Kind.FLOAT, reason) for name, reason in found.items()}
        judged = _near(graph, found, entries, NEAR)
        part = graph.part(_near(graph, judged, entries, 2))
        is_tied = any(entries[other].kind.reads_quantized for name in found for other in graph.beside(name))
        makers = {graph.maker(name) for name in filter(part.is_result, part.values)} - {""}
        if is_tied or any(entries[name].kind is not Kind.FLOAT for name in makers):
            break
        shown = {name: entries[name] for node in part.nodes for name in graph.beside(node.name)}
        users = [graph.node(name) for name, entry in shown.items() if entry.kind is not Kind.FLOAT]
        stored = {name for user in users for name in (*user.inputs, *user.outputs)}
        own = {name: tensors[name] for name in part.values if name in stored and name in tensors}
        for node in part.nodes:
            if shown[node.name].kind is Kind.FLOAT:
                way = _float_implementation(facts, node, Parameters(own, own, {}))
                shown[node.name] = entries[node.name] = replace(shown[node.name], implementation=way)
        plan, priced = replace(decision.plan, nodes=shown, tensors=own), model.part(part)
        costs = priced.costs(with_fitting_shapes(plan, priced), layouts)
        if any(graph.beside(name) - judged for name in costs.layouts.changed(layouts, part)):
            break
        reasons = unprofitable_nodes(find_prices(part, plan, facts.profile, costs))
        quantized = {name for name in judged if entries[name].kind is not Kind.FLOAT}
        layouts, found = costs.layouts, {name: why for name, why in reasons.items() if name in quantized}
        following = {**following, **found}
    return following


def _near(graph: Graph, names: Iterable[str], entries: Mapping[str, NodePlan], steps: int) -> set[str]:
    """Return nodes up to so many steps from some, and all quantized ones that are connected with these."""
    near = last = set(names)
    while last:
        last = {other for name in last for other in graph.beside(name)} - near
        if steps <= 0:
            last = {name for name in last if entries[name].kind.reads_quantized}
        near, steps = near | last, steps - 1
    return near


def rounded_outputs(decision: Decision) -> FloatReasons:
    """Return quantized products that make an output of the model and cost little in float, with figures.

    Rounding an output differs from noise inside: peaks in it become ties, and move.
    """
    facts, plan = decision.facts, decision.plan
    if not facts.config.regards_time or not facts.target.float_elementwise:
        return NO_FLOATS
    prices = decision.prices
    whole = sum(prices.floating.values())
    reasons: dict[str, FloatReason] = {}
    for node in facts.graph.nodes:
        if node.rule is None or node.rule.weight is None or plan.nodes[node.name].kind is not Kind.QUANTIZED:
            continue
        output = _moved_to(node.output, facts.graph, plan) if node.output in plan.tensors else ""
        if output:
            lost = -prices.saved_in_float({node.name}, prices.integer.keys())
            if facts.cost_model is None:  # of what conversions take nothing is known
                lost = prices.floating[node.name]
            share = lost / whole if whole else 1.0
            if share <= MAX_OUTPUT_TIME_SHARE:
                cost = 100.0 * max(share, 0.0)
                reasons[node.name] = because(ReasonCode.ROUNDED_OUTPUT, output=output, cost_share=cost)
    return reasons


def _moved_to(name: str, graph: Graph, plan: QuantPlan) -> str:
    """Return the model output that gets the unchanged values of a tensor, or ""."""
    if graph.is_result(name):
        return name
    readers = [r for r, _ in graph.consumers(name) if plan.nodes[r.name].kind is Kind.PASS_THROUGH]
    return next(filter(None, (_moved_to(n, graph, plan) for r in readers for n in r.results)), "")


def with_fitting_shapes(plan: QuantPlan, model: CostModel) -> QuantPlan:
    """Return a plan with channels padded, and widths folded into channels, if predicted faster."""
    unfitted = replace(plan.adjustments, padded_channels={}, folded_widths={})
    plan = replace(plan, adjustments=unfitted)
    padded = replace(plan, adjustments=replace(unfitted, padded_channels=find_padding(model, plan)))
    folded = replace(padded.adjustments, folded_widths=find_folds(model, padded))
    return replace(padded, adjustments=folded)


def _assumed_prices(facts: PlanningFacts, plan: QuantPlan) -> Prices:
    """Return the times of a plan's nodes in float and of conversions without measured ones (microseconds)."""
    graph, profile = facts.graph, facts.profile
    samples = max(profile.data.samples, 1)
    floating = {}
    for node in graph.nodes:
        if plan.nodes[node.name].kind is not Kind.FLOAT:
            elements = max((profile[n].count for n in node.results if n in profile), default=0) / samples
            floating[node.name] = PRODUCT_US * elements * (multiplications_per_output(node) or 1.0)
    crossings = []
    for name in profile:
        if name in graph.values:
            maker, readers = graph.maker(name), tuple(dict.fromkeys(n.name for n, _ in graph.consumers(name)))
            if readers and floating.keys() & {maker, *readers}:
                conversion = ELEMENT_US * profile[name].count / samples
                crossings.append(Crossing(name, maker, readers, conversion))
    return Prices(dict.fromkeys(floating, 0.0), floating, tuple(crossings), {})
