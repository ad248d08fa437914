"""The types of weights of which some have another than the requested one, as a phrase."""

from __future__ import annotations

from ...profiles.base.presentation import size_text
from ..operators.graph import Graph
from ..targets.config import FEW_BITS
from .plan import Kind, QuantPlan


def other_formats(plan: QuantPlan, graph: Graph) -> str:
    """Return how many weights have each type, and their bytes; "" if all have the few bits asked for."""
    if not (plan.config.has_few_bits or plan.config.has_size):
        return ""
    by_type: dict[str, dict[str, int]] = {}
    for node in graph.nodes:
        entry = plan.nodes[node.name]
        for weight in node.rule.constants if entry.kind is Kind.WEIGHT_ONLY and node.rule else ():
            name = node.input(weight.index)
            params = plan.params_read(node.name, weight.index, name)
            if params is not None and graph.is_constant(name):
                size = params.qtype.bits * graph.elements(name) // 8
                by_type.setdefault(params.qtype.name, {})[name] = size
    if not plan.config.has_size and by_type.keys() <= set(FEW_BITS):
        return ""
    counts = sorted(by_type.items(), key=lambda item: -sum(item[1].values()))
    listed = (f"{name} in {len(own)} ({size_text(sum(own.values()))})" for name, own in counts)
    return f"types of weights: {', '.join(listed)}" if counts else ""
