"""The minimum cut against every choice there is, and against networkx."""

from __future__ import annotations

from itertools import product

import networkx
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from qprof_onnx.quantizer.costs.float_regions import SINK, SOURCE, Crossing, Network, Prices, cheapest

NAMES = tuple("abcde")
PRICE = st.integers(0, 9).map(float)


@st.composite
def prices(draw: st.DrawFn) -> Prices:
    ends = st.sampled_from([*NAMES, "", "float"])
    crossings = [
        Crossing(f"t{i}", draw(ends), tuple(draw(st.sets(ends, min_size=1, max_size=3))), draw(PRICE))
        for i in range(draw(st.integers(0, 6)))
    ]
    beside = {(draw(st.sampled_from(NAMES)), "float"): draw(PRICE)}
    return Prices(
        {name: draw(PRICE) for name in NAMES},
        {name: draw(PRICE) for name in NAMES},
        tuple(crossings),
        beside,
    )


def total(costs: Prices, quantized: set[str]) -> float:
    """Return the microseconds of an assignment: of all nodes, and of all tensors between the two sides."""
    nodes = sum(costs.integer[n] if n in quantized else costs.floating[n] for n in NAMES)
    between = [c for c in costs.crossings if len({n in quantized for n in (c.maker, *c.readers)}) > 1]
    beside = sum(cost for (node, _), cost in costs.beside.items() if node in quantized)
    return nodes + sum(crossing.microseconds for crossing in between) + beside


@settings(deadline=None)  # a busy machine
@given(prices())
def test_no_choice_is_cheaper(costs: Prices) -> None:
    choices = [{n for n, taken in zip(NAMES, c, strict=True) if taken} for c in product((0, 1), repeat=5)]
    assert total(costs, cheapest(costs)) == min(total(costs, choice) for choice in choices)


@settings(deadline=None)  # a busy machine
@given(prices(), st.sets(st.sampled_from(NAMES)), st.sets(st.sampled_from(NAMES)))
def test_what_nodes_save_in_float_is_the_difference_of_two_totals(
    costs: Prices, quantized: set[str], fallback: set[str]
) -> None:
    both = quantized | fallback
    assert costs.saved_in_float(fallback, both) == total(costs, both) - total(costs, both - fallback)


def test_of_equal_choices_integers_stay() -> None:
    assert cheapest(Prices({"a": 2.0}, {"a": 2.0}, (), {})) == {"a"}


def both(edges: list[tuple[object, object, float]]) -> tuple[Network, networkx.DiGraph]:
    """Return the same network for our algorithm and for networkx; capacities of equal edges add up."""
    network, graph = Network(), networkx.DiGraph()
    network.edge(SOURCE, SINK, 0.0)
    graph.add_nodes_from((SOURCE, SINK))
    for start, end, capacity in edges:
        network.edge(start, end, capacity)
        before = graph.edges[start, end]["capacity"] if graph.has_edge(start, end) else 0.0
        graph.add_edge(start, end, capacity=before + capacity)
    return network, graph


def cut_by_networkx(graph: networkx.DiGraph) -> tuple[float, set[object]]:
    """Return value and source side; networkx too counts every node that cannot reach the sink to it."""
    value, (source_side, _) = networkx.minimum_cut(graph, SOURCE, SINK)
    return value, source_side


def cut_value(graph: networkx.DiGraph, source_side: set[object]) -> float:
    edges = graph.edges(data="capacity")
    return sum(capacity for start, end, capacity in edges if start in source_side and end not in source_side)


ENDS = st.sampled_from([SOURCE, SINK, *range(6)])
EDGES = st.lists(
    st.tuples(ENDS, ENDS, st.integers(0, 9).map(float)).filter(lambda edge: edge[0] != edge[1]), max_size=30
)


@settings(deadline=None)  # a busy machine
@given(EDGES)
def test_the_cut_is_that_of_networkx(edges: list[tuple[object, object, float]]) -> None:
    network, graph = both(edges)
    value, source_side = cut_by_networkx(graph)
    assert network.source_side() == source_side
    assert cut_value(graph, source_side) == value


def test_a_large_network_with_fractional_capacities_has_the_cut_of_networkx() -> None:
    rng = np.random.default_rng(3)
    nodes = [SOURCE, SINK, *range(150)]
    ends = rng.integers(0, len(nodes), (900, 2))
    edges = [(nodes[a], nodes[b], float(rng.random())) for a, b in ends if a != b]
    network, graph = both(edges)
    value, source_side = cut_by_networkx(graph)
    # Several cuts may differ by rounding, so the values are compared: sums of at most 900 float64.
    assert abs(cut_value(graph, network.source_side()) - value) < 1e-9
    assert value > 0.0
    assert len(source_side) < len(nodes)
