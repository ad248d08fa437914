"""A report says what int8 would save and cost at a float node."""

from __future__ import annotations

import itertools

import pytest
from qprof_onnx.quantizer.costs.predicted import CostModel
from qprof_onnx.quantizer.plugins.report.estimates import price_of
from qprof_onnx.quantizer.targets.cost_table import Conditions, CostTable

from ...networks import network

KERNELS = {
    "Conv:window:float": (4, 100.0),
    "Sigmoid:float": (1, 9.0),
    "Sigmoid:integer": (1, 4.0),
    "QuantizeLinear:integer": (1, 2.0),
    "DequantizeLinear:integer": (1, 3.0),
}


def test_the_price_of_a_float_node_says_what_int8_would_save_and_cost() -> None:
    net = network("a = Conv (x, v) y = Sigmoid (a)", {"v": (32, 32, 3, 3)}, shape=(1, 32, 8, 8))
    points = {
        kernel: tuple((*corner, time) for corner in itertools.product((1.0, 1e9), repeat=axes))
        for kernel, (axes, time) in KERNELS.items()
    }
    table = CostTable(Conditions("onnxruntime-x86", "a processor", "onnxruntime 1.0", 1), points)
    plan, node = net.plan(keep_float=("Sigmoid",)), net.graph.nodes[1]
    model = CostModel(net.graph, net.profile, table)
    # The conversion of its result is needed instead of that of its input.
    assert price_of(node, plan, model, model.costs(plan)) == pytest.approx((9.0, 4.0, 0.0))
