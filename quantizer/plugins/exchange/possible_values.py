"""Which values the activations of a model can hold at all, by what the operator table knows. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import reduce

import numpy as np

from ...noise.activation_ranges import Interval
from ...operators.facts import Arithmetic
from ...operators.graph import Graph, Node
from ...operators.table import Constraint, Rule

ANY: Interval = (-math.inf, math.inf)
"""Nothing is known."""


def possible_values(graph: Graph) -> dict[str, Interval]:
    """Return the interval, with 0, that each activation cannot leave, for any inputs of the model."""
    found: dict[str, Interval] = {}
    for node in graph.nodes:
        rule = node.rule
        interval = ANY if rule is None else _of_node(node, rule, graph, found)
        if interval != ANY:
            found.update(dict.fromkeys(node.results, interval))
    return found


def _of_node(node: Node, rule: Rule, graph: Graph, found: Mapping[str, Interval]) -> Interval:
    if rule.bounds is not None:
        return _with_zero(rule.bounds)
    if rule.constraint is Constraint.CLAMP and rule.effective_range is not None:
        # Outside of the limits a clip does not change: inside of them is what it yields.
        return clipped_interval(interval_of(node.inputs[0], graph, found), rule.effective_range(node, graph))
    inputs = (interval_of(node.inputs[i], graph, found) for i in rule.activations(node))
    if passes_values_on(node, rule, graph) or rule.is_mean:
        return joint_interval(inputs)
    if rule.arithmetic is Arithmetic.SUM:
        return reduce(lambda a, b: (a[0] + b[0], a[1] + b[1]), inputs)
    if rule.arithmetic is Arithmetic.PRODUCT:
        return reduce(_product, inputs)
    return ANY


def passes_values_on(node: Node, rule: Rule, graph: Graph) -> bool:
    """Whether the results of a node consist only of values of its inputs, and zeros."""
    return rule.constraint in (Constraint.SAME, Constraint.ALL_SAME) and not rule.refusal(node, graph)


def interval_of(name: str, graph: Graph, found: Mapping[str, Interval]) -> Interval:
    """Return the interval of an input of a node: of a constant its values, else the one found of it."""
    constant = graph.constant(name)
    if constant is None:
        return found.get(name, ANY)
    low, high = (float(np.min(constant)), float(np.max(constant))) if constant.size else (0.0, 0.0)
    return _with_zero((low, high)) if math.isfinite(low) and math.isfinite(high) else ANY


def clipped_interval(interval: Interval, limits: Interval) -> Interval:
    """Return an interval after a clip; zero stays in it."""
    low, high = limits
    if not low <= high:
        return ANY
    return _with_zero((min(max(interval[0], low), high), max(min(interval[1], high), low)))


def joint_interval(intervals: Iterable[Interval]) -> Interval:
    """Return the smallest interval around some, at least one."""
    lows, highs = zip(*intervals, strict=True)
    return min(lows), max(highs)


def _with_zero(interval: Interval) -> Interval:
    return min(interval[0], 0.0), max(interval[1], 0.0)


def _product(a: Interval, b: Interval) -> Interval:
    ends = [x * y if x and y else 0.0 for x in a for y in b]
    return min(ends), max(ends)
