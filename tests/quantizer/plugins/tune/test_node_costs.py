"""Executed nodes are charged to the nodes of the plan, and float regions have their figures."""

from __future__ import annotations

import pytest
from qprof_onnx.quantizer.costs.float_regions import find_float_regions
from qprof_onnx.quantizer.costs.predicted import Costs
from qprof_onnx.quantizer.lowering.lower import lower
from qprof_onnx.quantizer.lowering.lowered import WrittenNames
from qprof_onnx.quantizer.planning.plan_model import model_facts, plan_from
from qprof_onnx.quantizer.plugins.tune.node_costs import find_costs
from qprof_onnx.quantizer.plugins.tune.node_times import ExecutedNode
from qprof_onnx.quantizer.targets.loading import load_recipe

from ...networks import WIDE, Network, network


@pytest.fixture(scope="module")
def net() -> Network:
    """Two convolutions with a Relu between them, and a float operator behind."""
    return network("a = Conv (x, v) b = Relu (a) c = Conv (b, w) y = Erf (c)", {"v": WIDE, "w": WIDE})


def run(name: str, op_type: str, inputs: str, outputs: str, microseconds: float) -> ExecutedNode:
    return ExecutedNode(name, op_type, tuple(inputs.split()), tuple(outputs.split()), microseconds)


@pytest.fixture(scope="module")
def names(net: Network) -> WrittenNames:
    return lower(net.model, net.plan()).names


FLOAT = (
    run("a_nchwc", "Conv", "x", "reorder", 50.0),  # the Relu is fused into it
    run("c_nchwc", "Conv", "reorder", "reorder_token_1", 40.0),
    run("ReorderOutput", "ReorderOutput", "reorder_token_1", "c", 5.0),
    run("Erf_y", "Erf", "c", "y", 7.0),
)
QUANTIZED = (
    run("x_quantized_QuantizeLinear", "QuantizeLinear", "x s z", "x_quantized", 3.0),
    run("Transpose", "Transpose", "x_quantized", "Transpose_out0", 2.0),
    run("Conv_a_token_5", "QLinearConv", "Transpose_out0", "Conv_a", 10.0),
    run("Conv_c_token_9", "QLinearConv", "Conv_a", "Conv_c", 90.0),
    run("Transpose_token_3", "Transpose", "Conv_c", "c_quantized", 2.0),
    run("c_DequantizeLinear", "DequantizeLinear", "c_quantized s z", "c", 4.0),
    run("Erf_y", "Erf", "c", "y", 8.0),
)


def test_times_go_to_the_nodes_that_were_fused_and_to_conversions(net: Network, names: WrittenNames) -> None:
    found = find_costs(net.graph, net.plan(), FLOAT, QUANTIZED, names=names)
    assert found.floating == {"Conv_a": 50.0, "Conv_c": 45.0, "Erf_y": 7.0}
    assert found.integer == {"Conv_a": 10.0, "Conv_c": 90.0, "Erf_y": 8.0}
    assert found.border == {"x": 5.0, "c": 6.0}
    assert found.unfused == ()


def test_a_product_that_runs_in_float_after_all_is_named(net: Network, names: WrittenNames) -> None:
    quantized = [
        run("Conv_c", "Conv", "b", "c_raw", 60.0) if e.name == "Conv_c_token_9" else e for e in QUANTIZED
    ]
    assert find_costs(net.graph, net.plan(), FLOAT, quantized, names=names).unfused == ("Conv_c",)


def test_a_weight_that_every_run_dequantizes_costs_its_reader(net: Network, names: WrittenNames) -> None:
    weight = run("w_DequantizeLinear", "DequantizeLinear", "w_quantized s z", "w_dequantized", 11.0)
    reader = run("Conv_c", "Conv", "b w_dequantized", "c_raw", 60.0)
    quantized = [reader if e.name == "Conv_c_token_9" else e for e in (weight, *QUANTIZED)]
    assert find_costs(net.graph, net.plan(), FLOAT, quantized, names=names).integer["Conv_c"] == 71.0


def test_a_product_named_like_what_was_fused_into_it_has_the_time(net: Network, names: WrittenNames) -> None:
    floats = [run("b_nchwc", "Conv", "x", "reorder", 50.0) if e.name == "a_nchwc" else e for e in FLOAT]
    assert find_costs(net.graph, net.plan(), floats, QUANTIZED, names=names).floating["Conv_a"] == 50.0


def test_what_was_added_for_a_node_is_charged_to_it(net: Network) -> None:
    added = WrittenNames(nodes={"Conv_c": ("Conv_c", "c_sums_ConvInteger")})
    product = run("c_sums_ConvInteger", "ConvInteger", "b w", "c_sums", 60.0)
    assert find_costs(net.graph, net.plan(), FLOAT, [product], names=added).integer == {"Conv_c": 60.0}


def test_only_the_part_that_is_slower_goes_back(net: Network, names: WrittenNames) -> None:
    costs = find_costs(net.graph, net.plan(), FLOAT, QUANTIZED, names=names)
    (island,) = find_float_regions(net.graph, net.plan(), net.profile, costs)
    assert island.nodes == ("Conv_c",)
    # 90, the conversion of c and what Erf loses; 45, and a conversion of b, as dear by element as the others.
    assert island.quantized_ms == pytest.approx(0.097, rel=1e-9)
    assert 0.045 < island.float_ms < 0.055


def test_all_goes_back_when_conversions_cost_more_than_is_saved(net: Network) -> None:
    costs = Costs(
        {"Conv_a": 40.0, "Conv_c": 40.0}, {"Conv_a": 50.0, "Conv_c": 45.0}, {"x": 9.0, "c": 9.0}, ()
    )
    (island,) = find_float_regions(net.graph, net.plan(), net.profile, costs)
    assert island.nodes == ("Conv_a", "Relu_b", "Conv_c")
    assert (island.quantized_ms, island.float_ms) == pytest.approx((0.098, 0.095), rel=1e-9)


def test_nothing_goes_back_when_all_of_it_gains(net: Network) -> None:
    costs = Costs({"Conv_a": 4.0, "Conv_c": 4.0}, {"Conv_a": 50.0, "Conv_c": 45.0}, {"x": 9.0, "c": 9.0}, ())
    assert find_float_regions(net.graph, net.plan(), net.profile, costs) == ()


def test_what_a_float_reader_loses_beside_integers_counts(net: Network) -> None:
    """An activation that was fused into its convolution is a node of its own behind integers."""
    slow = {"Conv_a": 4.0, "Conv_c": 40.0, "Erf_y": 60.0}
    costs = Costs(slow, {"Conv_a": 50.0, "Conv_c": 45.0, "Erf_y": 7.0}, {"x": 9.0, "c": 9.0}, ())
    (island,) = find_float_regions(net.graph, net.plan(), net.profile, costs)
    assert island.nodes == ("Conv_c",)


def test_a_table_of_several_nodes_goes_back_as_a_whole() -> None:
    net = network("a = Conv (x, v) g = Sigmoid (a) s = Mul (a, g) y = Conv (s, w)", {"v": WIDE, "w": WIDE})
    recipe = load_recipe("glow", {"equalization": "off", "bias_correction": "off"})
    plan = plan_from(model_facts(net.prepared, net.profile, recipe)).plan
    slow = {"Conv_a": 4.0, "Sigmoid_g": 0.0, "Mul_s": 90.0, "Conv_y": 4.0}
    floats = {"Conv_a": 50.0, "Sigmoid_g": 5.0, "Mul_s": 5.0, "Conv_y": 50.0}
    (island,) = find_float_regions(net.graph, plan, net.profile, Costs(slow, floats, {"x": 1.0}, ()))
    assert island.nodes == ("Sigmoid_g", "Mul_s")
