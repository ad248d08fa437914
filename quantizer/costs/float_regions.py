"""Quantized nodes that are faster in float, by their cost in either form. Pure.

Every quantized node either stays quantized or falls back to float. An assignment costs the time of its nodes,
and a conversion for each tensor whose producer and readers differ. The cheapest assignment is a minimum cut.
A float node that costs more next to quantized nodes than in the float model (in which it was fused into the
node before it) adds the difference to the cost of the boundary.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

from ...profiles.base.tuned import tuned
from ...profiles.records.profile import Profile
from ..operators.graph import Graph
from ..plan.plan import Kind, NodePlan, PredictedTime, QuantPlan
from ..plan.reasons import FloatReason, FloatReasons, ReasonCode, because
from ..targets.cost_table import MIN_MICROSECONDS
from .predicted import CostModel, Costs, is_quantized, total_microseconds

# The cheapest assignment of the nodes of a graph to two sides: a minimum cut ------------------------------

Node = Hashable
SOURCE, SINK = ("source",), ("sink",)
NEVER = float("inf")
GRAIN = 1e-9
"""Capacities below this count as used up: sums of float64 costs leave such remainders."""


class Network:
    """Capacities of directed edges; `edge` adds to them.

    Each node has a cost on either side, and an edge costs when its ends are on different sides (Goldschmidt
    and Hochbaum; Boykov and Kolmogorov); the flow is that of Dinic's algorithm (1970). Nodes are numbered:
    names take long to hash.
    """

    def __init__(self) -> None:
        self._numbers: dict[Node, int] = {SOURCE: 0, SINK: 1}
        self._capacities: list[dict[int, float]] = [{}, {}]

    def _number(self, node: Node) -> int:
        number = self._numbers.setdefault(node, len(self._capacities))
        if number == len(self._capacities):
            self._capacities.append({})
        return number

    def edge(self, start: Node, end: Node, capacity: float) -> None:
        """Charge `capacity` when `start` is on the side of SOURCE and `end` on that of SINK."""
        a, b = self._number(start), self._number(end)
        forward = self._capacities[a]
        forward[b] = forward.get(b, 0.0) + capacity
        self._capacities[b].setdefault(a, 0.0)

    def charge(self, node: Node, capacity: float) -> None:
        """Set the only capacity between a node and SINK."""
        self._capacities[self._numbers[node]][1] = capacity

    def source_side(self) -> set[Node]:
        """Return the nodes on the side of SOURCE in the minimum cut with the most nodes there."""
        residual = [dict(ends) for ends in self._capacities]
        while (level := _distances(residual))[1] is not None:
            _fill(residual, level)
        # What more could flow from to the sink is on its side. Each edge has its reverse in `residual`.
        sink_side = {1}
        waiting = deque([1])
        while waiting:
            node = waiting.popleft()
            for start in residual[node]:
                if residual[start][node] > GRAIN and start not in sink_side:
                    sink_side.add(start)
                    waiting.append(start)
        return {node for node, number in self._numbers.items() if number not in sink_side}


def _distances(residual: list[dict[int, float]]) -> list[int | None]:
    """Return the distance of each node from the source, or None if it is out of reach."""
    distances: list[int | None] = [0, *[None] * (len(residual) - 1)]
    reached, distance = [0], 0
    while reached:
        distance += 1
        nearer, reached = reached, []
        for node in nearer:
            for end, capacity in residual[node].items():
                if capacity > GRAIN and distances[end] is None:
                    distances[end] = distance
                    reached.append(end)
    return distances


def _fill(residual: list[dict[int, float]], level: list[int | None]) -> None:
    """Send flow along shortest paths until none is left."""
    untried = [list(ends) for ends in residual]
    path = [0]
    while path:
        node = path[-1]
        if node == 1:
            steps = list(pairwise(path))
            amount = min(residual[a][b] for a, b in steps)
            for a, b in steps:
                residual[a][b] -= amount
                residual[b][a] += amount
            full = next(place for place, (a, b) in enumerate(steps) if not residual[a][b] > GRAIN)
            del path[full + 1 :]
            continue
        ends, capacities, farther = untried[node], residual[node], (level[node] or 0) + 1
        while ends:
            if level[ends[-1]] == farther and capacities[ends[-1]] > GRAIN:
                path.append(ends[-1])
                break
            ends.pop()
        else:  # a dead end
            path.pop()
            if path:
                untried[path[-1]].pop()


# What nodes and conversions cost, and the cheapest assignment ---------------------------------------------


@dataclass(frozen=True)
class Crossing:
    """A tensor that is converted if its producer and a reader differ."""

    tensor: str
    maker: str  # the node that produces it, "" for a graph input
    readers: tuple[str, ...]  # nodes that read it as data; "" for a graph output or an inner graph
    microseconds: float  # of its conversion


@dataclass(frozen=True)
class Prices:
    """The costs in microseconds that the assignment is made from."""

    integer: Mapping[str, float]  # of each node that is quantized now
    floating: Mapping[str, float]
    crossings: tuple[Crossing, ...]
    # (quantized node, float node) -> what the second loses while the first is quantized
    beside: Mapping[tuple[str, str], float]

    def saved_in_float(self, nodes: Collection[str], quantized: Collection[str]) -> float:
        """Return the microseconds that an assignment saves if some of its quantized nodes become float."""
        saved = sum(self.integer[name] + self.lost_beside.get(name, 0.0) for name in nodes)
        saved -= sum(self.floating[name] for name in nodes)
        for crossing in self.crossings_around(nodes):
            ends = {crossing.maker, *crossing.readers}
            is_converted = len({end in quantized for end in ends}) > 1
            is_converted_after = len({end in quantized and end not in nodes for end in ends}) > 1
            if is_converted != is_converted_after:
                saved += crossing.microseconds if is_converted else -crossing.microseconds
        return saved

    def crossings_around(self, nodes: Iterable[str]) -> tuple[Crossing, ...]:
        """Return the crossings that some nodes make or read, each once."""
        return tuple(dict.fromkeys(c for name in nodes for c in self.crossings_of.get(name, ())))

    @cached_property
    def crossings_of(self) -> Mapping[str, Sequence[Crossing]]:
        """The crossings around each node, in their order."""
        around: dict[str, list[Crossing]] = defaultdict(list)
        for crossing in self.crossings:
            for name in dict.fromkeys((crossing.maker, *crossing.readers)):
                around[name].append(crossing)
        return dict(around)

    @cached_property
    def lost_beside(self) -> Mapping[str, float]:
        """Microseconds that the float nodes beside a quantized one lose, by its name."""
        lost: dict[str, float] = defaultdict(float)
        for (node, _), cost in self.beside.items():
            lost[node] += cost
        return dict(lost)


def find_prices(graph: Graph, plan: QuantPlan, profile: Profile, costs: Costs) -> Prices:
    """Return the costs of nodes and conversions in microseconds, predicted or measured."""
    quantized = {n.name: None for n in graph.nodes if is_quantized(n.name, plan)}
    crossings = list(_crossings(graph, plan, profile, costs))
    for group in costs.together:
        if len(group) > 1 and all(name in quantized for name in group):
            # A crossing of no tensor that costs too much: these nodes stay on one side.
            crossings.append(Crossing(f"together {group}", group[0], group[1:], NEVER))
    makers: dict[str, list[str]] = defaultdict(list)
    for crossing in crossings:
        if is_quantized(crossing.maker, plan):
            for name in dict.fromkeys(crossing.readers):
                makers[name].append(crossing.maker)
    beside: dict[tuple[str, str], float] = defaultdict(float)
    for node in graph.nodes:
        name = node.name
        lost = costs.integer.get(name, 0.0) - costs.floating.get(name, 0.0)
        if name in plan.nodes and not is_quantized(name, plan) and lost > 0.0:
            for maker in makers[name]:
                beside[maker, name] += lost / len(makers[name])
    return Prices(
        {name: costs.integer.get(name, 0.0) for name in quantized},
        {name: costs.floating.get(name, 0.0) for name in quantized},
        tuple(crossings),
        dict(beside),
    )


def _crossings(graph: Graph, plan: QuantPlan, profile: Profile, costs: Costs) -> Iterator[Crossing]:
    # What is not converted now costs as much for each element as what is, and no less than the least of that.
    converted = [(time, profile[name].count) for name, time in costs.border.items() if name in profile]
    elements = sum(count for _, count in converted)
    rate = sum(time for time, _ in converted) / elements if elements else 0.0
    least = min((time for time, _ in converted), default=0.0)
    for name in graph.values:
        readers = dict.fromkeys(reader.name for reader, _ in graph.consumers(name))
        if graph.is_constant(name) or not graph.is_float(name):
            continue
        maker = graph.maker(name)
        if plan.is_part(maker, name):  # a look-up table falls back to float as a whole
            yield Crossing(name, maker, tuple(readers), NEVER)
        if name not in profile:
            continue
        if graph.is_result(name):
            readers[""] = None
        if is_quantized(maker, plan) and name not in plan.tensors:
            continue  # a product with float output: nothing is converted after it, quantized or not
        time = costs.border.get(name, max(least, rate * profile[name].count))
        yield Crossing(name, maker, tuple(readers), time)


def cheapest(prices: Prices) -> set[str]:
    """Return the nodes that stay quantized in the cheapest assignment."""
    return cheapest_with(prices, ())(())


def cheapest_with(prices: Prices, groups: Iterable[Collection[str]]) -> Callable[[Iterable[float]], set[str]]:
    """Return a function that returns the nodes that stay quantized in the cheapest assignment.

    Its argument is a further cost for each group of nodes, paid once if any of them is quantized.
    """
    network, groups = Network(), list(groups)
    for number, names in enumerate(groups):
        for name in sorted(names):
            network.edge(name, ("charge", number), NEVER)
        network.edge(("charge", number), SINK, 0.0)
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

    def with_charges(charges: Iterable[float]) -> set[str]:
        for number, cost in enumerate(charges):
            network.charge(("charge", number), cost)
        source_side = network.source_side()
        return {name for name in prices.integer if name in source_side}

    return with_charges


# Connected nodes that are faster in float -----------------------------------------------------------------


@dataclass(frozen=True)
class FloatRegion:
    """Nodes that fell back to float together.

    Attributes:
        nodes: their names.
        quantized_ms, float_ms: latency of these nodes, conversions at their border included.
    """

    # Connected nodes in graph order; `qprof schema quantization` prints the docstring.
    nodes: tuple[str, ...]
    quantized_ms: float
    float_ms: float

    @property
    def gain_ms(self) -> float:
        """The time that their fallback to float is estimated to save."""
        return self.quantized_ms - self.float_ms


def find_float_regions(
    graph: Graph, plan: QuantPlan, profile: Profile, costs: Costs
) -> tuple[FloatRegion, ...]:
    """Return the regions that should fall back to float by measured times, the largest gain first."""
    prices = find_prices(graph, plan, profile, costs)
    return _float_regions(prices, cheapest(prices))


def _float_regions(prices: Prices, quantized: Collection[str]) -> tuple[FloatRegion, ...]:
    """Return the connected regions of the nodes that do not stay quantized, the largest gain first."""
    groups = _connected(prices, [name for name in prices.integer if name not in quantized])
    return tuple(sorted((_region_of(nodes, prices) for nodes in groups), key=lambda region: -region.gain_ms))


def _region_of(nodes: tuple[str, ...], prices: Prices) -> FloatRegion:
    """Return the cost of quantized nodes now, and in float, if no other node changes."""
    gain = prices.saved_in_float(frozenset(nodes), prices.integer.keys())
    border = sum(
        c.microseconds
        for c in prices.crossings_around(nodes)
        if len({n in prices.integer for n in (c.maker, *c.readers)}) > 1
    )
    integer = sum(prices.integer[n] for n in nodes) + border
    integer += sum(prices.lost_beside.get(name, 0.0) for name in nodes)
    return FloatRegion(nodes, integer / 1e3, (integer - gain) / 1e3)


def _connected(prices: Prices, names: Iterable[str]) -> Iterator[tuple[str, ...]]:
    """Yield the connected groups of nodes, each in the order of `names`."""
    near: dict[str, set[str]] = defaultdict(set)
    for crossing in prices.crossings:
        ends = {n for n in (crossing.maker, *crossing.readers) if n in prices.integer}
        for name in ends:
            near[name] |= ends
    place = {name: number for number, name in enumerate(names)}
    remaining = dict(place)
    while remaining:
        group, waiting = list[str](), [next(iter(remaining))]
        while waiting:
            name = waiting.pop()
            if name in remaining:
                del remaining[name]
                group.append(name)
                waiting += near[name]
        yield tuple(sorted(group, key=lambda name: place[name]))


# Which regions of a plan do not pay, and whether all of it does ------------------------------------------

FLOAT_MARGIN = tuned(
    1.3,
    figure=("of 1.0, 1.1, 1.2 and 1.3 none was faster with less by more than the error (DECISIONS.md, 29)"),
    chosen_on="six models",
    holds=(1.3, 1.625),
)
"""How many times as long as in float the nodes of a region may be predicted to take and stay quantized: float
moves four times the bytes."""

MIN_REGION_SAVED_US = tuned(
    1.0,
    figure=("with 2 a matcher lost its gain (0.963 of float's time instead of 0.948; DECISIONS.md, 29)"),
    chosen_on="56 small networks, a matcher",
    holds=(0.8, 1.25),
)
"""Microseconds that a region has to save: the clock that times are from has no shorter ones."""

MIN_SAVED_SHARE = tuned(
    0.05,
    figure="with less, every second prediction has the wrong sign (DECISIONS.md, 29)",
    chosen_on="56 small networks, 40 others held against it",
    holds=(0.04, 0.0625),
)
"""Part of float's time that a plan has to save, or the model keeps float arithmetic."""


MIN_SAVED_US = tuned(
    5.0,
    figure="predictions of models that take some tens are wrong by as much (DECISIONS.md, 29)",
    chosen_on="56 small networks, 40 others held against it",
    holds=(4.0, 6.25),
)
"""Microseconds that a plan has to save."""


def unprofitable_nodes(prices: Prices) -> FloatReasons:
    """Return the quantized nodes whose regions save too little time, each with the figures of its region."""
    regions = _float_regions(prices, profitable(prices))
    slower = [region for region in regions if region.gain_ms > 0.0]
    barely_faster = [region for region in regions if region.gain_ms <= 0.0]
    return {
        **reasons_of(slower, ReasonCode.PREDICTED_SLOWER),
        **reasons_of(barely_faster, ReasonCode.SAVES_TOO_LITTLE),
    }


def profitable(prices: Prices) -> set[str]:
    """Return the nodes that stay quantized: each connected region saves at least `MIN_REGION_SAVED_US`.

    A region that does not in the assignment with `FLOAT_MARGIN` may have parts that do, in the cheapest one.
    """
    kept: set[str] = set()
    for margin in (FLOAT_MARGIN, 1.0):
        slower_float = replace(
            prices,
            floating={name: time * margin for name, time in prices.floating.items()},
            crossings=tuple(replace(c, microseconds=c.microseconds * margin) for c in prices.crossings),
        )
        quantized = cheapest(slower_float) - kept
        for nodes in _connected(prices, [name for name in prices.integer if name in quantized]):
            trial = kept | set(nodes)
            if -prices.saved_in_float(frozenset(nodes), trial) >= MIN_REGION_SAVED_US:
                kept = trial
    return kept


def predicted_time(before: CostModel, after: CostModel, plan: QuantPlan, costs: Costs) -> PredictedTime:
    """Return the time of a planned model, whose nodes have the given costs, and that of the float model as in
    its file, to four digits."""
    float_us = before.float_time_of_run
    planned_us = total_microseconds(costs, after.graph, plan)
    conditions = after.table.conditions.text(plan.config.target)
    return PredictedTime(
        float(f"{float_us:.4g}"), float(f"{planned_us:.4g}"), conditions, error=before.table.error
    )


def saves_too_little(model: CostModel, plan: QuantPlan, predicted: PredictedTime) -> FloatReason | None:
    """Return why no node of a plan is to be quantized, or None if quantizing them saves enough time.

    It has to save `MIN_SAVED_SHARE` and `MIN_SAVED_US` of the file's time, of the prepared model's, and of
    the time of the plan without quantized nodes: float nodes gain by preparation, and by the way they are
    written, without integers.
    """
    quantized = {name for name, entry in plan.nodes.items() if entry.kind.counts_as_quantized}
    if not quantized:
        return None
    nodes = {n: NodePlan(Kind.FLOAT) if n in quantized else entry for n, entry in plan.nodes.items()}
    adjustments = replace(plan.adjustments, padded_channels={}, folded_widths={})
    in_float = replace(plan, nodes=nodes, tensors={}, adjustments=adjustments)
    without_integers = total_microseconds(model.costs(in_float), model.graph, in_float)
    float_us = min(without_integers, predicted.float_us, model.float_time_of_run)
    if float_us - predicted.planned_us >= max(MIN_SAVED_SHARE * float_us, MIN_SAVED_US):
        return None
    ratio = predicted.planned_us / max(float_us, MIN_MICROSECONDS)
    return because(ReasonCode.MODEL_SAVES_TOO_LITTLE, ratio=ratio)


def reasons_of(regions: Iterable[FloatRegion], code: ReasonCode) -> FloatReasons:
    """Return why the nodes of regions stay float: with a code whose details are the two times."""
    return {
        name: because(code, int8_ms=region.quantized_ms, float_ms=region.float_ms)
        for region in regions
        for name in region.nodes
    }


UNPROFITABLE = (ReasonCode.PREDICTED_SLOWER, ReasonCode.SAVES_TOO_LITTLE, ReasonCode.MODEL_SAVES_TOO_LITTLE)
"""Reasons of nodes that could be quantized and would save too little time."""


NOISY = (
    *(ReasonCode.BELOW_SQNR_LIMIT, ReasonCode.NOISE_BUDGET),
    *(ReasonCode.NOISE_LIMIT, ReasonCode.MEASURED_NOISE),
)
"""Reasons of nodes that could be quantized and would be too noisy."""


def without_int8(plan: QuantPlan) -> tuple[int, int]:
    """Return how many nodes are float as int8 saves too little time, and as it is too noisy.

    Both are 0 for a plan with arithmetic in integers, and in a mode that has none.
    """
    entries = plan.nodes.values()
    if plan.config.mode == "weight-only" or any(entry.kind.counts_as_quantized for entry in entries):
        return 0, 0
    codes = [entry.float_reason.code for entry in entries if entry.stays_float]
    return sum(code in UNPROFITABLE for code in codes), sum(code in NOISY for code in codes)
