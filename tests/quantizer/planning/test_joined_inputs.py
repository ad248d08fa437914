"""Activations behind a Concat that kernels of OpenVINO read in one way alone: it is run here."""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir
import onnxruntime as ort
import pytest
from qprof_onnx.quantizer.lowering.lower import lower

from ..networks import WIDE, Network, network

TO_CONV = "a = Conv (x, v) b = Conv (x, w) c = Concat <axis = 1> (a, b) y = Conv (c, u)"
CONVOLUTIONS = {"v": WIDE, "w": WIDE, "u": (8, 16, 3, 3)}
JOINED = "a = MatMul (x, v) b = MatMul (x, w) c = Concat <axis = {axis}> (a, b) y = MatMul (c, u)"


def decibels(net: Network, **settings: object) -> float:
    """Return by how many decibels OpenVINO is near to what onnxruntime computes without fusing anything."""
    openvino = pytest.importorskip("openvino", reason="of the extra test-all")
    plan = net.plan("openvino", **settings)
    proto = ir.serde.serialize_model(lower(net.model, plan).model).SerializeToString()
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    shape = [int(dim) for dim in net.graph.shape("x") or ()]
    values = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    (exact,) = ort.InferenceSession(proto, options).run(None, {"x": values})
    core = openvino.Core()
    compiled = core.compile_model(core.read_model(proto), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    noise = np.square(exact - compiled({"x": values})[0], dtype=np.float64).sum()
    return float(10.0 * math.log10(np.square(exact, dtype=np.float64).sum() / max(noise, 1e-300)))


@pytest.mark.parametrize(
    "text", [TO_CONV, TO_CONV.replace("y =", "r = Relu (c) y =").replace("(c, u)", "(r, u)")]
)
def test_a_convolution_reads_unsigned_values_from_a_concat(text: str) -> None:
    net = network(text, CONVOLUTIONS, (1, 8, 24, 24))
    plan = net.plan("openvino", activation_type="int8")
    assert {plan.tensors[name].qtype.name for name in plan.tensors if name in "cr"} == {"uint8"}
    assert plan.tensors["x"].qtype.name == "int8"
    # The model ends in steps of 8 bits, and a sum on the edge of one may fall on either side.
    assert decibels(net, activation_type="int8") > 40.0


@pytest.mark.parametrize("operator", ["MatMul", "Gemm"])
def test_products_read_zero_point_0_from_a_concat_along_another_axis_than_the_last(operator: str) -> None:
    shape = (1, 64, 64) if operator == "MatMul" else (64, 64)
    text = JOINED.format(axis=len(shape) - 2).replace("y = MatMul", f"y = {operator}")
    net = network(text, {"v": (64, 64), "w": (64, 64), "u": (64, 64)}, shape)
    assert net.plan("openvino").tensors["c"].tensor_zero_point == 0
    assert decibels(net) > 40.0


def test_what_is_joined_along_the_axis_of_the_sum_keeps_its_schema() -> None:
    net = network(JOINED.format(axis=2), {"v": (64, 64), "w": (64, 64), "u": (128, 64)}, (1, 64, 64))
    assert net.plan("openvino").tensors["c"].tensor_zero_point > 0
    assert decibels(net) > 40.0
