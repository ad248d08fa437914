"""Chains of element-wise operators: what is one, and what a plan makes of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
import yaml
from onnx import parser
from qprof_onnx.profiles.base.errors import ConfigError, PlanError
from qprof_onnx.quantizer.lowering.lower import lower
from qprof_onnx.quantizer.noise.activation_ranges import effective_range
from qprof_onnx.quantizer.numerics.density import signal_power
from qprof_onnx.quantizer.operators.functions import PointwiseChain
from qprof_onnx.quantizer.operators.graph import index
from qprof_onnx.quantizer.plan.plan import Kind, NodePlan, QuantPlan
from qprof_onnx.quantizer.plan.reasons import ReasonCode, because
from qprof_onnx.quantizer.plan.verify import verify_plan
from qprof_onnx.quantizer.planning.chains import find_chains, planned_chains, planned_separately
from qprof_onnx.quantizer.planning.facts import planning_facts, with_chains
from qprof_onnx.quantizer.planning.needed_tensors import needed_tensors
from qprof_onnx.quantizer.planning.plan_model import model_facts, plan_from
from qprof_onnx.quantizer.targets.loading import load_recipe

from ..networks import WIDE, Network, flow_of, network

SILU = "g = Sigmoid (c) s = Mul (c, g)"
GELU = """r = Constant <value_float = 1.414> () o = Constant <value_float = 1.0> ()
    d = Div (c, r) e = Erf (d) f = Add (e, o) s = Mul (c, f)"""


def between(text: str) -> Network:
    """A net whose nodes `text` stand between two convolutions, from c to s."""
    pads = "<pads = [1, 1, 1, 1]>"
    return network(f"c = Conv {pads} (x, w) {text} y = Conv {pads} (s, v)", {"w": WIDE, "v": WIDE})


@pytest.fixture(scope="module")
def silu() -> Network:
    return between(SILU)


@pytest.fixture(scope="module")
def gelu() -> Network:
    return between(GELU)


def plan_for(net: Network, target: str, **settings: object) -> QuantPlan:
    return plan_from(model_facts(net.prepared, net.profile, load_recipe(target, settings))).plan


def shown(chains: tuple[PointwiseChain, ...]) -> list[str]:
    return [f"{chain.source.name}: {chain.operators}" for chain in chains]


def chains_in(text: str, *, opset: int = 17) -> list[str]:
    """Chains of a graph with input x, written as nodes; tensors c1, c2, ... are constants."""
    constants = "<float k = {2}, float[1,1] k2 = {3}, float[3] kv = {1, 2, 3}, float[1,1,1] k3 = {4}>"
    proto = parser.parse_model(
        f'<ir_version: 8, opset_import: ["": {opset}]> g (float[2, 3] x, float[2, 3] z) => (float[2, 3] y) '
        f"{constants} {{ {text} }}"
    )
    return shown(find_chains(index(ir.from_proto(onnx.shape_inference.infer_shapes(proto)))))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a = Sigmoid (x) y = Mul (x, a)", ["x: Sigmoid, Mul"]),
        ("a = Mul (x, k) b = Add (a, k2) y = Exp (b)", ["x: Mul, Add, Exp"]),
        ("a = Abs (x) b = Neg (x) y = Max (a, b)", ["x: Abs, Neg, Max"]),
        ("a = Mul (x, x) b = Sub (k, a) y = Mul (b, a)", ["x: Mul, Sub, Mul"]),
        ("a = Relu (x) b = Exp (a) y = Neg (b)", ["a: Exp, Neg"]),
        ("a = Relu (x) b = Sub (x, a) y = Tanh (b)", ["x: Relu, Sub, Tanh"]),
        ("a = Softmax (x) b = Exp (a) y = Neg (b)", ["a: Exp, Neg"]),
        ("b = Add (x, z) a = Sigmoid (b) y = Mul (a, b)", ["b: Sigmoid, Mul"]),
        ("a = Exp (x) b = Neg (a) c = Exp (z) d = Neg (c) y = Add (b, d)", ["x: Exp, Neg", "z: Exp, Neg"]),
    ],
)
def test_a_piece_that_is_a_function_of_one_tensor_is_a_chain(text: str, expected: list[str]) -> None:
    assert chains_in(text) == expected


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("y = Sigmoid (x)", "one node is an operator"),
        ("a = Sigmoid (x) y = Mul (z, a)", "two activations"),
        ("a = Exp (x) y = Mul (a, kv)", "a factor for each column"),
        ("a = Exp (x) b = Mul (a, k3) c = Squeeze (b) y = Reshape (c, c)", "a constant of more dimensions"),
        ("a = Exp (x) b = Softmax (a) c = Neg (a) y = Add (b, c)", "the first result has another reader"),
        ("a = Relu (x) y = Exp (a)", "a clip before a single operator is free"),
        ("a = Exp (x) y = Round (a)", "steps are in no table"),
    ],
)
def test_anything_else_is_none(text: str, why: str) -> None:
    assert chains_in(text) == [], why


def test_what_is_a_result_too_is_not_inside_a_chain() -> None:
    proto = parser.parse_model(
        """<ir_version: 8, opset_import: ["": 17]>
        g (float[2] x) => (float[2] y, float[2] a) { a = Exp (x) b = Neg (a) y = Exp (b) }"""
    )
    model = ir.from_proto(onnx.shape_inference.infer_shapes(proto))
    assert shown(find_chains(index(model))) == ["a: Neg, Exp"]


@pytest.mark.parametrize("form", ["qdq", "integer", "primitives", "regions"])
def test_a_chain_in_a_body_is_one_table_there(form: str) -> None:
    net = network(
        """n = Constant <value_int = 2> () go = Constant <value = bool {1}> ()
        c = Conv <pads = [1, 1, 1, 1]> (x, w)
        y = Loop (n, go, c) <body = step (int64 i, bool k, float[1,8,6,6] f) => (bool l, float[1,8,6,6] o) {
            l = Identity (k) e = Conv <pads = [1, 1, 1, 1]> (f, v) g = Sigmoid (e) o = Mul (e, g) }>""",
        {"w": WIDE, "v": WIDE},
    )
    assert shown(find_chains(net.graph)) == ["e: Sigmoid, Mul"]
    planned = plan_from(model_facts(net.prepared, net.profile, load_recipe("glow", {"form": form})))
    assert planned.plan.nodes["Mul_o"].kind is Kind.LOOKUP_TABLE
    x = np.random.default_rng(2).standard_normal((1, 8, 6, 6)).astype(np.float32)
    made, exact = (run(model, x) for model in (lower(planned.model, planned.plan).model, net.model))
    assert np.square(made - exact).mean() < 0.01 * np.square(exact).mean()  # 20 dB after three convolutions


def run(model: ir.Model, x: np.ndarray) -> np.ndarray:
    session = ort.InferenceSession(ir.to_proto(model).SerializeToString())
    return np.asarray(session.run(None, {"x": x})[0])


def test_a_target_with_tables_makes_one_of_a_chain(silu: Network) -> None:
    plan = plan_for(silu, "glow")
    assert plan.nodes["Sigmoid_g"] == NodePlan(
        Kind.LOOKUP_TABLE, "part of the look-up table of 'Mul_s'", {}, "portable"
    )
    assert plan.nodes["Mul_s"] == NodePlan(
        Kind.LOOKUP_TABLE, "one look-up table for Sigmoid, Mul", {}, "portable"
    )
    assert "g" not in plan.tensors
    assert {"c", "s"} <= set(plan.tensors)
    assert list(plan.nodes) == [node.name for node in silu.graph.nodes]
    (nodes,) = planned_chains([node.ir_node for node in silu.graph.nodes], plan).values()
    assert [node.name for node in nodes] == ["Sigmoid_g", "Mul_s"]


def test_constants_of_one_element_may_have_any_number_of_dimensions() -> None:
    def scaled(three: str) -> QuantPlan:
        net = between(f"k = Constant <value = {three}> () a = Tanh (c) s = Add (k, a)")
        return plan_for(net, "glow")

    wide, plain = scaled("float[1, 1, 1] {3}"), scaled("float {3}")
    assert wide.tensors["s"] == plain.tensors["s"]
    assert [entry.kind for entry in wide.nodes.values()] == [entry.kind for entry in plain.nodes.values()]
    assert Kind.LOOKUP_TABLE in [entry.kind for entry in wide.nodes.values()]


def test_on_a_target_that_takes_it_apart_the_plan_is_that_of_its_operators(silu: Network) -> None:
    settings = {"equalization": "off", "bias_correction": "off", "cost_model": "off"}
    plan = plan_for(silu, "onnxruntime-x86", **settings)
    apart = silu.plan("onnxruntime-x86", **settings)
    assert plan == apart
    assert plan.nodes["Mul_s"].kind is Kind.QUANTIZED


def test_a_chain_with_an_operator_that_has_no_kernel_stays_float_as_a_whole(gelu: Network) -> None:
    plan = plan_for(gelu, "onnxruntime-x86")
    reasons = {plan.nodes[f"{node}"].reason for node in ("Div_d", "Erf_e", "Add_f", "Mul_s")}
    assert reasons == {"onnxruntime-x86 has no int8 kernel for Div, Erf, Add, Mul in one"}


@pytest.mark.parametrize(
    ("target", "tables", "kind", "implementation"),
    [
        ("onnxruntime-x86", {"*": "portable"}, Kind.LOOKUP_TABLE, "portable"),
        ("onnxruntime-x86", {"Chain": "runtime"}, Kind.LOOKUP_TABLE, "runtime"),
        ("glow", {}, Kind.FLOAT, ""),
    ],
)
def test_a_target_of_ones_own_may_have_other_tables(
    gelu: Network, target: str, tables: dict[str, str], kind: Kind, implementation: str
) -> None:
    recipe = load_recipe(target)
    recipe = replace(recipe, target=replace(recipe.target, lookup_tables=tables))
    plan = plan_from(model_facts(gelu.prepared, gelu.profile, recipe)).plan
    assert (plan.nodes["Mul_s"].kind, plan.nodes["Mul_s"].implementation) == (kind, implementation)


def test_a_chain_of_which_a_node_is_kept_float_stays_so_as_a_whole(silu: Network) -> None:
    plan = plan_for(silu, "glow", keep_float=["Sigmoid"])
    for name in ("Sigmoid_g", "Mul_s"):
        assert plan.nodes[name] == NodePlan(Kind.FLOAT, because(ReasonCode.BY_REQUEST, pattern="Sigmoid"))
    assert plan.config.keep_float == ("Sigmoid",)
    with pytest.raises(ConfigError, match="no node of the model"):
        plan_for(silu, "glow", keep_float=["Sigmoid", "Tan"])


def test_without_a_profile_of_its_inside_a_chain_stays_one(silu: Network) -> None:
    (chain,) = find_chains(silu.graph)
    target = load_recipe("onnxruntime-x86").target
    assert planned_separately(chain, target)
    assert planned_separately(chain, target, profiled={"c", "g", "s"})
    assert not planned_separately(chain, target, profiled={"c", "s"})


def test_what_no_target_takes_apart_needs_no_profile_inside(silu: Network, gelu: Network) -> None:
    assert needed_tensors(silu.graph) == {"x", "c", "g", "s", "y"}
    assert needed_tensors(gelu.graph) == {"x", "c", "s", "y"}
    some = {name: t for name, t in gelu.profile.tensors.items() if name in needed_tensors(gelu.graph)}
    less = replace(gelu, profile=replace(gelu.profile, tensors=some))
    for target in ("glow", "onnxruntime-x86", "openvino", "qnn"):
        assert plan_for(less, target) == plan_for(gelu, target)


def test_what_a_chain_throws_away_needs_no_codes() -> None:
    net = between("k = Constant <value_float = 2.0> () h = HardSwish (c) s = Mul (h, k)")
    low = net.profile["c"].minimum
    assert low < -3.0  # or the test shows nothing
    params = plan_for(net, "glow", calibrator="minmax").tensors["c"]
    lowest = params.tensor_scale * (params.qtype.low - params.tensor_zero_point)
    assert lowest == pytest.approx(-3.0, rel=0.02)  # half a step of 1/100, and the zero point is rounded
    assert effective_range(net.graph, "c") == (-3.0, np.inf)


def test_noise_goes_through_a_chain_as_its_slope_says() -> None:
    """log(x^2 + 1 / 100) is steep where x is small, which none of its operators alone shows."""
    net = between("""o = Constant <value_float = 0.01> () q = Mul (c, c) a = Add (q, o) s = Log (a)""")
    recipe = load_recipe("glow")
    x = np.random.default_rng(1).normal(0.0, np.sqrt(signal_power(net.profile["c"])), 100_000)
    slope = np.mean(np.square(2.0 * x / (x**2 + 0.01)))
    view = with_chains(planning_facts(net.prepared, net.profile, recipe)).contracted
    flow = flow_of(view.graph, view.profile, 17)
    through = flow.reach["c"][0] / flow.reach["s"][0]
    assert through == pytest.approx(slope, rel=0.3)  # c is not quite normal, and its histogram has bins


def breach(net: Network, plan: QuantPlan) -> str:
    with pytest.raises(PlanError) as error:
        verify_plan(plan, net.graph, net.identity)
    return str(error.value)


def with_node(plan: QuantPlan, name: str, node: NodePlan) -> QuantPlan:
    return replace(plan, nodes={**plan.nodes, name: node})


def test_a_table_is_whole_in_a_plan(silu: Network) -> None:
    plan = plan_for(silu, "glow", equalization="off", bias_correction="off")
    broken = with_node(plan, "Mul_s", NodePlan(Kind.FLOAT, "mine"))
    assert "'Sigmoid_g': it is part of a table, but 'Mul_s' reads its output 'g'" in breach(silu, broken)
    broken = with_node(plan, "Sigmoid_g", NodePlan(Kind.FLOAT, "mine"))
    assert "'Mul_s': it is lookup-table, but its input 'g' has no parameters" in breach(silu, broken)
    broken = replace(plan, tensors={n: p for n, p in plan.tensors.items() if n != "s"})
    assert "has no parameters" in breach(silu, broken)


def test_a_target_says_what_it_does_with_chains(tmp_path: Path) -> None:
    def target(word: str) -> Path:
        path = tmp_path / "mine.yaml"
        document = {
            "target": "mine",
            "runtime": {"operators": {"Conv": ["quantized"]}, "lookup_tables": {"Chain": word}},
        }
        path.write_text(yaml.safe_dump(document))
        return path

    assert load_recipe(target("separate")).target.lookup_tables == {"Chain": "separate"}
    with pytest.raises(ConfigError, match="Chain': 'sigmoid' is not one of separate, runtime, portable"):
        load_recipe(target("sigmoid"))
