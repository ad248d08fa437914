"""Equivalent ways of writing nodes: the plan has the one that costs least by the table of kernel times."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from onnx.reference import ReferenceEvaluator
from qprof_onnx.profiles.records.profile import SampleNoise
from qprof_onnx.profiles.samples.values import Sample
from qprof_onnx.quantizer.costs.predicted import CostModel
from qprof_onnx.quantizer.lowering.lower import lower
from qprof_onnx.quantizer.noise.estimator import NoiseEstimator
from qprof_onnx.quantizer.noise.measure import measure_noise
from qprof_onnx.quantizer.noise.propagation import NoiseGains, measured_gains, noise_flow
from qprof_onnx.quantizer.operators.functions import fused_function
from qprof_onnx.quantizer.operators.graph import index
from qprof_onnx.quantizer.plan.plan import Kind, QuantPlan
from qprof_onnx.quantizer.planning.chains import find_chains
from qprof_onnx.quantizer.planning.plan_model import PlannedModel, model_facts, plan_from
from qprof_onnx.quantizer.targets.cost_table import Conditions, CostTable
from qprof_onnx.quantizer.targets.loading import load_recipe

from ..networks import WIDE, Network, network

SILU = "g = Sigmoid (c) s = Mul (c, g)"
PADS = "<pads = [1, 1, 1, 1]>"


def between(text: str) -> Network:
    """A net whose nodes `text` stand between two convolutions, from c to s."""
    return network(f"c = Conv {PADS} (x, w) {text} y = Conv {PADS} (s, v)", {"w": WIDE, "v": WIDE})


@pytest.fixture(scope="module")
def silu() -> Network:
    return between(SILU)


def priced(kernels: Mapping[str, float]) -> CostTable:
    """A table with a time for each kernel, whatever its size."""
    axes = {"Conv:few:float": 3, "Conv:window:integer": 4, "Softmax:float": 2, "Softmax:strided:float": 2}
    points = {
        name: tuple((*corner, time) for corner in itertools.product((1.0, 1e9), repeat=axes.get(name, 1)))
        for name, time in kernels.items()
    }
    return CostTable(Conditions("onnxruntime-x86", "a processor", "onnxruntime 1.0", 1), points)


KERNELS = {
    "Conv:few:float": 900.0,
    "Conv:window:integer": 90.0,
    "Sigmoid:integer": 9.0,
    "Mul:integer": 7.0,
    "Silu:float": 8.0,
    "QuantizeLinear:integer": 2.0,
    "DequantizeLinear:integer": 3.0,
    "Neg:float": 1.0,
}


def planned(net: Network, times: Mapping[str, float] = KERNELS, **settings: object) -> PlannedModel:
    recipe = load_recipe("onnxruntime-x86", {"equalization": "off", "min_output_sqnr": 1.0, **settings})
    recipe = replace(recipe, measured=priced(times))
    return plan_from(model_facts(net.prepared, net.profile, recipe))


def ways(plan: QuantPlan) -> list[tuple[Kind, str]]:
    return [(plan.nodes[name].kind, plan.nodes[name].implementation) for name in ("Sigmoid_g", "Mul_s")]


FUSED = [(Kind.LOOKUP_TABLE, "fused")] * 2
APART = [(Kind.LOOKUP_TABLE, "runtime"), (Kind.QUANTIZED, "")]


def test_a_silu_is_one_float_operator_between_conversions_where_that_costs_less(silu: Network) -> None:
    assert ways(planned(silu).plan) == FUSED


def test_it_is_a_table_and_a_product_where_these_cost_less(silu: Network) -> None:
    assert ways(planned(silu, {**KERNELS, "Silu:float": 12.0}).plan) == APART


def test_the_range_before_a_fused_silu_is_chosen_by_the_error_after_it(silu: Network) -> None:
    recipe = replace(load_recipe("onnxruntime-x86", {}), measured=priced(KERNELS))
    facts = model_facts(silu.prepared, silu.profile, recipe)
    view = facts.contracted
    assert list(facts.chains) == ["Mul_s"]
    assert view.activations.calibrated("c") == facts.activations.calibrated("c")


@pytest.mark.parametrize("settings", [{"cost_model": "off"}, {"form": "integer"}])
def test_it_is_never_fused_where_no_price_or_no_form_says_so(
    silu: Network, settings: Mapping[str, object]
) -> None:
    assert "fused" not in {entry.implementation for entry in planned(silu, **settings).plan.nodes.values()}


def test_the_gate_of_a_fused_silu_is_not_rounded_and_adds_no_noise(silu: Network) -> None:
    result = planned(silu)
    assert result.facts is not None
    assert "g" not in result.plan.tensors
    gains = NoiseGains(silu.graph, silu.profile, 17)
    flow = noise_flow(gains, gains.judged_tensors())
    sources = NoiseEstimator(result.facts.activations, gains).sources(flow, result.plan)
    assert {source.tensor for source in sources} == {"x", "w", "c", "s", "v", "y"}


def test_a_fused_silu_is_predicted_to_take_its_operator_and_two_conversions(silu: Network) -> None:
    result = planned(silu)
    costs = CostModel(silu.graph, silu.profile, priced(KERNELS)).costs(result.plan)
    assert costs.integer["Sigmoid_g"] == 0.0
    assert costs.integer["Mul_s"] == pytest.approx(3.0 + 8.0 + 2.0)


def test_a_silu_that_is_float_is_fused_behind_a_quantized_tensor_alone(silu: Network) -> None:
    plan = planned(silu, keep_float=["Mul_s"]).plan
    assert ways(plan) == [(Kind.FLOAT, "fused")] * 2
    plan = planned(silu, keep_float=["Mul_s", "Conv_c"]).plan
    assert ways(plan) == [(Kind.FLOAT, "")] * 2


def test_a_silu_inside_of_a_longer_chain_is_fused_too() -> None:
    net = between("k = Constant <value_float = 3.0> () g = Sigmoid (c) m = Mul (c, g) s = Mul (m, k)")
    plan = planned(net).plan
    assert [plan.nodes[name].implementation for name in ("Sigmoid_g", "Mul_m", "Mul_s")] == ["fused"] * 2 + [
        ""
    ]


GELU = """r = Constant <value_float = 1.4142135> () o = Constant <value_float = 1.0> ()
    h = Constant <value_float = {half}> () d = Div (c, r) e = Erf (d) f = Add (e, o)
    p = Mul (c, f) s = Mul (p, h)"""
SCALED_GATE = "a = Constant <value_float = 1.702> () b = Mul (c, a) g = Sigmoid (b) s = Mul (g, c)"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (SILU, "QuickGelu 1.000"),
        (SCALED_GATE, "QuickGelu 1.702"),
        (GELU.format(half=0.5), "Gelu"),
        (GELU.format(half=0.51), ""),
        ("g = Sigmoid (c) s = Add (c, g)", ""),
        ("b = Neg (c) g = Sigmoid (b) s = Mul (c, g)", ""),
    ],
)
def test_a_chain_is_an_operator_where_it_computes_the_same(text: str, expected: str) -> None:
    (chain,) = find_chains(index(between(text).model))
    found = fused_function(chain, 17)
    words = [] if found is None else [found[0], *(f"{n:.3f}" for n in found[1].values())]
    assert " ".join(words) == expected


def noise_of(net: Network, *left_out: str) -> tuple[SampleNoise, ...]:
    """The noise of a network with every activation rounded but those left out, measured on three samples."""
    names = [n for n in net.graph.values if not net.graph.is_constant(n) and n not in left_out]
    rng = np.random.default_rng(4)
    drawn = [rng.standard_normal((1, 8, 24, 24)).astype(np.float32) for _ in range(3)]
    samples = [(str(i), Sample(str(i), {"x": x})) for i, x in enumerate(drawn)]
    return measure_noise(net.model, names, samples, 1)


@pytest.mark.parametrize("text", [SILU, SCALED_GATE])
def test_what_was_rounded_inside_while_noise_was_measured_is_none_of_the_gain_of_a_fused_silu(
    text: str,
) -> None:
    w = np.random.default_rng(3).standard_normal(WIDE).astype(np.float32) / np.float32(8.5)
    convolutions = f"c = Conv {PADS} (x, w) {text} y = Conv {PADS} (s, v)"
    net = network(convolutions, {"w": w, "v": WIDE}, shape=(1, 8, 24, 24))
    recipe = replace(load_recipe("onnxruntime-x86", {}), measured=priced(KERNELS))
    view = model_facts(net.prepared, net.profile, recipe).contracted
    reach = []
    for noise in (noise_of(net), noise_of(net, "g", "b")):
        gains = measured_gains(view.graph, view.profile, 17, noise)
        reach.append(float(noise_flow(gains, ("y",)).reach_of("c")[0]))
    # What the gate loses follows from the profile, of other samples; 1.5 dB were wrong without it.
    assert 10.0 * np.log10(reach[0] / reach[1]) == pytest.approx(0.0, abs=0.4)


def head(axis: int = 1) -> Network:
    """A Softmax over 4 channels of a picture, as in the box head of a detector."""
    w = np.random.default_rng(3).standard_normal(WIDE).astype(np.float32)
    w /= np.float32(np.sqrt(72.0))
    return network(
        f"""k = Constant <value_ints = [1, 4, 12, 6]> () f = Conv {PADS} (x, w) r = Reshape (f, k)
        s = Softmax <axis = {axis}> (r) y = Conv (s, u)""",
        {"w": w, "u": (2, 4, 1, 1)},
    )


EXPONENTIALS = {
    "Softmax:float": 9.0,
    "Softmax:strided:float": 40.0,
    "Clip:float": 2.0,
    "Exp:float": 3.0,
    "ReduceSum:inner:float": 4.0,
    "ReduceMax:inner:float": 5.0,
    "Sub:row:float": 6.0,
    "Div:row:float": 7.0,
}


@pytest.mark.parametrize(
    ("axis", "times", "expected"),
    [
        (1, {}, "exp-sum"),
        (3, {}, ""),
        (1, {"Softmax:strided:float": 20.0}, ""),
    ],
)
def test_a_softmax_is_written_out_where_that_costs_less(
    axis: int, times: Mapping[str, float], expected: str
) -> None:
    net = head(axis)
    result = planned(net, {**KERNELS, **EXPONENTIALS, **times}, keep_float=["*"])
    (softmax,) = (node.name for node in net.graph.nodes if node.op_type == "Softmax")
    assert result.plan.nodes[softmax].implementation == expected


@pytest.mark.parametrize("opset", [13, 17, 18, 21])
def test_a_written_out_softmax_is_that_of_the_operator_to_float_rounding(opset: int) -> None:
    net = network("y = Softmax <axis = 1> (x)", {}, shape=(2, 16, 3, 5), opset=opset)
    plan = net.plan("onnxruntime-x86", keep_float=["*"])
    nodes = {name: replace(entry, implementation="exp-sum") for name, entry in plan.nodes.items()}
    made = ir.to_proto(lower(net.model, replace(plan, nodes=nodes)).model)
    onnx.checker.check_model(made, full_check=True)
    assert "Softmax" not in {node.op_type for node in made.graph.node}
    x = (np.random.default_rng(1).uniform(-1e4, 1e4, (2, 16, 3, 5))).astype(np.float32)
    exact = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    exact /= exact.sum(1, keepdims=True)
    by_onnx = np.asarray(ReferenceEvaluator(made).run(None, {"x": x})[0])
    by_runtime = np.asarray(ort.InferenceSession(made.SerializeToString()).run(None, {"x": x})[0])
    for found in (by_onnx, by_runtime):  # of numbers up to 1; exp of onnxruntime has 22 bits
        assert np.abs(found - exact).max() <= 2.0**-20


FUNCTIONS = {
    "Softplus:float": 40.0,
    "Tanh:float": 4.0,
    "Mul:float": 3.0,
    "Pow:scalar:float": 20.0,
    "Sqrt:float": 4.0,
    "Clip:float": 2.0,
    "Exp:float": 3.0,
    "Add:scalar:float": 2.0,
    "Div:float": 4.0,
    "Log:float": 12.0,
    "Max:float": 3.0,
    "Div:scalar:float": 3.0,
    "Mul:scalar:float": 2.0,
}
SOFTPLUS = "p = Softplus (c) t = Tanh (p) s = Mul (c, t)"
HALF = "h = Constant <value_float = 0.5> ()"


@pytest.mark.parametrize(
    ("text", "times", "expected"),
    [
        (SOFTPLUS, {}, {"Softplus": 22.0, "Tanh": 4.0, "Mul": 3.0}),
        (SOFTPLUS, {"Exp:float": 50.0}, {"Softplus": 40.0, "Tanh": 4.0, "Mul": 3.0}),
        (f"{HALF} s = Pow (c, h)", {}, {"Pow": 4.0}),
        (f"{HALF} s = Pow (c, h)", {"Sqrt:float": 21.0}, {"Pow": 20.0}),
        (f"{HALF} e = Erf (c) d = Div (e, h) s = Erf (d)", {}, {"Div": 2.0}),
    ],
)
def test_a_function_is_written_out_where_that_costs_less(
    text: str, times: Mapping[str, float], expected: Mapping[str, float]
) -> None:
    net, table = between(text), {**KERNELS, **FUNCTIONS, **times}
    plan = planned(net, table, keep_float=["*"]).plan
    costs = CostModel(net.graph, net.profile, priced(table)).costs(plan)
    made = {node.op_type: node.name for node in net.graph.nodes}
    assert {op: costs.integer[made[op]] for op in expected} == pytest.approx(expected)


def test_the_division_of_a_gelu_is_not_written_out() -> None:
    net = between(GELU.format(half=0.5))
    table = {**KERNELS, **FUNCTIONS, "Gelu:float": 1000.0}
    plan = planned(net, table, keep_float=["*"]).plan
    assert {entry.implementation for entry in plan.nodes.values()} == {""}
