"""Formats of weights that differ from the requested one, as a sentence."""

from __future__ import annotations

from ...profiles.base.presentation import size_text
from ..numerics.affine import TYPES
from ..operators.graph import Graph
from ..targets.config import FEW_BITS
from .plan import Kind, QuantPlan

SHOWN = 2
"""Weights that are named, the largest; the plan says the same of all."""


def other_formats(plan: QuantPlan, graph: Graph) -> str:
    """Return a text on the number of weights in other formats than requested, or "" for none.

    For few-bit weights it counts those with 8 bits, with sizes, SQNR and reasons; for weights whose formats a
    size chose, those of each type, with their bytes. Other modes than weight-only request no format.
    """
    if not (plan.config.has_few_bits or plan.config.has_size):
        return ""
    by_type: dict[str, list[int]] = {}
    sizes, reasons, stored = dict[str, int](), dict[str, str](), set[str]()
    for node in graph.nodes:
        entry = plan.nodes[node.name]
        for weight in node.rule.constants if entry.kind is Kind.WEIGHT_ONLY and node.rule else ():
            name = node.input(weight.index)
            params = plan.params_read(node.name, weight.index, name)
            if params is not None and graph.is_constant(name):
                if name not in stored:
                    bits = params.qtype.bits * graph.elements(name)
                    by_type.setdefault(params.qtype.name, []).append(bits // 8)
                stored.add(name)
                if params.qtype.name not in FEW_BITS:
                    sizes[name] = params.qtype.bits * graph.elements(name) // 8
                    reasons.setdefault(name, entry.reason.partition("; ")[0])
    if plan.config.has_size:
        counts = sorted(by_type.items(), key=lambda item: -sum(item[1]))
        listed = ", ".join(f"{name} in {len(own)} ({size_text(sum(own))})" for name, own in counts)
        return f"formats of {len(stored)} weights: {listed}" if counts else ""
    if not sizes:
        return ""
    largest = sorted(sizes, key=lambda name: -sizes[name])[:SHOWN]
    named = [f"'{name}' {size_text(sizes[name])}, {reasons[name]}" for name in largest]
    more = [f"{len(sizes) - SHOWN} more"] if len(sizes) > SHOWN else []
    count = f"{len(sizes)} of {len(stored)} weights ({size_text(sum(sizes.values()))})"
    asked = TYPES[plan.config.weight_type].bits
    return f"8 bits instead of {asked} in {count}: {'; '.join([*named, *more])}"
