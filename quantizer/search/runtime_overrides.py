"""What onnxruntime executes otherwise than planned: float nodes on integers, integer nodes in float. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..evaluation.node_times import Executed
from ..lowering.lowered import WrittenNames
from ..operators.graph import Graph
from ..operators.table import RULES, Constraint
from ..plan.plan import ON_CODES, Kind, QuantPlan
from .node_costs import owners

_MAKES_INTEGERS = ("QuantizeLinear", "DynamicQuantizeLinear", "QLinear", "QGemm", "Nhwc")
"""How the names of operators begin whose results are quantized."""
_CARRIES = {
    *(rule.op_type for rule in RULES.values() if rule.constraint not in (Constraint.OWN, Constraint.FIXED)),
    *("Upsample", "ReorderInput", "ReorderOutput"),  # what onnxruntime writes for some of them
}
"""Operators whose result is quantized where their input is."""


@dataclass(frozen=True)
class RuntimeOverride:
    """A node that is executed otherwise than planned.

    Attributes:
        node: its name.
        kind: what it is in the plan.
        executed: the operator that stands for it.
        microseconds: that this takes.
    """

    node: str
    kind: Kind
    executed: str
    microseconds: float

    @property
    def planned_float(self) -> bool:
        """Whether it was to be float: onnxruntime has moved a conversion in front of it, or past it."""
        return self.kind is Kind.FLOAT

    def __str__(self) -> str:
        """Return the difference as a sentence."""
        there = "on integers, conversions having been moved" if self.planned_float else "in float"
        return (
            f"'{self.node}' is {self.kind} in the plan; onnxruntime computes it {there} "
            f"({self.executed}, {self.microseconds / 1e3:.3g} ms)"
        )


def find_runtime_overrides(
    graph: Graph, plan: QuantPlan, executed: Sequence[Executed], names: WrittenNames
) -> tuple[RuntimeOverride, ...]:
    """Return what is executed otherwise than planned, the longest first.

    Args:
        graph: the model that the plan is of.
        plan: its plan.
        executed: what onnxruntime executes of the written model, in its order.
        names: what stands for the nodes of `graph` in that model.
    """
    integers: set[str] = set()
    found = []
    for owner, node in zip(owners(graph, executed, names), executed, strict=True):
        reads = any(name in integers for name in node.inputs)
        makes = node.op_type.startswith(_MAKES_INTEGERS) or (reads and node.op_type in _CARRIES)
        if makes:
            integers.update(node.outputs)
        entry = plan.nodes.get(owner)
        if entry is None:
            continue
        differs = reads if entry.kind is Kind.FLOAT else entry.kind in ON_CODES and not reads and not makes
        if differs:
            found.append(RuntimeOverride(owner, entry.kind, node.op_type, node.microseconds))
    return tuple(sorted(found, key=lambda one: -one.microseconds))
