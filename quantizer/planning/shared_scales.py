"""Which activations share their parameters: union-find over the constraints of the operator table. Pure.

A group has one range. It is the range of the tensors that *set* it: the tensor that the quantized values come
from, or, where a clip without other readers follows, the clip's output, because what the clip cuts off needs
no quantized values. Operators that need one scale for all inputs (`Constraint.ALL_SAME`, such as Concat) join
their groups as `QuantConfig.scale_sharing` says: always ("unified"), never ("separate"), or where the common
range costs no member more than a stated number of decibels ("auto"); elsewhere each input keeps its own
parameters and is requantized on the edge.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ..numerics.calibrators import Range
from ..operators.graph import Node
from ..operators.table import Constraint, is_clip
from ..plan.plan import Kind, SharedScale
from .candidates import Choice
from .facts import PlanningFacts

JOIN_COST_DB = {"auto": 1.0, "unified": math.inf, "separate": -math.inf}
"""`scale_sharing` -> decibels that a member may lose to the common range of an operator with one scale."""

Interval = tuple[float, float]


@dataclass(frozen=True)
class ScaleGroup:
    """Activations with one range.

    Attributes:
        members: name -> its own calibrated range.
        range: the common one.
        range_set_by: the members whose ranges make it.
        tied_by: names of the nodes that tied them.
        fixed_by: the node whose look-up table fixes the parameters, if one does.
    """

    members: Mapping[str, Range]
    range: Range
    range_set_by: tuple[str, ...]
    tied_by: tuple[str, ...]
    fixed_by: Node | None = None


@dataclass
class _Root:
    """What is known of a group while it grows."""

    members: list[str]
    range: Range
    range_set_by: tuple[str, ...]
    tied_by: dict[str, None]
    narrowest: Range
    """The own range of the member that loses most when ranges grow."""
    fixed_by: Node | None = None


class _Forest:
    """Union-find over tensor names; each root knows its group."""

    def __init__(self, facts: PlanningFacts) -> None:
        self._ranges: dict[str, Range] = {}
        self._facts = facts
        self._parent: dict[str, str] = {}
        self._roots: dict[str, _Root] = {}

    def add(self, name: str) -> None:
        """Begin a group of one tensor, unless there is one."""
        if name not in self._parent:
            own = self._facts.range_of(name)
            self._ranges[name] = own
            self._parent[name] = name
            self._roots[name] = _Root([name], own, (name,), {}, own)

    def group(self, name: str) -> _Root:
        """Return the group of a tensor."""
        return self._roots[self._root(name)]

    def join(self, name: str, other: str, node: str, set_by: str | None = None) -> None:
        """Put the group of `other` into that of `name`.

        The common range is that of the group of `set_by`, or the union of both. `node` is what ties them.
        """
        a, b = self._root(name), self._root(other)
        into, gone = self._roots[a], self._roots[b]
        if set_by is not None:
            chosen = self.group(set_by)
            common, setters, narrowest = chosen.range, chosen.range_set_by, chosen.narrowest
        else:
            common = _union(into.range, gone.range)
            narrowest = min(into.narrowest, gone.narrowest, key=_width)
            setters = tuple(
                setter
                for root in dict.fromkeys((a, b))
                for setter in self._roots[root].range_set_by
                if self._reaches(setter, common)
            )
        if a != b:
            self._parent[b] = a
            into.members += gone.members
            into.tied_by |= gone.tied_by
            into.fixed_by = into.fixed_by or gone.fixed_by
            del self._roots[b]
        into.tied_by[node] = None
        into.range, into.range_set_by, into.narrowest = common, setters, narrowest

    def groups(self) -> tuple[ScaleGroup, ...]:
        """Return the groups as they are."""
        return tuple(
            ScaleGroup(
                {name: self._ranges[name] for name in root.members},
                root.range,
                root.range_set_by,
                tuple(root.tied_by),
                root.fixed_by,
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


def find_groups(facts: PlanningFacts, choices: Mapping[str, Choice]) -> tuple[ScaleGroup, ...]:
    """Return the groups of all activations that are quantized.

    Args:
        facts: the model.
        choices: what was selected, by node name.
    """
    forest, graph = _Forest(facts), facts.graph
    for node in graph.nodes:
        choice = choices[node.name]
        if not choice.quantized or choice.rule is None:
            continue
        inputs = [n for n in node.activations if graph.constant(n) is None]
        outputs = () if choice.returns_float else node.results
        for name in [*inputs, *outputs]:
            forest.add(name)
        if _is_fixed(facts, choice, [*inputs, *outputs]):
            forest.group(outputs[0]).fixed_by = node
        if choice.kind is Kind.PASS_THROUGH:
            for output in outputs:
                _join_passed(facts, forest, node, (inputs[0], output))
        elif choice.rule.constraint is Constraint.ALL_SAME:
            _join_cheap(forest, inputs, outputs, node.name, JOIN_COST_DB[facts.config.scale_sharing])
    return forest.groups()


def _is_fixed(facts: PlanningFacts, choice: Choice, names: Iterable[str]) -> bool:
    """Whether the look-up table of a node fixes the parameters of its output: tanh by the sigmoid table."""
    return choice.implementation == "sigmoid" and not any(facts.has_16_bits(name) for name in names)


def shared_scales(groups: Iterable[ScaleGroup]) -> tuple[SharedScale, ...]:
    """Return the groups of two and more, as the plan records them."""
    return tuple(
        SharedScale(
            {name: (own.low, own.high) for name, own in group.members.items()},
            (group.range.low, group.range.high),
            group.range_set_by,
            group.tied_by,
        )
        for group in groups
        if len(group.members) > 1
    )


def lost_to(own: Interval, common: Interval) -> float:
    """Return what a tensor loses to a range that is wider than its own, in dB: the step grows with the width.

    A common range that is narrower (a clip after the tensor) costs nothing: what it cuts off is not used.
    """
    width, wide = own[1] - own[0], common[1] - common[0]
    if wide <= max(width, 0.0):
        return 0.0
    return math.inf if width <= 0.0 else 20.0 * math.log10(wide / width)


def _join_passed(facts: PlanningFacts, forest: _Forest, node: Node, ends: tuple[str, str]) -> None:
    """Join the input and the output of a node that passes values through.

    A clip whose input has other readers keeps parameters of its own: it becomes a conversion. So does one
    whose input has the range of a kernel that needs the full range of its function.
    """
    (source, output), name, graph = ends, node.name, facts.graph
    group = forest.group(source)
    if not is_clip(node) or group.fixed_by is not None:
        forest.join(source, output, name, set_by=source)
    elif not any(_has_full_range(facts, n) for n in group.members) and all(
        len(graph.consumers(n)) == 1 and not graph.is_result(n) for n in group.members
    ):
        forest.join(source, output, name, set_by=output)


def _has_full_range(facts: PlanningFacts, name: str) -> bool:
    """Whether the kernel that makes an activation needs parameters for the full range of its function."""
    producer = facts.graph.producer(name)
    return producer is not None and producer.op_type in facts.target.full_range


def _join_cheap(
    forest: _Forest, inputs: Sequence[str], outputs: Sequence[str], node: str, allowed: float
) -> None:
    """Join inputs and outputs that lose no more than `allowed` dB to a common range."""
    for output in outputs:
        for name in inputs:
            ends = forest.group(name), forest.group(output)
            if any(group.fixed_by is not None for group in ends):
                continue
            common = _union(ends[0].range, ends[1].range)
            if all(lost_to(_pair(group.narrowest), _pair(common)) <= allowed for group in ends):
                forest.join(output, name, node)


def _union(a: Range, b: Range) -> Range:
    return Range(min(a.low, b.low), max(a.high, b.high))


def _width(own: Range) -> float:
    return own.high - own.low


def _pair(own: Range) -> Interval:
    return own.low, own.high
