"""Scales of blocks of floating-point numbers: by the rules of their formats, and as they are stored."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from qprof_onnx.profiles.base.errors import ModelError, PlanError
from qprof_onnx.quantizer.numerics.affine import TYPES, QuantParams, dequantize, levels, quantize
from qprof_onnx.quantizer.numerics.block_scales import searched_block_params
from qprof_onnx.quantizer.numerics.schemas import SCHEMAS
from qprof_onnx.quantizer.plugins.formats.float_blocks import _rounded, stored_scales

SYMMETRIC = SCHEMAS["symmetric"]
WEIGHT = np.random.default_rng(5).standard_normal((64, 6)).astype(np.float32)
VECTORS = {
    # Largest magnitudes of three blocks of one column, and the scales that the format's rule gives.
    "float8e4m3fn": (32, (448.0, 3.5, 0.0), (1.0, 2.0**-7, 1.0)),
    "mxfp8": (32, (448.0, 1.0, 480.0), (1.0, 2.0**-8, 2.0)),
    "mxfp4": (32, (6.0, 1.0, 7.9), (1.0, 2.0**-2, 2.0)),
    "nvfp4": (16, (6.0 * 448.0, 6.0, 12.0), (448.0, 1.0, 2.0)),
}


def column(block: int, largest: tuple[float, ...]) -> np.ndarray:
    """Return a column whose blocks hold their largest magnitude throughout."""
    return np.repeat(np.float32(largest), block)[:, None]


@pytest.mark.parametrize("name", VECTORS)
def test_scales_are_those_of_the_rule(name: str) -> None:
    block, largest, expected = VECTORS[name]
    params, _ = searched_block_params(column(block, largest), 0, block, SYMMETRIC, TYPES[name])
    assert tuple(params.scale.tolist()) == expected
    assert not params.zero_point.any()


@pytest.mark.parametrize("name", VECTORS)
def test_the_sqnr_is_that_of_the_quantized_weight(name: str) -> None:
    block = VECTORS[name][0]
    params, sqnr = searched_block_params(WEIGHT, 0, block, SYMMETRIC, TYPES[name])
    error = dequantize(quantize(WEIGHT, params), params) - WEIGHT
    assert sqnr == pytest.approx(10 * np.log10(np.square(WEIGHT).sum() / np.square(error).sum()), abs=1e-3)
    transposed, same = searched_block_params(WEIGHT.T.copy(), 1, block, SYMMETRIC, TYPES[name])
    assert same == pytest.approx(sqnr, abs=1e-3)
    np.testing.assert_array_equal(transposed.scale.reshape(6, -1), params.scale.reshape(-1, 6).T)


@pytest.mark.parametrize("name", ["mxfp4", "nvfp4"])
def test_no_block_has_more_error_than_by_the_other_rule(name: str) -> None:
    qtype, block = TYPES[name], VECTORS[name][0]
    params, _ = searched_block_params(WEIGHT, 0, block, SYMMETRIC, qtype)
    error = np.square(dequantize(quantize(WEIGHT, params), params) - WEIGHT)
    for factor in (0.5, 2.0) if name == "mxfp4" else ():
        other = QuantParams(params.scale * np.float32(factor), params.zero_point, qtype, 0, block)
        worse = np.square(dequantize(quantize(WEIGHT, other), other) - WEIGHT)
        assert error.sum() < worse.sum()
    largest = np.abs(WEIGHT.reshape(-1, block, 6)).max(1)
    assert (params.scale.reshape(largest.shape) * 8 >= largest).all()


@given(
    st.sampled_from(["mxfp4", "mxfp8", "nvfp4"]),
    st.floats(1e-6, 1e6),
    st.integers(0, 2**32 - 1),
)
def test_what_is_stored_gives_the_same_scales(name: str, size: float, seed: int) -> None:
    weight = np.random.default_rng(seed).standard_normal((32, 3)).astype(np.float32) * np.float32(size)
    params, _ = searched_block_params(weight, 0, VECTORS[name][0], SYMMETRIC, TYPES[name])
    stored, whole = stored_scales(params)
    factor = np.float32(1.0) if whole is None else whole
    np.testing.assert_array_equal(stored.astype(np.float32) * factor, params.scale)


def test_scales_with_a_factor_of_another_tool_are_found() -> None:
    factor = np.float32(0.0012345678)
    stored = np.float32([3.5, 208.0, 0.0625, 416.0]).astype(ml_dtypes.float8_e4m3fn)
    scale = stored.astype(np.float32) * factor
    params = QuantParams(scale, np.zeros(4), TYPES["nvfp4"], 0, 16)
    found, whole = stored_scales(params)
    assert whole is not None
    np.testing.assert_array_equal(found.astype(np.float32) * whole, scale)


def test_scales_that_cannot_be_stored_are_refused() -> None:
    with pytest.raises(PlanError, match="scales of mxfp8 are not numbers of float8e8m0"):
        stored_scales(QuantParams([0.75], [0], TYPES["mxfp8"], 0, 32))
    with pytest.raises(PlanError, match="scales of nvfp4 are not numbers of float8e4m3fn with one factor"):
        stored_scales(QuantParams(np.float32([1.0, 1.01, 1.37, 1.09]), [0, 0, 0, 0], TYPES["nvfp4"], 0, 16))


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_no_number_is_refused(value: float) -> None:
    weight = WEIGHT.copy()
    weight[3, 1] = value
    with pytest.raises(ModelError, match="NaN or infinity"):
        searched_block_params(weight, 0, 16, SYMMETRIC, TYPES["nvfp4"])


@given(st.sampled_from(sorted(VECTORS)), st.integers(0, 2**32 - 1), st.floats(1e-6, 1e6))
def test_values_are_rounded_as_by_quantize_and_dequantize(name: str, seed: int, size: float) -> None:
    qtype, rng = TYPES[name], np.random.default_rng(seed)
    ties = np.convolve(levels(qtype).astype(np.float32), [0.5, 0.5], "valid")
    drawn = rng.standard_normal(40) * size
    values = np.concatenate([drawn, ties, -ties, [0.0]]).astype(np.float32)
    params = QuantParams([1.0], [0], qtype)
    ours = _rounded(values, np.float32([1.0]), qtype)
    np.testing.assert_array_equal(ours, dequantize(quantize(values, params), params))
