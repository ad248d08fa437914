"""Quantized values packed into bytes."""

from __future__ import annotations

import numpy as np
import pytest
from qprof_onnx.quantizer.numerics.affine import TYPES, quantize
from qprof_onnx.quantizer.numerics.block_scales import LEVELS, searched_block_params
from qprof_onnx.quantizer.numerics.schemas import SCHEMAS
from qprof_onnx.quantizer.plugins.formats.packed_bytes import packed_blocks

WEIGHT = np.random.default_rng(0).standard_t(5, (64, 24)).astype(np.float32)


@pytest.mark.parametrize("level", range(len(LEVELS)))
@pytest.mark.parametrize("type_", ["int4", "uint4", "int8"])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_every_instruction_set_gives_the_bytes_of_numpy(axis: int, type_: str, level: int) -> None:
    weight = np.random.default_rng(axis).standard_t(4, (3, 50, 35)).astype(np.float32)
    params, _ = searched_block_params(weight, axis, 16, SCHEMAS["asymmetric"], TYPES[type_])
    pitch = -(-weight.shape[axis] // 16) * 16
    packed = packed_blocks(weight, params, pitch, level)
    assert np.array_equal(packed, packed_blocks(weight, params, pitch, len(LEVELS)))


@pytest.mark.parametrize("axis", [0, 1])
def test_a_transposed_view_is_packed_as_the_matrix_that_it_shows(axis: int) -> None:
    params, _ = searched_block_params(WEIGHT, axis, 16, SCHEMAS["asymmetric"], TYPES["uint4"])
    view = np.ascontiguousarray(WEIGHT.T).T
    assert np.array_equal(packed_blocks(view, params, 32), packed_blocks(WEIGHT, params, 32))


def test_packed_values_are_those_that_are_quantized() -> None:
    params, _ = searched_block_params(WEIGHT, 0, 32, SCHEMAS["symmetric"], TYPES["int4"])
    packed = packed_blocks(WEIGHT, params, 32)
    quantized = quantize(WEIGHT, params).astype(np.int16).T + 8
    assert np.array_equal(packed & 15, quantized[:, 0::2])
    assert np.array_equal(packed >> 4, quantized[:, 1::2])
