"""Which nodes compute on codes, and why the others stay float. First half of planning; pure.

Integers start at the heavy operators (convolutions and matrix products) and spread over the light ones
between them, as far as that saves conversions:

1. A light node joins when an activation that it reads is in codes and the rest is, or can be, too.
2. A node that only moves values joins as well when all its readers want codes: fewer bytes are moved.
3. An integer kernel that can return float (MatMul, Gemm) does so unless all its readers compute on codes:
   no rounding is lost on the way into a float operator. From such a node only clips, moves and tables
   spread, and only where they lead to codes again.
4. Where the target runs float operators between integer ones at no more than the price of the conversions,
   a light node that no reader wants in codes leaves again: its output is not rounded for nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

import numpy as np
import onnx_ir as ir

from ..profiles.errors import ConfigError, nearest
from ..profiles.profile import Profile
from .graph import Graph
from .plan import Kind
from .rules import Constraint, Rule, rule_of
from .targets import CODES, FLOAT, Target


@dataclass(frozen=True)
class Choice:
    """What was selected for one node.

    Attributes:
        kind: as in `NodePlan`.
        reason: why it stays float.
        rule: its entry in the table, when it has one.
        spelling: how a table is written.
        returns_float: whether an integer node gives float outputs.
    """

    kind: Kind
    reason: str = ""
    rule: Rule | None = None
    spelling: str = ""
    returns_float: bool = False

    @property
    def quantized(self) -> bool:
        """Whether the node computes on codes."""
        return self.kind is not Kind.FLOAT


def select(
    graph: Graph,
    profile: Profile,
    target: Target,
    tables: str,
    keep_float: Iterable[str],
    noisy: Mapping[str, str],
    *,
    start_everywhere: bool = False,
) -> dict[str, Choice]:
    """Return the choice for every node of the main graph, by node name in graph order.

    Args:
        graph: the prepared model.
        profile: its profile.
        target: what the runtime can execute.
        tables: `QuantConfig.tables`.
        keep_float: node names, operator types or globs that stay float.
        noisy: tensors that must not be in codes, each with the reason.
        start_everywhere: let integers start at light operators too, whatever their neighbours are.

    Raises:
        ConfigError: a pattern of `keep_float` names nothing in the model.
    """
    kept = match_nodes(graph, keep_float)
    candidates: dict[str, Choice] = {}
    for node in graph.nodes:
        candidates[_name(node)] = _candidate(node, graph, profile, target, tables, kept, noisy)
    if start_everywhere:
        return {_name(n): _with_output(n, graph, candidates, target) for n in graph.nodes}
    chosen = {
        name: choice
        if choice.rule is not None and choice.rule.heavy and choice.quantized
        else _waiting(choice)
        for name, choice in candidates.items()
    }
    _spread(graph, candidates, chosen, target)
    return {_name(node): _with_output(node, graph, chosen, target) for node in graph.nodes}


def match_nodes(graph: Graph, patterns: Iterable[str]) -> dict[str, str]:
    """Return node name -> pattern for the nodes that a name, operator type or glob pattern names.

    Raises:
        ConfigError: a pattern names no node; with the nearest name or type.
    """
    matched: dict[str, str] = {}
    names = {_name(node): node.op_type for node in graph.nodes}
    for pattern in patterns:
        hits = [n for n, op in names.items() if n == pattern or op == pattern] or [
            n for n, op in names.items() if fnmatchcase(n, pattern) or fnmatchcase(op, pattern)
        ]
        if not hits:
            known = [*dict.fromkeys(names.values()), *names]
            raise ConfigError(
                f"keep_float '{pattern}': no node of the model has this name or operator type.{nearest(pattern, known)}"
            )
        matched.update(dict.fromkeys(hits, pattern))
    return matched


def _name(node: ir.Node) -> str:
    return node.name or ""


def _waiting(choice: Choice) -> Choice:
    """A light node before spreading: float until integers reach it."""
    if not choice.quantized:
        return choice
    return Choice(
        Kind.FLOAT, "no neighbour computes on codes: conversions would cost more than they save", choice.rule
    )


def _candidate(
    node: ir.Node,
    graph: Graph,
    profile: Profile,
    target: Target,
    tables: str,
    kept: Mapping[str, str],
    noisy: Mapping[str, str],
) -> Choice:
    """Return the best that could become of this node, its neighbours not considered."""
    rule = rule_of(node)
    op = f"{node.domain}.{node.op_type}" if node.domain else node.op_type
    if _name(node) in kept:
        return Choice(Kind.FLOAT, f"kept float by request ('{kept[_name(node)]}')", rule)
    if rule is None:
        return Choice(Kind.FLOAT, f"no rule for {op}")
    spelling = table_spelling(node.op_type, target, tables) if rule.curve else ""
    if node.op_type not in target.operators and not spelling:
        return Choice(Kind.FLOAT, f"{target.name} has no integer kernel for {op}", rule)
    reason = rule.refusal(node, graph) or _unfit_tensor(node, rule, graph, profile, noisy)
    if not reason and rule.heavy and FLOAT not in target.operators[node.op_type]:
        reason = next((noisy[n] for n in _outputs(node) if n in noisy), "")
    if reason:
        return Choice(Kind.FLOAT, reason, rule)
    if node.op_type not in target.operators:
        return Choice(Kind.TABLE, "", rule, spelling)
    moves = rule.constraint in (Constraint.SAME, Constraint.CLAMP)
    return Choice(Kind.MOVE if moves else Kind.INTEGER, "", rule)


def table_spelling(op_type: str, target: Target, tables: str) -> str:
    """Return how a curve becomes a table, "" when it does not."""
    preferred = target.tables.get(op_type, target.tables.get("*", ""))
    if tables == "target":
        return preferred
    if tables == "sigmoid":  # only Tanh goes through the sigmoid table, and Sigmoid is one
        return {"Tanh": "sigmoid", "Sigmoid": "runtime"}.get(op_type, "")
    if tables == "runtime":
        return "runtime" if preferred == "runtime" else ""
    return "" if tables == "off" else tables


def _unfit_tensor(node: ir.Node, rule: Rule, graph: Graph, profile: Profile, noisy: Mapping[str, str]) -> str:
    """Return why one of the node's tensors cannot be in codes, "" when all can."""
    for name in [*activation_names(node, rule, graph), *_outputs(node)]:
        constant = graph.constant(name)
        if constant is not None:
            if constant.dtype != np.float32:
                return f"constant '{name}' is {constant.dtype}, not float"
            if constant.size == 0 or not np.isfinite(constant).all():
                return f"constant '{name}' is empty or holds values that are not finite"
        elif not graph.is_float(name):
            return f"tensor '{name}' is not float"
        elif name not in profile:
            return f"tensor '{name}' has no profile"
        elif profile[name].dtype != "float":
            return f"tensor '{name}' is {profile[name].dtype}: only float is quantized"
        elif profile[name].count == 0:
            return f"tensor '{name}' was never seen during calibration"
    return next((noisy[n] for n in activation_names(node, rule, graph) if n in noisy), "") or (
        "" if rule.heavy else next((noisy[n] for n in _outputs(node) if n in noisy), "")
    )


def activation_names(node: ir.Node, rule: Rule, graph: Graph) -> list[str]:
    """Return the names of the inputs that are activations: those of the rule, and a weight that is no constant."""
    indices = list(rule.activations(node))
    if rule.weight is not None:
        value = node.inputs[rule.weight.index]
        if value is not None and graph.constant(value.name or "") is None:
            indices.append(rule.weight.index)
    return [value.name or "" for i in indices if (value := node.inputs[i]) is not None]


def _outputs(node: ir.Node) -> list[str]:
    return [value.name for value in node.outputs if value.name]


def _spread(
    graph: Graph, candidates: Mapping[str, Choice], chosen: dict[str, Choice], target: Target
) -> None:
    """Let light nodes join, and those that gain nothing leave again; `chosen` is filled in place."""
    left: set[str] = set()
    changed = True
    while changed:
        changed = False
        for node in graph.nodes:
            name = _name(node)
            if candidates[name].quantized and not chosen[name].quantized and name not in left:
                if _joins(node, graph, candidates, chosen, target):
                    chosen[name] = candidates[name]
                    changed = True
        for node in reversed(graph.nodes):
            name = _name(node)
            rule = chosen[name].rule
            if chosen[name].quantized and rule is not None and not rule.heavy:
                stays = _joins(node, graph, candidates, chosen, target)
                if not stays or (target.float_elementwise and not _is_wanted(node, graph, chosen)):
                    chosen[name] = _waiting(candidates[name])
                    left.add(name)
                    changed = True


def _is_wanted(node: ir.Node, graph: Graph, chosen: Mapping[str, Choice]) -> bool:
    """Whether a reader takes the output as codes; moves are as good on codes whoever reads them."""
    choice = chosen[_name(node)]
    if choice.rule is not None and choice.rule.constraint is Constraint.SAME:
        return True
    return any(chosen[_name(reader)].quantized for n in _outputs(node) for reader, _ in graph.consumers(n))


def _joins(
    node: ir.Node,
    graph: Graph,
    candidates: Mapping[str, Choice],
    chosen: Mapping[str, Choice],
    target: Target,
) -> bool:
    choice = candidates[_name(node)]
    assert choice.rule is not None
    firm = soft = floats = 0
    for name in activation_names(node, choice.rule, graph):
        if graph.constant(name) is not None:
            continue
        producer = graph.producer(name)
        if producer is None or not chosen[_name(producer)].quantized:
            floats += 1
        elif target.float_elementwise and FLOAT in target.operators.get(producer.op_type, ()):
            soft += 1
        else:
            firm += 1
    if floats:
        moves = choice.rule.constraint is Constraint.SAME
        return (firm + soft > 0 or moves) and _lead_to_codes(node, graph, candidates, chosen)
    if soft and not firm:
        return choice.kind in (Kind.MOVE, Kind.TABLE) and _lead_to_codes(node, graph, candidates, chosen)
    return firm > 0


def _lead_to_codes(
    node: ir.Node, graph: Graph, candidates: Mapping[str, Choice], chosen: Mapping[str, Choice]
) -> bool:
    """Whether every reader of every output computes on codes, or moves it to such readers."""
    return all(_leads_to_codes(n, graph, candidates, chosen) for n in _outputs(node))


def _leads_to_codes(
    name: str, graph: Graph, candidates: Mapping[str, Choice], chosen: Mapping[str, Choice]
) -> bool:
    readers = graph.consumers(name)
    if name in graph.outputs or not readers:
        return False
    for reader, index in readers:
        rule = candidates[_name(reader)].rule
        if rule is None or index not in [
            *rule.activations(reader),
            *([rule.weight.index] if rule.weight else []),
        ]:
            return False
        if chosen[_name(reader)].quantized:
            continue
        movable = candidates[_name(reader)].kind in (Kind.MOVE, Kind.TABLE)
        if not movable or not _lead_to_codes(reader, graph, candidates, chosen):
            return False
    return True


def _with_output(node: ir.Node, graph: Graph, chosen: Mapping[str, Choice], target: Target) -> Choice:
    """Settle whether an integer kernel that can return float does."""
    choice = chosen[_name(node)]
    outputs = target.operators.get(node.op_type, ())
    if choice.kind is not Kind.INTEGER or FLOAT not in outputs:
        return choice
    wanted = all(
        n not in graph.outputs
        and graph.consumers(n)
        and all(chosen[_name(r)].quantized for r, _ in graph.consumers(n))
        for n in _outputs(node)
    )
    returns_float = not wanted or CODES not in outputs
    return Choice(choice.kind, choice.reason, choice.rule, choice.spelling, returns_float)
