"""Scales in float16: laws, for any scales."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from qprof_onnx.quantizer.numerics.affine import INT8, QuantParams
from qprof_onnx.quantizer.plugins.formats.float16_scales import LOWEST_16, MAX_ADDED_NOISE, in_float16

SCALES = st.lists(st.floats(2.0**-30, 2.0**15, width=32), min_size=1, max_size=9)


def of(scales: list[float]) -> QuantParams:
    return QuantParams(np.array(scales, np.float32), np.zeros(len(scales), np.int32), INT8, 0)


@given(SCALES)
def test_scales_are_normal_numbers_of_float16_that_cover_the_range_or_stay(scales: list[float]) -> None:
    params = of(scales)
    narrow = in_float16(params)
    if narrow != params:
        assert (narrow.scale >= params.scale).all()
        assert (narrow.scale >= LOWEST_16).all()
        assert (narrow.scale.astype(np.float16).astype(np.float32) == narrow.scale).all()
        power = np.square(params.scale, dtype=np.float64).sum()
        assert np.square(narrow.scale, dtype=np.float64).sum() <= (1.0 + MAX_ADDED_NOISE) * power


@given(SCALES)
def test_what_is_in_float16_stays(scales: list[float]) -> None:
    narrow = in_float16(of(scales))
    assert in_float16(narrow) == narrow


def test_a_small_scale_beside_large_ones_is_raised_and_alone_it_stays() -> None:
    assert in_float16(of([1.0, 1e-8])).scale.tolist() == [1.0, LOWEST_16]
    assert in_float16(of([1e-8])) == of([1e-8])
