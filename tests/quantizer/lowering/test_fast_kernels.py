"""Nodes written so that onnxruntime runs its fast kernels: what they compute, and what it executes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from qprof_onnx.quantizer.targets.forms import FORMS

from ..lowered import Runs
from ..networks import network

Lowering = Callable[..., Runs]

POOLS = {
    "2-d": ("float[2,3,9,8] x", "float[2,3,4,4] y", "MaxPool<kernel_shape=[2,2],strides=[2,2]>(s)"),
    "padded": (
        "float[1,3,9,8] x",
        "float[1,3,5,4] y",
        "MaxPool<kernel_shape=[3,3],strides=[2,2],pads=[1,1,1,1]>(s)",
    ),
    "1-d": ("float[2,3,16] x", "float[2,3,7] y", "MaxPool<kernel_shape=[3],strides=[2]>(s)"),
    "3-d": (
        "float[1,3,6,6,6] x",
        "float[1,3,3,3,3] y",
        "MaxPool<kernel_shape=[2,2,2],strides=[2,2,2]>(s)",
    ),
    "ceil": (
        "float[1,3,7,7] x",
        "float[1,3,4,4] y",
        "MaxPool<kernel_shape=[2,2],strides=[2,2],ceil_mode=1>(s)",
    ),
    "dilated": ("float[1,3,9,9] x", "float[1,3,7,7] y", "MaxPool<kernel_shape=[2,2],dilations=[2,2]>(s)"),
    "unknown sizes": (
        "float[N,3,H,W] x",
        "float[N,3,P,Q] y",
        "MaxPool<kernel_shape=[2,2],strides=[2,2]>(s)",
    ),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("pool", POOLS)
def test_a_pool_with_channels_last_is_exact(lowered: Lowering, pool: str, form: str) -> None:
    given, made, node = POOLS[pool]
    text = f"net ({given}) => ({made}) {{ s = Sigmoid(x) \n y = {node} }}"
    runs = lowered(text, implementations={"maxpool_1": "channels-last"}, form=form)
    plain = lowered(text, form=form)
    np.testing.assert_array_equal(runs.onnxruntime()[0], plain.onnxruntime()[0])
    np.testing.assert_array_equal(runs.reference()[0], plain.reference()[0])


def test_a_pool_far_from_convolutions_runs_with_channels_last(lowered: Lowering) -> None:
    given, made, node = POOLS["2-d"]
    text = f"net ({given}) => ({made}) {{ s = Sigmoid(x) \n y = {node} }}"
    executed = lowered(text, implementations={"maxpool_1": "channels-last"}).fused()
    assert (executed["NhwcMaxPool"], executed["MaxPool"]) == (1, 0)


@pytest.mark.parametrize("form", FORMS)
def test_another_operator_with_channels_last_is_written_as_usual(lowered: Lowering, form: str) -> None:
    """An edited plan may ask for it; there is no operator with channels last for these."""
    text = """net (float[1,4,6,6] x) => (float[1,6,6,4] y)
    { s = Sigmoid(x) \n y = Transpose<perm=[0,2,3,1]>(s) }"""
    runs = lowered(text, implementations={"transpose_1": "channels-last"}, form=form)
    plain = lowered(text, form=form)
    assert runs.operators() == plain.operators()
    np.testing.assert_array_equal(runs.onnxruntime()[0], plain.onnxruntime()[0])


MODES = [
    (f'coordinate_transformation_mode = "{place}", nearest_mode = "{nearest}"', factor)
    for place in ("asymmetric", "half_pixel")
    for nearest in ("floor", "ceil", "round_prefer_floor", "round_prefer_ceil")
    for factor in (2, 3)
]


def resize(size: int, scale: float, attributes: str = 'coordinate_transformation_mode = "asymmetric"') -> str:
    made = int(size * scale)
    return f"""net (float[1,3,{size},4] x) => (float[1,3,{made},4] y)
    <float[4] scales = {{1.0, 1.0, {float(scale)}, 1.0}}>
    {{ y = Resize<mode = "nearest", {attributes}>(x, , scales) }}"""


@pytest.mark.parametrize(("attributes", "factor"), MODES)
def test_a_resize_by_a_whole_factor_becomes_gather(lowered: Lowering, attributes: str, factor: int) -> None:
    how: dict[str, Any] = {"kinds": {"resize_0": "pass-through"}}
    runs = lowered(resize(5, factor, attributes), implementations={"resize_0": "channels-last"}, **how)
    assert (runs.operators()["Gather"], runs.operators()["Resize"]) == (1, 0)
    plain = lowered(resize(5, factor, attributes), **how)
    np.testing.assert_array_equal(runs.onnxruntime()[0], plain.onnxruntime()[0])
    np.testing.assert_array_equal(runs.reference()[0], runs.onnxruntime()[0])


@pytest.mark.parametrize("form", FORMS)
def test_a_resize_to_stated_sizes_becomes_gather_where_a_form_may_be_of_one_runtime(
    lowered: Lowering, form: str
) -> None:
    text = """net (float[1,3,5,4] x) => (float[1,3,10,12] y) <int64[4] sizes = {1, 3, 10, 12}>
    { y = Resize<mode = "nearest">(x, , , sizes) }"""
    how: dict[str, Any] = {"kinds": {"resize_0": "pass-through"}, "form": form}
    runs = lowered(text, implementations={"resize_0": "channels-last"}, **how)
    assert runs.operators()["Gather"] == (2 if form in ("qdq", "qoperator") else 0)
    np.testing.assert_array_equal(runs.onnxruntime()[0], lowered(text, **how).onnxruntime()[0])


@pytest.mark.parametrize(
    "text",
    [
        resize(5, 2.2),
        resize(4, 1.5),
        resize(4, 2, 'coordinate_transformation_mode = "align_corners"'),
        resize(4, 2).replace("4,4] x", "H,4] x").replace("8,4] y", "G,4] y"),
    ],
)
def test_another_resize_is_not_rewritten(lowered: Lowering, text: str) -> None:
    how: dict[str, Any] = {"kinds": {"resize_0": "pass-through"}}
    runs = lowered(text, implementations={"resize_0": "channels-last"}, **how)
    assert runs.proto.graph == lowered(text, **how).proto.graph


POOLED = """
net (float[1,4,16,16] x) => (float[1,4,8,8] y)
<float[4,4,1,1] w>
{
    e = Elu(x)
    m = MaxPool<kernel_shape=[2,2],strides=[2,2]>(e)
    y = Conv(m, w)
}"""


@pytest.mark.parametrize("form", FORMS)
def test_a_clip_keeps_a_quantization_after_a_float_pool(lowered: Lowering, form: str) -> None:
    floats = ["elu_0", "maxpool_1"]
    runs = lowered(POOLED, floats=floats, implementations={"maxpool_1": "clip"}, form=form)
    plain = lowered(POOLED, floats=floats, form=form)
    assert runs.off(runs.onnxruntime()) <= 1.0
    np.testing.assert_array_equal(runs.reference()[0], plain.reference()[0])


def test_onnxruntime_quantizes_before_a_float_pool_unless_there_is_a_clip(
    lowered: Lowering,
) -> None:
    """The first half says whether the Clip is needed still."""
    floats, order = ["elu_0", "maxpool_1"], []
    for implementations in ({}, {"maxpool_1": "clip"}):
        runs = lowered(POOLED, floats=floats, implementations=implementations)
        runs.onnxruntime()
        graph = onnx.load(runs._folder / "optimized.onnx").graph
        operators = [node.op_type for node in graph.node]
        assert "Clip" not in operators  # it costs nothing
        order.append(operators.index("QuantizeLinear") < operators.index("MaxPool"))
    assert order == [True, False]


NORMALIZED = "a = MatMul (x, w) b = Add (a, x) y = LayerNormalization (b, g, h)"
CONSTANTS = {"w": np.eye(32, dtype=np.float32), "g": np.ones(32, np.float32), "h": np.zeros(32, np.float32)}


def test_an_add_before_a_normalization_is_planned_as_sum_and_not_fused() -> None:
    net = network(NORMALIZED, CONSTANTS, shape=(1, 4, 32))
    plan = net.plan()
    assert [entry.implementation for entry in plan.nodes.values()] == ["", "sum", ""]
    assert {entry.implementation for entry in net.plan("openvino").nodes.values()} == {""}


@pytest.mark.parametrize("form", FORMS)
def test_a_sum_is_the_add_and_is_not_fused(lowered: Lowering, form: str) -> None:
    text = """net (float[1,4,32] x, float[1,4,32] z) => (float[1,4,32] y) <float[32] g, float[32] h>
    { b = Add(x, z) \n y = LayerNormalization(b, g, h) }"""
    floats = ["add_0", "layernormalization_1"]
    plain = lowered(text, floats=floats, form=form)
    runs = lowered(text, floats=floats, form=form, implementations={"add_0": "sum"})
    assert (plain.fused()["SkipLayerNormalization"], runs.fused()["SkipLayerNormalization"]) == (1, 0)
    assert runs.off(runs.onnxruntime()) <= 8.0  # millionths: the two kernels sum in other orders
