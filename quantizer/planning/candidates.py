"""What could become of each node by itself, and why it cannot be quantized. Pure; first step of planning."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir

from ...profiles.records.profile import Profile
from ..model.graph import FLOAT_TYPES, Graph
from ..operators.operands import activation_names, match_nodes, name_of, operator_of, outputs_of
from ..operators.table import Constraint, Rule, is_clip, rule_of
from ..plan.plan import ON_CODES, Kind
from ..targets.target import FLOAT, Target, lut_implementation


@dataclass(frozen=True)
class Choice:
    """What was selected for one node.

    Attributes:
        kind: as in `NodePlan`.
        reason: why it stays float.
        rule: its entry in the table, when it has one.
        implementation: how a table is written.
        heavy: whether integers start at this node (see `Rule.heavy`).
        returns_float: whether an integer node gives float outputs.
    """

    kind: Kind
    reason: str = ""
    rule: Rule | None = None
    implementation: str = ""
    heavy: bool = False
    returns_float: bool = False

    @property
    def quantized(self) -> bool:
        """Whether the node computes on codes."""
        return self.kind in ON_CODES


@dataclass(frozen=True)
class Limits:
    """What bounds the choice besides the table.

    Attributes:
        profile: of the model, bound to its tensors.
        target: what the runtime can execute.
        lookup_tables: `QuantConfig.lookup_tables`.
        keep_float: node names, operator types or globs that stay float.
        inter_layer: `QuantConfig.inter_layer`.
        noisy: tensors that must not be in codes, each with the reason.
        loud: nodes that stay float because of what their noise does to the outputs, or for what they serve,
            each with the reason.
    """

    profile: Profile
    target: Target
    lookup_tables: str = "target"
    keep_float: tuple[str, ...] = ()
    inter_layer: str = "quantized"
    noisy: Mapping[str, str] = field(default_factory=dict)
    loud: Mapping[str, str] = field(default_factory=dict)


def find_candidates(graph: Graph, limits: Limits) -> dict[str, Choice]:
    """Return the best that could become of every node, its neighbours not considered, by name in graph order.

    Raises:
        ConfigError: a pattern of `keep_float` names nothing in the model.
    """
    kept = match_nodes(graph, limits.keep_float)
    return {name_of(node): _candidate(node, graph, limits, kept) for node in graph.nodes}


def _candidate(node: ir.Node, graph: Graph, limits: Limits, kept: Mapping[str, str]) -> Choice:
    rule, target = rule_of(node), limits.target
    op = operator_of(node)
    if name_of(node) in kept:
        return Choice(Kind.FLOAT, f"kept float by request ('{kept[name_of(node)]}')", rule)
    if name_of(node) in limits.loud:
        return Choice(Kind.FLOAT, limits.loud[name_of(node)], rule)
    if _makes_no_float(node, graph):
        return Choice(Kind.FLOAT, INDICES, rule)
    if rule is None:
        return Choice(Kind.FLOAT, f"no rule for {op}")
    implementation = lut_implementation(node.op_type, target, limits.lookup_tables) if rule.curve else ""
    if node.op_type not in target.operators and not implementation:
        return Choice(Kind.FLOAT, f"{target.name} has no integer kernel for {op}", rule)
    reason = (
        rule.refusal(node, graph)
        or _cut_range(node, graph, target)
        or _unfit_tensor(node, rule, graph, limits.profile)
        or _noise(node, rule, graph, limits)
    )
    if reason:
        return Choice(Kind.FLOAT, reason, rule)
    if node.op_type not in target.operators:
        return Choice(Kind.LOOKUP_TABLE, "", rule, implementation)
    moves = rule.constraint in (Constraint.SAME, Constraint.CLAMP)
    return Choice(Kind.PASS_THROUGH if moves else Kind.QUANTIZED, "", rule, heavy=rule.heavy(node, graph))


INDICES = "it computes shapes, indices or conditions, no real numbers"


def _makes_no_float(node: ir.Node, graph: Graph) -> bool:
    """Whether every result is known to be of a type that is not floating-point."""
    names = [value.name for value in node.outputs if value.name]
    types = [graph.dtype(name) for name in names]
    return all(dtype is not None and dtype not in FLOAT_TYPES for dtype in types) and bool(types)


def _cut_range(node: ir.Node, graph: Graph, target: Target) -> str:
    """Return why a kernel that needs parameters for its full range cannot have them, "" where it can."""
    for name in outputs_of(node) if node.op_type in target.full_range else ():
        for reader, _ in graph.consumers(name):
            if is_clip(reader):
                return (
                    f"the kernel of {node.op_type} needs codes for all that it can give, and a clip follows"
                )
    return ""


def _unfit_tensor(node: ir.Node, rule: Rule, graph: Graph, profile: Profile) -> str:
    """Return why one of the node's tensors cannot be in codes, "" when all can."""
    if all(graph.constant(name) is not None for name in activation_names(node, rule, graph)):
        return "it reads no activation, only constants"
    for name in [*activation_names(node, rule, graph), *outputs_of(node)]:
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
    return ""


def _noise(node: ir.Node, rule: Rule, graph: Graph, limits: Limits) -> str:
    """Return the reason of a tensor that must not be in codes and would be, "" when there is none."""
    names = activation_names(node, rule, graph)
    if not (rule.heavy(node, graph) and FLOAT in limits.target.operators.get(node.op_type, ())):
        names += outputs_of(node)
    return next((limits.noisy[name] for name in names if name in limits.noisy), "")
