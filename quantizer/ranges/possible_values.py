"""Which values the activations of a model can hold at all, by what the operator table knows. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import reduce

import numpy as np
import onnx_ir as ir

from ..model.graph import Graph, name_of
from ..operators.noise_gains import average, window
from ..operators.operands import outputs_of
from ..operators.table import Constraint, Rule, rule_of
from .activation_ranges import Interval

ANY: Interval = (-math.inf, math.inf)
"""Nothing is known."""

AVERAGES = (average, window)
"""Gains of the operators whose outputs are averages of inputs, and of zeros of the padding."""


def possible_values(graph: Graph) -> dict[str, Interval]:
    """Return the interval that each activation cannot leave, whatever the inputs of the model are.

    Results of nodes that nothing is known of are not in it. Zero is in every interval, as in every quantized
    type.
    """
    found: dict[str, Interval] = {}
    for node in graph.nodes:
        rule = rule_of(node)
        interval = ANY if rule is None else _of_node(node, rule, graph, found)
        if interval != ANY:
            found.update(dict.fromkeys(outputs_of(node), interval))
    return found


def _of_node(node: ir.Node, rule: Rule, graph: Graph, found: Mapping[str, Interval]) -> Interval:
    if rule.bounds is not None:
        return _with_zero(rule.bounds)
    if rule.constraint is Constraint.CLAMP and rule.effective_range is not None:
        # Outside of the limits a clip does not change: inside of them is what it yields.
        return clipped_interval(interval_of(node.inputs[0], graph, found), rule.effective_range(node, graph))
    if passes_values_on(node, rule, graph) or rule.gain in AVERAGES:
        return joint_interval(_of_inputs(node, rule, graph, found))
    if node.op_type in ARITHMETIC:
        return reduce(ARITHMETIC[node.op_type], _of_inputs(node, rule, graph, found))
    return ANY


def _of_inputs(node: ir.Node, rule: Rule, graph: Graph, found: Mapping[str, Interval]) -> Iterator[Interval]:
    return (interval_of(node.inputs[i], graph, found) for i in rule.activations(node))


def passes_values_on(node: ir.Node, rule: Rule, graph: Graph) -> bool:
    """Whether the results of a node hold nothing but values that it reads, and zeros."""
    return rule.constraint in (Constraint.SAME, Constraint.ALL_SAME) and not rule.refusal(node, graph)


def interval_of(value: ir.Value | None, graph: Graph, found: Mapping[str, Interval]) -> Interval:
    """Return the interval of an input of a node: of a constant its values, else what is found of it."""
    name = name_of(value)
    constant = graph.constant(name)
    if constant is None:
        return found.get(name, ANY)
    low, high = (float(np.min(constant)), float(np.max(constant))) if constant.size else (0.0, 0.0)
    return _with_zero((low, high)) if math.isfinite(low) and math.isfinite(high) else ANY


def clipped_interval(interval: Interval, limits: Interval) -> Interval:
    """Return what a clip makes of an interval; zero stays in it."""
    low, high = limits
    if not low <= high:
        return ANY
    return _with_zero((min(max(interval[0], low), high), max(min(interval[1], high), low)))


def joint_interval(intervals: Iterable[Interval]) -> Interval:
    """Return the smallest interval that holds some, of which there is at least one."""
    lows, highs = zip(*intervals, strict=True)
    return min(lows), max(highs)


def _with_zero(interval: Interval) -> Interval:
    return min(interval[0], 0.0), max(interval[1], 0.0)


def _product(a: Interval, b: Interval) -> Interval:
    ends = [x * y if x and y else 0.0 for x in a for y in b]
    return min(ends), max(ends)


def _sum(a: Interval, b: Interval) -> Interval:
    return a[0] + b[0], a[1] + b[1]


ARITHMETIC: Mapping[str, Callable[[Interval, Interval], Interval]] = {
    "Mul": _product,
    "Add": _sum,
    "Sum": _sum,
}
"""What becomes of the intervals of the inputs, by operator."""
