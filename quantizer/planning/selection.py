"""Which nodes compute on codes, and why the others stay float. Second step of planning; pure.

Integers start at the heavy operators (convolutions and matrix products) and spread over the light ones
between them, as far as that saves conversions:

1. A light node joins when an activation that it reads is in codes and the rest is, or can be, too.
2. A node that only moves values, and a light convolution, joins as well when all its readers want codes and
   no more elements have to be converted before it than behind it.
3. An integer kernel that can return float (MatMul, Gemm) does so unless all its readers compute on codes:
   no rounding is lost on the way into a float operator. From such a node only clips, moves and tables
   spread, and only where they lead to codes again.
4. Where the target runs float operators between integer ones at no more than the price of the conversions,
   a light node that no reader wants in codes leaves again: its output is not rounded for nothing.

With `inter_layer` "float" nothing spreads, and every kernel that can return float does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import onnx_ir as ir

from ..model.graph import Graph
from ..operators.operands import activation_names, name_of, operator_of, outputs_of
from ..operators.table import Constraint
from ..plan.plan import Kind
from ..targets.target import CODES, FLOAT
from .candidates import Choice, Limits, find_candidates

RETURNED = "inter_layer float: only products with a weight are in codes"
WAITING = "what it reads is float{}: conversions would cost more than they save"
"""The reason of a node that integers did not reach, with room for where the float comes from."""
PARTLY = "it reads codes and float, and no reader wants its result in codes: conversions would cost more"
UNWANTED = "no reader wants its result in codes: it would be rounded for nothing"


def select(graph: Graph, limits: Limits, *, start_everywhere: bool = False) -> dict[str, Choice]:
    """Return the choice for every node of the main graph, by node name in graph order.

    Args:
        graph: the prepared model.
        limits: what bounds the choice.
        start_everywhere: let integers start at light operators too, whatever their neighbours are.

    Raises:
        ConfigError: a pattern of `keep_float` names nothing in the model.
    """
    candidates = find_candidates(graph, limits)
    waiting = WAITING if limits.inter_layer == "quantized" else RETURNED
    chosen = {
        name: choice if choice.heavy or start_everywhere else _waiting(choice, waiting)
        for name, choice in candidates.items()
    }
    state = _State(graph, limits, candidates, chosen)
    if not start_everywhere and limits.inter_layer == "quantized":
        _spread(state)
    origins = _origins(state) if limits.inter_layer == "quantized" else {}
    return {name_of(n): _with_reason(n, _with_output(n, state), state, origins) for n in graph.nodes}


def _with_reason(
    node: ir.Node, choice: Choice, state: _State, origins: Mapping[str, tuple[str, ...]]
) -> Choice:
    """Say of a node that could have been in codes what spoke against it."""
    candidate = state.candidates[name_of(node)]
    if choice.quantized or not candidate.quantized or state.limits.inter_layer == "float":
        return choice
    firm, soft, floats = _sources(node, candidate, state)
    if not firm and not soft:
        known = sorted(dict.fromkeys(o for name in floats for o in _origin(name, origins, state)))
        told = ", ".join(known[:2]) + " and others" if len(known) > 2 else " and ".join(known)
        return replace(choice, reason=WAITING.format(f" (from {told})" if told else ""))
    return replace(choice, reason=PARTLY if floats else UNWANTED)


def _origins(state: _State) -> dict[str, tuple[str, ...]]:
    """Return, for what waiting nodes make, the operators where the float comes from: three at most."""
    found: dict[str, tuple[str, ...]] = {}
    for node in state.graph.nodes:
        candidate = state.candidates[name_of(node)]
        if candidate.quantized and not state.quantized(node):
            _, _, floats = _sources(node, candidate, state)
            known = dict.fromkeys(origin for name in floats for origin in _origin(name, found, state))
            found.update(dict.fromkeys(outputs_of(node), tuple(known)[:3] or (operator_of(node),)))
    return found


def _origin(name: str, found: Mapping[str, tuple[str, ...]], state: _State) -> tuple[str, ...]:
    """Return where the float of one tensor comes from: operators that stay float for reasons of their own."""
    producer = state.graph.producer(name)
    return found.get(name, ("the model's inputs",) if producer is None else (operator_of(producer),))


@dataclass(frozen=True)
class _State:
    """What the questions below are asked of; `chosen` is filled in while integers spread."""

    graph: Graph
    limits: Limits
    candidates: Mapping[str, Choice]
    chosen: dict[str, Choice]

    def quantized(self, node: ir.Node) -> bool:
        return self.chosen[name_of(node)].quantized


def _waiting(choice: Choice, reason: str = WAITING) -> Choice:
    """A light node before spreading: float until integers reach it."""
    return Choice(Kind.FLOAT, reason, choice.rule) if choice.quantized else choice


def _spread(state: _State) -> None:
    """Let light nodes join, and those that gain nothing leave again."""
    left: set[str] = set()
    changed = True
    while changed:
        changed = False
        for node in state.graph.nodes:
            name = name_of(node)
            waits = state.candidates[name].quantized and not state.quantized(node) and name not in left
            if waits and _joins(node, state):
                state.chosen[name] = state.candidates[name]
                changed = True
        for node in reversed(state.graph.nodes):
            name = name_of(node)
            if state.quantized(node) and not state.chosen[name].heavy:
                rounds_for_nothing = state.limits.target.float_elementwise and not _is_wanted(node, state)
                if rounds_for_nothing or not _joins(node, state):
                    state.chosen[name] = _waiting(state.candidates[name])
                    left.add(name)
                    changed = True


def _is_wanted(node: ir.Node, state: _State) -> bool:
    """Whether a reader takes the output as codes; moves are as good on codes whoever reads them."""
    rule = state.chosen[name_of(node)].rule
    if rule is not None and rule.constraint is Constraint.SAME:
        return True
    return any(state.quantized(reader) for n in outputs_of(node) for reader, _ in state.graph.consumers(n))


def _joins(node: ir.Node, state: _State) -> bool:
    """Whether a light node is better off in codes, its neighbours being what they are now."""
    choice = state.candidates[name_of(node)]
    assert choice.rule is not None
    firm, soft, floats = _sources(node, choice, state)
    if not floats:
        return bool(firm) or (
            choice.kind in (Kind.PASS_THROUGH, Kind.LOOKUP_TABLE)
            and bool(soft)
            and _lead_to_codes(node, state)
        )
    if not firm and not soft:
        # A conversion before the node instead of behind it: worth it for moves and for products, which
        # are cheaper on codes, when no more has to be converted.
        cheaper = choice.rule.constraint is Constraint.SAME or choice.rule.weight is not None
        if not cheaper or _elements(floats, state) > _elements(outputs_of(node), state):
            return False
    return _lead_to_codes(node, state)


def _sources(node: ir.Node, choice: Choice, state: _State) -> tuple[list[str], list[str], list[str]]:
    """Return what is read in codes, what comes from kernels that could return float, and what is float."""
    firm: list[str] = []
    soft: list[str] = []
    floats: list[str] = []
    target = state.limits.target
    assert choice.rule is not None
    for name in activation_names(node, choice.rule, state.graph):
        if state.graph.constant(name) is not None:
            continue
        producer = state.graph.producer(name)
        if producer is None or not state.quantized(producer):
            floats.append(name)
        elif target.float_elementwise and FLOAT in target.operators.get(producer.op_type, ()):
            soft.append(name)
        else:
            firm.append(name)
    return firm, soft, floats


def _elements(names: Iterable[str], state: _State) -> int:
    return sum(state.limits.profile[name].count for name in names)


def _lead_to_codes(node: ir.Node, state: _State) -> bool:
    """Whether every reader of every output computes on codes, or moves it to such readers."""
    return all(_leads_to_codes(name, state) for name in outputs_of(node))


def _leads_to_codes(name: str, state: _State) -> bool:
    readers = state.graph.consumers(name)
    if state.graph.is_result(name) or not readers:
        return False
    for reader, index in readers:
        candidate = state.candidates[name_of(reader)]
        rule = candidate.rule
        if rule is None or index not in [
            *rule.activations(reader),
            *([rule.weight.index] if rule.weight else []),
        ]:
            return False
        if state.quantized(reader):
            continue
        if candidate.kind not in (Kind.PASS_THROUGH, Kind.LOOKUP_TABLE) or not _lead_to_codes(reader, state):
            return False
    return True


def _with_output(node: ir.Node, state: _State) -> Choice:
    """Settle whether an integer kernel that can return float does."""
    choice = state.chosen[name_of(node)]
    outputs = state.limits.target.operators.get(node.op_type, ())
    if choice.kind is not Kind.QUANTIZED or FLOAT not in outputs:
        return choice
    stays = state.limits.inter_layer == "quantized"
    wanted = stays and all(
        not state.graph.is_result(name)
        and state.graph.consumers(name)
        and all(state.quantized(reader) for reader, _ in state.graph.consumers(name))
        for name in outputs_of(node)
    )
    return replace(choice, returns_float=not wanted or CODES not in outputs)
