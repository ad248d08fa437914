"""Products with data and weights in floating-point numbers of few bits: which, their scales, the notation."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import onnx_ir as ir
import onnxruntime
import pytest
from onnx import TensorProto, checker, numpy_helper
from onnx.reference import ReferenceEvaluator
from qprof_onnx.profiles.base.errors import ConfigError
from qprof_onnx.quantizer.evaluation.runtimes import open_session
from qprof_onnx.quantizer.lowering.lower import lower
from qprof_onnx.quantizer.numerics.affine import (
    FLOAT8E4M3FN,
    QuantParams,
    dequantize,
    quantize,
)
from qprof_onnx.quantizer.plan.plan import Implementation, Kind, QuantPlan
from qprof_onnx.quantizer.plan.verify import verify_plan
from qprof_onnx.quantizer.targets.config import FLOAT_TYPES
from qprof_onnx.quantizer.targets.loading import load_recipe

from ...networks import Network, network

FLOAT8 = {"activation_type": "float8e4m3fn", "weight_type": "float8e4m3fn"}
TEXT = "a = Conv (x, w, b) r = Relu (a) c = Conv (r, v) s = Add (c, a) y = Conv (s, v)"
WEIGHTS = {"w": (32, 32, 3, 3), "b": (32,), "v": (32, 32, 1, 1)}


@pytest.fixture(scope="module")
def net() -> Network:
    return network(TEXT, WEIGHTS, shape=(1, 32, 10, 10))


def written(net: Network, plan: QuantPlan) -> Any:
    proto = ir.serde.serialize_model(lower(net.model, plan).model)
    checker.check_model(proto, full_check=True)
    return proto


def test_products_alone_are_quantized_and_give_float(net: Network) -> None:
    plan = net.plan("openvino", **FLOAT8)
    verify_plan(plan, net.graph, net.identity)
    assert {name for name, node in plan.nodes.items() if node.kind is Kind.QUANTIZED} == {
        "Conv_a",
        "Conv_c",
        "Conv_y",
    }
    assert plan.nodes["Add_s"].reason == "float8e4m3fn is for MatMul, Gemm, Conv, ConvTranspose"
    assert set(plan.tensors) == {"x", "r", "s", "w", "v"}  # no bias, and no result of a product
    assert {params.qtype for params in plan.tensors.values()} == {FLOAT8E4M3FN}


def test_the_scale_of_an_activation_leaves_an_octave_and_that_of_a_weight_none(net: Network) -> None:
    plan = net.plan("openvino", **FLOAT8)
    largest = max(-net.profile["x"].minimum, net.profile["x"].maximum)
    assert plan.tensors["x"] == QuantParams((float(np.float32(largest / 224.0)),), (0,), FLOAT8E4M3FN)
    weight = net.graph.constant("w")
    assert weight is not None
    assert plan.tensors["w"].axis == 0
    assert np.allclose(plan.tensors["w"].scale, np.abs(weight).max((1, 2, 3)) / 448.0, rtol=1e-6)


def test_probabilities_have_a_scale_of_their_largest_value() -> None:
    net = network("a = MatMul (x, w) p = Softmax (a) y = MatMul (p, w)", {"w": (32, 32)}, (1, 4, 32))
    assert net.plan("openvino", **FLOAT8).tensors["p"].tensor_scale == np.float32(1.0 / 448.0)


def test_a_scale_of_powers_of_two_is_one() -> None:
    net = network("y = MatMul (x, w)", {"w": (32, 32)}, (1, 4, 32))
    plan = net.plan("onnx", **FLOAT8, schema="symmetric-power2", weight_schema="symmetric-power2")
    verify_plan(plan, net.graph, net.identity)
    assert np.frexp(plan.tensors["x"].tensor_scale)[0] == 0.5


@pytest.mark.parametrize("name", FLOAT_TYPES)
def test_each_type_is_written_and_computed_as_it_is_defined(name: str) -> None:
    net = network("y = MatMul (x, w)", {"w": (32, 24)}, (1, 4, 32))
    plan = net.plan("onnx", activation_type=name, weight_type=name)
    proto = written(net, plan)
    assert proto.opset_import[0].version == 21
    constants = {tensor.name: tensor for tensor in proto.graph.initializer}
    for node in proto.graph.node:
        if node.op_type in ("QuantizeLinear", "DequantizeLinear"):
            zero = constants[node.input[2]]
            assert zero.data_type == getattr(TensorProto, name.upper())
            assert not any(zero.raw_data)
            assert "saturate" not in {attribute.name for attribute in node.attribute}
    assert [node.op_type for node in proto.graph.node].count("QuantizeLinear") == 1  # none of the weight

    x = np.random.default_rng(3).standard_normal((1, 4, 32)).astype(np.float32)
    weight = net.graph.constant("w")
    assert weight is not None
    exact = [dequantize(quantize(a, plan.tensors[n]), plan.tensors[n]) for n, a in (("x", x), ("w", weight))]
    expected = exact[0].astype(np.float64) @ exact[1]
    stored = numpy_helper.to_array(constants["w_quantized"])
    assert stored.tobytes() == quantize(weight, plan.tensors["w"]).tobytes()
    for run in (
        lambda: ReferenceEvaluator(proto).run(None, {"x": x})[0],
        lambda: open_session(proto.SerializeToString(), "it").run(None, {"x": x})[0],
    ):
        assert np.allclose(run(), expected, rtol=1e-5, atol=1e-4)  # sums of 32 products in float32


def test_a_transposed_convolution_is_a_product_with_a_scale_for_each_output_channel() -> None:
    net = network("y = ConvTranspose <strides = [2, 2]> (x, w)", {"w": (32, 24, 2, 2)}, (1, 32, 6, 6))
    plan = net.plan("openvino", **FLOAT8)
    assert (plan.tensors["w"].axis, plan.tensors["w"].scale.size) == (1, 24)
    proto, x = written(net, plan), np.random.default_rng(3).standard_normal((1, 32, 6, 6)).astype(np.float32)
    exact = ReferenceEvaluator(proto).run(None, {"x": x})[0]
    found = open_session(proto.SerializeToString(), "it").run(None, {"x": x})[0]
    assert np.allclose(found, exact, rtol=1e-5, atol=1e-4)
    assert net.plan("tensorrt", **FLOAT8).nodes["ConvTranspose_y"].kind is Kind.FLOAT


@pytest.mark.parametrize("function", ["Relu (a)", "Clip (a, low, high)", "Clip (a, low)", "Clip (a, , high)"])
@pytest.mark.parametrize("between", ["", "m = MaxPool <kernel_shape = [1, 1]> (r) "])
def test_onnxruntime_drops_no_relu_and_no_clip_before_a_conversion(function: str, between: str) -> None:
    text = f"a = Conv (x, w) r = {function} {between}y = Conv ({'m' if between else 'r'}, w)"
    constants = {"w": (32, 32, 1, 1), "low": np.float32(-0.5), "high": np.float32(1.0)}
    net = network(text, constants, shape=(1, 32, 10, 10))
    x = np.random.default_rng(3).standard_normal((1, 32, 10, 10)).astype(np.float32)
    for target in ("onnx", "openvino"):
        plan = net.plan(target, **FLOAT8)
        proto = written(net, plan)
        entry = plan.nodes[next(name for name in plan.nodes if name.startswith(("Relu", "Clip")))]
        assert entry.implementation == Implementation.MAX
        assert not {"Relu", "Clip"} & {node.op_type for node in proto.graph.node}
        exact = ReferenceEvaluator(proto).run(None, {"x": x})[0]
        content = proto.SerializeToString()
        plain = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
        for session in (open_session(content, "it"), plain):
            found = session.run(None, {"x": x})[0]
            # A value beside a tie may be rounded to the other side, after sums in another order.
            assert np.sum((found - exact) ** 2) < 1e-3 * np.sum(exact**2)


@pytest.mark.parametrize(
    ("text", "weights", "shape", "why"),
    [
        ("y = MatMul (x, w)", {"w": (8, 32)}, (4, 8), "8 rows of its weight, fewer than 16"),
        ("y = MatMul (x, w)", {"w": (32, 8)}, (4, 32), "8 columns, fewer than 16"),
        ("y = Gemm <transB = 1> (x, w)", {"w": (8, 32)}, (4, 32), "8 columns, fewer than 16"),
        ("y = Conv (x, w)", {"w": (32, 16, 3, 3)}, (1, 16, 9, 9), "16 input channels, fewer than 17"),
        ("y = Conv (x, w)", {"w": (16, 32, 3, 3)}, (1, 32, 9, 9), "16 output channels, fewer than 17"),
        ("y = Conv (x, w)", {"w": (32, 32, 7, 7)}, (1, 32, 9, 9), "a kernel of 7x7 has more than 32"),
        ("t = Transpose (x) y = MatMul (x, t)", {}, (32, 8), "a head of 8 is not within 9 to 256"),
    ],
)
def test_products_beyond_the_limits_of_the_kernels_of_tensorrt_stay_float(
    text: str, weights: dict[str, Any], shape: tuple[int, ...], why: str
) -> None:
    net = network(text, weights, shape)
    product = next(name for name in net.plan("tensorrt").nodes if name.endswith("_y"))
    reason = net.plan("tensorrt", **FLOAT8).nodes[product].reason
    assert reason.startswith(f"tensorrt has no kernel of float8e4m3fn for it: {why}")
    assert net.plan("openvino", **FLOAT8).nodes[product].kind is Kind.QUANTIZED


def test_a_head_of_attention_is_that_of_its_values_after_the_probabilities() -> None:
    net = network("p = Softmax (x) y = MatMul (p, v)", {"v": (300, 16)}, (4, 300))
    heads = network("p = Softmax (x) t = Transpose (x) y = MatMul (p, t)", {}, (16, 300))
    assert net.plan("tensorrt", **FLOAT8).nodes["MatMul_y"].kind is Kind.QUANTIZED
    assert heads.plan("tensorrt", **FLOAT8).nodes["MatMul_y"].kind is Kind.QUANTIZED


def test_products_that_are_named_or_have_too_much_noise_stay_float(net: Network) -> None:
    plan = net.plan("openvino", **FLOAT8, keep_float=("Conv_c",))
    assert plan.nodes["Conv_c"].reason == "kept float by request ('Conv_c')"
    assert plan.nodes["Conv_y"].kind is Kind.QUANTIZED
    plan = net.plan("openvino", **FLOAT8, min_output_sqnr=40.0)
    assert all(node.kind is Kind.FLOAT for node in plan.nodes.values())
    assert net.plan("openvino", **FLOAT8, min_output_sqnr=20.0).nodes["Conv_y"].kind is Kind.QUANTIZED


def test_the_noise_that_is_estimated_is_that_which_is_measured(net: Network) -> None:
    plan = net.plan("openvino", **FLOAT8, min_output_sqnr=0.0)
    rng = np.random.default_rng(5)
    feeds = [{"x": rng.standard_normal((1, 32, 10, 10)).astype(np.float32)} for _ in range(8)]
    exact, found = (
        np.concatenate([open_session(proto.SerializeToString(), "it").run(None, feed)[0] for feed in feeds])
        for proto in (ir.serde.serialize_model(net.model), written(net, plan))
    )
    measured = 10.0 * np.log10(np.sum(exact**2) / np.sum((found - exact) ** 2))
    assert plan.origin.estimated_sqnr["y"] == pytest.approx(measured, abs=1.0)  # gains are those of the mean


@pytest.mark.parametrize(
    ("target", "settings", "message"),
    [
        ("onnxruntime-x86", FLOAT8, "onnxruntime-x86 has no kernel of it: products are computed in float"),
        ("migraphx", FLOAT8, "migraphx has no kernel of it; use int8"),
        ("tensorrt", {"activation_type": "float8e5m2"}, "use float8e4m3fn, int8"),
        ("onnx", {**FLOAT8, "form": "integer"}, "form 'integer': float8e4m3fn is for form qdq and"),
        ("onnx", {**FLOAT8, "mode": "auto"}, "mode 'auto': float8e4m3fn is for form qdq and mode static"),
        ("onnx", {**FLOAT8, "calibrator": "kl"}, "calibrator 'kl': float8e4m3fn has finer steps for smaller"),
        ("onnx", {**FLOAT8, "weight_type": "int8"}, "products have one floating-point type"),
        ("onnx", {**FLOAT8, "rounding": "gptq"}, "rounding 'gptq': is for weights in integers"),
    ],
)
def test_what_cannot_be_is_refused_with_the_nearest_that_can(
    target: str, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        load_recipe(target, settings)


def test_one_of_the_two_types_of_products_brings_the_other() -> None:
    for name in ("activation_type", "weight_type"):
        config = load_recipe("onnx", {name: "float8e5m2"}).config
        assert (config.activation_type, config.weight_type) == ("float8e5m2", "float8e5m2")
