"""Which quantized nodes are faster in float, from what each costs in either form. Pure.

Every quantized node either stays quantized or falls back to float. An assignment costs the time of its nodes,
and a conversion for each tensor whose producer and readers differ. The cheapest assignment is a minimum cut.
A float node that costs more next to quantized ones than in the float model (where it was fused into the node
before it) adds the difference to the cost of the boundary.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from ...profiles.records.profile import Profile
from ..model.graph import Graph, name_of
from ..plan.plan import QuantPlan
from .min_cut import NEVER, SINK, SOURCE, Network
from .records import Costs, is_quantized


@dataclass(frozen=True)
class FloatRegion:
    """Connected nodes that are faster in float.

    Attributes:
        nodes: their names, in graph order.
        integer_ms: what they cost quantized, conversions at their boundary included.
        float_ms: the same once they are float: other conversions may be needed then.
    """

    nodes: tuple[str, ...]
    integer_ms: float
    float_ms: float

    @property
    def gain_ms(self) -> float:
        """What their fallback to float is estimated to save."""
        return self.integer_ms - self.float_ms


@dataclass(frozen=True)
class Crossing:
    """A tensor that is converted where its producer and a reader differ.

    Attributes:
        tensor: its name.
        maker: the node that produces it, "" for a graph input.
        readers: nodes that read it as data; "" for a graph output or an inner graph.
        microseconds: of its conversion.
    """

    tensor: str
    maker: str
    readers: tuple[str, ...]
    microseconds: float


@dataclass(frozen=True)
class Prices:
    """The costs that the assignment is made from.

    Attributes:
        integer, floating: microseconds of each node that is quantized now.
        crossings: tensors between nodes.
        beside: (quantized node, float node) -> microseconds that the second loses while the
            first is quantized.
    """

    integer: Mapping[str, float]
    floating: Mapping[str, float]
    crossings: tuple[Crossing, ...]
    beside: Mapping[tuple[str, str], float]

    def total(self, quantized: Collection[str]) -> float:
        """Return the microseconds of an assignment, given its quantized nodes."""
        nodes = sum(self.integer[n] if n in quantized else self.floating[n] for n in self.integer)
        border = sum(
            c.microseconds for c in self.crossings if len({n in quantized for n in (c.maker, *c.readers)}) > 1
        )
        return nodes + border + sum(cost for (node, _), cost in self.beside.items() if node in quantized)


def find_float_regions(
    graph: Graph, plan: QuantPlan, profile: Profile, costs: Costs
) -> tuple[FloatRegion, ...]:
    """Return the regions that should fall back to float, the largest gain first.

    Args:
        graph: the prepared model.
        plan: the plan that was measured.
        profile: its counts are the sizes of tensors that are not converted now.
        costs: the measured times.
    """
    prices = find_prices(graph, plan, profile, costs)
    kept = cheapest(prices)
    groups = _connected(prices, [n for n in prices.integer if n not in kept])
    return tuple(sorted((region_of(nodes, prices) for nodes in groups), key=lambda region: -region.gain_ms))


def region_of(nodes: tuple[str, ...], prices: Prices) -> FloatRegion:
    """Return what quantized nodes cost now, and would cost in float, where all others stay as they are."""
    now = set(prices.integer)
    gain = prices.total(now) - prices.total(now - set(nodes))
    integer = sum(prices.integer[n] for n in nodes) + sum(
        c.microseconds
        for c in prices.crossings
        if set(nodes) & {c.maker, *c.readers} and len({n in now for n in (c.maker, *c.readers)}) > 1
    )
    integer += sum(cost for (node, _), cost in prices.beside.items() if node in nodes)
    return FloatRegion(nodes, integer / 1e3, (integer - gain) / 1e3)


def find_prices(graph: Graph, plan: QuantPlan, profile: Profile, costs: Costs) -> Prices:
    """Return the costs of nodes and conversions; see `Prices`."""
    quantized = [name_of(n) for n in graph.nodes if is_quantized(name_of(n), plan)]
    crossings = (*_crossings(graph, plan, profile, costs), *_tied(costs.together, quantized))
    beside: dict[tuple[str, str], float] = defaultdict(float)
    for node in graph.nodes:
        name = name_of(node)
        lost = costs.integer.get(name, 0.0) - costs.floating.get(name, 0.0)
        if name in plan.nodes and not is_quantized(name, plan) and lost > 0.0:
            makers = [c.maker for c in crossings if name in c.readers and is_quantized(c.maker, plan)]
            for maker in makers:
                beside[maker, name] += lost / len(makers)
    return Prices(
        {name: costs.integer.get(name, 0.0) for name in quantized},
        {name: costs.floating.get(name, 0.0) for name in quantized},
        crossings,
        dict(beside),
    )


def cheapest(prices: Prices) -> set[str]:
    """Return the nodes that stay quantized in the cheapest assignment."""
    return cheapest_with(prices, ())


def cheapest_with(prices: Prices, charges: Iterable[tuple[float, Collection[str]]]) -> set[str]:
    """Return the nodes that stay quantized in the cheapest assignment with further costs.

    Args:
        prices: of nodes and conversions.
        charges: costs, each paid once as long as any of some nodes is quantized.
    """
    network = Network()
    for number, (cost, names) in enumerate(charges):
        for name in sorted(names):
            network.edge(name, ("charge", number), NEVER)
        network.edge(("charge", number), SINK, cost)
    for name, cost in prices.integer.items():
        network.edge(SOURCE, name, prices.floating[name])
        network.edge(name, SINK, cost)
    for crossing in prices.crossings:
        ends = [name if name in prices.integer else SINK for name in (crossing.maker, *crossing.readers)]
        maker, readers = ends[0], ends[1:]
        # Paid once, however many readers differ from the producer: two nodes of its own for each tensor.
        network.edge(maker, ("float", crossing.tensor), crossing.microseconds)
        network.edge(("quantized", crossing.tensor), maker, crossing.microseconds)
        for reader in readers:
            network.edge(("float", crossing.tensor), reader, NEVER)
            network.edge(reader, ("quantized", crossing.tensor), NEVER)
    for (node, _), cost in prices.beside.items():
        network.edge(node, SINK, cost)
    side = network.source_side()
    return {name for name in prices.integer if name in side}


def _tied(groups: Iterable[tuple[str, ...]], quantized: Collection[str]) -> Iterator[Crossing]:
    """Yield what keeps the nodes of each group on one side: a crossing of no tensor that costs too much."""
    for group in groups:
        if len(group) > 1 and all(name in quantized for name in group):
            yield Crossing(f"together {group}", group[0], group[1:], NEVER)


def _rate(profile: Profile, costs: Costs) -> tuple[float, float]:
    """Return the microseconds of a conversion per element that calibration counted, and the minimum."""
    measured = [(time, profile[name].count) for name, time in costs.border.items() if name in profile]
    elements = sum(count for _, count in measured)
    return (
        sum(time for time, _ in measured) / elements if elements else 0.0,
        min((time for time, _ in measured), default=0.0),
    )


def _crossings(graph: Graph, plan: QuantPlan, profile: Profile, costs: Costs) -> Iterator[Crossing]:
    rate, least = _rate(profile, costs)
    for name, value in graph.values.items():
        readers = dict.fromkeys(name_of(reader) for reader, _ in graph.consumers(name))
        if graph.is_constant(name) or not graph.is_float(name):
            continue
        maker = value.producer()
        owner = name_of(maker)
        if plan.is_part(owner, name):  # a look-up table falls back to float as a whole
            yield Crossing(name, owner, tuple(readers), NEVER)
        if name not in profile:
            continue
        if graph.is_result(name):
            readers[""] = None
        if is_quantized(owner, plan) and name not in plan.tensors:
            continue  # a product with float output: nothing is converted after it, quantized or not
        time = costs.border.get(name, max(least, rate * profile[name].count))
        yield Crossing(name, owner, tuple(readers), time)


def _connected(prices: Prices, names: list[str]) -> Iterator[tuple[str, ...]]:
    """Yield the connected groups of nodes, each in the order of `names`."""
    near: dict[str, set[str]] = defaultdict(set)
    for crossing in prices.crossings:
        ends = {n for n in (crossing.maker, *crossing.readers) if n in prices.integer}
        for name in ends:
            near[name] |= ends
    left = dict.fromkeys(names)
    while left:
        group, waiting = set(), [next(iter(left))]
        while waiting:
            name = waiting.pop()
            if name in left:
                del left[name]
                group.add(name)
                waiting += near[name]
        yield tuple(name for name in names if name in group)
