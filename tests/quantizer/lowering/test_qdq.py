"""Form qdq: valid, equal in every evaluator, and fused by onnxruntime."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

Runs = Any
Lowering = Callable[..., Runs]

CONVNET = """
net (float[2,3,12,12] x) => (float[2,10] y)
<float[8,3,3,3] w1, float[8] b1, float[10,200] w2, float[10] b2>
{
    c = Conv<pads=[0,0,0,0]>(x, w1, b1)
    r = Relu(c)
    p = MaxPool<kernel_shape=[2,2], strides=[2,2]>(r)
    f = Flatten<axis=1>(p)
    y = Gemm<transB=1>(f, w2, b2)
}"""

RESIDUAL = """
net (float[1,4,8,8] x) => (float[1,4,8,8] y)
<float[4,4,3,3] w1, float[4] b1, float[4,4,3,3] w2, float[4] b2>
{
    c1 = Conv<pads=[1,1,1,1]>(x, w1, b1)
    r1 = Relu(c1)
    c2 = Conv<pads=[1,1,1,1]>(r1, w2, b2)
    s = Add(r1, c2)
    y = Relu(s)
}"""

CONCAT = """
net (float[1,4,8,8] x) => (float[1,8,8,8] y)
<float[4,4,1,1] w1, float[4] b1, float[4,4,1,1] w2, float[4] b2>
{
    c1 = Conv(x, w1, b1)
    c2 = Conv(x, w2, b2)
    y = Concat<axis=1>(c1, c2)
}"""

FLOAT_OUT = """
net (float[2,6,16] x) => (float[2,6,8] y)
<float[16,8] w>
{
    y = MatMul(x, w)
}"""

SHARED_WEIGHT = """
net (float[4,16] x) => (float[4,16] y)
<float[16,16] w, float[16] b>
{
    g = Gemm<transB=1>(x, w, b)
    r = Relu(g)
    y = Gemm<transB=1>(r, w, b)
}"""

OUTPUT_USED_TWICE = """
net (float[1,4,8,8] x) => (float[1,4,8,8] c, float[1,4,4,4] y)
<float[4,4,3,3] w1, float[4] b1>
{
    c = Conv<pads=[1,1,1,1]>(x, w1, b1)
    y = MaxPool<kernel_shape=[2,2], strides=[2,2]>(c)
}"""

INPUT_TWICE = """
net (float[1,4,8,8] x) => (float[1,4,8,8] y)
<float[4,4,3,3] w1, float[4] b1>
{
    c = Conv<pads=[1,1,1,1]>(x, w1, b1)
    y = Add(x, c)
}"""

MOVES = """
net (float[2,4,6] x) => (float[2,24] y)
<int64[2] shape = {2, -1}, float[6,6] w>
{
    m = MatMul(x, w)
    t = Transpose<perm=[0,2,1]>(m)
    y = Reshape(t, shape)
}"""

AXES = """
net (float[1,4,6,6] x) => (float[1,5] y)
<float[4,6,3,3] w1, float[6] b1, float[384,7] w2, float[7] b2, float[7,5] w3, int64[2] shape = {1, -1}>
{
    d = ConvTranspose(x, w1, b1)
    f = Reshape(d, shape)
    g = Gemm(f, w2, b2)
    y = MatMul(g, w3)
}"""

MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "convnet": (CONVNET, {}),
    "residual": (RESIDUAL, {}),
    "concat": (CONCAT, {}),
    "concat in one code space": (CONCAT, {"ties": {"c1": "y", "c2": "y"}}),
    "float out": (FLOAT_OUT, {"returns_float": ["y"]}),
    "shared weight": (SHARED_WEIGHT, {}),
    "output used twice": (OUTPUT_USED_TWICE, {}),
    "input used twice": (INPUT_TWICE, {}),
    "moves": (MOVES, {}),
    "axes": (AXES, {}),
}

FUSED = {
    "convnet": {"QLinearConv": 1, "QGemm": 1},
    "residual": {"QLinearConv": 2, "QLinearAdd": 1},
    "concat": {"QLinearConv": 2, "QLinearConcat": 1},
    "concat in one code space": {"QLinearConv": 2, "QLinearConcat": 1},
    "float out": {"MatMulIntegerToFloat": 1},
    "shared weight": {"QGemm": 2},
    "output used twice": {"QLinearConv": 1},
    "input used twice": {"QLinearConv": 1, "QLinearAdd": 1},
    "moves": {"QLinearMatMul": 1},
    "axes": {"QGemm": 1, "QLinearMatMul": 1},
}
"""What onnxruntime makes of each; it has no integer ConvTranspose."""

# Integer kernels accumulate exactly and round once, evaluators in float round the products: where the exact
# sum lies within that error of a tie the code differs by 1, and the layers after it may see that.
ONE_CODE = 1.0


def steps(runs: Runs, ours: list[np.ndarray], theirs: list[np.ndarray]) -> float:
    """Return the largest difference in steps of the output's own scale."""
    scales = {n.output[0]: n.input[1] for n in runs.proto.graph.node if n.op_type == "DequantizeLinear"}
    values = {t.name: t for t in runs.proto.graph.initializer}
    worst = 0.0
    for output, a, b in zip(runs.proto.graph.output, ours, theirs, strict=True):
        scale = float(np.frombuffer(values[scales[output.name]].raw_data, np.float32)[0])
        worst = max(worst, float(np.abs(a - b).max()) / scale)
    return worst


@pytest.mark.parametrize("activation", ["uint8", "int8"])
@pytest.mark.parametrize("name", [n for n in MODELS if n != "float out"])
def test_codes_agree_in_reference_and_onnxruntime(lowered: Lowering, name: str, activation: str) -> None:
    text, how = MODELS[name]
    runs = lowered(text, activation=activation, **how)
    reference = runs.reference()
    assert steps(runs, reference, runs.onnxruntime(optimized=False)) <= ONE_CODE + 1e-3
    assert steps(runs, reference, runs.onnxruntime()) <= ONE_CODE + 1e-3


@pytest.mark.parametrize("name", [n for n in MODELS if n != "float out"])
def test_codes_agree_in_reference_and_openvino(lowered: Lowering, name: str) -> None:
    text, how = MODELS[name]
    runs = lowered(text, **how)
    assert steps(runs, runs.reference(), runs.openvino()) <= 2 * ONE_CODE + 1e-3


@pytest.mark.parametrize("name", MODELS)
def test_onnxruntime_fuses_uint8(lowered: Lowering, name: str) -> None:
    text, how = MODELS[name]
    found = lowered(text, **how).fused()
    assert {op: found[op] for op in FUSED[name]} == FUSED[name]
    assert not {"Conv", "FusedConv", "Gemm", "MatMul", "Add", "Relu"} & set(found)


@pytest.mark.parametrize("name", MODELS)
def test_onnxruntime_fuses_int8_when_the_session_allows_it(lowered: Lowering, name: str) -> None:
    text, how = MODELS[name]
    found = lowered(text, activation="int8", options={"session.qdqisint8allowed": "1"}, **how).fused()
    assert {op: found[op] for op in FUSED[name]} == FUSED[name]
