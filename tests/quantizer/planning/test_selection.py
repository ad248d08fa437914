"""Which nodes compute on codes, and what the others say."""

from __future__ import annotations

import numpy as np
import pytest
from qprof_onnx.quantizer.numerics.affine import UINT8
from qprof_onnx.quantizer.numerics.schemas import SCHEMAS, choose_params
from qprof_onnx.quantizer.plan.plan import Kind, QuantPlan
from qprof_onnx.quantizer.plan.reasons import ReasonCode
from qprof_onnx.quantizer.targets.loading import load_recipe, with_settings

from ..networks import WIDE, network, plan_alone


def kinds(plan: QuantPlan) -> dict[str, Kind]:
    return {name.split("_")[0]: node.kind for name, node in plan.nodes.items()}


def test_a_light_node_between_heavy_ones_joins() -> None:
    net = network("a = Conv (x, v) b = Add (a, a) y = Conv (b, w)", {"v": WIDE, "w": WIDE})
    assert set(kinds(net.plan()).values()) == {Kind.QUANTIZED}


def test_a_light_node_that_nobody_reads_in_codes_stays_float() -> None:
    net = network("a = Conv (x, w) y = Add (a, a)", {"w": WIDE})
    plan = net.plan()
    assert kinds(plan)["Add"] is Kind.FLOAT
    assert "nothing after it runs in int8" in plan.nodes["Add_y"].reason


def test_the_reason_names_the_operators_that_float_comes_from() -> None:
    lone = network("y = Add (x, x)", {}).plan()
    assert "converting its float input (from the model's inputs)" in lone.nodes["Add_y"].reason
    after = network("a = Hardmax (x) b = Add (a, a) y = Mul (b, b)", {}).plan()
    sentence = "converting its float input (from Hardmax) would cost more than int8 saves"
    assert sentence in after.nodes["Mul_y"].reason
    assert sentence in after.nodes["Add_b"].reason
    mixed = network("a = Conv (x, w) s = Softmax (a) c = Add (a, s) y = Hardmax (c)", {"w": WIDE}).plan()
    assert "it reads int8 and float inputs" in mixed.nodes["Add_c"].reason


def test_what_computes_no_real_numbers_says_so() -> None:
    plan = network("i = ArgMax <axis = 1> (x) f = Cast <to = 1> (i) y = Add (x, f)", {}).plan()
    assert plan.nodes["ArgMax_i"].reason == "it computes shapes, indices or conditions, not float values"


def test_hardware_without_float_takes_it_all_the_same() -> None:
    net = network("a = Conv (x, w) y = Add (a, a)", {"w": WIDE})
    assert set(kinds(net.plan("glow")).values()) == {Kind.QUANTIZED}


def test_a_depthwise_convolution_between_float_nodes_stays_float() -> None:
    net = network("a = Erf (x) b = Conv <group = 8> (a, w) y = Erf (b)", {"w": (8, 1, 3, 3)})
    assert kinds(net.plan())["Conv"] is Kind.FLOAT


def test_a_depthwise_convolution_between_codes_joins() -> None:
    net = network(
        "a = Conv (x, v) b = Conv <group = 8> (a, w) y = Conv (b, u)",
        {"v": WIDE, "w": (8, 1, 1, 1), "u": (8, 8, 3, 3)},
    )
    assert set(kinds(net.plan()).values()) == {Kind.QUANTIZED}


def test_a_matrix_product_before_a_float_node_returns_float() -> None:
    net = network("a = MatMul (x, w) y = Erf (a)", {"w": (8, 8)}, (4, 8))
    plan = net.plan()
    assert kinds(plan)["MatMul"] is Kind.QUANTIZED
    assert "a" not in plan.tensors


def test_a_matrix_product_before_another_gives_codes() -> None:
    net = network("a = MatMul (x, v) b = Relu (a) y = MatMul (b, w)", {"v": (8, 8), "w": (8, 8)}, (4, 8))
    plan = net.plan()
    assert plan.tensors["a"] == plan.tensors["b"]
    assert "y" not in plan.tensors


@pytest.mark.parametrize(
    "last",
    ["y = Conv (c, v)", "d = Conv (c, v) e = Transpose <perm = [0, 2, 3, 1]> (d) y = Reshape (e, all)"],
)
def test_a_convolution_that_makes_an_output_is_not_rounded_where_float_costs_little(last: str) -> None:
    text = f"a = Conv (x, w) b = Conv (a, w) c = Conv (b, w) {last}"
    net = network(text, {"w": WIDE, "v": (1, 8, 3, 3), "all": np.array([1, -1])}, (1, 8, 12, 12))
    name = net.graph.nodes[3].name
    assert net.plan().nodes[name].float_reason.code is ReasonCode.ROUNDED_OUTPUT
    assert net.plan(cost_model="off").nodes[name].kind is Kind.QUANTIZED
    assert net.plan("glow").nodes[name].kind is Kind.QUANTIZED


def test_a_convolution_that_makes_an_output_and_most_of_the_time_is_rounded() -> None:
    net = network("a = Conv (x, w) y = Conv (a, w)", {"w": WIDE})
    assert net.plan().nodes["Conv_y"].kind is Kind.QUANTIZED


def test_a_move_before_codes_moves_codes() -> None:
    net = network("a = Transpose <perm = [0, 1, 3, 2]> (x) y = Conv (a, w)", {"w": WIDE})
    assert kinds(net.plan())["Transpose"] is Kind.PASS_THROUGH


@pytest.mark.parametrize("pattern", ["Conv_y", "Conv", "Conv_*", "C?nv"])
def test_a_node_is_kept_float_by_name_type_or_glob(pattern: str) -> None:
    plan = network("y = Conv (x, w)", {"w": WIDE}).plan(keep_float=(pattern,))
    assert plan.nodes["Conv_y"].kind is Kind.FLOAT
    assert plan.nodes["Conv_y"].reason == f"kept float by request ('{pattern}')"


def test_a_node_that_qprof_keeps_float_has_its_reason_and_one_of_the_user_has_the_users() -> None:
    net = network("a = Conv (x, w) y = Conv (a, w)", {"w": WIDE})
    recipe = load_recipe("onnx", {"keep_float": ("Conv_a",)})
    own = with_settings(recipe, {"keep_float": ("*",)}, "test", why_float="nothing is gained")
    nodes = plan_alone(net.model, net.profile, own).nodes
    assert nodes["Conv_a"].reason == "kept float by request ('Conv_a')"
    assert nodes["Conv_y"].reason == "nothing is gained"


def test_an_operator_without_rule_says_so() -> None:
    net = network('y = Einsum <equation = "ii->i"> (x)', {}, (3, 3))
    assert net.plan().nodes["Einsum_y"].reason == "operator Einsum is not supported for int8"


def test_an_operator_that_the_target_lacks_says_so() -> None:
    net = network("a = Conv (x, w) b = Sin (a) y = Conv (b, w)", {"w": WIDE})
    assert net.plan().nodes["Sin_b"].reason == "onnxruntime-x86 has no int8 kernel for Sin"


def test_a_noisy_tensor_keeps_its_readers_float_with_the_figures() -> None:
    plan = network("y = Conv (x, w)", {"w": WIDE}).plan(min_tensor_sqnr=60.0)
    assert plan.nodes["Conv_y"].kind is Kind.FLOAT
    assert "below the limit of 60 dB" in plan.nodes["Conv_y"].reason


def test_a_weight_that_is_computed_keeps_a_convolution_float() -> None:
    net = network(
        "v = Erf (w) k = Mul (v, s) a = ReduceMean <axes = [0, 1, 2, 3]> (x) u = Mul (k, a) y = Conv (x, u)",
        {"w": WIDE, "s": (1,)},
    )
    assert net.plan().nodes["Conv_y"].reason == "the weight of Conv is not a constant"


def test_a_pool_with_dilations_stays_float() -> None:
    pool = "b = AveragePool <kernel_shape = [2, 2], dilations = [2, 2]> (a)"
    text = f"a = Conv (x, w) {pool} y = Conv <pads = [1, 1, 1, 1]> (b, w)"
    proto = network(text, {"w": WIDE}, opset=19)
    assert proto.plan().nodes["AveragePool_b"].reason == "AveragePool with dilations has no integer form"


def test_a_gather_from_a_constant_moves_no_codes() -> None:
    net = network("i = ArgMax <axis = 1> (x) y = Gather (t, i)", {"t": (8, 4)}, (2, 8))
    assert net.plan().nodes["Gather_y"].reason == "it reads no activation, only constants"


def test_softmax_is_in_codes_over_all_of_0_to_1_where_the_kernel_is_right() -> None:
    net = network("a = Conv (x, w) t = Tanh (a) b = Softmax <axis = 1> (t) y = Conv (b, w)", {"w": WIDE})
    assert net.profile["b"].maximum < 0.6  # or the test shows nothing
    plan = net.plan()
    assert plan.nodes["Softmax_b"].kind is Kind.QUANTIZED
    assert plan.tensors["b"] == choose_params(0.0, 1.0, SCHEMAS["asymmetric"], UINT8)


def test_softmax_before_a_clip_stays_float_for_the_clip_would_narrow_its_codes() -> None:
    clip = "h = Constant <value_float = 0.25> () s = Clip (b, , h)"
    net = network(f"a = Conv (x, w) b = Softmax <axis = 1> (a) {clip} y = Conv (s, w)", {"w": WIDE})
    assert "the Clip after it narrows" in net.plan().nodes["Softmax_b"].reason


@pytest.mark.parametrize(("weight", "told"), [((1, 8, 3, 3), "Softmax over one element has no integer form")])
def test_softmax_stays_float_where_the_kernel_is_wrong(weight: tuple[int, ...], told: str) -> None:
    net = network(
        "a = Conv (x, w) b = Softmax <axis = 1> (a) y = Conv (b, v)", {"w": weight, "v": (8, 1, 3, 3)}
    )
    assert net.plan().nodes["Softmax_b"].reason == told


def test_a_product_of_two_activations_does_not_start_integers() -> None:
    net = network("t = Transpose <perm = [1, 0]> (x) y = MatMul (x, t)", {}, (4, 8))
    assert kinds(net.plan())["MatMul"] is Kind.FLOAT


def deconvolution(attributes: str, shape: tuple[int, ...]) -> tuple[Kind, str, str]:
    """Return kind, implementation and reason of a ConvTranspose on onnxruntime."""
    net = network(f"t = ConvTranspose <{attributes}> (x, w) y = Erf (t)", {"w": shape})
    entry = next(iter(net.plan(min_output_sqnr=18.0).nodes.values()))
    return entry.kind, entry.implementation, entry.reason


def test_a_deconvolution_is_written_as_convolution_of_its_phases() -> None:
    assert deconvolution("strides = [2, 2]", (8, 4, 8, 8)) == (Kind.QUANTIZED, "sub-pixel", "")


def test_a_deconvolution_with_few_products_for_each_output_starts_nothing() -> None:
    assert deconvolution("strides = [4, 4]", (8, 4, 4, 4))[0] is Kind.FLOAT


@pytest.mark.parametrize(
    ("attributes", "size", "reason"),
    [
        ("dilations = [2, 2]", 8, "ConvTranspose with dilations is not written as Conv"),
        ("auto_pad = 'SAME_UPPER'", 8, "whose padding depends on its input's size is not written as Conv"),
        ("strides = [8, 8]", 9, "has 3.2 times as many products as Conv"),
    ],
)
def test_a_deconvolution_that_is_no_convolution_stays_float(attributes: str, size: int, reason: str) -> None:
    kind, _, found = deconvolution(attributes.replace("'", '"'), (8, 4, size, size))
    assert kind in (Kind.FLOAT, Kind.WEIGHT_ONLY)
    assert reason in found


def test_a_product_that_takes_no_time_is_not_worth_int8_by_itself() -> None:
    net = network("a = Conv (x, w) y = HardSwish (a)", {"w": WIDE}, (1, 8, 3, 3))
    assert net.plan("openvino").nodes["Conv_a"].kind is Kind.FLOAT
    assert net.plan().nodes["Conv_a"].kind is Kind.QUANTIZED


def test_a_deconvolution_that_makes_an_output_is_not_rounded_to_8_bits() -> None:
    net = network("y = ConvTranspose <strides = [2, 2]> (x, w)", {"w": (8, 4, 8, 8)})
    (entry,) = net.plan().nodes.values()
    assert (entry.stays_float, entry.reason) == (True, "its result is an output of the model, in 8 bits")


def test_a_weight_that_another_operator_reads_in_float_is_not_stored_twice() -> None:
    net = network("a = MatMul (x, w) d = Det (w) b = Mul (a, d) y = Relu (b)", {"w": (6, 6)})
    assert net.plan().nodes["MatMul_a"].reason == (
        "its weight is read by Det too, in float: it would be stored twice"
    )
