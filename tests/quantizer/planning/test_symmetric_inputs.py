"""Operators whose integer kernel wants zero point 0 in what it reads, as those of OpenVINO do."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from qprof_onnx.quantizer.plan.plan import Kind, QuantPlan

from ..networks import WIDE, network

ATTENTION = (
    "q = MatMul (x, a) k = MatMul (x, b) t = Transpose <perm = [0, 1, 3, 2]> (k) s = MatMul (q, t) "
    "p = Softmax (s) y = MatMul (p, q)"
)
DENSE = {"a": (6, 6), "b": (6, 6)}
UP = "a = Conv (x, v) b = ConvTranspose <strides = [2, 2]> (a, w) y = Conv (b, v)"


def read(plan: QuantPlan, name: str) -> tuple[str, int]:
    """Return type and zero point in which a tensor is stored."""
    params = plan.tensors[name]
    return params.qtype.name, params.tensor_zero_point


@pytest.fixture
def attentive(tmp_path: Path) -> str:
    """A target whose kernel of MatMul takes two activations with zero point 0."""
    path = tmp_path / "attentive.yaml"
    path.write_text("target: attentive\nbase: openvino\nruntime: {symmetric_inputs: {MatMul: activations}}\n")
    return str(path)


def test_a_product_of_two_activations_starts_quantization_where_the_target_has_a_kernel_for_it(
    attentive: str,
) -> None:
    net = network(ATTENTION, DENSE)
    plan = net.plan(attentive)
    assert plan.nodes["MatMul_s"].kind is Kind.QUANTIZED
    assert plan.nodes["MatMul_y"].kind is Kind.QUANTIZED
    assert net.plan().nodes["MatMul_s"].kind is Kind.FLOAT


def test_both_operands_have_zero_point_0_and_the_type_that_their_range_needs(attentive: str) -> None:
    plan = network(ATTENTION, DENSE).plan(attentive)
    assert read(plan, "q") == read(plan, "k") == read(plan, "t") == ("int8", 0)
    assert read(plan, "p") == ("uint8", 0)


def test_the_input_of_a_product_with_a_weight_keeps_the_schema_that_was_asked_for(attentive: str) -> None:
    name, zero_point = read(network(ATTENTION, DENSE).plan(attentive), "x")
    assert name == "uint8"
    assert zero_point > 0


@pytest.mark.parametrize("activation_type", ["uint8", "int8"])
def test_a_transposed_convolution_reads_zero_point_0(activation_type: str) -> None:
    net = network(UP, {"v": WIDE, "w": WIDE}, (1, 8, 24, 24))
    plan = net.plan("openvino", activation_type=activation_type)
    assert plan.nodes["ConvTranspose_b"].kind is Kind.QUANTIZED
    assert read(plan, "a") == ("int8", 0)


def test_zero_point_0_leaves_scales_powers_of_two(attentive: str) -> None:
    net = network(ATTENTION, DENSE)
    plan = net.plan(attentive, schema="symmetric-power2", activation_type="int8")
    scales = {plan.tensors[name].tensor_scale for name in ("q", "k", "t", "p")}
    assert plan.nodes["MatMul_s"].kind is Kind.QUANTIZED
    assert all(math.frexp(scale)[0] == 0.5 for scale in scales)
