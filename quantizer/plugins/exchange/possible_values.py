"""Which values an activation can hold, as it follows from those before it. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import numpy as np

from ...noise.activation_ranges import Interval
from ...operators.graph import Graph, Node
from ...operators.table import Constraint, is_clip

ANY: Interval = (-math.inf, math.inf)
"""Nothing is known."""


def possible_values(graph: Graph) -> dict[str, Interval]:
    """Return the interval, with 0, that each activation cannot leave, for any inputs of the model."""
    found: dict[str, Interval] = {}
    for node in graph.nodes:
        interval = interval_of_results(node, graph, found)
        if interval != ANY:
            found.update(dict.fromkeys(node.results, interval))
    return found


def interval_of_results(node: Node, graph: Graph, found: Mapping[str, Interval]) -> Interval:
    """Return the interval of a node's results: its bounds, or those of its inputs after a clip or a move."""
    rule = node.rule
    if rule is None:
        return ANY
    if rule.bounds is not None:
        return _with_zero(rule.bounds)
    clips = is_clip(node) and rule.effective_range is not None
    # Other results consist of values of the inputs, and zeros.
    passes_on = rule.constraint in (Constraint.SAME, Constraint.ALL_SAME) and not rule.refusal(node, graph)
    if not (clips or rule.is_mean or passes_on):
        return ANY
    joint = _around(_of_input(node.inputs[i], graph, found) for i in rule.activations(node))
    if not clips or rule.effective_range is None:
        return joint
    # Outside of the limits a clip does not change: inside of them is what it yields.
    low, high = rule.effective_range(node, graph)
    if not low <= high:
        return ANY
    return _with_zero((min(max(joint[0], low), high), max(min(joint[1], high), low)))


def _of_input(name: str, graph: Graph, found: Mapping[str, Interval]) -> Interval:
    """Return the interval of an input of a node: of a constant its values, else the one found of it."""
    constant = graph.constant(name)
    if constant is None:
        return found.get(name, ANY)
    low, high = (float(np.min(constant)), float(np.max(constant))) if constant.size else (0.0, 0.0)
    return _with_zero((low, high)) if math.isfinite(low) and math.isfinite(high) else ANY


def _around(intervals: Iterable[Interval]) -> Interval:
    """Return the smallest interval around some, at least one."""
    lows, highs = zip(*intervals, strict=True)
    return min(lows), max(highs)


def _with_zero(interval: Interval) -> Interval:
    return min(interval[0], 0.0), max(interval[1], 0.0)
