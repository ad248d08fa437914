"""Scales of blocks that have least squared error."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from qprof_onnx.profiles.base.errors import ModelError
from qprof_onnx.quantizer.numerics.affine import TYPES, QuantParams, dequantize, quantize
from qprof_onnx.quantizer.numerics.block_scales import (
    LEVELS,
    channel_params_and_sqnr,
    searched_block_params,
)
from qprof_onnx.quantizer.numerics.quantization_noise import weight_sqnr
from qprof_onnx.quantizer.numerics.schemas import SCHEMAS, channel_params, choose_arrays

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


KINDS = [("symmetric", "int4"), ("asymmetric", "uint4"), ("asymmetric", "int4"), ("asymmetric", "uint8")]


@pytest.mark.parametrize("level", range(len(LEVELS)))
@pytest.mark.parametrize(("schema", "type_"), [*KINDS, ("symmetric", "int8")])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_every_instruction_set_gives_the_parameters_of_numpy(
    axis: int, schema: str, type_: str, level: int
) -> None:
    weight = np.random.default_rng(axis).standard_t(4, (3, 50, 35)).astype(np.float32)
    weight[0, :7] = np.abs(weight[0, :7])
    weight[1, 8:20] = 0.0
    weight[2, 3:40] *= 1e-40
    weight[2, 40:] *= 1e15
    known = SCHEMAS[schema], TYPES[type_]
    ours, sqnr = searched_block_params(weight, axis, 16, *known, level=level)
    numpys, expected = searched_block_params(weight, axis, 16, *known, level=len(LEVELS))
    assert ours == numpys
    assert sqnr == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("axis", [0, 1])
def test_a_transposed_view_is_the_matrix_that_it_shows(axis: int) -> None:
    known = axis, 16, SCHEMAS["asymmetric"], TYPES["uint4"]
    view = np.ascontiguousarray(WEIGHT.T).T
    params, _ = searched_block_params(WEIGHT, *known)
    assert searched_block_params(view, *known)[0] == params


@pytest.mark.parametrize("level", [0, len(LEVELS)])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_weight_with_a_value_that_is_no_number_is_refused(value: float, level: int) -> None:
    weight = WEIGHT.copy()
    weight[40, 3] = value
    with pytest.raises(ModelError, match="contains NaN or infinity"):
        searched_block_params(weight, 0, 32, SCHEMAS["symmetric"], TYPES["int4"], level=level)


@pytest.mark.parametrize("axis", [0, 1])
def test_a_last_block_may_be_smaller(axis: int) -> None:
    weight = np.moveaxis(WEIGHT[:40], 0, axis)
    params, sqnr = searched_block_params(weight, axis, 32, SCHEMAS["asymmetric"], TYPES["uint4"])
    assert len(params.scale) == 2 * 24
    assert error_of(params, weight) < 0.01 * float(np.sum(weight**2))
    assert sqnr == pytest.approx(weight_sqnr(weight, params), abs=1e-4)


def test_blocks_searched_in_parts_have_the_same_scales(monkeypatch: pytest.MonkeyPatch) -> None:
    numpys = partial(searched_block_params, WEIGHT, 1, 16, SCHEMAS["asymmetric"], TYPES["uint4"])
    whole = numpys(level=len(LEVELS))
    monkeypatch.setattr("qprof_onnx.quantizer.numerics.block_scales.CHUNK_ELEMENTS", 100)
    assert numpys(level=len(LEVELS)) == whole


@pytest.mark.parametrize("axis", [None, 0, 1])
@pytest.mark.parametrize("schema", ["symmetric", "symmetric-power2", "asymmetric"])
def test_channels_have_the_parameters_that_cover_them(axis: int | None, schema: str) -> None:
    weight = np.random.default_rng(2).standard_t(4, (70, 33)).astype(np.float32)
    for array in (weight, np.ascontiguousarray(weight.T).T):
        found, sqnr = channel_params_and_sqnr(array, axis, SCHEMAS[schema], TYPES["int8"])
        assert found == channel_params(array, axis, SCHEMAS[schema], TYPES["int8"])
        assert sqnr == pytest.approx(weight_sqnr(array, found), abs=1e-3)
