"""The plain integer reference, held against numbers worked out by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from qprof_onnx.quantizer.numerics.affine import INT8, INT32, UINT8, QuantParams

from ..quantizer.lowered import parse, plan_of
from .plan_interpreter import run_plan

EIGHTHS = QuantParams((0.125,), (2,), INT8)


@pytest.mark.parametrize(
    ("left", "right", "code"),
    [
        # 3 * 5 + 7 * -2 = 1 sixty-fourth is half a step of 1/32: to even, 0; then the zero point is added
        (3.0, 7.0, 3),
        # 3 halves of a step: 2
        (1.0, 1.0, 5),
        # -1 half: to even, 0
        (-1.0, -2.0, 3),
        # saturates
        (100.0, -100.0, 127),
        (-100.0, 100.0, -128),
    ],
)
def test_a_product_is_rounded_to_even_before_the_zero_point(left: float, right: float, code: int) -> None:
    text = "net (float[1,2] x) => (float[1,1] y) <float[2,1] w = {0.625, -0.25}> { y = MatMul(x, w) }"
    model = parse(text)
    plain = QuantParams((0.125,), (0,), INT8)
    plan = plan_of(model, tensors={"x": EIGHTHS, "w": plain, "y": QuantParams((1 / 32,), (3,), INT8)})
    feed = {"x": np.array([[left, right]], np.float32) / 8}
    found = run_plan(model, plan, feed)["y"]
    assert found.quantized is not None
    assert found.quantized.tolist() == [[code]]


def test_the_bias_is_added_to_the_sums() -> None:
    text = """
        net (float[1,1] x) => (float[1,1] y)
        <float[1,1] w = {0.5}, float[1] b = {1.0}>
        { y = Gemm(x, w, b) }"""
    model = parse(text)
    plain = QuantParams((0.125,), (0,), INT8)
    tensors = {
        "x": plain,
        "w": plain,
        "b": QuantParams((1 / 64,), (0,), INT32),
        "y": QuantParams((0.25,), (10,), UINT8),
    }
    found = run_plan(model, plan_of(model, tensors=tensors), {"x": np.array([[0.375]], np.float32)})["y"]
    # 3 * 4 + 64 = 76 sixty-fourths are 4.75 quarters: 5
    assert found.quantized is not None
    assert found.quantized.tolist() == [[15]]
    assert found.values.tolist() == [[1.25]]


def test_other_operators_are_rounded_once() -> None:
    model = parse("net (float[3] x) => (float[3] y) { y = Mul(x, x) }")
    tensors = {"x": QuantParams((0.5,), (1,), UINT8), "y": QuantParams((0.5,), (0,), UINT8)}
    found = run_plan(model, plan_of(model, tensors=tensors), {"x": np.array([0.5, 1.5, -9], np.float32)})
    # squares of 0.5, 1.5 and (saturated at code 0) -0.5, in halves: 0.5, 4.5, 0.5
    assert found["y"].quantized is not None
    assert found["y"].quantized.tolist() == [0, 4, 0]


def test_dynamic_parameters_come_from_the_data() -> None:
    text = "net (float[1,2] x) => (float[1,1] y) <float[2,1] w = {1.0, 1.0}> { y = MatMul(x, w) }"
    model = parse(text)
    plan = plan_of(model, kinds={"matmul_0": "dynamic"}, tensors={"w": QuantParams((1.0,), (0,), INT8)})
    found: Any = run_plan(model, plan, {"x": np.array([[-1.0, 254.3]], np.float32)})["y"]
    # a scale of 255.3 / 255, zero_point 1: quantized 0 and 255, so -1 + 254 steps
    assert found.quantized is None
    np.testing.assert_allclose(found.values, [[253 * 255.3 / 255]], rtol=1e-6)  # float32 scale


@pytest.mark.parametrize("shape", ["1,2,5", "1,2,3,5", "1,2,2,3,5"])
def test_a_global_maximum_is_over_all_axes_behind_the_second(shape: str) -> None:
    rank = shape.count(",") + 1
    ones = ",".join(["1"] * (rank - 2))
    model = parse(f"net (float[{shape}] x) => (float[1,2,{ones}] y) {{ y = GlobalMaxPool(x) }}")
    plan = plan_of(model, tensors={"x": EIGHTHS, "y": EIGHTHS})
    sizes = tuple(int(size) for size in shape.split(","))
    feed = {"x": np.arange(np.prod(sizes), dtype=np.float32).reshape(sizes) / 8}
    found = run_plan(model, plan, feed)["y"].values
    assert found.shape == (1, 2, *[1] * (rank - 2))
    assert found.ravel().tolist() == [feed["x"][0, 0].max(), feed["x"][0, 1].max()]
