"""Groups of activations that share their parameters, joined by the rules of the operator table. Pure.

A group has one range. It is the range of the tensors that *set* it: the source of the quantized values, or,
if a clip without other readers follows, the clip's output, because clipped values need no integers. Operators
that need one scale for all inputs (`Constraint.ALL_SAME`, such as Concat) join their groups if the common
range costs no member more than `MAX_LOSS_DB`; if not, each input keeps its own parameters and is requantized
on the edge.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ..numerics.affine import TYPES
from ..numerics.calibrators import Range
from ..operators.graph import Node
from ..operators.table import Constraint, is_clip
from ..plan.plan import Implementation, Kind, SharedScale
from .facts import PlanningFacts
from .selection import Choice

MAX_LOSS_DB = 1.0
"""Decibels that a member may lose to the common range of an operator with one scale."""

Interval = tuple[float, float]


@dataclass(eq=False)
class ScaleGroup:
    """Activations with one range."""

    members: dict[str, Range]  # name -> its own calibrated range
    range: Range
    range_set_by: tuple[str, ...]  # the members whose ranges make it
    narrowest: Range  # the own range of the member that loses most when ranges grow
    tied_by: dict[str, None] = field(default_factory=dict)  # names of the nodes that tied them
    fixed_by: Node | None = None  # the node whose look-up table fixes the parameters, if one does


class _Groups:
    """The groups while they grow."""

    def __init__(self, facts: PlanningFacts) -> None:
        self._facts = facts
        self._group_of: dict[str, ScaleGroup] = {}
        self.groups: dict[ScaleGroup, None] = {}

    def of(self, name: str) -> ScaleGroup:
        """Return the group of a tensor; a new group has only this member."""
        if name not in self._group_of:
            own = self._facts.activations.calibrated(name)
            group = self._group_of[name] = ScaleGroup({name: own}, own, (name,), own)
            self.groups[group] = None
        return self._group_of[name]

    def join(self, name: str, other: str, node: str, set_by: str | None = None) -> None:
        """Merge the group of `other` into that of `name`, because of `node`."""
        into, gone = self.of(name), self.of(other)
        if set_by is not None:
            chosen = self.of(set_by)
            common, setters, narrowest = chosen.range, chosen.range_set_by, chosen.narrowest
        else:
            common = _union(into.range, gone.range)
            narrowest = min(into.narrowest, gone.narrowest, key=lambda own: own.high - own.low)
            reaching = {
                setter: group.members[setter] for group in (into, gone) for setter in group.range_set_by
            }
            setters = tuple(
                setter for setter, own in reaching.items() if own.low <= common.low or own.high >= common.high
            )
        if into is not gone:
            into.members |= gone.members
            into.tied_by |= gone.tied_by
            into.fixed_by = into.fixed_by or gone.fixed_by
            self._group_of |= dict.fromkeys(gone.members, into)
            del self.groups[gone]
        into.tied_by[node] = None
        into.range, into.range_set_by, into.narrowest = common, setters, narrowest


def find_groups(facts: PlanningFacts, choices: Mapping[str, Choice]) -> tuple[ScaleGroup, ...]:
    """Return the groups of all activations that are quantized."""
    groups, graph = _Groups(facts), facts.graph
    for node in graph.nodes:
        choice, rule = choices[node.name], node.rule
        if not choice.quantized or rule is None:
            continue
        inputs = [n for n in node.activations if not graph.is_constant(n)]
        outputs = () if choice.returns_float else node.results
        for name in (*inputs, *outputs):
            groups.of(name)
        has_8_bits = TYPES[facts.config.activation_type].bits == 8
        if choice.implementation == Implementation.SIGMOID and has_8_bits:
            groups.of(outputs[0]).fixed_by = node  # tanh by the sigmoid table has one scale alone
        if choice.kind is Kind.PASS_THROUGH:
            for output in outputs:
                _join_passed(groups, facts, node, inputs[0], output)
        elif rule.constraint is Constraint.ALL_SAME:
            for output in outputs:
                for name in inputs:
                    ends = [groups.of(name), groups.of(output)]
                    common = _union(ends[0].range, ends[1].range)
                    if all(
                        group.fixed_by is None
                        and lost_to(_ends(group.narrowest), _ends(common)) <= MAX_LOSS_DB
                        for group in ends
                    ):
                        groups.join(output, name, node.name)
    return tuple(groups.groups)


def _join_passed(groups: _Groups, facts: PlanningFacts, node: Node, source: str, output: str) -> None:
    """Join input and output of a node that passes values; a clip of a shared or fixed input converts."""
    graph, group = facts.graph, groups.of(source)
    if not is_clip(node) or group.fixed_by is not None:
        groups.join(source, output, node.name, set_by=source)
        return
    for name in group.members:
        producer = graph.producer(name)
        if producer is not None and producer.op_type in facts.target.full_range:
            return
        if len(graph.consumers(name)) != 1 or graph.is_result(name):
            return
    groups.join(source, output, node.name, set_by=output)


def shared_scales(groups: Iterable[ScaleGroup]) -> tuple[SharedScale, ...]:
    """Return the groups of two and more, as the plan records them."""
    return tuple(
        SharedScale(
            _ends(group.range),
            group.range_set_by,
            tuple(group.tied_by),
            {name: _ends(own) for name, own in group.members.items()},
        )
        for group in groups
        if len(group.members) > 1
    )


def lost_to(own: Interval, common: Interval) -> float:
    """Return the dB that a tensor loses to a wider range than its own; a narrower one costs 0."""
    width, wide = own[1] - own[0], common[1] - common[0]
    if wide <= max(width, 0.0):
        return 0.0
    return math.inf if width <= 0.0 else 20.0 * math.log10(wide / width)


def _union(a: Range, b: Range) -> Range:
    return Range(min(a.low, b.low), max(a.high, b.high))


def _ends(own: Range) -> Interval:
    return own.low, own.high
