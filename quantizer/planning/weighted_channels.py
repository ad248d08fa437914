"""Which activations a profile records channel by channel; a profiling run imports this and no planner."""

from __future__ import annotations

from ..operators.graph import Graph
from ..operators.table import channel_layout
from ..plan.formats import recorded_activations


def weighted_channels(graph: Graph) -> dict[str, int]:
    """Return the axis of the input channels of every activation that multiplies a constant weight."""
    axes: dict[str, int] = {}
    for node in graph.nodes:
        rule, layout = node.rule, channel_layout(node)
        if rule is None or layout is None or layout.data_axis is None or rule.refusal(node, graph):
            continue
        name = node.input(0)
        if not node.has_constant(layout.index):
            continue
        if name and graph.is_float(name) and not graph.is_constant(name):
            axes.setdefault(name, layout.data_axis)
    for name, recorded in recorded_activations(graph).items():
        if recorded is not None:
            axes.setdefault(name, recorded)
    return axes
