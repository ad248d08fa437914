"""Which nodes are quantized, and why the others stay float. Second step of planning; pure.

Quantization starts at the compute-bound operators (convolutions and matrix products) and spreads over the
memory-bound ones between them, as far as that saves conversions:

1. A memory-bound node joins when an activation that it reads is quantized and the rest is, or can be, too.
2. A node that only passes values through, and a memory-bound convolution, joins as well when all its readers
   want quantized input and no more elements have to be converted before it than after it.
3. A quantized kernel that can return float (MatMul, Gemm) does so unless all its readers are quantized: no
   rounding is lost on the way into a float operator. From such a node only clips, pass-through nodes and
   look-up tables spread, and only where they lead to quantized nodes again.
4. Where the target runs float operators between quantized ones at no more than the price of the conversions,
   a memory-bound node without a quantized reader leaves again: quantizing its output would only add error.

With `inter_layer` "float" nothing spreads, and every kernel that can return float does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import onnx_ir as ir

from ..model.graph import name_of
from ..operators.operands import activation_names, operator_of, outputs_of
from ..operators.table import Constraint
from ..plan.plan import Kind
from ..plan.reasons import FloatReason, FloatReasons, ReasonCode, because
from ..targets.target import FLOAT, QUANTIZED
from .candidates import Choice, find_candidates
from .facts import PlanningFacts


def select(
    facts: PlanningFacts, floats: FloatReasons, *, start_everywhere: bool = False
) -> dict[str, Choice]:
    """Return the choice for every node of the main graph, by node name in graph order.

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
    return {name_of(node): _choice(node, spread, origins) for node in facts.graph.nodes}


def _choice(node: ir.Node, spread: _Spread, origins: Mapping[str, tuple[str, ...]]) -> Choice:
    """Return what becomes of a node; of one that could be quantized and is not, what spoke against it."""
    candidate = spread.candidates[name_of(node)]
    if spread.quantized(node):
        return _with_output(node, candidate, spread)
    if not candidate.quantized:
        return candidate
    return Choice(Kind.FLOAT, _not_worth_it(node, spread, origins), candidate.rule)


def _not_worth_it(node: ir.Node, spread: _Spread, origins: Mapping[str, tuple[str, ...]]) -> FloatReason:
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

    def quantized(self, node: ir.Node) -> bool:
        """Whether a node is quantized now."""
        return name_of(node) in self._quantized

    def run(self) -> None:
        """Let memory-bound nodes join, and those that gain nothing leave again."""
        left: set[str] = set()
        changed = True
        while changed:
            changed = False
            for node in self.graph.nodes:
                name = name_of(node)
                waits = self.candidates[name].quantized and not self.quantized(node) and name not in left
                if waits and self._joins(node):
                    self._quantized.add(name)
                    changed = True
            for node in reversed(self.graph.nodes):
                name = name_of(node)
                if self.quantized(node) and not self.candidates[name].compute_bound:
                    only_adds_error = self.facts.target.float_elementwise and not self._is_wanted(node)
                    if only_adds_error or not self._joins(node):
                        self._quantized.discard(name)
                        left.add(name)
                        changed = True

    def sources(self, node: ir.Node) -> _Sources:
        """Return what a node reads, constants left out."""
        found: dict[str, list[str]] = {"quantized": [], "either": [], "floating": []}
        rule = self.candidates[name_of(node)].rule
        for name in [] if rule is None else activation_names(node, rule, self.graph):
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
            if self.candidates[name_of(node)].quantized and not self.quantized(node):
                floating = self.sources(node).floating
                names = dict.fromkeys(origin for name in floating for origin in self.origin(name, found))
                found.update(dict.fromkeys(outputs_of(node), tuple(names)[:3] or (operator_of(node),)))
        return found

    def origin(self, name: str, found: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
        """Return where the float of a tensor comes from: operators that stay float for reasons of their
        own."""
        producer = self.graph.producer(name)
        return found.get(name, ("the model's inputs",) if producer is None else (operator_of(producer),))

    def _joins(self, node: ir.Node) -> bool:
        """Whether a memory-bound node is better off quantized, its neighbours being what they are now."""
        choice, sources = self.candidates[name_of(node)], self.sources(node)
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
            if not cheaper or self._elements(sources.floating) > self._elements(outputs_of(node)):
                return False
        return self._lead_to_quantized(node)

    def _elements(self, names: Iterable[str]) -> int:
        return sum(self.facts.profile[name].count for name in names)

    def _is_wanted(self, node: ir.Node) -> bool:
        """Whether a reader is quantized; a pass-through node is as good quantized, whatever reads it."""
        rule = self.candidates[name_of(node)].rule
        if rule is not None and rule.constraint is Constraint.SAME:
            return True
        return any(self.quantized(r) for name in outputs_of(node) for r, _ in self.graph.consumers(name))

    def _lead_to_quantized(self, node: ir.Node) -> bool:
        """Whether every reader of every output is quantized, or passes it on to such readers."""
        return all(self._leads_to_quantized(name) for name in outputs_of(node))

    def _leads_to_quantized(self, name: str) -> bool:
        readers = self.graph.consumers(name)
        if self.graph.is_result(name) or not readers:
            return False
        return all(self._takes_quantized(reader, index) for reader, index in readers)

    def _takes_quantized(self, reader: ir.Node, index: int) -> bool:
        candidate = self.candidates[name_of(reader)]
        rule = candidate.rule
        if rule is None:
            return False
        if index not in [*rule.activations(reader), *([rule.weight.index] if rule.weight else [])]:
            return False
        passes_on = candidate.kind in (Kind.PASS_THROUGH, Kind.LOOKUP_TABLE)
        return self.quantized(reader) or (passes_on and self._lead_to_quantized(reader))


def _with_output(node: ir.Node, choice: Choice, spread: _Spread) -> Choice:
    """Settle whether a quantized kernel that can return float does."""
    graph, outputs = spread.graph, spread.facts.target.operators.get(node.op_type, ())
    if choice.kind is not Kind.QUANTIZED or FLOAT not in outputs:
        return choice
    wanted = spread.facts.config.inter_layer == "quantized" and all(
        not graph.is_result(name)
        and graph.consumers(name)
        and all(spread.quantized(reader) for reader, _ in graph.consumers(name))
        for name in outputs_of(node)
    )
    return replace(choice, returns_float=not wanted or QUANTIZED not in outputs)
