"""What follows from the ranges of another tool's file and the model: ranges that cannot be as wide as they
are said, and ranges of tensors that the file lacks. Pure."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import replace

import onnx_ir as ir

from ...profiles.instrumentation.observations import observations
from ...profiles.records.histogram import UnknownBins
from ...profiles.records.profile import TensorProfile
from ..model.graph import Graph
from ..operators.operands import outputs_of
from ..operators.table import is_clip, rule_of
from ..ranges.activation_ranges import Interval, clamp_range
from ..ranges.calibrators import Range
from ..ranges.possible_values import (
    ANY,
    clipped_interval,
    interval_of,
    joint_interval,
    passes_values_on,
    possible_values,
)

Tensors = Mapping[str, TensorProfile]


def cut_to_possible(tensors: Tensors, graph: Graph) -> dict[str, TensorProfile]:
    """Return the tensors whose range is wider than what the operators of the model can yield, cut to that.

    So the range of a threshold T, [-T, T], becomes [0, T] after a Relu. Those with a histogram are left.
    """
    possible = possible_values(graph)
    found = {}
    for name, tensor in tensors.items():
        if name in possible and isinstance(tensor.histogram, UnknownBins):
            cut = clamp_range(Range(tensor.minimum, tensor.maximum), possible[name])
            if tensor.minimum < cut.low or cut.high < tensor.maximum:
                found[name] = replace(tensor, minimum=cut.low, maximum=cut.high)
    return found


def derived(
    tensors: Tensors, wanted: Collection[str], model: ir.Model, graph: Graph
) -> dict[str, TensorProfile]:
    """Return records of wanted tensors that have none and follow from others.

    A tensor with the same elements as another one has its record (before and after Reshape, Transpose). What
    passes on values of one other tensor (MaxPool, Slice) has its range, as it will have its parameters. A
    clip cuts the range of what it reads, and Concat has that of all that it joins.
    """
    found = _of_same_elements(tensors, model)
    intervals = {name: (t.minimum, t.maximum) for name, t in {**tensors, **found}.items()}
    for node in graph.nodes:
        for name in outputs_of(node):
            interval = ANY if name in intervals or name not in wanted else _of_node(node, graph, intervals)
            if math.isfinite(interval[0]) and math.isfinite(interval[1]):
                intervals[name] = interval
                found[name] = TensorProfile("float", None, *interval, 1, 0, 0, 0, UnknownBins())
    return {name: found[name] for name in found if name in wanted}


def _of_same_elements(tensors: Tensors, model: ir.Model) -> dict[str, TensorProfile]:
    groups: dict[str, list[str]] = {}
    for observation in observations(model):
        groups.setdefault(observation.same_as or observation.name, []).append(observation.name)
    found: dict[str, TensorProfile] = {}
    for members in groups.values():
        source = next((name for name in members if name in tensors), None)
        if source is not None:
            found |= {name: tensors[source] for name in members if name not in tensors}
    return found


def _of_node(node: ir.Node, graph: Graph, intervals: Mapping[str, Interval]) -> Interval:
    """Return the range of what a node yields, where it follows from those of what it reads."""
    rule = rule_of(node)
    if rule is None or not (is_clip(node) or passes_values_on(node, rule, graph)):
        return ANY
    joint = joint_interval(interval_of(node.inputs[i], graph, intervals) for i in rule.activations(node))
    if is_clip(node) and rule.effective_range is not None and joint != ANY:
        return clipped_interval(joint, rule.effective_range(node, graph))
    return joint
