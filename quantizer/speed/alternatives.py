"""Other plans for a model, from what was measured of the one that there is. Pure.

Each entry of `ALTERNATIVES` is a function from findings to changes of the plan, the most promising first. The
search (`float_fallback`) makes and times them in this order and keeps what is faster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from ..costs.float_regions import FloatRegion, find_float_regions
from ..costs.records import Costs
from ..model.graph import Graph, name_of, output_name
from ..plan.plan import ON_CODES, Kind
from ..plan.reasons import FloatReason, FloatReasons, ReasonCode, because
from ..planning.plan_model import PlannedModel
from .undone import Undone

LEAST_LOSS = 0.01
"""Share of the model's time that a node must lose for a change of its own to be tried."""


@dataclass(frozen=True, eq=False)
class Findings:
    """What was measured of a plan.

    Attributes:
        planned: the plan.
        costs: of its nodes, in integers and in float.
        undone: what onnxruntime executes otherwise than planned.
    """

    planned: PlannedModel
    costs: Costs
    undone: tuple[Undone, ...]

    def lost(self, name: str) -> float:
        """Return the microseconds that a node takes more than in the float model."""
        return self.costs.integer.get(name, 0.0) - self.costs.floating.get(name, 0.0)

    def loses(self, name: str) -> bool:
        """Whether that is enough to try a change for this node."""
        return self.lost(name) > LEAST_LOSS * sum(self.costs.integer.values())


@dataclass(frozen=True)
class Change:
    """Another plan.

    Attributes:
        sentence: what is done, for people.
        regions: nodes that fall back to float because they are slower in int8.
        floats: further nodes that stay float, each with the reason.
        usual: nodes that are written in the usual way, not in the target's.
    """

    sentence: str
    regions: tuple[FloatRegion, ...] = ()
    floats: FloatReasons = field(default_factory=dict)
    usual: frozenset[str] = frozenset()

    @property
    def key(self) -> tuple[frozenset[str], frozenset[str]]:
        """The same for changes that do the same."""
        nodes = {name for region in self.regions for name in region.nodes}
        return frozenset(nodes | set(self.floats)), self.usual


Alternative = Callable[[Findings], Iterable[Change]]


def slower_regions(found: Findings) -> Iterator[Change]:
    """Yield all regions that are slower in int8 back in float; then those with the larger half of it."""
    facts = found.planned.facts
    assert facts is not None
    regions: Sequence[FloatRegion] = [
        region
        for region in find_float_regions(found.planned.graph, found.planned.plan, facts.profile, found.costs)
        if region.gain_ms > 0.0
    ]
    while regions:
        count = sum(len(region.nodes) for region in regions)
        yield Change(f"{count} nodes that are slower in int8 fall back to float", tuple(regions))
        regions = _better_half(regions)


def _better_half(regions: Sequence[FloatRegion]) -> Sequence[FloatRegion]:
    """Return the first regions with half of the expected gain, at least one less than all."""
    half, sum_so_far = sum(region.gain_ms for region in regions) / 2.0, 0.0
    for number, region in enumerate(regions):
        sum_so_far += region.gain_ms
        if sum_so_far >= half:
            return regions[: min(number + 1, len(regions) - 1)]
    return ()


def float_neighbours(found: Findings) -> Iterator[Change]:
    """Yield the quantized readers in float of a float node that is executed on integers.

    Then there is no conversion after it that onnxruntime could move in front of it.
    """
    graph, plan = found.planned.graph, found.planned.plan
    for undone in found.undone:
        if undone.planned_float and found.loses(undone.node):
            readers = [n for n in _readers(undone.node, graph) if plan.nodes[n].kind in ON_CODES]
            reason = _slower(undone.node, found, f": onnxruntime computes '{undone.node}' on integers then")
            if readers:
                yield Change(
                    f"what reads '{undone.node}' falls back to float, so that it is float as planned",
                    floats=dict.fromkeys(readers, reason),
                )


def float_as_executed(found: Findings) -> Iterator[Change]:
    """Yield nodes in float that are quantized in the plan and computed in float anyway, with conversions."""
    names = [undone.node for undone in found.undone if not undone.planned_float and found.loses(undone.node)]
    if names:
        sentence = f"{len(names)} nodes that onnxruntime computes in float anyway are float"
        yield Change(
            sentence, floats={name: _slower(name, found, ", computed in float anyway") for name in names}
        )


def usual_implementation(found: Findings) -> Iterator[Change]:
    """Yield the usual way of writing the nodes that lose time in the target's way."""
    names = frozenset(
        name
        for name, entry in found.planned.plan.nodes.items()
        if entry.implementation and entry.kind in (Kind.FLOAT, *ON_CODES) and found.loses(name)
        if entry.kind is not Kind.LOOKUP_TABLE
    )
    if names:
        yield Change(f"{len(names)} nodes are written in the usual way", usual=names)


ALTERNATIVES: tuple[Alternative, ...] = (
    slower_regions,
    float_neighbours,
    float_as_executed,
    usual_implementation,
)
"""What is tried, in this order, until a change is faster; then again from the first."""


def _readers(name: str, graph: Graph) -> list[str]:
    node = next(node for node in graph.nodes if name_of(node) == name)
    return [name_of(reader) for reader, _ in graph.consumers(output_name(node))]


def _slower(name: str, found: Findings, region: str) -> FloatReason:
    return because(
        ReasonCode.SLOWER_IN_INT8,
        int8_ms=found.costs.integer.get(name, 0.0) / 1e3,
        float_ms=found.costs.floating.get(name, 0.0) / 1e3,
        region=region,
    )
