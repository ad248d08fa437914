"""Scales of blocks that have least squared error."""

from __future__ import annotations

import numpy as np
import pytest
from qprof_onnx.quantizer.numerics.affine import TYPES, QuantParams, dequantize, quantize
from qprof_onnx.quantizer.numerics.block_scales import searched_block_params
from qprof_onnx.quantizer.numerics.quantization_noise import weight_sqnr
from qprof_onnx.quantizer.numerics.schemas import SCHEMAS, choose_arrays

WEIGHT = np.random.default_rng(0).standard_t(5, (64, 24)).astype(np.float32)


def error_of(params: QuantParams, weight: np.ndarray = WEIGHT) -> float:
    rounded = dequantize(quantize(weight, params), params)
    return float(np.sum(np.square(weight - rounded)))


def covering_params(schema: str, type_: str) -> QuantParams:
    """Return the parameters that cover each block of 32 along axis 0 from end to end."""
    blocks = WEIGHT.reshape(2, 32, 24)
    ends = blocks.min(1).reshape(-1), blocks.max(1).reshape(-1)
    scale, zero_point, qtype = choose_arrays(*ends, SCHEMAS[schema], TYPES[type_])
    return QuantParams(tuple(scale.tolist()), tuple(zero_point.tolist()), qtype, 0, 32)


@pytest.mark.parametrize(("schema", "type_"), [("symmetric", "int4"), ("asymmetric", "uint4")])
def test_the_error_of_blocks_is_less_than_that_of_their_whole_range(schema: str, type_: str) -> None:
    covering = covering_params(schema, type_)
    searched, sqnr = searched_block_params(WEIGHT, 0, 32, SCHEMAS[schema], TYPES[type_])
    assert error_of(searched) < 0.97 * error_of(covering)
    assert sqnr == pytest.approx(weight_sqnr(WEIGHT, searched), abs=1e-4)


def test_eight_bits_cover_the_range() -> None:
    params, sqnr = searched_block_params(WEIGHT, 0, 32, SCHEMAS["symmetric"], TYPES["int8"])
    assert params == covering_params("symmetric", "int8")
    assert sqnr == pytest.approx(weight_sqnr(WEIGHT, params), abs=1e-4)


@pytest.mark.parametrize("axis", [0, 1])
def test_a_last_block_may_be_smaller(axis: int) -> None:
    weight = np.moveaxis(WEIGHT[:40], 0, axis)
    params, sqnr = searched_block_params(weight, axis, 32, SCHEMAS["asymmetric"], TYPES["uint4"])
    assert len(params.scale) == 2 * 24
    assert error_of(params, weight) < 0.01 * float(np.sum(weight**2))
    assert sqnr == pytest.approx(weight_sqnr(weight, params), abs=1e-4)


def test_blocks_searched_in_parts_have_the_same_scales(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = searched_block_params(WEIGHT, 1, 16, SCHEMAS["asymmetric"], TYPES["uint4"])
    monkeypatch.setattr("qprof_onnx.quantizer.numerics.block_scales.CHUNK", 100)
    assert searched_block_params(WEIGHT, 1, 16, SCHEMAS["asymmetric"], TYPES["uint4"]) == whole
