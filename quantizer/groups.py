"""Which activations share their parameters: union-find over the constraints of the table. Pure.

A group has one range. It is the range of the tensors that *define* it: the tensor that the codes come from,
or, where a clip without other readers follows, the clip's output, because the values that it throws away need
no codes. Operators with one code space for all inputs (`Constraint.ALL_SAME`) join their groups where the
common range costs no member more than a stated number of decibels; elsewhere each input keeps its own
parameters and is converted on the edge.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from .calibrators import Range
from .candidates import Choice, activation_names
from .graph import Graph
from .plan import Kind
from .rules import Constraint

JOIN_COST_DB = 1.0
"""Decibels that a member of an operator with one code space may lose to the common range."""


@dataclass(frozen=True)
class Group:
    """Tensors that share their parameters.

    Attributes:
        members: their names, in graph order.
        range: the common range.
    """

    members: tuple[str, ...]
    range: Range


class _Forest:
    """Union-find over tensor names; each root knows the range of its group."""

    def __init__(self, ranges: Mapping[str, Range]) -> None:
        self._ranges = ranges
        self._parent: dict[str, str] = {}
        self._members: dict[str, list[str]] = {}
        self._range: dict[str, Range] = {}

    def add(self, name: str) -> None:
        if name not in self._parent:
            self._parent[name] = name
            self._members[name] = [name]
            self._range[name] = self._ranges[name]

    def root(self, name: str) -> str:
        while self._parent[name] != name:
            self._parent[name] = self._parent[self._parent[name]]
            name = self._parent[name]
        return name

    def members(self, name: str) -> list[str]:
        return self._members[self.root(name)]

    def range(self, name: str) -> Range:
        return self._range[self.root(name)]

    def join(self, name: str, other: str, common: Range) -> None:
        """Put the group of `other` into that of `name`, with the range `common`."""
        a, b = self.root(name), self.root(other)
        if a != b:
            self._parent[b] = a
            self._members[a] += self._members.pop(b)
        self._range[a] = common

    def groups(self) -> tuple[Group, ...]:
        return tuple(Group(tuple(self._members[r]), self._range[r]) for r in self._members)


def find_groups(
    graph: Graph, choices: Mapping[str, Choice], ranges: Mapping[str, Range]
) -> tuple[Group, ...]:
    """Return the groups of all activations that exist in codes.

    Args:
        graph: the prepared model.
        choices: what was selected, by node name.
        ranges: calibrated range of every activation with a profile.
    """
    forest = _Forest(ranges)
    for node in graph.nodes:
        choice = choices[node.name or ""]
        if not choice.quantized or choice.rule is None:
            continue
        inputs = [n for n in activation_names(node, choice.rule, graph) if graph.constant(n) is None]
        outputs = [] if choice.returns_float else [v.name for v in node.outputs if v.name]
        for name in [*inputs, *outputs]:
            forest.add(name)
        if choice.kind is Kind.MOVE:
            for output in outputs:
                _join_move(graph, forest, inputs[0], output, choice.rule.constraint)
        elif choice.rule.constraint is Constraint.ALL_SAME:
            _join_cheap(forest, inputs, outputs)
    return forest.groups()


def _join_move(graph: Graph, forest: _Forest, source: str, output: str, constraint: Constraint) -> None:
    if constraint is not Constraint.CLAMP:
        forest.join(source, output, forest.range(source))
    elif all(len(graph.consumers(n)) == 1 and n not in graph.outputs for n in forest.members(source)):
        forest.join(source, output, forest.range(output))
    # A clip whose input has other readers keeps parameters of its own: it becomes a conversion.


def _join_cheap(forest: _Forest, inputs: list[str], outputs: list[str]) -> None:
    for output in outputs:
        for name in inputs:
            common = _union(forest.range(name), forest.range(output))
            if all(_cost(forest.range(n), common) <= JOIN_COST_DB for n in (name, output)):
                forest.join(output, name, common)


def _union(a: Range, b: Range) -> Range:
    return Range(min(a.low, b.low), max(a.high, b.high))


def _cost(own: Range, common: Range) -> float:
    """Return what a member loses to a wider range, in dB: the step grows with the width."""
    width, wide = own.high - own.low, common.high - common.low
    return math.inf if width <= 0.0 < wide else (0.0 if wide <= 0.0 else 20.0 * math.log10(wide / width))
