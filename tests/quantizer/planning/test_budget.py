"""Noise on its way to the outputs, and what the planner does about it."""

from __future__ import annotations

import numpy as np
import onnx.parser
import onnx_ir as ir
import pytest
from qprof_onnx.profiles.records.profile import Profile
from qprof_onnx.profiles.runner.calibrate import calibrate
from qprof_onnx.profiles.samples.values import Sample
from qprof_onnx.quantizer.model.identity import model_id
from qprof_onnx.quantizer.operators.graph import index
from qprof_onnx.quantizer.plan.plan import Kind, QuantPlan
from qprof_onnx.quantizer.prepare.prepare import prepare
from qprof_onnx.quantizer.targets.loading import load_recipe

from ..networks import flow_of, plan_alone

RNG = np.random.default_rng(5)
WEIGHT = RNG.standard_normal((64, 64)).astype(np.float32) / 8.0


def prepared(body: str, feed: np.ndarray, made: str = "float") -> tuple[ir.Model, Profile]:
    text = f"""<ir_version: 8, opset_import: ["" : 14]>
        net (float[N, 64] x) => ({made}[N, M] y) {{ {body} }}"""
    proto = onnx.parser.parse_model(text)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(WEIGHT, "w"))
    model = prepare(ir.serde.deserialize_model(proto)).model
    return model, calibrate(model, [Sample("0", {"x": feed})], model_id(model, "net.onnx"))


def plan_of(body: str, feed: np.ndarray, made: str = "float", **settings: object) -> QuantPlan:
    model, profile = prepared(body, feed, made)
    return plan_alone(model, profile, load_recipe(None, settings))


def kinds(plan: QuantPlan) -> list[Kind]:
    return [entry.kind for entry in plan.nodes.values()]


NORMAL = RNG.standard_normal((500, 64)).astype(np.float32)
SPECTRUM = (10.0 ** RNG.uniform(-6.0, 1.0, (500, 64))).astype(np.float32)
LOGARITHM = "m = MatMul (x, w)  s = Mul (m, m)  y = Log (s)"


def test_a_product_before_a_logarithm_of_small_values_stays_float_with_the_figures():
    plan = plan_of(LOGARITHM, SPECTRUM)
    (product,) = (entry for name, entry in plan.nodes.items() if "m" in name and "MatMul" in name)
    assert product.kind is Kind.FLOAT
    assert "would leave 'y', values, an SQNR" in product.reason


def test_a_limit_that_is_given_holds_for_every_output():
    plan = plan_of(LOGARITHM, SPECTRUM, min_output_sqnr=18.0)
    (product,) = (entry for name, entry in plan.nodes.items() if "m" in name and "MatMul" in name)
    assert "would leave output 'y'" in product.reason
    assert "below the limit of 18 dB" in product.reason


def test_the_same_product_without_the_logarithm_is_quantized():
    assert Kind.QUANTIZED in kinds(plan_of("y = MatMul (x, w)", SPECTRUM))


def test_outputs_may_drown_when_asked_for():
    assert Kind.QUANTIZED in kinds(plan_of(LOGARITHM, SPECTRUM, min_output_sqnr=0.0))


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        ("y = MatMul (x, w)", lambda x: x @ WEIGHT),
        ("m = MatMul (x, w)  y = Tanh (m)", lambda x: np.tanh(x @ WEIGHT)),
        ("m = MatMul (x, w)  y = Mul (m, m)", lambda x: np.square(x @ WEIGHT)),
        ("m = MatMul (x, w)  y = Relu (m)", lambda x: np.maximum(x @ WEIGHT, 0.0)),
        ("m = MatMul (x, w)  y = Add (m, x)", lambda x: x @ WEIGHT + x),
    ],
)
def test_noise_at_the_input_reaches_the_output_as_reckoned(body, shown):
    model, profile = prepared(body, NORMAL)
    graph = index(model)
    small = 1e-3 * RNG.standard_normal(NORMAL.shape)
    x = NORMAL.astype(np.float64)
    clean, noisy = shown(x), shown(x + small)
    measured = np.mean((noisy - clean) ** 2) / np.mean(clean**2) / np.mean(small**2)
    # 32 000 values are a sample; x and its product are not quite independent where they are added; and a
    # product may let through no more noise than signal.
    assert flow_of(graph, profile, 14).reach["x"][0] == pytest.approx(measured, rel=0.15)


def test_a_mean_over_many_elements_quietens_noise():
    model, profile = prepared("m = MatMul (x, w)  a = ReduceMean <axes = [1]> (m)  y = Add (a, x)", NORMAL)
    graph = index(model)
    flow = flow_of(graph, profile, 14)
    # The rows' means are a sample, and noise is let through as the signal at most.
    assert flow.reach["a"][0] == pytest.approx(64.0 * flow.reach["m"][0], rel=0.2)


def test_members_of_a_concat_at_an_output_are_judged_each_by_its_own_signal():
    text = "b = Mul (x, x)  c = MatMul (x, w)  d = Tanh (c)  y = Concat <axis = 1> (b, d)"
    model, profile = prepared(text, NORMAL)
    graph = index(model)
    assert set(flow_of(graph, profile, 14).outputs) == {"b", "d"}


@pytest.mark.parametrize("operator", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("directions", [1, 2])
@pytest.mark.parametrize("layers", [1, 2])
def test_a_recurrent_node_of_which_only_the_last_state_is_read_is_within_the_limit(
    operator: str, directions: int, layers: int
) -> None:
    units, features = 64, 40
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[operator]
    rng = np.random.default_rng(0)
    arrays = {"p": rng.standard_normal((units, 10)), "first": np.array([0]), "shape": np.array([0, 0, -1])}
    body, x = "", "x"
    for layer in range(layers):
        if layer:
            body += f"t{layer} = Transpose <perm = [0, 2, 1, 3]> (all{layer - 1})  "
            body += f"x{layer} = Reshape (t{layer}, shape)  "
            x, features = f"x{layer}", directions * units
        arrays[f"w{layer}"] = 0.3 * rng.standard_normal((directions, gates * units, features))
        arrays[f"r{layer}"] = 0.3 * rng.standard_normal((directions, gates * units, units))
        direction = "forward" if directions == 1 else "bidirectional"
        body += f'all{layer}, last{layer} = {operator} <hidden_size = {units}, direction = "{direction}"> '
        body += f"({x}, w{layer}, r{layer})  "
    text = f"""<ir_version: 8, opset_import: ["" : 17]>
        net (float[T, 1, 40] x) => (float[1, 1, 10] y)
        {{ {body} h = Gather <axis = 0> (last{layers - 1}, first)  y = MatMul (h, p) }}"""
    proto = onnx.parser.parse_model(text)
    for name, array in arrays.items():
        kept = array if array.dtype == np.int64 else array.astype(np.float32)
        proto.graph.initializer.append(onnx.numpy_helper.from_array(kept, name))
    model = prepare(ir.serde.deserialize_model(proto)).model
    feed = 3.0 * rng.standard_normal((12, 1, 40)).astype(np.float32)
    profile = calibrate(model, [Sample("0", {"x": feed})], model_id(model, "net.onnx"))
    plan = plan_alone(model, profile, load_recipe(None, {"mode": "auto", "min_output_sqnr": 60.0}))
    assert set(kinds(plan)) <= {Kind.FLOAT, Kind.WEIGHT_ONLY}


@pytest.mark.parametrize(
    "body",
    [
        "s = MatMul (x, w)  y = ArgMax <axis = 1> (s)",
        "m = MatMul (x, w)  s = Softmax (m)  y = ArgMax <axis = 1> (s)",
    ],
)
def test_an_index_of_the_largest_score_is_estimated_at_the_scores(body: str) -> None:
    plan = plan_of(body, NORMAL, "int64")
    assert set(plan.origin.estimated_sqnr) == {"y"}
    assert 15.0 < plan.origin.estimated_sqnr["y"] < 60.0
    assert Kind.QUANTIZED not in kinds(plan_of(body, NORMAL, "int64", min_output_sqnr=70.0))
