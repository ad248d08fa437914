"""Nodes whose regions save too little in int8 are named, each with the figures of its region."""

from __future__ import annotations

from itertools import pairwise

import pytest
from qprof_onnx.quantizer.costs.float_regions import (
    Crossing,
    Prices,
    find_prices,
    profitable,
    unprofitable_nodes,
)
from qprof_onnx.quantizer.costs.predicted import Costs
from qprof_onnx.quantizer.plan.reasons import ReasonCode

from ..networks import WIDE, Network, network


@pytest.fixture(scope="module")
def net() -> Network:
    """Two convolutions with a Relu between them, and a float operator behind."""
    return network("a = Conv (x, v) b = Relu (a) c = Conv (b, w) y = Erf (c)", {"v": WIDE, "w": WIDE})


def test_a_node_that_costs_more_in_int8_is_named_with_both_times(net: Network) -> None:
    costs = Costs({"Conv_a": 10.0, "Conv_c": 90.0}, {"Conv_a": 50.0, "Conv_c": 45.0}, {"x": 1.0}, ())
    found = unprofitable_nodes(find_prices(net.graph, net.plan(), net.profile, costs))
    assert list(found) == ["Conv_c"]
    assert found["Conv_c"].code is ReasonCode.PREDICTED_SLOWER
    assert found["Conv_c"].details["int8_ms"] > found["Conv_c"].details["float_ms"]  # type: ignore[operator]


def test_no_node_is_named_where_int8_is_faster_everywhere(net: Network) -> None:
    costs = Costs({"Conv_a": 10.0, "Conv_c": 10.0}, {"Conv_a": 50.0, "Conv_c": 45.0}, {"x": 1.0}, ())
    assert unprofitable_nodes(find_prices(net.graph, net.plan(), net.profile, costs)) == {}


def test_a_region_that_saves_next_to_nothing_stays_float(net: Network) -> None:
    costs = Costs({"Conv_a": 48.0, "Conv_c": 45.0}, {"Conv_a": 50.0, "Conv_c": 45.0}, {"x": 1.0}, ())
    found = unprofitable_nodes(find_prices(net.graph, net.plan(), net.profile, costs))
    assert {reason.code for reason in found.values()} == {ReasonCode.SAVES_TOO_LITTLE}
    assert set(found) == {"Conv_a", "Relu_b", "Conv_c"}


def test_nodes_inside_of_a_region_may_be_a_little_slower() -> None:
    prices = Prices({"a": 1.0, "b": 11.0, "c": 1.0}, {"a": 20.0, "b": 10.0, "c": 20.0}, chain(0.1), {})
    assert profitable(prices) == {"a", "b", "c"}


def test_the_part_of_a_region_that_pays_stays_quantized() -> None:
    prices = Prices({"a": 29.0, "b": 10.0, "c": 29.0}, {"a": 25.0, "b": 13.0, "c": 24.0}, chain(0.1), {})
    assert profitable(prices) == {"b"}


def chain(microseconds: float) -> tuple[Crossing, ...]:
    """Return the conversions between x, a, b, c and y."""
    ends = pairwise(["", "a", "b", "c", ""])
    return tuple(Crossing(f"{maker}{reader}", maker, (reader,), microseconds) for maker, reader in ends)
