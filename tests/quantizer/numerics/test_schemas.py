"""What every schema promises, whatever the range."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from qprof_onnx.profiles.base.errors import ModelError, PlanError
from qprof_onnx.quantizer.numerics.affine import (
    INT4,
    INT8,
    INT16,
    INT32,
    TYPES,
    UINT8,
    QuantParams,
    dequantize,
    quantize,
)
from qprof_onnx.quantizer.numerics.schemas import (
    FLOAT32_TINY,
    SCHEMAS,
    bias_params,
    channel_params,
    choose_arrays,
    choose_params,
    weight_for_bias,
    widened_range,
)

FLOATS = st.floats(-(2.0**100), 2.0**100, width=32)
# Above this the float32 scale keeps its 24 bits in every type; below, a denormal scale is coarse.
NORMAL = 2.0**-90
COMBINATIONS = [
    (name, qtype)
    for name in SCHEMAS
    for qtype in TYPES.values()
    if not qtype.is_float and (qtype.signed or name in ("asymmetric", "symmetric-uint8"))
]


@st.composite
def ranges(draw):
    low, high = sorted((draw(FLOATS), draw(FLOATS)))
    return low, high


def covered(params: QuantParams) -> tuple[float, float]:
    scale, zero_point, qtype = params.tensor_scale, params.tensor_zero_point, params.qtype
    return scale * (qtype.low - zero_point), scale * (qtype.high - zero_point)


@settings(max_examples=500)
@given(combination=st.sampled_from(COMBINATIONS), span=ranges())
def test_the_codes_cover_the_range_to_half_a_step_and_are_not_wasted(combination, span):
    name, qtype = combination
    low, high = span
    if max(abs(low), abs(high)) < NORMAL:
        return
    schema = SCHEMAS[name]
    params = choose_params(low, high, schema, qtype)
    first, last = covered(params)
    # A centred range reaches half a step beyond the codes; the scale itself is rounded by 2^-24.
    slack = params.tensor_scale * 0.5 + 2.0**-23 * max(abs(low), abs(high))
    assert first - slack <= min(low, 0.0)
    assert last + slack >= max(high, 0.0)
    wide = widened_range(low, high, schema, qtype)
    # int32 spreads a range over 30 of its bits; rounding up to a power of two at most doubles the scale.
    codes = 1 << (30 if qtype == INT32 else qtype.bits)
    most = (wide[1] - wide[0]) / (codes - 1) * (2.0 if schema.power_of_two else 1.0)
    assert params.tensor_scale <= most * (1.0 + 2.0**-23)


@pytest.mark.parametrize("name", ["symmetric", "symmetric-power2"])
@given(span=ranges())
def test_symmetric_schemas_have_zero_point_0(name, span):
    assert choose_params(*span, SCHEMAS[name], INT8).tensor_zero_point == 0


@given(span=ranges())
def test_power_of_two_scales_are_powers_of_two(span):
    scale = choose_params(*span, SCHEMAS["symmetric-power2"], INT8).tensor_scale
    assert math.frexp(scale)[0] == 0.5


@given(span=ranges())
def test_symmetric_uint8_keeps_unsigned_activations_for_positive_data_only(span):
    params = choose_params(*span, SCHEMAS["symmetric-uint8"], UINT8)
    assert params.qtype == (INT8 if span[0] < 0.0 else UINT8)
    assert params.tensor_zero_point == 0


def test_symmetric_uint8_in_a_signed_type_spends_all_codes_on_positive_data():
    params = choose_params(0.0, 255.0, SCHEMAS["symmetric-uint8"], INT8)
    assert params == QuantParams((1.0,), (-128,), INT8)


@given(span=ranges(), power=st.integers(-20, 20))
def test_scaling_the_range_by_a_power_of_two_scales_the_parameters(span, power):
    low, high = span
    if max(abs(low), abs(high)) < NORMAL or (low and abs(low) < NORMAL) or (high and abs(high) < NORMAL):
        return
    one = choose_params(low, high, SCHEMAS["asymmetric"], UINT8)
    other = choose_params(low * 2.0**power, high * 2.0**power, SCHEMAS["asymmetric"], UINT8)
    assert other == QuantParams((one.tensor_scale * 2.0**power,), one.zero_point, UINT8)


@pytest.mark.parametrize("name", ["asymmetric", "symmetric"])
@given(span=ranges())
def test_choosing_for_a_widened_range_changes_nothing(name, span):
    schema = SCHEMAS[name]
    wide = widened_range(*span, schema, INT8)
    assert widened_range(*wide, schema, INT8) == wide
    assert choose_params(*wide, schema, INT8) == choose_params(*span, schema, INT8)


@given(st.lists(ranges(), min_size=1, max_size=5))
def test_arrays_of_ranges_give_what_each_gives_alone(spans):
    schema = SCHEMAS["asymmetric"]
    scales, zero_points, qtype = choose_arrays([s[0] for s in spans], [s[1] for s in spans], schema, UINT8)
    alone = [choose_params(*s, schema, UINT8) for s in spans]
    assert scales.tolist() == [p.tensor_scale for p in alone]
    assert zero_points.tolist() == [p.tensor_zero_point for p in alone]
    assert qtype == UINT8


ENDS = [(0.0, 0.0), (-0.0, 0.0), (0.0, 1e-45), (-1e-45, 1e-45), (-1e-40, 0.0), (0.0, 1e-30), (3.7, 3.7)]
ENDS += [(-3.7, -3.7), (-5.0, -2.0), (0.0, math.inf), (-math.inf, math.inf), (-math.inf, -1.0)]
ENDS += [(-3.4e38, 3.4e38), (-1e300, 1e300)]


@pytest.mark.parametrize(("low", "high"), ENDS)
def test_odd_ranges_give_valid_parameters_without_a_warning(low, high):
    for name, qtype in COMBINATIONS:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            params = choose_params(low, high, SCHEMAS[name], qtype)
        assert 0.0 < params.tensor_scale < math.inf, (name, qtype)
        assert dequantize(quantize(0.0, params), params) == 0.0, (name, qtype)


@pytest.mark.parametrize("value", [3.7, -3.7, 1e-3, 123456.0])
@pytest.mark.parametrize("name", ["asymmetric", "symmetric", "symmetric-uint8"])
def test_a_constant_tensor_comes_back(name, value):
    params = choose_params(value, value, SCHEMAS[name], INT8)
    back = float(dequantize(quantize(value, params), params))
    # Only the float32 rounding of scale and product is left: the constant lies on the last code.
    assert back == pytest.approx(value, rel=2.0**-22, abs=0.0)


def test_a_range_around_zero_that_is_centred_maps_zero_to_the_middle_code():
    for qtype, middle in ((INT8, 0), (UINT8, 128), (INT16, 0), (TYPES["uint16"], 1 << 15), (INT4, 0)):
        assert choose_params(-2.5, 2.5, SCHEMAS["asymmetric"], qtype).tensor_zero_point == middle


@pytest.mark.parametrize("name", ["symmetric", "symmetric-power2"])
def test_a_symmetric_schema_in_an_unsigned_type_is_refused_with_the_type_to_use(name):
    with pytest.raises(PlanError, match="uint8 cannot represent negative numbers; use int8"):
        choose_params(-1.0, 1.0, SCHEMAS[name], UINT8)


@pytest.mark.parametrize(("low", "high"), [(1.0, 0.5), (math.nan, 1.0), (0.0, math.nan)])
def test_what_is_not_a_range_is_refused(low, high):
    with pytest.raises(PlanError, match="not a range; give low <= high"):
        choose_params(low, high, SCHEMAS["asymmetric"], INT8)


def test_channels_are_chosen_one_by_one():
    weight = np.array([[[1.0, -2.0], [0.5, 0.0]], [[254.0, 0.0], [0.0, -1.0]]], np.float32)
    params = channel_params(weight, 0, SCHEMAS["symmetric"], INT8)
    alone = [choose_params(float(w.min()), float(w.max()), SCHEMAS["symmetric"], INT8) for w in weight]
    assert params == QuantParams(tuple(p.tensor_scale for p in alone), (0, 0), INT8, axis=0)
    assert channel_params(weight, 2, SCHEMAS["symmetric"], INT8).scale[1] == np.float32(2.0 / 128.0)


def test_a_weight_without_an_axis_has_one_scale():
    weight = np.array([[1.0, -2.0], [4.0, 0.0]], np.float32)
    params = channel_params(weight, None, SCHEMAS["asymmetric"], INT8)
    assert params == choose_params(-2.0, 4.0, SCHEMAS["asymmetric"], INT8)


def test_all_channels_turn_signed_when_one_has_negative_numbers():
    weight = np.array([[1.0, 2.0], [-1.0, 2.0]], np.float32)
    params = channel_params(weight, 0, SCHEMAS["symmetric-uint8"], UINT8)
    assert (params.qtype, params.zero_point.tolist()) == (INT8, [0, 0])


def test_channels_of_zeros_and_channels_without_elements_are_defined():
    assert channel_params(
        np.zeros((2, 3), np.float32), 0, SCHEMAS["symmetric"], INT8
    ).zero_point.tolist() == [0, 0]
    assert len(channel_params(np.zeros((2, 0), np.float32), 0, SCHEMAS["symmetric"], INT8).scale) == 2


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_weight_that_is_not_finite_is_refused(value):
    with pytest.raises(ModelError, match=r"weight of shape \[2\]: contains NaN or infinity"):
        channel_params(np.array([1.0, value], np.float32), 0, SCHEMAS["symmetric"], INT8)


def test_an_axis_that_the_weight_lacks_is_refused():
    with pytest.raises(PlanError, match="axis 2 is not one of its axes; use one from 0 to 1"):
        channel_params(np.zeros((2, 3), np.float32), 2, SCHEMAS["symmetric"], INT8)


@given(st.floats(2.0**-40, 2.0**40, width=32), st.lists(st.floats(2.0**-40, 2.0**40, width=32), min_size=1))
def test_a_bias_has_the_float32_product_of_the_scales(data_scale, weight_scales):
    data = QuantParams((data_scale,), (3,), UINT8)
    weight = QuantParams(tuple(weight_scales), (0,) * len(weight_scales), INT8, axis=0)
    bias = bias_params(data, weight)
    assert bias.scale.tolist() == [float(np.float32(data_scale) * np.float32(s)) for s in weight_scales]
    assert (bias.zero_point.any(), bias.qtype, bias.axis) == (False, INT32, 0)


def test_a_bias_of_a_weight_with_one_scale_has_one_scale():
    bias = bias_params(QuantParams((0.5,), (0,), INT8), QuantParams((0.25,), (0,), INT8))
    assert bias == QuantParams((0.125,), (0,), INT32)


@given(
    st.floats(2.0**-40, 2.0**20, width=32),
    st.lists(
        st.tuples(st.floats(2.0**-60, 2.0**20, width=32), st.floats(-(2.0**30), 2.0**30, width=32)),
        min_size=1,
    ),
)
def test_a_weight_gives_way_until_the_bias_fits_into_30_bits(data_scale, channels):
    data = QuantParams((data_scale,), (0,), INT8)
    weight = QuantParams(tuple(c[0] for c in channels), (0,) * len(channels), INT8, axis=0)
    values = np.array([c[1] for c in channels], np.float32)
    fitted = weight_for_bias(data, weight, values)
    codes = values.astype(np.float64) / bias_params(data, fitted).scale
    assert np.abs(codes).max() <= (1 << 29) * (1.0 + 2.0**-22)  # two float32 roundings
    raised = fitted.scale > weight.scale
    before = np.abs(values.astype(np.float64)) / (data_scale * weight.scale)
    assert (fitted.scale >= weight.scale).all()
    assert (before[raised] > (1 << 29) * (1.0 - 2.0**-22)).all()  # nothing is raised without need


def test_one_scale_for_the_weight_gives_way_to_the_largest_bias():
    data, weight = QuantParams((2.0**-20,), (0,), INT8), QuantParams((2.0**-20,), (0,), INT8)
    fitted = weight_for_bias(data, weight, np.array([1.0, -3.0], np.float32))
    assert fitted.tensor_scale == pytest.approx(3.0 / 2**29 * 2**20, rel=2.0**-22)
    assert weight_for_bias(data, weight, np.zeros(0, np.float32)) == weight


def test_a_product_that_vanishes_is_raised_to_a_normal_number():
    data, weight = QuantParams((2.0**-100,), (0,), INT8), QuantParams((2.0**-100,), (0,), INT8)
    with pytest.raises(PlanError, match="is not a float32 above 0; raise the scale of the weight"):
        bias_params(data, weight)
    fitted = weight_for_bias(data, weight, np.zeros(1, np.float32))
    assert bias_params(data, fitted).tensor_scale == FLOAT32_TINY


def test_a_bias_with_another_number_of_channels_is_refused():
    data, weight = QuantParams((0.5,), (0,), INT8), QuantParams((0.5, 0.5), (0, 0), INT8, axis=0)
    with pytest.raises(PlanError, match="3 elements for a weight with 2 scales"):
        weight_for_bias(data, weight, np.zeros(3, np.float32))
