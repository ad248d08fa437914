"""Types for compilers: what MLIR reads is the quantization of the plan, tensor by tensor."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
from hypothesis import given
from hypothesis import strategies as st
from qprof_onnx.profiles.records.profile import ModelId
from qprof_onnx.quantizer.numerics.affine import TYPES, QuantParams, dequantize, signed_equivalent
from qprof_onnx.quantizer.plan.plan import QuantPlan
from qprof_onnx.quantizer.plugins.exchange import stablehlo, tflite
from qprof_onnx.quantizer.plugins.exchange.quantized_types import symbol, uniform_type
from qprof_onnx.quantizer.targets.config import QuantConfig

TENTH = 0.10000000149011612  # of float32, in double precision
SHAPES: dict[str, tuple[int | str, ...]] = {"x": ("batch", 3, 4, 4), "w": (2, 3, 1, 1), "b": (4, 6)}


def params(
    qtype: str, *scales: float, zero: int = 0, axis: int | None = None, block: int | None = None
) -> Any:
    return QuantParams(scales, (zero,) * len(scales), TYPES[qtype], axis, block)


X = params("uint8", TENTH, zero=3)
W = params("int8", TENTH, 0.25, axis=0)
B = params("int4", *[0.5] * 8, axis=1, block=3)


def model() -> ir.Model:
    """A model that has tensors x (batch, 3, 4, 4), w (2, 3, 1, 1) and b (4, 6)."""
    values = [
        ir.Value(name=name, shape=ir.Shape(shape), type=ir.TensorType(ir.DataType.FLOAT))
        for name, shape in SHAPES.items()
    ]
    return ir.Model(ir.Graph(values, [], nodes=[], opset_imports={"": 17}), ir_version=8)


def plan(**tensors: QuantParams) -> QuantPlan:
    return QuantPlan(ModelId("", "", 17, "m.onnx"), QuantConfig(), tensors, {}, tool="qprof")


@pytest.mark.parametrize(
    ("given_params", "text"),
    [
        (X, f"!quant.uniform<u8:f32, {TENTH}:3>"),
        (W, f"!quant.uniform<i8:f32:0, {{{TENTH}, 0.25}}>"),
        (params("int7", 0.5, zero=-1), "!quant.uniform<i8<-64:63>:f32, 0.5:-1>"),
        (params("int16", 2.0**-20), "!quant.uniform<i16:f32, 9.5367431640625e-07>"),
        (params("int16", 2.0**-100 * 5), "!quant.uniform<i16:f32, 3.944304526105059e-30>"),
        (params("int16", 999999986991104.0), "!quant.uniform<i16:f32, 999999986991104.0>"),
        (params("int32", 0.5), "!quant.uniform<i32:f32, 0.5>"),
    ],
)
def test_a_type_has_storage_range_scales_and_zero_points(given_params: QuantParams, text: str) -> None:
    assert uniform_type(given_params, (2, 3)) == text


def test_blocks_are_sub_channel_types() -> None:
    rows = ", ".join(["{0.5, 0.5}"] * 4)
    assert uniform_type(B, (4, 6)) == f"!quant.uniform<i4:f32:{{0:1, 1:3}}, {{{rows}}}>"


@given(st.sampled_from(["uint4", "uint8", "uint16", "int8"]), st.data())
def test_the_signed_equivalent_stands_for_the_same_values(qtype: str, data: st.DataObject) -> None:
    kind = TYPES[qtype]
    integer, zero = (data.draw(st.integers(kind.low, kind.high)) for _ in range(2))
    before = params(qtype, 0.25, zero=zero)
    after = signed_equivalent(before)
    shift = 0 if kind.signed else 1 << (kind.bits - 1)
    assert dequantize(np.array([integer]), before) == dequantize(np.array([integer - shift]), after)
    assert after.qtype.low <= after.tensor_zero_point <= after.qtype.high


@pytest.mark.parametrize(
    ("name", "text"),
    [("a/b:0", '@"a/b:0"'), ('"\\', '@"\\22\\5C"'), ("é\n", '@"\\C3\\A9\\0A"')],
)
def test_any_name_is_a_symbol(name: str, text: str) -> None:
    assert symbol(name) == text


def test_stablehlo_quantizes_each_tensor_by_a_function_of_its_own() -> None:
    text = stablehlo.write(plan(x=X, w=W, b=B), model())
    assert re.findall('@"([a-z])"', text) == ["x", "w", "b"]
    assert f"-> tensor<?x3x4x4x!quant.uniform<u8:f32, {TENTH}:3>> {{" in text
    assert 'func.func private @"b"(tensor<4x6xf32>)' in text  # no operation takes blocks


def test_tflite_has_signed_types_only() -> None:
    text = tflite.write(plan(x=X, w=W), model())
    assert f"!quant.uniform<i8:f32, {TENTH}:-125>" in text
    assert "u8" not in text


@pytest.mark.parametrize(
    ("unknown", "reason"),
    [
        (B, "no scales for blocks"),
        (params("uint16", 0.5, zero=7), "16-bit and 32-bit tensors have zero point 0"),
        (params("int8", 0.5, 0.5, 0.5, zero=1, axis=1), "scales per axis have zero points 0"),
    ],
)
def test_what_tflite_does_not_have_is_declared_with_the_reason(unknown: QuantParams, reason: str) -> None:
    text = tflite.write(plan(b=unknown), model())
    assert reason in text
    assert "tfl.quantize" not in text


def test_a_tensor_that_the_model_does_not_have_has_no_shape() -> None:
    assert 'private @"new"(tensor<*xf32>)' in stablehlo.write(plan(new=X), model())


def test_mlir_reads_the_modules() -> None:
    """Where torch-mlir is installed: its StableHLO verifies every function."""
    hlo = pytest.importorskip("torch_mlir._mlir_libs._stablehlo", reason="torch-mlir is not installed")
    from torch_mlir import ir as mlir

    with mlir.Context() as context:
        hlo.register_dialect(context)
        context.allow_unregistered_dialects = True
        for writer in (stablehlo, tflite):
            module = mlir.Module.parse(writer.write(plan(x=X, w=W, b=B, new=X), model()))
            assert module.operation.verify()
            assert len(list(module.body.operations)) == 4
