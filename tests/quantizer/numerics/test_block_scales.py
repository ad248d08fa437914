"""Scales of blocks that have least squared error."""

from __future__ import annotations

import numpy as np
import pytest
from qprof_onnx.quantizer.numerics.affine import TYPES, dequantize, quantize
from qprof_onnx.quantizer.numerics.block_scales import searched_block_params
from qprof_onnx.quantizer.numerics.schemas import SCHEMAS, block_params

WEIGHT = np.random.default_rng(0).standard_t(5, (64, 24)).astype(np.float32)


def error_of(params: object, weight: np.ndarray = WEIGHT, counts: object = 1.0) -> float:
    rounded = dequantize(quantize(weight, params), params)  # type: ignore[arg-type]
    return float(np.sum(counts * np.square(weight - rounded)))


@pytest.mark.parametrize(("schema", "type_"), [("symmetric", "int4"), ("asymmetric", "uint4")])
def test_the_error_of_blocks_is_less_than_that_of_their_whole_range(schema: str, type_: str) -> None:
    covering = block_params(WEIGHT, 0, 32, SCHEMAS[schema], TYPES[type_])
    searched = searched_block_params(WEIGHT, 0, 32, SCHEMAS[schema], TYPES[type_])
    assert error_of(searched) < 0.97 * error_of(covering)


def test_eight_bits_cover_the_range() -> None:
    covering = block_params(WEIGHT, 0, 32, SCHEMAS["symmetric"], TYPES["int8"])
    assert searched_block_params(WEIGHT, 0, 32, SCHEMAS["symmetric"], TYPES["int8"]) == covering


def test_important_elements_are_rounded_better() -> None:
    counts = np.where(np.arange(64) % 8 == 0, 100.0, 1.0)[:, None]
    plain = searched_block_params(WEIGHT, 0, 32, SCHEMAS["asymmetric"], TYPES["uint4"])
    weighed = searched_block_params(WEIGHT, 0, 32, SCHEMAS["asymmetric"], TYPES["uint4"], importance=counts)
    assert error_of(weighed, counts=counts) < error_of(plain, counts=counts)


@pytest.mark.parametrize("axis", [0, 1])
def test_a_last_block_may_be_smaller(axis: int) -> None:
    weight = np.moveaxis(WEIGHT[:40], 0, axis)
    params = searched_block_params(weight, axis, 32, SCHEMAS["asymmetric"], TYPES["uint4"])
    assert len(params.scale) == 2 * 24
    assert error_of(params, weight) < 0.01 * float(np.sum(weight**2))


def test_blocks_searched_in_parts_have_the_same_scales(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = searched_block_params(WEIGHT, 1, 16, SCHEMAS["asymmetric"], TYPES["uint4"])
    monkeypatch.setattr("qprof_onnx.quantizer.numerics.block_scales.CHUNK", 100)
    assert searched_block_params(WEIGHT, 1, 16, SCHEMAS["asymmetric"], TYPES["uint4"]) == whole
