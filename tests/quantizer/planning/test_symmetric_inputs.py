"""Operators whose integer kernel wants zero point 0 in what it reads, as those of OpenVINO do."""

from __future__ import annotations

import math

import pytest
from qprof_onnx.quantizer.plan.plan import Kind, QuantPlan

from ..networks import WIDE, network

UP = "a = Conv (x, v) b = ConvTranspose <strides = [2, 2]> (a, w) y = Conv (b, v)"


def read(plan: QuantPlan, name: str) -> tuple[str, int]:
    """Return type and zero point in which a tensor is stored."""
    params = plan.tensors[name]
    return params.qtype.name, params.tensor_zero_point


@pytest.mark.parametrize("activation_type", ["uint8", "int8"])
def test_a_transposed_convolution_reads_zero_point_0(activation_type: str) -> None:
    net = network(UP, {"v": WIDE, "w": WIDE}, (1, 8, 24, 24))
    plan = net.plan("openvino", activation_type=activation_type)
    assert plan.nodes["ConvTranspose_b"].kind is Kind.QUANTIZED
    assert read(plan, "a") == ("int8", 0)


def test_zero_point_0_leaves_scales_powers_of_two() -> None:
    net = network(UP, {"v": WIDE, "w": WIDE}, (1, 8, 24, 24))
    plan = net.plan("openvino", schema="symmetric-power2", activation_type="int8")
    assert math.frexp(plan.tensors["a"].tensor_scale)[0] == 0.5
