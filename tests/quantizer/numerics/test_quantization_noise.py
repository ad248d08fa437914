"""The noise estimated from a profile against the noise measured on the values themselves."""

from __future__ import annotations

import math
from functools import cache
from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from qprof_onnx.profiles.base.errors import PlanError
from qprof_onnx.profiles.records.histogram import Histogram
from qprof_onnx.profiles.records.profile import TensorProfile
from qprof_onnx.quantizer.numerics.affine import INT8, TYPES, UINT8, QuantParams, dequantize, levels, quantize
from qprof_onnx.quantizer.numerics.density import density
from qprof_onnx.quantizer.numerics.grid import cubes_up_to, nearest
from qprof_onnx.quantizer.numerics.quantization_noise import (
    decibels,
    expected_noise,
    relative_weight_error,
    total_noise,
    weight_error,
    weight_sqnr,
)
from qprof_onnx.quantizer.numerics.schemas import SCHEMAS, channel_params, choose_params


@cache
def shapes() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(7)
    normal = rng.standard_normal(100_000)
    return {
        "normal": normal,
        "relu": np.maximum(normal, 0.0),
        "relu6": np.clip(4.0 * normal, 0.0, 6.0),
        "heavy-tailed": rng.standard_t(3, 100_000),
        "hard-swish": normal * np.clip(normal + 3.0, 0.0, 6.0) / 6.0,
        "far from zero": 50.0 + normal,
        "negative": -np.abs(normal),
    }


def measured(values: np.ndarray, params: QuantParams) -> float:
    x = values.astype(np.float32).astype(np.float64)
    error = dequantize(quantize(x, params), params) - x
    return 10.0 * math.log10(np.mean(x * x) / np.mean(error * error))


@pytest.mark.parametrize("shape", shapes())
def test_expected_sqnr_is_the_measured_one(shape, profile_of):
    values = shapes()[shape]
    profile = profile_of(values)
    for schema, kept in product(SCHEMAS.values(), (1.0, 0.5, 0.2)):
        params = choose_params(profile.minimum * kept, profile.maximum * kept, schema, INT8)
        # The spread within a bin of 1/2000 of the range is not quite even, and 100 000 values are a sample;
        # where half of the range is cut off, the few values in the outermost bins carry the noise.
        assert expected_noise(profile, params).sqnr_db == pytest.approx(measured(values, params), abs=0.1)
    for qtype, kept in product((t for t in TYPES.values() if t.is_float), (2.0, 1.0, 0.3)):
        params = choose_params(profile.minimum * kept, profile.maximum * kept, SCHEMAS["symmetric"], qtype)
        # Steps near 0 are shorter than a bin, over which values are taken to be spread evenly.
        assert expected_noise(profile, params).sqnr_db == pytest.approx(measured(values, params), abs=0.15)


@pytest.mark.parametrize("qtype", [t for t in TYPES.values() if t.bits <= 8], ids=lambda t: t.name)
def test_the_integral_of_the_squared_rounding_error_is_that_of_a_fine_grid(qtype):
    ends = levels(qtype)[levels(qtype) >= 0.0]
    fine = np.concatenate([np.linspace(*step, 2001) for step in pairwise(ends)])
    middles, widths = (fine[1:] + fine[:-1]) / 2.0, np.diff(fine)
    errors = np.square(middles - nearest(middles, float(qtype.low), float(qtype.high), qtype))
    whole = cubes_up_to(ends[-1:], qtype) / 12.0
    assert float(errors @ widths) == pytest.approx(whole.item(), rel=1e-5)
    assert cubes_up_to(-ends, qtype).tolist() == (-cubes_up_to(ends, qtype)).tolist()


def test_the_zeros_are_exact(profile_of):
    profile = profile_of(np.concatenate([np.zeros(999_000), np.random.default_rng(0).uniform(0, 1, 1000)]))
    params = choose_params(0.0, 1.0, SCHEMAS["asymmetric"], UINT8)
    rounding = params.tensor_scale**2 / 12.0 * 1e-3  # only one value in a thousand is rounded at all
    # 1000 values hit 2000 bins unevenly, a few per cent of the power.
    assert expected_noise(profile, params).rounding_power == pytest.approx(rounding, rel=0.1)


def test_a_constant_tensor_has_as_good_as_no_noise(profile_of):
    params = choose_params(3.7, 3.7, SCHEMAS["asymmetric"], INT8)
    noise = expected_noise(profile_of(np.full(10, 3.7)), params)
    assert noise.sqnr_db > 120.0  # the float32 rounding of the scale
    assert noise.signal_power == pytest.approx(3.7**2, rel=1e-6)  # the float32 rounding of the value


@pytest.mark.parametrize("values", [[0.0], [0.0, 0.0]])
def test_zeros_have_no_noise_at_all(values, profile_of):
    noise = expected_noise(profile_of(values), QuantParams((1.0,), (0,), INT8))
    assert (noise.rounding_power, noise.clipping_power, noise.sqnr_db) == (0.0, 0.0, math.inf)


def test_noise_as_strong_as_the_signal_is_0_db(profile_of):
    # every value rounds to zero
    params = QuantParams((1000.0,), (0,), INT8)
    assert expected_noise(profile_of([1.0, 1.0]), params).sqnr_db == pytest.approx(0.0, abs=1e-6)


def test_clipping_is_told_from_rounding(profile_of):
    profile = profile_of(np.random.default_rng(0).uniform(0.0, 2.0, 100_000))
    params = choose_params(0.0, 1.0, SCHEMAS["asymmetric"], UINT8)
    noise = expected_noise(profile, params)
    # Half of the values lie beyond 1 by u in (0, 1): mean of u^2 is 1/3; the others are rounded.
    assert noise.clipping_power == pytest.approx(0.5 / 3.0, rel=0.01)  # a sample of 100 000
    assert noise.rounding_power == pytest.approx(0.5 * params.tensor_scale**2 / 12.0, rel=0.02)


def test_a_tensor_that_held_nothing_has_no_noise():
    empty = TensorProfile("float", (0,), 0.0, 0.0, 0, 0, 0, 0, Histogram.empty())
    noise = expected_noise(empty, QuantParams((1.0,), (0,), INT8))
    assert (noise.signal_power, noise.rounding_power, noise.clipping_power) == (0.0, 0.0, 0.0)


def test_several_scales_are_refused(profile_of):
    with pytest.raises(PlanError, match="2 scales; a profile has the noise of one only"):
        expected_noise(profile_of([1.0]), QuantParams((1.0, 1.0), (0, 0), INT8, axis=0))


@given(st.lists(st.floats(-100.0, 100.0, width=32), min_size=2, max_size=50))
def test_the_mass_of_a_density_is_one(values):
    x = np.asarray(values, np.float32)
    profile = TensorProfile(
        "float", x.shape, float(x.min()), float(x.max()), x.size, int((x == 0).sum()), 0, 0, Histogram.of(x)
    )
    seen = density(profile)
    assert seen.mass.sum() + seen.point_mass.sum() == pytest.approx(1.0, abs=1e-12)  # sums of 2000 doubles
    assert (seen.mass >= 0.0).all()
    assert (seen.point_mass >= 0.0).all()


@pytest.mark.parametrize("shape", shapes())
def test_the_batched_noise_is_the_noise_of_each(shape, profile_of):
    profile = profile_of(shapes()[shape])
    chosen = [
        choose_params(profile.minimum * k, profile.maximum * k, SCHEMAS["asymmetric"], INT8)
        for k in (1.0, 0.6, 0.1)
    ]
    scales, zero_points = (
        np.array([getattr(p, k)[0] for p in chosen], float) for k in ("scale", "zero_point")
    )
    total = total_noise(density(profile), scales, zero_points, INT8.low, INT8.high)
    each = [expected_noise(profile, p) for p in chosen]
    # The batched sum subtracts large numbers: 2^-53 times the steps of the range over the noise in steps.
    assert total == pytest.approx([n.rounding_power + n.clipping_power for n in each], rel=1e-9)


def test_values_that_no_reader_tells_apart_make_no_noise(profile_of):
    values = np.random.default_rng(3).standard_normal(100_000)
    profile = profile_of(values)
    params = choose_params(0.0, profile.maximum, SCHEMAS["asymmetric"], UINT8)  # a Relu follows: 0 and more
    noise = expected_noise(profile, params, (0.0, math.inf))
    assert noise.clipping_power == 0.0
    # As above: the spread within a bin is not quite even.
    assert noise.sqnr_db == pytest.approx(measured(np.maximum(values, 0.0), params), abs=0.1)


def test_decibels_of_extreme_energies_are_finite() -> None:
    assert decibels(1e300, 1e-300) == pytest.approx(6000.0, rel=1e-14)
    assert decibels(1e-300, 1e300) == pytest.approx(-6000.0, rel=1e-14)


@pytest.mark.parametrize(
    ("signal", "noise", "expected"),
    [(1.0, 0.0, math.inf), (0.0, 0.0, math.inf), (0.0, 1.0, -math.inf), (1.0, math.inf, -math.inf)],
)
def test_decibels_without_signal_or_noise_are_infinite(signal: float, noise: float, expected: float) -> None:
    assert decibels(signal, noise) == expected


@pytest.mark.parametrize(
    ("signal", "noise", "expected"),
    [(100.0, 1.0, 20.0), (1.0, 1.0, 0.0), (1.0, 0.0, math.inf), (0.0, 0.0, math.inf), (0.0, 1.0, -math.inf)],
)
def test_decibels_are_ten_times_the_logarithm_of_the_ratio(signal, noise, expected):
    assert decibels(signal, noise) == expected


def test_the_sqnr_of_a_weight_is_that_of_its_error():
    weight = np.random.default_rng(2).standard_normal((8, 4)).astype(np.float32)
    params = QuantParams((2.0**-5,), (0,), INT8)
    error = weight_error(weight, params)
    assert np.abs(error).max() <= 2.0**-6
    expected = 10.0 * math.log10(np.mean(np.square(weight)) / np.mean(np.square(error)))
    assert weight_sqnr(weight, params) == pytest.approx(expected, abs=1e-4)  # means in float32 here


def test_a_weight_that_is_quantized_exactly_has_an_infinite_sqnr():
    params = QuantParams((0.5,), (0,), INT8)
    assert weight_sqnr(np.array([1.0, -0.5, 0.0], np.float32), params) == math.inf


@pytest.mark.parametrize("axis", [None, 0, 1])
def test_the_relative_error_of_a_weight_is_that_of_all_its_elements(axis: int | None) -> None:
    weight = np.random.default_rng(3).standard_normal((300, 250)).astype(np.float32)
    params = channel_params(weight, axis, SCHEMAS["symmetric"], INT8)
    error, exact = weight_error(weight, params).astype(np.float64), weight.astype(np.float64)
    expected = np.square(error).sum() / np.square(exact).sum()
    assert relative_weight_error(weight, params) == pytest.approx(expected, rel=1e-12)
