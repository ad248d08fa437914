"""Convolutions in mode dynamic: which targets have them, and how one asks for a kernel that is slower."""

from __future__ import annotations

import pytest
from qprof_onnx.profiles.base.errors import ConfigError
from qprof_onnx.quantizer.plan.plan import Kind
from qprof_onnx.quantizer.plan.reasons import ReasonCode
from qprof_onnx.quantizer.plan.verify import verify_plan
from qprof_onnx.quantizer.targets.forms import FORMS
from qprof_onnx.quantizer.targets.loading import load_recipe

from ..networks import Network, network

BOTH = "c = Conv <pads = [1, 1, 1, 1]> (x, w, b) r = Relu (c) y = ConvTranspose <strides = [2, 2]> (r, v)"
WEIGHTS: dict[str, tuple[int, ...]] = {"w": (16, 8, 3, 3), "b": (16,), "v": (16, 8, 4, 4)}


@pytest.fixture(scope="module")
def net() -> Network:
    return network(BOTH, WEIGHTS)


@pytest.mark.parametrize("form", [form for form in FORMS if form != "qoperator"])
def test_the_standard_has_dynamic_convolutions(net: Network, form: str) -> None:
    plan = net.plan("onnx", mode="dynamic", form=form)
    verify_plan(plan, net.graph, net.identity)
    assert [node.kind for node in plan.nodes.values()] == [Kind.DYNAMIC, Kind.FLOAT, Kind.DYNAMIC]
    assert [node.implementation for node in plan.nodes.values()] == ["", "", "sub-pixel"]


def test_a_kernel_slower_than_float_is_used_when_it_is_asked_for_alone(net: Network) -> None:
    plan = net.plan("onnxruntime-x86", mode="dynamic")
    reason = plan.nodes["Conv_c"].float_reason
    assert reason.code is ReasonCode.SLOWER_DYNAMIC_KERNEL
    assert str(reason) == (
        "slower in int8: the kernel of onnxruntime-x86 for a dynamic Conv takes 5.9 times as long as float; "
        "--set cost_model=off quantizes it anyway"
    )
    asked = net.plan("onnxruntime-x86", mode="dynamic", cost_model="off")
    assert asked.nodes["Conv_c"].kind is asked.nodes["ConvTranspose_y"].kind is Kind.DYNAMIC


@pytest.mark.parametrize("cost_model", ["auto", "off"])
def test_mode_auto_never_takes_a_kernel_that_is_slower_than_float(net: Network, cost_model: str) -> None:
    plan = net.plan("onnxruntime-x86", mode="auto", min_tensor_sqnr=200.0, cost_model=cost_model)
    assert not any(node.kind is Kind.DYNAMIC for node in plan.nodes.values())


def test_a_target_whose_dynamic_kernels_are_all_slower_says_how_to_have_them() -> None:
    with pytest.raises(
        ConfigError, match="no kernel for it that is faster than float; use mode static, or cost_model off"
    ):
        load_recipe("openvino", {"mode": "dynamic"})
    assert load_recipe("openvino", {"mode": "dynamic", "cost_model": "off"}).target.dynamic


def test_a_small_weight_is_quantized_where_nothing_stays_float_for_speed() -> None:
    net = network("y = MatMul (x, w)", {"w": (8, 8)}, shape=(4, 8))
    for target, cost_model, kind in (
        ("onnx", "auto", Kind.DYNAMIC),
        ("onnxruntime-x86", "auto", Kind.FLOAT),
        ("onnxruntime-x86", "off", Kind.DYNAMIC),
    ):
        plan = net.plan(target, mode="dynamic", cost_model=cost_model)
        assert plan.nodes["MatMul_y"].kind is kind


def test_a_transposed_convolution_that_is_no_convolution_stays_float() -> None:
    net = network("y = ConvTranspose <dilations = [2, 2]> (x, w)", {"w": (8, 2, 5, 5)})
    node = net.plan("onnx", mode="dynamic").nodes["ConvTranspose_y"]
    assert node.kind is Kind.FLOAT
    assert "ConvTranspose with dilations is not written as Conv" in node.reason
