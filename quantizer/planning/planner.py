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

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from ...profiles.base.errors import PlanError
from ...profiles.base.improvement import improvement
from ...profiles.base.tool import tool_name
from ..costs.float_regions import Prices, find_prices, unprofitable_nodes
from ..costs.predicted import CostModel, find_padding
from ..operators.caches import PLACES
from ..operators.decompositions import is_normalized
from ..operators.facts import KernelSizes
from ..operators.functions import CHAIN, chain_of
from ..operators.graph import Graph, Node
from ..operators.operands import operator_of
from ..operators.table import MICROSOFT, Constraint
from ..plan.plan import FUSED_CHAIN, PLAIN_LAYOUT, Kind, NodePlan, PlanOrigin, QuantPlan
from ..plan.reasons import FloatReason, FloatReasons, ReasonCode, UnfitNodesError, because
from ..targets.config import DATA_FREE
from ..targets.forms import FORMS
from ..targets.target import FLOAT, QUANTIZED
from .borders import integer_borders
from .caches import with_int8_caches
from .candidates import Choice, find_candidates
from .facts import PlanningFacts
from .hybrid import Hybrid, all_float, find_hybrids, with_int8_weights
from .noise_budget import PlanMaker, estimated_prices, plan_within_noise_budget
from .parameters import Parameters, choose_parameters, touches_16_bits
from .shared_scales import find_groups, shared_scales
from .size_budget import wide_nodes

NO_FLOATS: FloatReasons = {}


PRICES = "predicted times (nodes that are slower in int8 may be quantized)"
"""What is left out where they cannot be predicted."""


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
    facts = replace(facts, wide=wide_nodes(facts, lambda narrow: decide(narrow, floats)))
    model = facts.cost_model

    def make(noisy: FloatReasons) -> QuantPlan:
        kept = {**noisy, **floats}
        plan = decide(facts, kept, start_everywhere=start_everywhere)
        rounded = {} if start_everywhere else rounded_outputs(facts, plan, prices(plan))
        if rounded:
            kept = {**rounded, **kept}
            plan = decide(facts, kept)
        if model is None:
            return plan
        with improvement(PRICES, PlanError):
            return _paying(facts, kept, plan, model, start_everywhere=start_everywhere)
        return plan

    def prices(plan: QuantPlan) -> Prices:
        if model is None:
            return estimated_prices(facts.graph, plan, facts.profile)
        return find_prices(facts.graph, plan, facts.profile, model.costs(with_padding(plan, model)))

    maker = PlanMaker(
        make,
        lambda plan, without: with_int8_weights(facts, plan, without=without),
        prices,
    )
    with improvement("noise budget (outputs may be noisier than their limits)", PlanError):
        return plan_within_noise_budget(maker, facts.activations, facts.noise_limits, facts.left)
    plan = make(NO_FLOATS)
    with improvement("int8 weights of float nodes", PlanError):
        return maker.store(plan, ())
    return plan


def _paying(
    facts: PlanningFacts,
    floats: FloatReasons,
    plan: QuantPlan,
    model: CostModel,
    *,
    start_everywhere: bool,
) -> QuantPlan:
    """Return a plan, or one in which the nodes of regions that save too little in int8 stay float too."""
    while True:
        found = unprofitable_nodes(facts.graph, plan, facts.profile, model.costs(with_padding(plan, model)))
        if found.keys() <= floats.keys():  # a node may be what it is whatever it costs
            return plan
        floats = {**floats, **found}
        plan = decide(facts, floats, start_everywhere=start_everywhere)


MOST_FOR_AN_OUTPUT = 0.05
"""Part of the time of all nodes in float for which a product that makes an output stays float."""


def rounded_outputs(facts: PlanningFacts, plan: QuantPlan, prices: Prices) -> dict[str, FloatReason]:
    """Return quantized products that make an output of the model and cost little in float, each with the
    figures.

    Rounding an output is another thing than noise within: peaks in it become ties, and move. A product whose
    kernel returns float does not round it; look-up tables have a range of their own and are left alone.

    Args:
        facts: the model; a target that has no float operators between quantized ones rounds all outputs.
        plan: its plan.
        prices: of its nodes and conversions.
    """
    if facts.config.cost_model == "off" or not facts.target.float_elementwise:
        return {}
    now, whole, found = set(prices.integer), sum(prices.floating.values()), dict[str, FloatReason]()
    for node in facts.graph.nodes:
        is_product = node.rule is not None and node.rule.weight is not None
        if (
            not is_product
            or plan.nodes[node.name].kind is not Kind.QUANTIZED
            or node.output not in plan.tensors
        ):
            continue
        output = _moved_to(node.output, facts.graph, plan)
        if output:
            lost = prices.total(now - {node.name}) - prices.total(now)
            if facts.cost_model is None:  # of what conversions take nothing is known
                lost = prices.floating[node.name]
            share = lost / whole if whole else 1.0
            if share <= MOST_FOR_AN_OUTPUT:
                cost = 100.0 * max(share, 0.0)
                found[node.name] = because(ReasonCode.ROUNDED_OUTPUT, output=output, cost_share=cost)
    return found


def _moved_to(name: str, graph: Graph, plan: QuantPlan) -> str:
    """Return the output of the model to which the values of a tensor are moved as they are; "" for none."""
    if graph.is_result(name):
        return name
    readers = [r for r, _ in graph.consumers(name) if plan.nodes[r.name].kind is Kind.PASS_THROUGH]
    return next(filter(None, (_moved_to(n, graph, plan) for r in readers for n in r.results)), "")


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
    nodes = {n.name: _node_plan(facts, n, choices[n.name], parameters) for n in facts.graph.nodes}
    nodes = with_int8_caches(facts, nodes)
    notes = (
        *facts.notes,
        *_note_int8_caches(facts, nodes),
        *_note_16_bits(facts, choices, parameters),
        *_note_retyped(parameters),
    )
    return QuantPlan(
        facts.identity,
        facts.recipe.config,
        parameters.tensors,
        nodes,
        notes,
        tool=tool_name(),
        shared_scales=shared_scales(groups),
        origin=PlanOrigin(facts.profile_digest),
        borders=integer_borders(facts, parameters.tensors, nodes),
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


def _note_int8_caches(facts: PlanningFacts, nodes: Mapping[str, NodePlan]) -> tuple[str, ...]:
    """Return a remark when the model takes and returns int8 where it took and returned float."""
    kept = [node for node in facts.graph.nodes if nodes[node.name].keeps_int8_cache]
    if not kept:
        return ()
    names = ", ".join(kept[0].input(place.past) for place in PLACES)
    return (
        f"keys and values of {len(kept)} node{'s'[: len(kept) > 1]} are int8: the model takes {names} and so "
        "on, and returns them, in int8, times the scales that these nodes read",
    )


def _note_16_bits(
    facts: PlanningFacts, choices: Mapping[str, Choice], parameters: Parameters
) -> tuple[str, ...]:
    """Return a remark when operators with 16-bit activations have no integer kernel for them."""
    activations, target = parameters.activations, facts.target
    wide = sum(params.qtype.bits == 16 for params in activations.values())
    touching = {
        node.op_type
        for node in facts.graph.nodes
        if touches_16_bits(facts, node, choices[node.name], activations)
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


# Which nodes are quantized, and why the others stay float -------------------------------------------------


def select(
    facts: PlanningFacts, floats: FloatReasons, *, start_everywhere: bool = False
) -> dict[str, Choice]:
    """Return the choice for every node of the main graph, by node name in graph order.

    Quantization starts at the compute-bound operators (convolutions and matrix products) and spreads over the
    memory-bound ones between them, as far as that saves conversions:

    1. A memory-bound node joins when an activation that it reads is quantized and the rest is, or can be,
       too.
    2. A node that only passes values through, and a memory-bound convolution, joins as well when all its
       readers want quantized input and no more elements have to be converted before it than after it.
    3. A quantized kernel that can return float (MatMul, Gemm) does so unless all its readers are quantized:
       no rounding is lost on the way into a float operator. From such a node only clips, pass-through nodes
       and look-up tables spread, and only where they lead to quantized nodes again.
    4. Where the target runs float operators between quantized ones at no more than the price of the
       conversions, a memory-bound node without a quantized reader leaves again: quantizing its output would
       only add error.

    With `inter_layer` "float" nothing spreads, and every kernel that can return float does.

    Args:
        facts: the model.
        floats: nodes that stay float, each with the reason.
        start_everywhere: let quantization start at memory-bound operators too, whatever their neighbours are.

    Raises:
        ConfigError: a pattern of `keep_float` names nothing in the model.
    """
    candidates = find_candidates(facts, floats)
    spreads = facts.config.inter_layer == "quantized"
    start_everywhere = start_everywhere or (spreads and facts.target.start_everywhere)
    quantized = {
        name
        for name, choice in candidates.items()
        if choice.quantized and (choice.compute_bound or start_everywhere)
    }
    spread = _Spread(facts, candidates, quantized)
    if not start_everywhere and spreads:
        spread.run()
    origins = spread.origins() if spreads else {}
    return {node.name: _choice(node, spread, origins) for node in facts.graph.nodes}


def _choice(node: Node, spread: _Spread, origins: Mapping[str, tuple[str, ...]]) -> Choice:
    """Return what becomes of a node; of one that could be quantized and is not, what spoke against it."""
    candidate = spread.candidates[node.name]
    if spread.quantized(node):
        return _with_output(node, candidate, spread)
    if not candidate.quantized:
        return candidate
    return Choice(Kind.FLOAT, _not_worth_it(node, spread, origins), candidate.rule)


def _not_worth_it(node: Node, spread: _Spread, origins: Mapping[str, tuple[str, ...]]) -> FloatReason:
    """Return why a node stays float that could be quantized."""
    if spread.facts.config.inter_layer == "float":
        return because(ReasonCode.INTER_LAYER_FLOAT)
    sources = spread.sources(node)
    if sources.quantized or sources.either:
        return because(ReasonCode.MIXED_INPUTS if sources.floating else ReasonCode.NO_INT8_CONSUMER)
    names = sorted(dict.fromkeys(o for name in sources.floating for o in spread.origin(name, origins)))
    origin = ", ".join(names[:2]) + " and others" if len(names) > 2 else " and ".join(names)
    return because(ReasonCode.CONVERSION_COST, origin=origin)


@dataclass(frozen=True)
class _Sources:
    """The activations that a node reads: quantized ones, those of kernels that could return float, float
    ones."""

    quantized: tuple[str, ...]
    either: tuple[str, ...]
    floating: tuple[str, ...]


class _Spread:
    """Quantization on its way over a graph: the set of quantized nodes grows and shrinks until it is
    stable."""

    def __init__(self, facts: PlanningFacts, candidates: Mapping[str, Choice], quantized: set[str]) -> None:
        self.facts, self.graph = facts, facts.graph
        self.candidates = candidates
        self._quantized = quantized

    def quantized(self, node: Node) -> bool:
        """Whether a node is quantized now."""
        return node.name in self._quantized

    def run(self) -> None:
        """Let memory-bound nodes join, and those that gain nothing leave again."""
        left: set[str] = set()
        changed = True
        while changed:
            changed = False
            for node in self.graph.nodes:
                name = node.name
                waits = self.candidates[name].quantized and not self.quantized(node) and name not in left
                if waits and self._joins(node):
                    self._quantized.add(name)
                    changed = True
            for node in reversed(self.graph.nodes):
                name = node.name
                if self.quantized(node) and not self.candidates[name].compute_bound:
                    only_adds_error = self.facts.target.float_elementwise and not self._is_wanted(node)
                    if only_adds_error or not self._joins(node):
                        self._quantized.discard(name)
                        left.add(name)
                        changed = True

    def sources(self, node: Node) -> _Sources:
        """Return what a node reads, constants left out."""
        found: dict[str, list[str]] = {"quantized": [], "either": [], "floating": []}
        rule = self.candidates[node.name].rule
        for name in [] if rule is None else node.activations:
            if self.graph.constant(name) is None:
                found[self._state(name)].append(name)
        return _Sources(*(tuple(names) for names in found.values()))

    def _state(self, name: str) -> str:
        producer, target = self.graph.producer(name), self.facts.target
        if producer is None or not self.quantized(producer):
            return "floating"
        may_return_float = target.float_elementwise and FLOAT in target.operators.get(producer.op_type, ())
        return "either" if may_return_float else "quantized"

    def origins(self) -> dict[str, tuple[str, ...]]:
        """Return, for what float candidates make, the operators where the float comes from: three at most."""
        found: dict[str, tuple[str, ...]] = {}
        for node in self.graph.nodes:
            if self.candidates[node.name].quantized and not self.quantized(node):
                floating = self.sources(node).floating
                names = dict.fromkeys(origin for name in floating for origin in self.origin(name, found))
                found.update(dict.fromkeys(node.results, tuple(names)[:3] or (operator_of(node),)))
        return found

    def origin(self, name: str, found: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
        """Return where the float of a tensor comes from: operators that stay float for reasons of their
        own."""
        producer = self.graph.producer(name)
        return found.get(name, ("the model's inputs",) if producer is None else (operator_of(producer),))

    def _joins(self, node: Node) -> bool:
        """Whether a memory-bound node is better off quantized, its neighbours being what they are now."""
        choice, sources = self.candidates[node.name], self.sources(node)
        assert choice.rule is not None
        if not sources.floating:
            return bool(sources.quantized) or (
                choice.kind in (Kind.PASS_THROUGH, Kind.LOOKUP_TABLE)
                and bool(sources.either)
                and self._lead_to_quantized(node)
            )
        if not sources.quantized and not sources.either:
            # A conversion before the node instead of after it: worth it for nodes that pass values through
            # and for products, which are cheaper quantized, when no more has to be converted.
            cheaper = choice.rule.constraint is Constraint.SAME or choice.rule.weight is not None
            if not cheaper or self._elements(sources.floating) > self._elements(node.results):
                return False
        return self._lead_to_quantized(node)

    def _elements(self, names: Iterable[str]) -> int:
        tensors = (self.facts.profile[name] for name in names)
        return sum(tensor.count + tensor.nan + tensor.inf for tensor in tensors)

    def _is_wanted(self, node: Node) -> bool:
        """Whether a reader is quantized; a pass-through node is as good quantized, whatever reads it."""
        rule = self.candidates[node.name].rule
        if rule is not None and rule.constraint is Constraint.SAME:
            return True
        return any(self.quantized(r) for name in node.results for r, _ in self.graph.consumers(name))

    def _lead_to_quantized(self, node: Node) -> bool:
        """Whether every reader of every output is quantized, or passes it on to such readers."""
        return all(self._leads_to_quantized(name) for name in node.results)

    def _leads_to_quantized(self, name: str) -> bool:
        readers = self.graph.consumers(name)
        if self.graph.is_result(name) or not readers:
            return False
        return all(self._takes_quantized(reader, index) for reader, index in readers)

    def _takes_quantized(self, reader: Node, index: int) -> bool:
        candidate = self.candidates[reader.name]
        rule = candidate.rule
        if rule is None:
            return False
        if index not in [*rule.activations(reader), *([rule.weight.index] if rule.weight else [])]:
            return False
        passes_on = candidate.kind in (Kind.PASS_THROUGH, Kind.LOOKUP_TABLE)
        return self.quantized(reader) or (passes_on and self._lead_to_quantized(reader))


def _with_output(node: Node, choice: Choice, spread: _Spread) -> Choice:
    """Settle whether a quantized kernel that can return float does."""
    graph, outputs = spread.graph, spread.facts.target.operators.get(node.op_type, ())
    if choice.kind is not Kind.QUANTIZED or FLOAT not in outputs:
        return choice
    wanted = spread.facts.config.inter_layer == "quantized" and all(
        not graph.is_result(name)
        and graph.consumers(name)
        and all(spread.quantized(reader) for reader, _ in graph.consumers(name))
        for name in node.results
    )
    wanted = wanted or _is_fused(node, spread)
    return replace(choice, returns_float=not wanted or QUANTIZED not in outputs)


def _is_fused(node: Node, spread: _Spread) -> bool:
    """Whether the runtime would fuse a product in float with the function that alone reads it.

    onnxruntime makes a FusedGemm of Gemm and activation before it looks for conversions, and dequantizes
    the weight in every run: three layers of 512 took 541 us, in float 88, with a quantized result 36.
    """
    readers = [reader for name in node.results for reader, _ in spread.graph.consumers(name)]
    if node.facts.kernel is not KernelSizes.MATRIX or spread.facts.target.folds != "arithmetic":
        return False
    rule = readers[0].rule if len(readers) == 1 else None
    return rule is not None and (rule.unary or rule.constraint is Constraint.CLAMP)


# How each node is written ---------------------------------------------------------------------------------


def _node_plan(facts: PlanningFacts, node: Node, choice: Choice, parameters: Parameters) -> NodePlan:
    shares = _shares_parameters(facts, node, choice, parameters)
    kind = choice.kind
    if kind is Kind.PASS_THROUGH and not shares:
        kind = Kind.QUANTIZED  # a clip with parameters of its own converts
    return NodePlan(
        kind,
        choice.reason,
        parameters.inputs[node.name],
        _implementation(facts, node, choice, shares, parameters),
    )


def _shares_parameters(facts: PlanningFacts, node: Node, choice: Choice, parameters: Parameters) -> bool:
    """Whether all activations that a quantized node reads and makes have the same parameters."""
    if not choice.quantized or choice.rule is None:
        return False
    names = [*node.activations, *node.results]
    read = [parameters.activations.get(name, parameters.tensors.get(name)) for name in names]
    return read[0] is not None and all(params == read[0] for params in read)


def _implementation(
    facts: PlanningFacts,
    node: Node,
    choice: Choice,
    shares: bool,
    parameters: Parameters,
) -> str:
    """Return how a node is written: the look-up table that was chosen, or the target's way to pass
    through."""
    wide = touches_16_bits(facts, node, choice, parameters.activations)
    weight = None if node.rule is None else node.rule.weight
    constant = weight is not None and facts.graph.is_constant(node.input(weight.index))
    if wide and constant and facts.target.rounds_16_bits(node.op_type):
        return "folded"
    if node.name in facts.usual:
        return choice.implementation
    if choice.kind is Kind.FLOAT:
        if _is_fused_after_conversion(node, facts, parameters):
            return FUSED_CHAIN
        spelled = facts.float_spellings.get(node.name, "")
        if spelled == PLAIN_LAYOUT and node.input(0) in parameters.tensors:
            spelled = ""  # what it reads is in no blocks: it is stored quantized
        return spelled or _float_implementation(facts, node, parameters)
    by_name = FORMS[facts.config.form].names_kernels
    if by_name and MICROSOFT not in facts.target.domains and choice.quantized:
        return _in_standard_operators(node, choice)
    if wide:  # the other ways are for 8 bits
        return "runtime" if choice.implementation in ("sigmoid", "saturating") else choice.implementation
    own = (
        choice.quantized
        and choice.rule is not None
        and choice.rule.constraint in (Constraint.OWN, Constraint.FIXED)
    )
    preferred = facts.target.implementations.get(node.op_type, "") if shares or own else ""
    return choice.implementation or preferred


def _is_fused_after_conversion(node: Node, facts: PlanningFacts, parameters: Parameters) -> bool:
    """Whether a float chain is written as one operator: it reads a tensor that is stored quantized.

    Elsewhere the runtime makes that operator of its nodes itself.
    """
    if node.op_type != CHAIN or not chain_of(node.ir_node).fused:
        return False
    return node.input(0) in parameters.tensors


def _in_standard_operators(node: Node, choice: Choice) -> str:
    """Return how a quantized node is written where kernels stand by name, without onnxruntime's own."""
    if choice.kind is Kind.LOOKUP_TABLE:
        return "portable"
    standard = node.rule is not None and node.rule.standard_qlinear
    return "" if standard and not choice.returns_float else "integer"


def _float_implementation(facts: PlanningFacts, node: Node, parameters: Parameters) -> str:
    """Return how a float node is written, "" for as it is, which it is where the runtime does it no harm."""
    how, name = facts.target.float_implementations.get(node.op_type, ""), node.output
    if how == "clip":
        return how if name in parameters.activations else ""
    if how == "sum":
        harmed = is_normalized(facts.graph, name) or _is_bias(node, facts.graph, parameters)
        return how if harmed else ""
    return how


def _is_bias(node: Node, graph: Graph, parameters: Parameters) -> bool:
    """Whether an Add is the bias of a quantized MatMul of known shape, both of which become a float Gemm.

    The bias need not be a constant: in an unrolled LSTM it is the other product of a gate.
    """
    for name in node.inputs:
        maker = graph.producer(name)
        if (
            maker is None
            or maker.facts.kernel is not KernelSizes.MATRIX_STACK
            or len(graph.consumers(name)) != 1
        ):
            continue
        weight, shape = maker.input(1), graph.shape(maker.input(0))
        known = shape is not None and None not in shape
        if known and graph.is_constant(weight) and weight in parameters.tensors:
            others = [other for other in node.inputs if other != name]
            return any(graph.is_constant(other) or _is_row(other, graph) for other in others)
    return False


def _is_row(name: str, graph: Graph) -> bool:
    """Whether a tensor of known shape may be added to each row of a matrix, or to a matrix."""
    shape = graph.shape(name)
    return shape is not None and None not in shape and len(shape) <= 2
