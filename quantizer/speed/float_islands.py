"""Which nodes are better off in float, from what each costs in either form. Pure.

A choice for every node that computes on codes now: stay, or go back to float. It costs what its nodes cost,
and a conversion for each tensor whose maker and readers differ. The cheapest choice of all is a minimum cut.
A node that is float anyway, and costs more beside integers than in the float model (where it was fused into
what is before it), charges the difference to the border.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from ...profiles.records.profile import Profile
from ..model.graph import Graph
from ..plan.plan import QuantPlan
from .min_cut import NEVER, SINK, SOURCE, Network
from .node_costs import Costs, is_quantized


@dataclass(frozen=True)
class Island:
    """Connected nodes that are better off in float.

    Attributes:
        nodes: their names, in graph order.
        integer_ms: what they cost on codes, conversions at their border included.
        float_ms: the same once they are float: other conversions may be needed then.
    """

    nodes: tuple[str, ...]
    integer_ms: float
    float_ms: float

    @property
    def gain_ms(self) -> float:
        """What taking it back should save."""
        return self.integer_ms - self.float_ms


@dataclass(frozen=True)
class Crossing:
    """A tensor that would be converted if its maker and a reader differed.

    Attributes:
        tensor: its name.
        maker: the node that makes it, "" for a graph input.
        readers: nodes that read it as data; "" for a graph output or an inner graph.
        microseconds: of its conversion.
    """

    tensor: str
    maker: str
    readers: tuple[str, ...]
    microseconds: float


@dataclass(frozen=True)
class Prices:
    """What the choice is made from.

    Attributes:
        integer, floating: microseconds of each node that computes on codes now.
        crossings: tensors between nodes.
        beside: (node on codes, float node) -> microseconds that the second loses while the first is in
            integers.
    """

    integer: Mapping[str, float]
    floating: Mapping[str, float]
    crossings: tuple[Crossing, ...]
    beside: Mapping[tuple[str, str], float]

    def total(self, codes: Collection[str]) -> float:
        """Return the microseconds of the whole choice, `codes` being the nodes in integers."""
        nodes = sum(self.integer[n] if n in codes else self.floating[n] for n in self.integer)
        border = sum(
            c.microseconds for c in self.crossings if len({n in codes for n in (c.maker, *c.readers)}) > 1
        )
        return nodes + border + sum(cost for (node, _), cost in self.beside.items() if node in codes)


def find_islands(graph: Graph, plan: QuantPlan, profile: Profile, costs: Costs) -> tuple[Island, ...]:
    """Return what should go back to float, the largest gain first.

    Args:
        graph: the prepared model.
        plan: the plan that was measured.
        profile: its counts tell the sizes of tensors that are not converted now.
        costs: what was measured.
    """
    prices = find_prices(graph, plan, profile, costs)
    now = set(prices.integer)
    kept = cheapest(prices)
    before = prices.total(now)
    islands = []
    for nodes in _connected(prices, [n for n in prices.integer if n not in kept]):
        gain = before - prices.total(now - set(nodes))
        integer = sum(prices.integer[n] for n in nodes) + sum(
            c.microseconds
            for c in prices.crossings
            if set(nodes) & {c.maker, *c.readers} and len({n in now for n in (c.maker, *c.readers)}) > 1
        )
        integer += sum(cost for (node, _), cost in prices.beside.items() if node in nodes)
        islands.append(Island(nodes, integer / 1e3, (integer - gain) / 1e3))
    return tuple(sorted(islands, key=lambda island: -island.gain_ms))


def find_prices(graph: Graph, plan: QuantPlan, profile: Profile, costs: Costs) -> Prices:
    """Return what each choice costs; see `Prices`."""
    on_codes = [n.name or "" for n in graph.nodes if is_quantized(n.name or "", plan)]
    crossings = tuple(_crossings(graph, plan, profile, costs))
    beside: dict[tuple[str, str], float] = defaultdict(float)
    for node in graph.nodes:
        name = node.name or ""
        lost = costs.integer.get(name, 0.0) - costs.floating.get(name, 0.0)
        if name in plan.nodes and not is_quantized(name, plan) and lost > 0.0:
            makers = [c.maker for c in crossings if name in c.readers and is_quantized(c.maker, plan)]
            for maker in makers:
                beside[maker, name] += lost / len(makers)
    return Prices(
        {name: costs.integer.get(name, 0.0) for name in on_codes},
        {name: costs.floating.get(name, 0.0) for name in on_codes},
        crossings,
        dict(beside),
    )


def cheapest(prices: Prices) -> set[str]:
    """Return the nodes that stay on codes in the cheapest choice."""
    network = Network()
    for name, cost in prices.integer.items():
        network.edge(SOURCE, name, prices.floating[name])
        network.edge(name, SINK, cost)
    for crossing in prices.crossings:
        ends = [name if name in prices.integer else SINK for name in (crossing.maker, *crossing.readers)]
        maker, readers = ends[0], ends[1:]
        # Paid once, however many readers differ from the maker: two nodes of its own for each tensor.
        network.edge(maker, ("real", crossing.tensor), crossing.microseconds)
        network.edge(("quantized", crossing.tensor), maker, crossing.microseconds)
        for reader in readers:
            network.edge(("real", crossing.tensor), reader, NEVER)
            network.edge(reader, ("quantized", crossing.tensor), NEVER)
    for (node, _), cost in prices.beside.items():
        network.edge(node, SINK, cost)
    side = network.source_side()
    return {name for name in prices.integer if name in side}


def _rate(profile: Profile, costs: Costs) -> tuple[float, float]:
    """Return the microseconds of a conversion for each element that calibration counted, and the least."""
    known = [(time, profile[name].count) for name, time in costs.border.items() if name in profile]
    elements = sum(count for _, count in known)
    return (
        sum(time for time, _ in known) / elements if elements else 0.0,
        min((time for time, _ in known), default=0.0),
    )


def _crossings(graph: Graph, plan: QuantPlan, profile: Profile, costs: Costs) -> Iterator[Crossing]:
    rate, least = _rate(profile, costs)
    for name, value in graph.values.items():
        readers = dict.fromkeys(reader.name or "" for reader, _ in graph.consumers(name))
        if graph.is_constant(name) or not graph.is_float(name):
            continue
        maker = value.producer()
        owner = "" if maker is None else maker.name or ""
        if plan.is_part(owner, name):  # a table goes back to float as a whole
            yield Crossing(name, owner, tuple(readers), NEVER)
        if name not in profile:
            continue
        if graph.is_result(name):
            readers[""] = None
        if is_quantized(owner, plan) and name not in plan.tensors:
            continue  # a product that returns float: nothing is converted behind it, whatever becomes of it
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
