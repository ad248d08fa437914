"""Products at the head of a model that are loud in integers and cheap in float."""

from __future__ import annotations

import numpy as np
import pytest
from qprof_onnx.quantizer.plan.plan import Kind
from qprof_onnx.quantizer.planning.noise_budget import cheap_nodes

from ..networks import WIDE, Network, flow_of, network

# 9 and 18 thousand products, then 1.2 million.
BODY = "a = Conv (x, w) b = Conv (a, v) y = Conv <pads: ints = [1, 1, 1, 1]> (b, u)"
WEIGHTS = {"w": WIDE, "v": (64, 8, 3, 3), "u": (512, 64, 3, 3)}


@pytest.fixture(scope="module")
def net() -> Network:
    return network(BODY, WEIGHTS)


def found(net: Network, first: float, second: float, third: float) -> list[int]:
    """Return the places of the nodes that go back to float, given the noise of each over the signal."""
    plan = net.plan(min_output_sqnr=0.0)
    assert [entry.kind for entry in plan.nodes.values()] == [Kind.QUANTIZED] * 3
    names = list(plan.nodes)
    noise = {name: np.array([share]) for name, share in zip(names, (first, second, third), strict=True)}
    flow = flow_of(net.graph, net.profile, net.identity.opset)
    chosen = cheap_nodes(net.graph, net.profile, flow, plan, noise)
    return [names.index(name) for name in chosen]


def test_small_products_with_much_of_the_noise_go_back_to_float(net):
    assert found(net, 0.01, 0.01, 0.001) == [0, 1]


def test_an_output_that_is_clean_enough_is_left_alone(net):
    assert found(net, 0.0001, 0.0001, 0.00001) == []


def test_a_product_behind_codes_stays_in_codes(net):
    assert found(net, 0.0, 0.01, 0.01) == []


def test_a_product_that_does_most_of_the_work_stays_in_codes(net):
    assert found(net, 0.1, 0.1, 0.8) == [0, 1]


def test_the_plan_says_what_was_weighed(net, monkeypatch):
    monkeypatch.setattr("qprof_onnx.quantizer.planning.noise_budget.LOW_NOISE_DB", 60.0)
    reasons = [entry.reason for entry in net.plan().nodes.values() if entry.stays_float]
    assert len(reasons) == 2
    assert all("% of the noise in output 'y'" in reason for reason in reasons)


def test_all_stays_in_codes_where_time_is_no_matter(net, monkeypatch):
    monkeypatch.setattr("qprof_onnx.quantizer.planning.noise_budget.LOW_NOISE_DB", 60.0)
    assert [entry.kind for entry in net.plan(cost_model="off").nodes.values()] == [Kind.QUANTIZED] * 3


def test_all_stays_in_codes_where_outputs_may_drown(net, monkeypatch):
    monkeypatch.setattr("qprof_onnx.quantizer.planning.noise_budget.LOW_NOISE_DB", 60.0)
    plan = net.plan(min_output_sqnr=0.0)
    assert [entry.kind for entry in plan.nodes.values()] == [Kind.QUANTIZED] * 3
