"""What a quantized model must gain over float."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx_ir as ir
import pytest
from onnx import numpy_helper, parser
from qprof_onnx.profiles.base.findings import Code
from qprof_onnx.profiles.runner.calibrate import calibrate
from qprof_onnx.profiles.samples.values import Sample
from qprof_onnx.quantizer.evaluation.latency import Latency
from qprof_onnx.quantizer.model.identity import model_id
from qprof_onnx.quantizer.noise.activation_ranges import with_clip_profiles
from qprof_onnx.quantizer.operators.graph import index
from qprof_onnx.quantizer.plan.plan import Implementation, Kind, NodePlan
from qprof_onnx.quantizer.plan.reasons import ReasonCode, because
from qprof_onnx.quantizer.prepare.prepare import prepare
from qprof_onnx.quantizer.search.integer_share import assumed_prices, assumed_time
from qprof_onnx.quantizer.search.integer_share import multiplications as counted
from qprof_onnx.quantizer.search.verdict import (
    Composition,
    Cost,
    Fix,
    against,
    brings_nothing,
    composition_of,
    verdict_of,
    with_fixes,
)

from ..networks import WIDE, network
from .judged import HELD_OUT, evaluation

HALF = Composition(0.5, 4)
WEIGHTS = Composition(0.0, 3, weight_only=3)
FLOAT = Composition(0.0, 0)
SMALLER = Cost(100, 30, None)


def cost(quantized: int, low: float, high: float) -> Cost:
    middle = (low + high) / 2.0
    return Cost(100, quantized, Latency(1.0, 1.0, middle, low, high, 9, 9, 1, 1))


def test_only_weights_where_arithmetic_was_asked_for_is_spoken_against() -> None:
    (alarm,) = map(str, against(WEIGHTS, SMALLER))
    assert alarm == "no arithmetic in int8: only weights, or keys and values, are quantized"
    assert not list(against(Composition(None, 3, weight_only=3), SMALLER))
    assert not list(against(replace(WEIGHTS, why_float="too noisy"), SMALLER))  # the line int8 says it
    assert [*map(str, against(FLOAT, SMALLER))] == ["nothing is quantized; use the float model"]


def test_steps_of_a_recurrent_node_count_where_its_last_state_alone_is_read() -> None:
    text = """<ir_version: 8, opset_import: ["": 17]>
    agraph (float[9, 1, 8] x) => (float[1, 1, 4] h, float[9, 1, 8] y)
    { z, h = GRU <hidden_size = 4> (x, w, r) y = MatMul (x, m) }"""
    model = parser.parse_model(text.replace("z, h", ", h"))
    for name, shape in {"w": (1, 12, 8), "r": (1, 12, 4), "m": (8, 8)}.items():
        values = np.random.default_rng(0).normal(size=shape).astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(values, name))
    prepared = prepare(ir.from_proto(model)).model
    sample = Sample("0", {"x": np.ones((9, 1, 8), np.float32)})
    prices = assumed_prices(index(prepared), calibrate(prepared, [sample], model_id(prepared, "net.onnx")))
    shares = {node.op_type: prices[str(node.name)] for node in prepared.graph}
    assert shares["GRU"] / shares["MatMul"] == pytest.approx((12 * 8 + 12 * 4) / (8 * 8))


@pytest.mark.parametrize(
    ("text", "weights", "multiplications"),
    [
        ("y = ConvTranspose <strides = [2, 2]> (x, w)", {"w": (8, 4, 2, 2)}, 36 * 8 * 4 * 4),
        ("y = ConvTranspose <group = 8, strides = [2, 2]> (x, w)", {"w": (8, 1, 4, 4)}, 36 * 8 * 16),
        ("y = Conv <group = 2> (x, w)", {"w": (6, 4, 3, 3)}, 16 * 6 * 4 * 9),
        ("y = MatMul (x, w)", {"w": (1, 8, 6, 5)}, 8 * 6 * 6 * 5),
        ("t = Transpose <perm = [0, 1, 3, 2]> (x) y = MatMul (x, t)", {}, 8 * 6 * 6 * 6),
        ("y = LayerNormalization (x, w)", {"w": (6,)}, 8 * 36),
    ],
)
def test_a_product_counts_the_multiplications_that_it_takes(
    text: str, weights: dict[str, tuple[int, ...]], multiplications: int
) -> None:
    net = network(text, weights)
    known = with_clip_profiles(net.profile, net.graph)
    done = counted(net.graph.nodes[-1], net.graph, known)
    assert done == 3 * multiplications  # in the three samples


def test_products_are_counted_and_not_the_many_nodes_that_take_little() -> None:
    parts = replace(HALF, nodes=78, products={"Gemm": 1, "Conv": 9}, int8_products=4)
    assert parts.text == "50 % of the arithmetic, 4 of 10 products (Conv, Gemm)"
    assert replace(parts, products={"MatMul": 1}, int8_products=1).text.endswith("1 of 1 product (MatMul)")
    assert replace(parts, products={}).text == "50 % of the arithmetic"


def test_a_model_whose_arithmetic_is_left_in_float_has_the_speed_of_float() -> None:
    slow = replace(WEIGHTS, why_float="too slow", runs_in_float=True)
    assert ("speed", "that of float, whose arithmetic it has") in verdict_of(
        evaluation(), slow, HELD_OUT
    ).figures()


def test_a_cache_in_int8_is_no_arithmetic_in_int8() -> None:
    parts = replace(FLOAT, caches=2)
    assert parts.uses_integers
    (alarm,) = map(str, against(parts, SMALLER))
    assert alarm.endswith("only weights, or keys and values, are quantized")


def test_int8_brings_nothing_where_it_is_neither_smaller_nor_faster() -> None:
    assert brings_nothing(FLOAT, SMALLER)
    assert brings_nothing(HALF, Cost(100, 110, None))
    assert not brings_nothing(HALF, cost(110, 1.1, 1.3))
    assert not brings_nothing(HALF, cost(30, 0.8, 0.9))


def test_where_nothing_is_quantized_the_verdict_is_fair_at_best_and_says_to_keep_float() -> None:
    found = with_fixes(verdict_of(evaluation(), FLOAT, HELD_OUT), (), ())
    assert found.grade == "fair"
    assert found.findings[1].text.startswith("keep the float model: ")
    assert verdict_of(evaluation(), HALF, HELD_OUT).grade == "good"


def test_a_model_of_float_arithmetic_is_called_one_of_weights_only() -> None:
    sentence = verdict_of(evaluation(), Composition(None, 3, weight_only=3), HELD_OUT).sentence
    assert sentence.startswith("good (weights only): output 'y'")
    for low, high, told in ((0.98, 1.03, ", not faster"), (0.4, 0.7, ", slower than float"), (0.9, 1.3, "")):
        timed = evaluation(latency=Latency(1.0, 1.0, 1.0, low, high, 9, 9, 1, 1))
        sentence = verdict_of(timed, Composition(None, 3, weight_only=3), HELD_OUT, predicted=2.0).sentence
        assert sentence.startswith(f"good (weights only{told}): output 'y'")


def test_the_verdict_of_a_model_that_was_measured_as_slower_says_so() -> None:
    timed = evaluation(latency=Latency(1.0, 1.25, 0.8, 0.78, 0.82, 9, 9, 1, 1))
    found = verdict_of(timed, HALF, HELD_OUT)
    assert found.sentence.startswith("good (slower than float): output 'y'")
    assert Code.FLOAT_IS_FASTER in {one.code for one in found.untold_findings}
    assert not replace(found, fixes=(Fix({"cost_model": "auto"}),)).untold_findings
    assert with_fixes(found, (), (), (found,)).findings[-1].text == "1 other plan was tried: none is better"


def test_prices_that_are_assumed_add_up_to_the_time_that_is() -> None:
    net = network("a = Conv (x, w) b = Relu (a) y = MatMul (b, v)", {"w": WIDE, "v": (4, 3)}, (1, 8, 6, 6))
    plan = net.plan(keep_float=("MatMul_y",))
    prices = assumed_prices(net.graph, net.profile)
    in_float = {name for name, entry in plan.nodes.items() if not entry.kind.counts_as_quantized}
    assert "MatMul_y" in in_float
    assert prices["Conv_a"] > prices["MatMul_y"] > prices["Relu_b"] > 0.0
    time = assumed_time(plan, net.graph, net.profile)
    assert time == pytest.approx(0.5 + sum(prices[name] for name in in_float), rel=1e-12)


@pytest.mark.parametrize(
    ("latency", "predicted", "is_so"),
    [
        (None, 1.0, True),
        (None, 0.6, False),
        (None, None, True),
        (Latency(1.0, 1.0, 1.0, 0.7, 1.6, 9, 9, 1, 1), 1.02, True),
        (Latency(1.0, 1.0, 1.0, 0.7, 1.6, 9, 9, 1, 1), 0.87, False),
        (Latency(2.0, 1.0, 2.0, 1.9, 2.1, 9, 9, 1, 1), 1.0, False),
        (Latency(1.0, 1.0, 0.5, 0.4, 0.7, 9, 9, 1, 1), 1.0, False),
        (Latency(1.0, 1.0, 0.97, 0.95, 0.99, 9, 9, 1, 1), 1.0, True),
    ],
)
def test_weights_that_are_float_after_loading_have_the_speed_of_float_where_nothing_tells_otherwise(
    latency: Latency | None, predicted: float | None, is_so: bool
) -> None:
    parts = Composition(None, 3, weight_only=3, runs_in_float=True)
    found = verdict_of(evaluation(latency=latency), parts, HELD_OUT, predicted=predicted)
    assert found.has_floats_speed is is_so
    told = dict(found.figures())["speed"] == "that of float, whose arithmetic it has"
    assert told is is_so
    is_warned = any(one.code is Code.FLOAT_IS_FASTER for one in found.findings)
    assert is_warned is (latency is not None and latency.speedup_high < 1.0 and not is_so)


def test_weights_that_a_kernel_dequantizes_in_each_run_have_the_speed_that_was_measured() -> None:
    parts = Composition(None, 3, weight_only=3)
    assert not verdict_of(evaluation(), parts, HELD_OUT, predicted=1.0).has_floats_speed
    busy = evaluation(latency=Latency(1.0, 2.0, 0.5, 0.4, 0.7, 9, 9, 1, 1))
    assert "slower, the machine is busy" in dict(verdict_of(busy, parts, HELD_OUT).figures())["speed"]
    even = evaluation(latency=Latency(1.0, 1.0, 1.0, 0.98, 1.03, 9, 9, 1, 1))
    assert "as fast as float (0.98 to 1.03" in dict(verdict_of(even, parts, HELD_OUT).figures())["speed"]


@pytest.mark.parametrize(("predicted", "is_chance"), [(None, True), (1.0, True), (1.6, False)])
def test_a_gain_of_a_model_in_which_nothing_is_quantized_is_chance_unless_it_was_predicted(
    predicted: float | None, is_chance: bool
) -> None:
    fast = evaluation(latency=Latency(1.0, 0.8, 1.25, 1.2, 1.3, 9, 9, 1, 1))
    nothing = replace(FLOAT, runs_in_float=True)
    told = dict(verdict_of(fast, nothing, HELD_OUT, predicted=predicted).figures())
    assert (told["speed"] == "that of float, whose arithmetic it has") is is_chance
    assert told["int8"] == "nothing"


def test_products_in_loops_count_though_their_share_is_not_known() -> None:
    parts = Composition(0.0, 1, products={"GRU": 2, "Gemm": 1}, int8_products=1)
    assert parts.uses_integers
    assert parts.text == "1 of 3 products (GRU, Gemm)"
    assert not list(against(parts, Cost(100, 60, None)))


@pytest.mark.parametrize(
    ("implementation", "kind", "in_float"),
    [("folded", Kind.WEIGHT_ONLY, True), ("runtime", Kind.WEIGHT_ONLY, False), ("", Kind.QUANTIZED, False)],
)
def test_a_gain_of_a_model_that_runs_in_float_is_not_told_as_that_of_int8(
    implementation: str, kind: Kind, in_float: bool
) -> None:
    net = network("a = Conv (x, w) y = HardSwish (a)", {"w": WIDE})
    plan = net.plan(keep_float=("*",))
    entry = NodePlan(kind, implementation=Implementation(implementation))
    parts = composition_of(replace(plan, nodes={**plan.nodes, "Conv_a": entry}), net.graph, None)
    assert parts.runs_in_float == in_float
    assert bool(parts.source_of(1.6)) == in_float
    assert not parts.source_of(1.0)


@pytest.mark.parametrize(
    ("slow", "noisy", "why"),
    [
        (2, 0, "weights only, of 2 of 2 nodes: int8 arithmetic would save too little time (with int8 "),
        (0, 2, "weights only, of 2 of 2 nodes: int8 arithmetic would be too noisy (Conv_a: in a run on 3 "),
        (1, 1, "int8 arithmetic would be too noisy in 1 node, and save too little time in 1 (with int8 "),
        (0, 0, "weights only, of 2 of 2 nodes; arithmetic in float"),
    ],
)
def test_the_line_int8_names_noise_or_time_as_the_plan_does(slow: int, noisy: int, why: str) -> None:
    net = network("a = Conv (x, w) y = Conv (a, w)", {"w": (8, 8, 3, 3)})
    plan = net.plan(keep_float=("*",))
    reasons = [because(ReasonCode.MODEL_SAVES_TOO_LITTLE, ratio=0.9)] * slow
    reasons += [because(ReasonCode.MEASURED_NOISE, samples=3)] * noisy
    reasons += [because(ReasonCode.NO_INT8_CONSUMER)] * (2 - slow - noisy)
    stored = {
        name: NodePlan(Kind.WEIGHT_ONLY, reason) for name, reason in zip(plan.nodes, reasons, strict=True)
    }
    parts = composition_of(replace(plan, nodes=stored), net.graph, net.profile)
    assert why in parts.text


@pytest.mark.parametrize(
    ("before", "after", "text"),
    [
        (400, 100, "4.00 times smaller"),
        (1000, 7400, "7.40 times larger"),
        (10, 10, "the same size"),
        (1000, 1001, "1.001 times larger"),
    ],
)
def test_a_size_that_grew_is_called_larger(before: int, after: int, text: str) -> None:
    assert Cost(before, after).change == text
