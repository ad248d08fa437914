"""Nodes that are predicted to be slower in int8 are named, each with the figures of its region."""

from __future__ import annotations

import pytest
from qprof_onnx.quantizer.costs.float_regions import slower_nodes
from qprof_onnx.quantizer.costs.predicted import Costs
from qprof_onnx.quantizer.plan.reasons import ReasonCode

from ..networks import WIDE, Network, network


@pytest.fixture(scope="module")
def net() -> Network:
    """Two convolutions with a Relu between them, and a float operator behind."""
    return network("a = Conv (x, v) b = Relu (a) c = Conv (b, w) y = Erf (c)", {"v": WIDE, "w": WIDE})


def test_a_node_that_costs_more_in_int8_is_named_with_both_times(net: Network) -> None:
    costs = Costs({"Conv_a": 10.0, "Conv_c": 90.0}, {"Conv_a": 50.0, "Conv_c": 45.0}, {"x": 1.0}, ())
    found = slower_nodes(net.graph, net.plan(), net.profile, costs)
    assert list(found) == ["Conv_c"]
    assert found["Conv_c"].code is ReasonCode.PREDICTED_SLOWER
    assert found["Conv_c"].details["int8_ms"] > found["Conv_c"].details["float_ms"]  # type: ignore[operator]


def test_no_node_is_named_where_int8_is_faster_everywhere(net: Network) -> None:
    costs = Costs({"Conv_a": 10.0, "Conv_c": 10.0}, {"Conv_a": 50.0, "Conv_c": 45.0}, {"x": 1.0}, ())
    assert slower_nodes(net.graph, net.plan(), net.profile, costs) == {}
