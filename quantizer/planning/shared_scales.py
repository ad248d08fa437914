"""Which activations share their parameters: union-find over the constraints of the table. Pure.

A group has one range. It is the range of the tensors that *define* it: the tensor that the codes come from,
or, where a clip without other readers follows, the clip's output, because the values that it throws away need
no codes. Operators with one code space for all inputs (`Constraint.ALL_SAME`) join their groups as
`QuantConfig.scale_sharing` says: always ("unified"), never ("separate"), or where the common range costs
no member more than a stated number of decibels ("auto"); elsewhere each input keeps its own parameters and is
converted on the edge.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import onnx_ir as ir

from ..model.graph import Graph
from ..operators.operands import activation_names, outputs_of
from ..operators.table import Constraint, is_clip
from ..plan.plan import Group, Kind
from ..ranges.calibrators import Range
from .candidates import Choice

JOIN_COST_DB = {"auto": 1.0, "unified": math.inf, "separate": -math.inf}
"""Resolution -> decibels that a member of an operator with one code space may lose to the common range."""


@dataclass
class _Root:
    """What is known of a group while it grows."""

    members: list[str]
    range: Range
    winners: tuple[str, ...]
    ties: dict[str, None]
    narrowest: tuple[float, float]
    """The own range of the member that loses most when ranges grow."""


class _Forest:
    """Union-find over tensor names; each root knows its group."""

    def __init__(self, ranges: Mapping[str, Range]) -> None:
        self._ranges = ranges
        self._parent: dict[str, str] = {}
        self._roots: dict[str, _Root] = {}

    def add(self, name: str) -> None:
        if name not in self._parent:
            self._parent[name] = name
            self._roots[name] = _Root([name], self._ranges[name], (name,), {}, _pair(self._ranges[name]))

    def group(self, name: str) -> _Root:
        return self._roots[self._root(name)]

    def range(self, name: str) -> Range:
        return self.group(name).range

    def join(self, name: str, other: str, node: str, winner: str | None = None) -> None:
        """Put the group of `other` into that of `name`.

        The common range is that of the group of `winner`, or the union of both. `node` is what ties them.
        """
        a, b = self._root(name), self._root(other)
        into, gone = self._roots[a], self._roots[b]
        if winner is not None:
            chosen = self.group(winner)
            common, winners, narrowest = chosen.range, chosen.winners, chosen.narrowest
        else:
            common = _union(into.range, gone.range)
            narrowest = min(into.narrowest, gone.narrowest, key=_width)
            winners = tuple(
                winner
                for root in dict.fromkeys((a, b))
                for winner in self._roots[root].winners
                if self._reaches(winner, common)
            )
        if a != b:
            self._parent[b] = a
            into.members += gone.members
            into.ties |= gone.ties
            del self._roots[b]
        into.ties[node] = None
        into.range, into.winners, into.narrowest = common, winners, narrowest

    def groups(self) -> tuple[Group, ...]:
        return tuple(
            Group(
                {name: _pair(self._ranges[name]) for name in root.members},
                _pair(root.range),
                root.winners,
                tuple(root.ties),
            )
            for root in self._roots.values()
        )

    def _root(self, name: str) -> str:
        while self._parent[name] != name:
            self._parent[name] = self._parent[self._parent[name]]
            name = self._parent[name]
        return name

    def _reaches(self, name: str, common: Range) -> bool:
        own = self._ranges[name]
        return own.low <= common.low or own.high >= common.high


def find_groups(
    graph: Graph, choices: Mapping[str, Choice], ranges: Mapping[str, Range], scale_sharing: str = "auto"
) -> tuple[Group, ...]:
    """Return the groups of all activations that exist in codes.

    Args:
        graph: the prepared model.
        choices: what was selected, by node name.
        ranges: calibrated range of every activation with a profile.
        scale_sharing: as in `QuantConfig`.
    """
    forest = _Forest(ranges)
    for node in graph.nodes:
        choice = choices[node.name or ""]
        if not choice.quantized or choice.rule is None:
            continue
        inputs = [n for n in activation_names(node, choice.rule, graph) if graph.constant(n) is None]
        outputs = [] if choice.returns_float else outputs_of(node)
        for name in [*inputs, *outputs]:
            forest.add(name)
        if choice.kind is Kind.PASS_THROUGH:
            for output in outputs:
                _join_move(graph, forest, node, (inputs[0], output))
        elif choice.rule.constraint is Constraint.ALL_SAME:
            _join_cheap(forest, inputs, outputs, node.name or "", JOIN_COST_DB[scale_sharing])
    return forest.groups()


def lost_to(own: tuple[float, float], common: tuple[float, float]) -> float:
    """Return what a tensor loses to a range that is wider than its own, in dB: the step grows with the width.

    A common range that is narrower (a clip behind the tensor) costs nothing: what it cuts off is thrown away.
    """
    width, wide = own[1] - own[0], common[1] - common[0]
    if wide <= max(width, 0.0):
        return 0.0
    return math.inf if width <= 0.0 else 20.0 * math.log10(wide / width)


def _join_move(graph: Graph, forest: _Forest, node: ir.Node, ends: tuple[str, str]) -> None:
    (source, output), name = ends, node.name or ""
    if not is_clip(node):
        forest.join(source, output, name, winner=source)
    elif all(len(graph.consumers(n)) == 1 and not graph.is_result(n) for n in forest.group(source).members):
        forest.join(source, output, name, winner=output)
    # A clip whose input has other readers keeps parameters of its own: it becomes a conversion.


def _join_cheap(forest: _Forest, inputs: list[str], outputs: list[str], node: str, allowed: float) -> None:
    for output in outputs:
        for name in inputs:
            common = _pair(_union(forest.range(name), forest.range(output)))
            if all(lost_to(forest.group(n).narrowest, common) <= allowed for n in (name, output)):
                forest.join(output, name, node)


def _union(a: Range, b: Range) -> Range:
    return Range(min(a.low, b.low), max(a.high, b.high))


def _width(span: tuple[float, float]) -> float:
    return span[1] - span[0]


def _pair(span: Range) -> tuple[float, float]:
    return span.low, span.high
