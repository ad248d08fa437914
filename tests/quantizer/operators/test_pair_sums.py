"""Weights whose products fit into sums of 16 bits, held against such sums computed in numpy."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from platform import machine
from shutil import which

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from qprof_onnx.quantizer.numerics.affine import INT8, quantize
from qprof_onnx.quantizer.numerics.schemas import SCHEMAS, channel_params
from qprof_onnx.quantizer.operators.pair_sums import limits, saturates, unsaturated
from qprof_onnx.quantizer.operators.weight_layout import (
    CONV,
    CONV_TRANSPOSE,
    GEMM,
    INPUT_GATES,
    MATMUL,
    WeightLayout,
)
from qprof_onnx.quantizer.targets.machine import int8_kernels_saturate

Codes = npt.NDArray[np.int8]


def pairs_as_summed(data: Codes, codes: Codes) -> npt.NDArray[np.int64]:
    """Return the sum of products of uint8 and int8 vectors, each pair of neighbours added in 16 bits."""
    even = data.size + data.size % 2
    x, w = np.zeros(even, np.int32), np.zeros(even, np.int32)
    x[: data.size], w[: codes.size] = data, codes
    sums = x[0::2] * w[0::2] + x[1::2] * w[1::2]
    return np.clip(sums, -(1 << 15), (1 << 15) - 1).sum(dtype=np.int64)


def weights(draw: st.DrawFn, shape: tuple[int, ...]) -> npt.NDArray[np.float32]:
    """Return weights of one of several distributions: some have pairs of two large ones of one sign."""
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    of_sign = draw(st.sampled_from(["normal", "laplace", "positive", "negative", "equal"]))
    values = random.laplace(size=shape) if of_sign == "laplace" else random.normal(size=shape)
    if of_sign in ("positive", "negative"):
        values = np.abs(values) * (1 if of_sign == "positive" else -1)
    if of_sign == "equal":
        values = np.full(shape, draw(st.sampled_from([1.0, -0.37])))
    return np.asarray(values * 10.0 ** draw(st.integers(-6, 6)), np.float32)


def safe_codes(
    weight: npt.NDArray[np.float32], layout: WeightLayout, node: ir.Node, schema: str = "symmetric"
) -> Codes:
    """Return the quantized values of a weight of which no pair saturates."""
    axis = layout.axis(node, weight.ndim)
    params = channel_params(weight, axis, SCHEMAS[schema], INT8)
    raised = unsaturated(params, weight, layout.axes(node, weight.shape), layout, SCHEMAS[schema])
    return np.asarray(quantize(weight, raised), np.int8)


def node_of(op_type: str, **attributes: int) -> ir.Node:
    values = [ir.Attr(name, ir.AttributeType.INT, value) for name, value in attributes.items()]
    return ir.Node("", op_type, [], attributes=values)


@given(st.data())
def test_sums_of_16_bits_of_a_matrix_product_are_exact(data: st.DataObject) -> None:
    draw = data.draw
    weight = weights(draw, (draw(st.integers(1, 40)), 3))
    codes = safe_codes(
        weight, MATMUL, node_of("MatMul"), draw(st.sampled_from(["symmetric", "symmetric-power2"]))
    )
    for column in codes.T:
        for x in (np.full(column.size, 255), np.where(column > 0, 255, 0), np.where(column < 0, 255, 0)):
            assert pairs_as_summed(x, column) == (x * column.astype(np.int64)).sum()


@given(st.data())
def test_a_matrix_of_odd_height_is_exact_from_any_neighbour_on(data: st.DataObject) -> None:
    draw = data.draw
    weight = weights(draw, (2 * draw(st.integers(1, 12)) + 1, 2))
    codes = safe_codes(weight, GEMM, node_of("Gemm"))
    twice = np.concatenate([codes, codes])  # neighbours from an odd and an even place
    for column in twice.T:
        x = np.full(column.size, 255)
        assert pairs_as_summed(x, column) == (x * column.astype(np.int64)).sum()


@pytest.mark.parametrize("padded", [False, True], ids=["as onnxruntime sums", "as OpenVINO sums"])
@given(st.data())
@settings(deadline=None)
def test_sums_of_16_bits_of_a_convolution_are_exact(padded: bool, data: st.DataObject) -> None:
    draw = data.draw
    inputs, groups = draw(st.integers(1, 9)), draw(st.integers(1, 2))
    weight = weights(draw, (2 * groups, inputs, draw(st.integers(1, 3)), draw(st.integers(1, 3))))
    codes = safe_codes(weight, CONV, node_of("Conv", group=groups))
    last = codes.transpose(0, 2, 3, 1)
    if padded and inputs % 2:
        last = np.concatenate([last, np.zeros_like(last[..., :1])], axis=3)
    for row in last.reshape(len(codes), -1):
        for x in (np.full(row.size, 255), np.where(row > 0, 255, 0), np.where(row < 0, 255, 0)):
            assert pairs_as_summed(x, row) == (x * row.astype(np.int64)).sum()


@given(st.data())
def test_taps_of_a_transposed_convolution_may_be_summed_in_any_order(data: st.DataObject) -> None:
    draw = data.draw
    weight = weights(draw, (draw(st.integers(1, 5)), 2, 2, 3))
    codes = safe_codes(weight, CONV_TRANSPOSE, node_of("ConvTranspose"))
    order = draw(st.permutations(range(6)))
    for row in codes.transpose(1, 2, 3, 0).reshape(2, 6, -1)[:, order].reshape(2, -1):
        x = np.full(row.size, 255)
        assert pairs_as_summed(x, row) == (x * row.astype(np.int64)).sum()


def test_a_scale_is_raised_no_further_than_a_pair_needs() -> None:
    weight = np.array([[1.0], [1.0], [-1.0], [0.5]], np.float32)
    assert safe_codes(weight, MATMUL, node_of("MatMul")).T.tolist() == [[64, 64, -64, 32]]
    assert safe_codes(weight[1:3], MATMUL, node_of("MatMul")).T.tolist() == [[127, -127]]


def test_a_depthwise_convolution_keeps_the_full_range() -> None:
    weight = np.ones((4, 1, 3, 3), np.float32)
    assert (safe_codes(weight, CONV, node_of("Conv", group=4)) == 127).all()


def test_a_depthwise_transposed_convolution_is_written_as_one_that_sums_pairs() -> None:
    weight = np.ones((4, 1, 2, 2), np.float32)
    assert (safe_codes(weight, CONV_TRANSPOSE, node_of("ConvTranspose", group=4)) == 64).all()


def test_each_gate_of_a_recurrent_node_has_a_scale_of_its_own() -> None:
    weight = np.array([[[1.0, 1.0], [1.0, 0.0]]], np.float32)
    assert safe_codes(weight, INPUT_GATES, node_of("LSTM")).tolist() == [[[64, 64], [127, 0]]]


@given(st.data())
def test_what_is_rounded_within_the_limits_does_not_saturate(data: st.DataObject) -> None:
    draw = data.draw
    weight, node = weights(draw, (2, draw(st.integers(1, 5)), 1, 3)), node_of("Conv")
    codes, axes = safe_codes(weight, CONV, node), CONV.axes(node, weight.shape)
    assert not saturates(codes, axes, CONV)
    low, high = limits(codes, axes, CONV)
    blocks = axes.blocks(codes)
    assert ((low <= blocks) & (blocks <= high)).all()
    random = np.random.default_rng(draw(st.integers(0, 99)))
    chosen = np.where(random.random(low.shape) < 0.5, low, high)
    assert not saturates(axes.unblocked(chosen), axes, CONV)


EMULATOR = "qemu-x86_64"


@pytest.mark.slow
@pytest.mark.skipif(
    machine() not in ("x86_64", "AMD64") or not (int8_kernels_saturate() or which(EMULATOR)),
    reason="needs x86-64 without VNNI, or the package qemu-user",
)
def test_products_of_onnxruntime_are_exact_without_vnni() -> None:
    emulated = [] if int8_kernels_saturate() else [EMULATOR, "-cpu", "Haswell"]
    script = Path(__file__).with_name("products_without_vnni.py")
    done = subprocess.run([*emulated, sys.executable, script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    wrong = json.loads(done.stdout.splitlines()[-1])
    assert len(wrong) == 15
    assert all(full > 0.1 for full, _ in wrong.values()), wrong  # else the processor shows nothing
    assert all(safe == 0.0 for _, safe in wrong.values()), wrong
