"""Parameters: what groups share, which ranges are used, how constants are stored."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from qprof_onnx.quantizer.lowering.lower import lower
from qprof_onnx.quantizer.noise.activation_ranges import effective_range
from qprof_onnx.quantizer.numerics.affine import INT8, INT32, UINT8
from qprof_onnx.quantizer.plan.plan import Kind
from qprof_onnx.quantizer.plan.reasons import ReasonCode
from qprof_onnx.quantizer.targets.conformance import check_conformity
from qprof_onnx.quantizer.targets.loading import load_recipe

from ..networks import WIDE, network


def test_moved_values_keep_the_parameters_of_their_source() -> None:
    net = network("a = Conv (x, w) b = MaxPool <kernel_shape = [2, 2]> (a) y = Conv (b, w)", {"w": WIDE})
    plan = net.plan()
    assert plan.tensors["a"] == plan.tensors["b"]


def test_a_clip_gives_its_range_to_a_producer_of_its_own() -> None:
    net = network("a = Conv (x, w) b = Relu (a) y = Conv (b, w)", {"w": WIDE})
    plan = net.plan(calibrator="minmax")
    assert plan.tensors["a"].tensor_zero_point == 0
    assert plan.tensors["a"].tensor_scale == np.float32(net.profile["b"].maximum / 255.0)
    assert plan.nodes["Relu_b"].kind is Kind.PASS_THROUGH


def test_a_clip_does_not_cut_what_others_read() -> None:
    net = network("a = Conv (x, w) b = Relu (a) c = Conv (b, w) d = Conv (a, w) y = Add (c, d)", {"w": WIDE})
    plan = net.plan("glow", calibrator="minmax")
    assert plan.tensors["a"] != plan.tensors["b"]
    assert plan.nodes["Relu_b"].kind is Kind.QUANTIZED


def test_codes_are_not_spent_below_where_hard_swish_rises() -> None:
    net = network("a = Conv (x, w) b = HardSwish (a) y = Conv (b, w)", {"w": WIDE})
    low, params = net.profile["a"].minimum, net.plan(calibrator="minmax").tensors["a"]
    assert low < -6.0
    assert abs(3.0 - params.tensor_zero_point * params.tensor_scale) <= params.tensor_scale


@pytest.mark.parametrize(
    ("moves", "useful"),
    [
        ("b = Relu (a)", (0.0, np.inf)),
        ("m = Transpose (a) b = Relu (m)", (0.0, np.inf)),
        ("m = MaxPool <kernel_shape = [2, 2]> (a) n = Flatten (m) b = HardSwish (n)", (-3.0, np.inf)),
        (
            "m, n = Split <axis = 1> (a) o = Relu (m) p = HardSwish (n) b = Add (o, p)",
            (-3.0, np.inf),
        ),
        ("m = Transpose (a) c = Relu (m) d = Neg (m) b = Add (c, d)", (-np.inf, np.inf)),
        ("m, n = TopK (a, k) c = Relu (m) d = Cast <to = 1> (n) b = Add (c, d)", (-np.inf, np.inf)),
        ('m = Resize <mode = "linear"> (a, , r) b = Relu (m)', (-np.inf, np.inf)),
    ],
)
def test_what_readers_tell_apart_is_seen_behind_moves(moves: str, useful: tuple[float, float]) -> None:
    net = network(
        f"a = Conv (x, w) {moves} y = Identity (b)",
        {"w": WIDE, "k": np.array([2]), "r": np.array([1, 1, 2, 2], np.float32)},
    )
    assert effective_range(net.graph, "a") == useful


def test_a_weight_has_a_scale_for_each_output_channel() -> None:
    plan = network("y = Conv (x, w)", {"w": WIDE}).plan()
    assert plan.tensors["w"].axis == 0
    assert len(plan.tensors["w"].scale) == 8
    assert plan.tensors["w"].qtype == INT8


def test_a_bias_is_in_units_of_input_and_weight() -> None:
    plan = network("y = Conv (x, w, b)", {"w": WIDE, "b": (8,)}).plan()
    x, w, b = (plan.tensors[name] for name in "xwb")
    assert b.qtype == INT32
    assert b.scale.tolist() == [float(np.float32(x.tensor_scale) * s) for s in w.scale]


def test_a_bias_shared_by_two_nodes_has_parameters_for_each() -> None:
    net = network("a = Conv (x, w, b) y = Conv (a, w, b)", {"w": WIDE, "b": (8,)})
    plan = net.plan()
    second = plan.nodes["Conv_y"].inputs[2]
    assert second.scale[0] == plan.tensors["a"].scale[0] * plan.tensors["w"].scale[0]
    assert plan.tensors["b"] != second


def test_symmetric_codes_are_stored_unsigned_where_the_runtime_wants_it() -> None:
    net = network("a = Conv (x, w) y = Conv (a, w)", {"w": WIDE})
    signed, unsigned = net.plan("glow", schema="symmetric"), net.plan(schema="symmetric-uint8")
    assert signed.tensors["a"].tensor_zero_point == 0
    assert unsigned.tensors["a"].tensor_zero_point == 128
    assert unsigned.tensors["a"].qtype == UINT8
    assert unsigned.tensors["a"].tensor_scale == signed.tensors["a"].tensor_scale


def test_tanh_through_the_sigmoid_table_is_in_128ths() -> None:
    net = network("a = Conv (x, w) b = Tanh (a) y = Conv (b, w)", {"w": WIDE})
    plan = net.plan()
    assert plan.nodes["Tanh_b"].implementation == "sigmoid"
    assert (plan.tensors["b"].tensor_scale, plan.tensors["b"].tensor_zero_point) == (1 / 128, 128)


@pytest.mark.parametrize("target", ["onnxruntime-x86", "onnxruntime-arm"])
def test_a_prelu_saturates_where_the_target_says_so(target: str) -> None:
    net = network(
        "a = Conv <pads = [1, 1, 1, 1]> (x, w) b = Relu (a) c = Conv (b, w) d = PRelu (c, s) y = Conv (d, w)",
        {"w": WIDE, "s": np.linspace(-0.2, 0.7, 8).astype(np.float32).reshape(8, 1, 1)},
    )
    plan = net.plan(target)
    found = {name: (plan.nodes[name].kind, plan.nodes[name].implementation) for name in plan.nodes}
    assert found["PRelu_d"] == (Kind.QUANTIZED, "saturating")
    slopes = plan.tensors["s"]
    assert slopes.tensor_zero_point + round(1.0 / slopes.tensor_scale) == slopes.qtype.high


def test_renaming_tensors_changes_nothing_but_names() -> None:
    text = "a = Conv (x, w) b = Relu (a) c = Conv <pads = [1, 1, 1, 1]> (b, w) d = Add (c, b) y = Conv (d, w)"
    one = network(text, {"w": WIDE})
    # a different implementation of every inner name, in another alphabetical order
    other = network(
        text.replace("a ", "q ")
        .replace("(a)", "(q)")
        .replace("b ", "m ")
        .replace("b)", "m)")
        .replace("(b,", "(m,"),
        {"w": WIDE},
    )
    assert list(one.plan().tensors.values()) == list(other.plan().tensors.values())
    assert [n.kind for n in one.plan().nodes.values()] == [n.kind for n in other.plan().nodes.values()]


@pytest.mark.parametrize("shape", [(6, 1), (6, 5)])
@pytest.mark.parametrize("granularity", ["per-channel", "per-tensor"])
def test_a_gemm_whose_bias_differs_by_row_stays_float(shape: tuple[int, ...], granularity: str) -> None:
    net = network("a = Gemm (x, w, b) y = Gemm (a, v)", {"w": (8, 5), "b": shape, "v": (5, 5)}, (6, 8))
    plan = net.plan(granularity=granularity)
    assert plan.nodes["Gemm_a"].reason == "the bias of Gemm is not one number for each column"
    assert plan.nodes["Gemm_y"].kind is Kind.QUANTIZED


@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
def test_a_gemm_whose_bias_is_one_number_is_quantized(shape: tuple[int, ...]) -> None:
    plan = network("y = Gemm (x, w, b)", {"w": (8, 5), "b": shape}, (6, 8)).plan()
    assert plan.nodes["Gemm_y"].kind is Kind.QUANTIZED
    assert len(plan.tensors["b"].scale) == 5


def test_a_node_whose_constants_have_no_parameters_stays_float_and_says_why() -> None:
    net = network("y = Conv (x, w, b)", {"w": WIDE, "b": (8,)})
    bias = net.model.graph.initializers["b"]
    bias.const_value = ir.Tensor(np.ones(3, np.float32), name="b")
    entry = net.plan().nodes["Conv_y"]
    assert entry.kind is Kind.FLOAT
    assert entry.float_reason.code is ReasonCode.NO_PARAMETERS
    assert "bias: 3 elements for a weight with 8 scales" in entry.reason


def test_weights_that_are_not_finite_leave_their_node_float_alone() -> None:
    weight = np.ones((8, 16), np.float32)
    weight[0, 0] = np.nan
    net = network("a = MatMul (x, w)\ny = MatMul (a, v)", {"w": (8, 16), "v": (16, 8)}, (6, 8))
    net.model.graph.initializers["w"].const_value = ir.Tensor(weight, name="w")
    plan = net.plan()
    assert plan.nodes["MatMul_a"].float_reason.code is ReasonCode.NO_PARAMETERS
    assert plan.nodes["MatMul_y"].kind is Kind.QUANTIZED


def test_a_stack_of_matrices_has_one_scale() -> None:
    plan = network("y = MatMul (x, w)", {"w": (3, 32, 16)}, (3, 5, 32)).plan()
    assert plan.nodes["MatMul_y"].kind is Kind.QUANTIZED
    assert plan.tensors["w"].axis is None
    assert len(plan.tensors["w"].scale) == 1


@pytest.mark.parametrize(
    "moves", ["b = Transpose <perm = [0, 1, 3, 2]> (s)", "b = MaxPool <kernel_shape = [1, 1]> (s)"]
)
def test_a_clip_after_moved_values_does_not_narrow_what_a_kernel_needs_in_full(moves: str) -> None:
    text = f"a = Conv (x, w) s = Softmax <axis = 1> (a) {moves} c = Clip (b, low, high) y = Conv (c, v)"
    weights = {"w": WIDE, "v": (64, 8, 3, 3), "low": np.float32(0.0), "high": np.float32(0.4)}
    net = network(text, weights)
    plan = net.plan()
    assert plan.nodes["Softmax_s"].kind is Kind.QUANTIZED
    assert plan.nodes["Clip_c"].kind is Kind.QUANTIZED
    assert plan.tensors["s"].tensor_scale * 255 >= 1.0 - 1e-6
    check_conformity(lower(net.model, plan).model, load_recipe().target, "net")  # refuses what it narrows


@pytest.mark.parametrize(("target", "how"), [("onnxruntime-x86", "sum"), ("openvino", "")])
@pytest.mark.parametrize("free", [(), ("batch", "tokens", 32)], ids=["known shape", "free dimensions"])
def test_a_bias_after_a_quantized_product_is_not_fused_into_a_float_one(
    target: str, how: str, free: tuple[str | int, ...]
) -> None:
    """Free dimensions may be fixed when the model is loaded: 3.0 times float's time then, 0.41 as Sum."""
    weights = {"w": (32, 32), "b": np.ones(32, np.float32)}
    net = network("p = MatMul (x, w) s = Add (p, b) y = Erf (s)", weights, (1, 8, 32), dims=free)
    assert net.plan(target).nodes["Add_s"].implementation == how


def test_a_bias_in_a_body_whose_shape_is_a_constant_outside_is_not_fused_either() -> None:
    """A greedy decoder in a Loop took 8.8 times float's time, and 0.45 with its biases as Sum."""
    net = network(
        """n = Constant <value_int = 2> () go = Constant <value = bool {1}> ()
        row = Constant <value_ints = [1, 1, 256]> ()
        y = Loop (n, go, x) <body = step (int64 i, bool k, float[A, B] f) => (bool l, float[C, D, E] o) {
            l = Identity (k) r = Reshape (f, row) p = MatMul (r, w) s = Add (p, b) o = Erf (s) }>""",
        {"w": (256, 256), "b": np.ones(256, np.float32)},
        (1, 256),
    )
    assert net.plan(cost_model="off", keep_float=("Add",)).nodes["Add_s"].implementation == "sum"


def test_an_add_of_two_activations_stays_as_it_is() -> None:
    net = network("p = MatMul (x, w) s = Add (p, x) y = Erf (s)", {"w": (32, 32)}, (1, 8, 32))
    assert net.plan().nodes["Add_s"].implementation == ""


def test_an_add_of_two_products_is_not_fused_into_a_float_one() -> None:
    """The gates of an unrolled LSTM: 13 times float's time where they are fused."""
    net = network(
        "p = MatMul (x, w) q = Gemm (x, v) s = Add (q, p) y = Erf (s)", {"w": WIDE[:2], "v": (8, 8)}, (1, 8)
    )
    assert net.plan(cost_model="off", keep_float=("Add",)).nodes["Add_s"].implementation == "sum"


@pytest.mark.parametrize("function", ["Relu", "Tanh", "LeakyRelu"])
def test_a_product_before_a_float_function_is_not_fused_with_it(function: str) -> None:
    """A FusedGemm dequantizes its weight in every run: 6 times float's time."""
    net = network(f"a = Gemm (x, w) b = {function} (a) y = Erf (b)", {"w": (8, 8)}, (4, 8))
    plan = net.plan(cost_model="off", keep_float=(function,))
    assert "a" in plan.tensors
    assert "a" not in net.plan("tensorrt", keep_float=(function,)).tensors
