"""Ranges from profiles."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from qprof_onnx.profiles.base.errors import MalformedError, PlanError, ProfileError
from qprof_onnx.profiles.records.histogram import Histogram
from qprof_onnx.profiles.records.profile import TensorProfile
from qprof_onnx.quantizer.numerics.affine import FLOAT8E4M3FN, INT8, INT16, UINT8, dequantize, quantize
from qprof_onnx.quantizer.numerics.calibrators import CALIBRATORS, Range, calibrate, parse_calibrator
from qprof_onnx.quantizer.numerics.quantization_noise import expected_noise
from qprof_onnx.quantizer.numerics.schemas import SCHEMAS, choose_params

ASYMMETRIC, SYMMETRIC = SCHEMAS["asymmetric"], SCHEMAS["symmetric"]
NORMAL = np.random.default_rng(1).standard_normal(200_000)


@pytest.mark.parametrize("calibrator", CALIBRATORS)
@pytest.mark.parametrize("name", SCHEMAS)
@settings(max_examples=20, deadline=None)  # kl takes 30 ms a tensor
@given(
    values=st.lists(
        st.one_of(
            st.just(0.0),
            st.floats(-1e6, 1e6, width=32),
            st.floats(width=32, allow_nan=False).filter(np.isfinite),
        ),
        min_size=1,
        max_size=60,
    )
)
def test_a_range_lies_within_the_data_and_contains_zero(calibrator, name, values, profile_of):
    profile = profile_of(values)
    found = calibrate(profile, calibrator, SCHEMAS[name], INT8)
    assert min(profile.minimum, 0.0) <= found.low <= 0.0 <= found.high <= max(profile.maximum, 0.0)


@pytest.mark.parametrize("calibrator", CALIBRATORS)
def test_a_constant_tensor_has_the_range_from_zero_to_its_value(calibrator, profile_of):
    for values in ([0.0], [0.0, 0.0], [3.7] * 5, [-3.7] * 5, [3.7], [1e-40] * 3, [1e38] * 3):
        found = calibrate(profile_of(values), calibrator, ASYMMETRIC, INT8)
        value = float(np.float32(values[0]))
        assert found == Range(min(value, 0.0), max(value, 0.0)), values


@pytest.mark.parametrize("calibrator", CALIBRATORS)
def test_the_range_of_a_type_of_floats_is_that_of_the_data(calibrator, profile_of):
    profile = profile_of([-1.0, *[0.001] * 90, 3.0])
    assert calibrate(profile, calibrator, SYMMETRIC, FLOAT8E4M3FN) == Range(-1.0, 3.0)


@pytest.mark.parametrize("calibrator", CALIBRATORS)
def test_a_tensor_that_held_nothing_has_the_range_of_zero(calibrator):
    empty = TensorProfile("float", (0,), 0.0, 0.0, 0, 0, 0, 0, Histogram.empty())
    assert calibrate(empty, calibrator, ASYMMETRIC, INT8) == Range(0.0, 0.0)


@pytest.mark.parametrize("calibrator", CALIBRATORS)
@pytest.mark.parametrize(
    "values", [NORMAL, np.maximum(NORMAL, 0), -np.abs(NORMAL)], ids=["two", "up", "down"]
)
def test_scaling_the_data_by_a_power_of_two_scales_the_range(calibrator, values, profile_of):
    one = calibrate(profile_of(values), calibrator, ASYMMETRIC, INT8)
    other = calibrate(profile_of(values * 2.0**-20), calibrator, ASYMMETRIC, INT8)
    assert other == Range(one.low * 2.0**-20, one.high * 2.0**-20)


def test_minmax_is_the_exact_range_extended_to_zero(profile_of):
    assert calibrate(profile_of([2.0, 5.0]), "minmax", ASYMMETRIC, INT8) == Range(0.0, 5.0)
    assert calibrate(profile_of([-3.0, 5.0]), "minmax", ASYMMETRIC, INT8) == Range(-3.0, 5.0)


@pytest.mark.parametrize("percent", [99.99, 99.9, 99.0, 90.0])
def test_a_percentile_is_that_of_the_values_to_a_bin(percent, profile_of):
    profile = profile_of(NORMAL)
    found = calibrate(profile, f"percentile:{percent}", ASYMMETRIC, INT8)
    width = profile.histogram.width
    assert found.low == pytest.approx(np.percentile(NORMAL, 100.0 - percent), abs=width)
    assert found.high == pytest.approx(np.percentile(NORMAL, percent), abs=width)


def test_a_percentile_leaves_alone_the_side_where_there_is_no_tail(profile_of):
    found = calibrate(profile_of(np.maximum(NORMAL, 0.0)), "percentile:99", ASYMMETRIC, INT8)
    assert found.low == 0.0
    assert found.high == pytest.approx(np.percentile(NORMAL, 99.0), abs=0.01)  # a few bins


def test_a_percentile_without_parameter_is_the_default():
    assert parse_calibrator("percentile")[1] == 99.99
    assert parse_calibrator("percentile:99.5")[1] == 99.5


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("percntile", r"calibrator 'percntile' is not one of minmax, .* did you mean 'percentile'\?"),
        ("KL:3", "calibrator 'KL:3' is not one of"),
        ("kl:3", "kl has no parameter; write 'kl'"),
        ("percentile:", "'' is not a number from 50 to 100; write for example 'percentile:99.99'"),
        ("percentile:abc", "'abc' is not a number from 50 to 100"),
        ("percentile:nan", "'nan' is not a number from 50 to 100"),
        ("percentile:0.999", "'0.999' is not a number from 50 to 100"),
        ("percentile:101", "'101' is not a number from 50 to 100"),
    ],
)
def test_an_unknown_calibrator_or_parameter_is_refused_with_advice(text, sentence):
    with pytest.raises(MalformedError) as error:
        parse_calibrator(text)
    assert re.search(sentence, error.value.message("settings", ""))


@pytest.mark.parametrize("ends", [(1.0, 0.0), (float("nan"), 1.0), (0.0, float("inf"))])
def test_what_is_not_a_range_is_refused(ends):
    with pytest.raises(PlanError, match="not a range"):
        Range(*ends)


def without_zero(case: dict, low: float) -> bool:
    """Whether Glow may return a range that does not contain 0."""
    return low > 0.0 and case["schema"] in ("asymmetric", "symmetric_with_uint8")


def test_kl_on_the_bins_of_glow_gives_the_parameters_of_glow(glow, equal_bins_profile):
    exact, near = 0, 0
    for case in glow.cases("choose_params_kl_generated"):
        low, high = glow.real(case["min"]), glow.real(case["max"])
        if case["bins"] < 255 or case["type"] != "int8" or without_zero(case, low):
            continue  # refused, see below; 255 levels of Glow for 16 bits; range without zero
        schema = glow.schema(case)
        profile = equal_bins_profile(glow.counts(case["bins"], case["histogram"]), low, high)
        found = calibrate(profile, "kl", schema, INT8)
        params = choose_params(found.low, found.high, schema, INT8)
        assert params.tensor_zero_point == case["offset"], case
        # A symmetric range is cut to the data and widened again, which may cost the last bit of the scale.
        allowed = 0.0 if case["schema"] == "asymmetric" else 2.0**-23
        assert params.tensor_scale == pytest.approx(glow.real(case["scale"]), rel=allowed, abs=0.0), case
        exact += params.tensor_scale == glow.real(case["scale"])
        near += params.tensor_scale != glow.real(case["scale"])
    assert (exact, near) == (36, 5)


def test_kl_never_loses_the_range_next_to_zero(glow, equal_bins_profile):
    seen = 0
    for case in glow.cases("choose_params_kl_generated"):
        low, high = glow.real(case["min"]), glow.real(case["max"])
        if case["bins"] < 255 or case["type"] != "int8" or not without_zero(case, low):
            continue
        seen += 1
        profile = equal_bins_profile(glow.counts(case["bins"], case["histogram"]), low, high)
        found = calibrate(profile, "kl", glow.schema(case), INT8)
        params = choose_params(found.low, found.high, glow.schema(case), INT8)
        theirs = glow.params([case["scale"], case["offset"]], INT8)
        assert expected_noise(profile, params).sqnr_db >= expected_noise(profile, theirs).sqnr_db
    assert seen


def test_kl_with_fewer_bins_than_codes_is_refused(equal_bins_profile):
    profile = equal_bins_profile(np.ones(10, np.float32), -1.0, 1.0)
    with pytest.raises(
        ProfileError, match=r"kl: the histogram has 10 bins and needs 255; .*-num-histogram-bins"
    ):
        calibrate(profile, "kl", ASYMMETRIC, INT8)


def test_kl_in_16_bits_has_nothing_to_cut(profile_of):
    found = calibrate(profile_of(NORMAL), "kl", ASYMMETRIC, INT16)
    assert found == calibrate(profile_of(NORMAL), "minmax", ASYMMETRIC, INT16)


def test_kl_cuts_a_long_tail(profile_of):
    profile = profile_of(np.append(NORMAL, [40.0, -40.0]))
    found = calibrate(profile, "kl", SYMMETRIC, INT8)
    assert 3.0 < found.high < 20.0


@pytest.mark.parametrize("name", SCHEMAS)
@settings(max_examples=30, deadline=None)  # 3 ms a tensor, more on a loaded machine
@given(values=st.lists(st.floats(-1e3, 1e3, width=32), min_size=2, max_size=80))
def test_mse_is_never_worse_than_minmax(name, values, profile_of):
    profile = profile_of(values)

    def noise(calibrator: str) -> float:
        found = calibrate(profile, calibrator, SCHEMAS[name], INT8)
        noise = expected_noise(profile, choose_params(found.low, found.high, SCHEMAS[name], INT8))
        return noise.rounding_power + noise.clipping_power

    # The search sums in another order; values alone in a bin make the difference of nearly equal numbers.
    assert noise("mse") <= noise("minmax") * (1.0 + 1e-6) + 1e-9 * profile.maximum**2


@pytest.mark.parametrize(
    "values",
    [NORMAL, np.maximum(NORMAL, 0.0), np.random.default_rng(2).standard_t(4, 100_000), -np.abs(NORMAL)],
    ids=["normal", "relu", "heavy-tailed", "negative"],
)
@pytest.mark.parametrize("name", SCHEMAS)
def test_mse_is_as_good_as_a_search_on_the_values_themselves(name, values, profile_of):
    x = values.astype(np.float32)[:50_000]
    profile = profile_of(x)

    def error(low: float, high: float) -> float:
        params = choose_params(low, high, SCHEMAS[name], INT8)
        return float(np.mean(np.square(dequantize(quantize(x, params), params).astype(np.float64) - x)))

    low, high = min(profile.minimum, 0.0), max(profile.maximum, 0.0)
    shares = np.linspace(0.3, 1.0, 15)
    best = min(error(low * a, high * b) for a in shares for b in shares)
    found = calibrate(profile, "mse", SCHEMAS[name], INT8)
    # Coordinate by coordinate, in steps of a per cent, from 2000 bins: within three per cent of the grid.
    assert error(found.low, found.high) <= 1.03 * best


def test_mse_cuts_nothing_that_the_codes_reach_anyway(profile_of):
    found = calibrate(profile_of(np.append(NORMAL, 30.0)), "mse", SYMMETRIC, INT8)
    assert found.low == float(np.float32(NORMAL.min()))
    assert found.high > -found.low


def test_calibrators_for_unsigned_types_leave_positive_data_one_sided(profile_of):
    profile = profile_of(np.maximum(NORMAL, 0.0))
    for name in CALIBRATORS:
        assert calibrate(profile, name, SCHEMAS["symmetric-uint8"], UINT8).low == 0.0
