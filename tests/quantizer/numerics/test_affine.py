"""Types, parameters, rounding and saturation."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import onnx.parser
import onnxruntime
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from qprof_onnx.profiles.base.errors import DataError, PlanError
from qprof_onnx.quantizer.numerics.affine import (
    ELEMENTS_AT_ONCE,
    INT4,
    INT8,
    INT16,
    INT32,
    TYPES,
    UINT8,
    QuantParams,
    Rounding,
    dequantize,
    fake_quantized,
    params_of_part,
    quantize,
)

INTEGERS = [t for t in TYPES.values() if not t.is_float]  # floats: test_number_formats
SMALL_TYPES = [t for t in INTEGERS if t.bits <= 16]


@st.composite
def small_params(draw):
    """Parameters of one scale, in a type of at most 16 bits."""
    qtype = draw(st.sampled_from(SMALL_TYPES))
    scale = draw(st.floats(2.0**-60, 2.0**60, width=32))
    return QuantParams((scale,), (draw(st.integers(qtype.low, qtype.high)),), qtype)


@given(small_params(), hnp.arrays(np.float64, 20, elements=st.floats(0.0, 1.0)))
def test_dequantizing_codes_of_values_in_range_is_off_by_half_a_step_at_most(params, shares):
    scale, zero_point = params.tensor_scale, params.tensor_zero_point
    low, high = scale * (params.qtype.low - zero_point), scale * (params.qtype.high - zero_point)
    values = (low + shares * (high - low)).astype(np.float32)
    back = dequantize(quantize(values, params), params).astype(np.float64)
    # Half a step, and three float32 roundings (value, quotient, product) of numbers up to 2^16 steps.
    assert np.abs(back - values).max() <= scale * (0.5 + 3 * 2.0**-24 * 2.0**16)


@pytest.mark.parametrize("qtype", SMALL_TYPES, ids=lambda t: t.name)
@pytest.mark.parametrize("rounding", Rounding)
def test_every_code_survives_dequantizing_and_quantizing(qtype, rounding):
    codes = np.arange(qtype.low, qtype.high + 1)
    for zero_point in (qtype.low, 0, qtype.high):
        params = QuantParams((float(np.float32(0.37)),), (zero_point,), qtype)
        back = quantize(dequantize(codes, params), params, rounding)
        assert back.dtype == qtype.numpy_dtype
        assert back.astype(np.int64).tolist() == codes.tolist()


def test_zero_has_the_code_zero_point():
    params = QuantParams((0.3125,), (17,), UINT8)
    assert quantize(0.0, params) == 17
    assert dequantize(17, params) == 0.0


def test_rounding_orders_differ_on_ties_with_an_odd_zero_point():
    odd, even = QuantParams((1.0,), (3,), INT8), QuantParams((1.0,), (4,), INT8)
    ties = [0.5, 1.5, 2.5, -0.5]
    assert quantize(ties, odd, Rounding.ONNX).tolist() == [3, 5, 5, 3]
    assert quantize(ties, odd, Rounding.GLOW).tolist() == [4, 4, 6, 2]
    assert quantize(ties, even, Rounding.ONNX).tolist() == quantize(ties, even, Rounding.GLOW).tolist()


@pytest.mark.parametrize("qtype", INTEGERS, ids=lambda t: t.name)
def test_infinite_and_huge_values_saturate_without_a_warning(qtype):
    params = QuantParams((2.0**-100,), (1,), qtype)
    values = [np.inf, 3e38, -3e38, -np.inf]
    for rounding in Rounding:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            codes = quantize(values, params, rounding).astype(np.int64)
        assert codes.tolist() == [qtype.high, qtype.high, qtype.low, qtype.low]


def test_nan_is_refused_with_the_number_of_them():
    params = QuantParams((1.0,), (0,), INT8)
    with pytest.raises(DataError, match="2 of 3 values are NaN"):
        quantize([np.nan, 1.0, np.nan], params)


def test_each_channel_has_its_own_scale_and_zero_point():
    params = QuantParams((1.0, 10.0), (0, 5), INT8, axis=1)
    values = np.array([[3.0, 30.0], [-4.0, -40.0]])
    codes = quantize(values, params)
    assert codes.tolist() == [[3, 8], [-4, 1]]
    assert dequantize(codes, params).tolist() == values.tolist()


def test_each_block_has_its_own_scale_in_the_order_of_onnx():
    params = QuantParams((1.0, 2.0, 4.0, 8.0, 16.0, 32.0), (0,) * 6, INT8, axis=1, block_size=2)
    values = np.full((2, 5), 64.0)  # three blocks a row, the last one short
    assert params.grid_shape(values.shape) == (2, 3)
    assert quantize(values, params).tolist() == [[64, 64, 32, 32, 16], [8, 8, 4, 4, 2]]
    assert dequantize(quantize(values, params), params).tolist() == values.tolist()


@pytest.mark.parametrize("axis", [None, 0, 1])
@pytest.mark.parametrize("qtype", TYPES.values(), ids=lambda t: t.name)
def test_fake_quantization_is_quantizing_and_dequantizing_to_the_bit(qtype, axis):
    rng = np.random.default_rng(1)
    values = rng.standard_normal((3, 40, ELEMENTS_AT_ONCE // 60)).astype("f")  # more than one part
    values[0, 0, :4] = 0.0, -0.0, np.inf, 3e38
    count = 1 if axis is None else values.shape[axis]
    points = (
        rng.integers(max(qtype.low, -9), min(qtype.high, 9), count) if not qtype.is_float else [0] * count
    )
    params = QuantParams(rng.uniform(1e-3, 0.5, count).astype("f"), points, qtype, axis)
    expected = dequantize(quantize(values, params), params)
    assert fake_quantized(values, params).tobytes() == expected.tobytes()


def test_fake_quantization_refuses_nan_as_quantizing_does():
    with pytest.raises(DataError, match="2 of 3 values are NaN"):
        fake_quantized([np.nan, 1.0, np.nan], QuantParams((1.0,), (0,), INT8))


@pytest.mark.parametrize(("along", "block"), [(None, None), (0, None), (1, None), (0, 4), (1, 4)])
@pytest.mark.parametrize("axis", [0, 1])
def test_a_part_of_a_tensor_has_the_codes_of_the_whole(axis, along, block):
    rng = np.random.default_rng(0)
    values = rng.standard_normal((12, 20)).astype("f")
    grid = () if along is None else (values.shape[along],)
    if block is not None:
        grid = tuple(-(-size // block) if i == along else size for i, size in enumerate(values.shape))
    count = int(np.prod(grid))
    scales, points = rng.uniform(0.1, 0.2, count).astype("f"), rng.integers(-9, 9, count)
    params = QuantParams(scales, points, INT8, along, block)
    within = (slice(None),) * axis + (slice(4, 12),)
    part = params_of_part(params, values.shape, axis, 4, 12)
    np.testing.assert_array_equal(quantize(values[within], part), quantize(values, params)[within])


def test_arrays_for_emitters_have_onnx_types_and_shapes():
    one = QuantParams((0.5,), (-3,), INT4)
    many = QuantParams((0.5, 0.25), (1, 2), UINT8, axis=0)
    assert (one.scale_array.dtype, one.scale_array.shape) == (np.float32, ())
    assert (one.zero_point_array.dtype.name, one.zero_point_array.shape) == ("int4", ())
    assert (many.scale_array.tolist(), many.zero_point_array.dtype) == ([0.5, 0.25], np.uint8)


def test_parameters_are_equal_where_all_their_numbers_are():
    blocks = np.linspace(0.5, 1.0, 6, dtype=np.float32)
    one, same = (QuantParams(blocks, np.zeros(6, int), INT4, 0, 16) for _ in range(2))
    assert (one, hash(one), {one, same}) == (same, hash(same), {one})
    for other in ({"qtype": INT8}, {"axis": 1}, {"block_size": 8}, {"zero_point": np.ones(6, np.int32)}):
        assert replace(one, **other) != one


def test_parameters_stay_as_they_are_when_the_array_that_they_were_made_of_changes():
    scales = np.array([0.5, 0.25], np.float32)
    params = QuantParams(scales.reshape(-1), np.array([1, 2], np.int32), UINT8, axis=0)
    scales[0] = 8.0
    assert params.scale.tolist() == [0.5, 0.25]
    for array in (params.scale, params.zero_point):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 3
    assert replace(params, axis=1).scale is params.scale


def test_a_zero_point_beyond_every_integer_type_is_refused_as_one_outside_of_its_own():
    with pytest.raises(PlanError, match="zero_point 1000000000000000000000000 is outside of int8"):
        QuantParams((1.0,), (10**24,), INT8)


def test_an_int32_code_is_exact_beyond_float32():
    params = QuantParams((1.0,), ((1 << 24) + 1,), INT32)
    assert quantize(0.0, params) == (1 << 24) + 1


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (((1.0, 2.0), (0,), INT8, 0), "2 scales but 1 zero points; give one zero_point for each scale"),
        (((1.0, 2.0), (0, 0), INT8), "2 scales without an axis"),
        (((1.0,), (0,), INT8, None, 4), "1 scales without an axis"),
        (((1.0,), (0,), INT8, -1), "axis -1 is negative"),
        (((1.0,), (0,), INT8, 0, 0), "block 0 is not a number of elements"),
        (((0.0,), (0,), INT8), "scale 0.0 is not a finite float32 number above 0"),
        (((-1.0,), (0,), INT8), "scale -1.0 is not a finite float32 number above 0"),
        (((float("inf"),), (0,), INT8), "scale inf is not a finite float32 number above 0"),
        (((float("nan"),), (0,), INT8), "scale nan is not a finite float32 number above 0"),
        (((1e300,), (0,), INT8), r"scale 1e\+300 is not a finite float32 number above 0"),
        (((0.1,), (0,), INT8), "scale 0.1 is not a float32 number; round it to 0.10000000149011612"),
        (((1.0,), (128,), INT8), r"zero_point 128 is outside of int8; give one of -128\.\.127"),
        (((1.0,), (-1,), UINT8), r"zero_point -1 is outside of uint8; give one of 0\.\.255"),
    ],
)
def test_impossible_parameters_are_refused_with_advice(arguments, sentence):
    with pytest.raises(PlanError, match=sentence):
        QuantParams(*arguments)


@pytest.mark.parametrize(
    ("params", "sentence"),
    [
        (QuantParams((1.0, 1.0), (0, 0), INT8, axis=1), "2 scales do not fit .* along axis 1; give 3"),
        (QuantParams((1.0, 1.0), (0, 0), INT8, axis=2), "axis 2 is not an axis of a tensor of shape"),
        (QuantParams((1.0,) * 3, (0,) * 3, INT16, axis=1, block_size=2), "3 scales do not fit .* give 4"),
    ],
)
def test_parameters_that_do_not_fit_the_shape_are_refused(params, sentence):
    with pytest.raises(PlanError, match=sentence):
        quantize(np.zeros((2, 3)), params)


@pytest.mark.parametrize("name", ["int8", "uint8", "int16", "uint16"])
@pytest.mark.parametrize(("axis", "block", "grid"), [(None, None, ()), (1, None, (6,)), (1, 4, (3, 2))])
def test_codes_and_values_are_those_of_onnxruntime(name, axis, block, grid):
    rng = np.random.default_rng(0)
    qtype = TYPES[name]
    scale = rng.choice([0.25, 0.37, 0.015625, 3.1], grid).astype(np.float32)
    zero_point = rng.integers(-9, 9, grid) * 2 + 1 + (0 if qtype.signed else 90)  # odd: ties tell the order
    values = (rng.integers(-600, 600, (3, 6)) * scale.min() / 2).astype(np.float32)
    params = QuantParams(
        tuple(scale.reshape(-1).tolist()), tuple(zero_point.reshape(-1).tolist()), qtype, axis, block
    )
    attributes = f"axis={1 if axis is None else axis}, block_size={block or 0}"
    dims = list(grid) or ""
    model = onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["" : 21]>
        both (float[3,6] x, float{dims} s, {name}{dims} z) => ({name}[3,6] q, float[3,6] y)
        {{ q = QuantizeLinear <{attributes}> (x, s, z)  y = DequantizeLinear <{attributes}> (q, s, z) }}"""
    )
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    feeds = {
        "x": values,
        "s": params.scale_array.reshape(params.grid_shape(values.shape)),
        "z": params.zero_point_array.reshape(params.grid_shape(values.shape)),
    }
    codes, back = session.run(None, feeds)
    assert quantize(values, params).tolist() == codes.tolist()
    assert dequantize(codes, params).tolist() == back.tolist()


def test_glow_codes_and_values_are_met_exactly(glow):
    for case in glow.cases("quantize_dequantize_generated"):
        params = glow.params([case["scale"], case["offset"]], glow.qtype(case))
        if case["op"] == "dequantize":
            assert dequantize(case["value"], params) == np.float32(case["expected"]), case
        elif case["op"] == "rescale_quantized":
            target = glow.params([case["to_scale"], case["to_offset"]], glow.qtype(case))
            assert quantize(dequantize(case["value"], params), target, Rounding.GLOW) == case["expected"], (
                case
            )
        elif "undefined_behaviour_in_cpp" not in case:
            assert quantize(glow.real(case["value"]), params, Rounding.GLOW) == case["expected"], case


def test_values_that_are_undefined_in_glow_saturate_here(glow):
    undefined = [c for c in glow.cases("quantize_dequantize_generated") if "undefined_behaviour_in_cpp" in c]
    assert undefined
    for case in undefined:
        value, qtype = glow.real(case["value"]), glow.qtype(case)
        params = glow.params([case["scale"], case["offset"]], qtype)
        if np.isnan(value):
            with pytest.raises(DataError):
                quantize(value, params, Rounding.GLOW)
        else:
            assert quantize(value, params, Rounding.GLOW) == (qtype.high if value > 0 else qtype.low), case


def test_onnx_rounding_differs_from_glow_on_ties_with_an_odd_zero_point_only(glow):
    differing = 0
    for case in glow.cases("quantize_dequantize_generated"):
        if case["op"] != "quantize" or "undefined_behaviour_in_cpp" in case or case["type"] == "int32":
            continue
        params = glow.params([case["scale"], case["offset"]], glow.qtype(case))
        code = int(quantize(glow.real(case["value"]), params, Rounding.ONNX))
        if code != case["expected"]:
            differing += 1
            steps = np.float32(case["value"]) / np.float32(case["scale"])
            sums = steps + np.float32(case["offset"])
            tie = steps % 1 == 0.5 and case["offset"] % 2 == 1
            # Adding the offset can itself round a number just beside a tie onto it.
            assert tie or sums % 1 == 0.5, case
            assert abs(code - case["expected"]) == 1, case
    assert differing
