"""Tensors whose 8-bit step exceeds the variation of a result. Pure.

A mask is filled with -1e9, and a maximum passes the fillers over; boxes in pixels lie beside scores below 1;
a model takes 101325 from a pressure. The tensor itself has a good SQNR, and what is made of it by moving,
choosing or simple arithmetic has none. Such a tensor stays float: the node that makes it, where that cannot
return float, and those that read it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from ..operators.graph import Node
from ..plan.reasons import FloatReason, FloatReasons, ReasonCode, because
from ..targets.target import FLOAT
from .facts import PlanningFacts
from .planner import Decision

ROUNDING = 1.0 / 12.0
"""Power of rounding, in squares of the step."""


def too_coarse(decision: Decision) -> FloatReasons:
    """Return the nodes that must stay float because the step of their inputs or outputs is too coarse."""
    facts = decision.facts
    by_group: dict[str, FloatReason] = {}
    by_itself: dict[str, FloatReason] = {}
    for group in decision.groups:
        width = group.range.high - group.range.low
        for name, own in group.members.items():
            if not facts.noise_gains.powers.get(name):
                continue
            step = float(decision.activations[name].scale.max())
            reason = _lost(facts, name, step)
            if reason is not None:
                by_group[name] = reason
                own_step = step * min(1.0, (own.high - own.low) / width) if width > 0.0 else step
                if _lost(facts, name, own_step) is not None:
                    by_itself[name] = reason
    reasons: dict[str, FloatReason] = {}
    for name, reason in (by_itself or by_group).items():
        reasons |= {node.name: reason for node in _quantizing(decision, name)}
    return reasons


def _lost(facts: PlanningFacts, name: str, step: float) -> FloatReason | None:
    """Return the first result that is erased by rounding a tensor to a step, as a reason, or None."""
    noise = ROUNDING * step**2
    itself, *others = facts.remainders_of(name)
    for left in others:
        varies = itself.variance > noise and left.variance > 0.0
        if noise * left.gain >= (left.variance if varies else left.power):
            spread = math.sqrt(left.variance / left.gain)
            sizes = {"step": f"{step:.3g}", "spread": f"{spread:.3g}"}  # figures of reasons end at 999
            return because(ReasonCode.COARSE_STEP, tensor=name, result=left.result, **sizes)
    return None


def _quantizing(decision: Decision, name: str) -> Iterator[Node]:
    """Yield the nodes that have to be float so that a tensor is not quantized."""
    graph, nodes = decision.facts.graph, decision.plan.nodes
    readers = [node for node, _ in graph.consumers(name) if nodes[node.name].kind.reads_quantized]
    yield from readers
    maker = graph.producer(name)
    if maker is not None and nodes[maker.name].kind.reads_quantized:
        returns = FLOAT in decision.facts.target.operators.get(maker.op_type, ())
        if not (returns and readers):
            yield maker
