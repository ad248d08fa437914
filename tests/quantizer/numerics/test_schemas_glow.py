"""Scale and zero point against Glow's own numbers, and the list of deliberate differences."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from qprof_onnx.profiles.base.errors import PlanError
from qprof_onnx.quantizer.numerics.affine import (
    INT8,
    INT32,
    UINT8,
    QuantParams,
    Rounding,
    dequantize,
    quantize,
)
from qprof_onnx.quantizer.numerics.schemas import (
    FLOAT32_TINY,
    SCHEMAS,
    bias_params,
    channel_params,
    choose_params,
    weight_for_bias,
)

DIFFERENCES = {
    # why: how many of the vectors differ from Glow for this reason, see the table in schemas.py
    "tiny range": 17,
    "unsigned middle": 4,
    "vanished scale": 7,
    "signed instead of refused": 12,
}


def difference(case: dict, ours: QuantParams, glow) -> str:
    """Return the reason in the list that a case falls under, told from Glow's input and output alone."""
    low, high = min(glow.real(case["min"]), 0.0), max(glow.real(case["max"]), 0.0)
    if "assert" in case:
        unsigned = case["schema"] == "symmetric_with_uint8" and case["type"] == "uint8" and low < 0.0
        return "signed instead of refused" if unsigned else "vanished scale"
    if glow.real(case["scale"]) == 0.0:
        return "vanished scale"
    if case["type"] == "uint8" and low == -high and case["offset"] == 0:
        return "unsigned middle"
    if abs(np.float32(high + low)) <= 2.0**-23 and case["offset"] == 0:
        return "tiny range"
    return "none"


def worst_error(params: QuantParams, low: float, high: float) -> float:
    """Return the largest error of a round trip over the range, in steps."""
    values = np.linspace(min(low, 0.0), max(high, 0.0), 1001).astype(np.float32)
    steps = quantize(values, params).astype(np.int64) - params.tensor_zero_point
    return float(np.abs(steps - values.astype(np.float64) / params.tensor_scale).max())


def differing_cases(glow):
    for case in glow.cases("choose_params_generated"):
        low, high = glow.real(case["min"]), glow.real(case["max"])
        try:
            ours = choose_params(low, high, glow.schema(case), glow.qtype(case))
        except PlanError:
            assert "assert" in case, case  # refused here, so refused there
            continue
        if "assert" in case:
            yield case, low, high, ours
            continue
        theirs = (glow.real(case["scale"]), case["offset"], case["type"])
        if (ours.tensor_scale, ours.tensor_zero_point, ours.qtype.name) != theirs:
            yield case, low, high, ours


def test_parameters_are_those_of_glow_but_for_the_listed_differences(glow):
    reasons = Counter(difference(case, ours, glow) for case, _, _, ours in differing_cases(glow))
    assert dict(reasons) == DIFFERENCES


def test_where_glow_loses_part_of_the_range_ours_covers_it(glow):
    seen = 0
    for case, low, high, ours in differing_cases(glow):
        if difference(case, ours, glow) not in ("tiny range", "unsigned middle") or ours.qtype == INT32:
            continue
        seen += 1
        theirs = QuantParams((glow.real(case["scale"]),), (case["offset"],), glow.qtype(case))
        assert ours.scale.tolist() == theirs.scale.tolist()
        slack = 1.01  # half a step, another half at the ends of a centred range, float32 rounding
        if high < 1e-38 and case["type"] == "int16":
            slack = 0.09 * 65535  # the scale is the smallest denormal, 8 % below the quotient
        assert worst_error(ours, low, high) <= slack, case
        assert worst_error(theirs, low, high) > 5.0 * slack or worst_error(theirs, low, high) > 0.4 * 65535, (
            case
        )
    assert seen == 15


def test_where_glow_leaves_the_30_bits_of_int32_ours_stays_within(glow):
    seen = 0
    for case, low, high, ours in differing_cases(glow):
        if difference(case, ours, glow) == "tiny range" and ours.qtype == INT32:
            seen += 1
            theirs = QuantParams((glow.real(case["scale"]),), (case["offset"],), INT32)
            ends = np.array([min(low, 0.0), max(high, 0.0)])
            # float32 arithmetic places codes of 30 bits to within 2^6
            assert np.abs(quantize(ends, ours).astype(np.int64)).max() <= (1 << 29) + (1 << 6)
            assert np.abs(quantize(ends, theirs).astype(np.int64)).max() > (1 << 30) - (1 << 6)
    assert seen == 6


def test_where_the_scale_of_glow_vanishes_ours_is_the_smallest_normal_number(glow):
    for case, _, _, ours in differing_cases(glow):
        if difference(case, ours, glow) == "vanished scale":
            assert ours.tensor_scale == FLOAT32_TINY


def test_where_glow_refuses_negative_data_in_symmetric_uint8_ours_is_its_symmetric_int8(glow):
    for case, low, high, ours in differing_cases(glow):
        if difference(case, ours, glow) == "signed instead of refused":
            assert ours == choose_params(low, high, SCHEMAS["symmetric"], INT8)


def test_glow_refuses_symmetric_unsigned_types_and_so_do_we(glow):
    refused = [
        c
        for c in glow.cases("choose_params_generated")
        if "assert" in c and c["schema"] != "symmetric_with_uint8"
    ]
    for case in refused:
        if case["type"] == "uint8":
            with pytest.raises(PlanError):
                choose_params(glow.real(case["min"]), glow.real(case["max"]), glow.schema(case), UINT8)


def test_parameters_and_codes_along_an_axis_are_those_of_glow(glow):
    for case in glow.cases("channelwise_generated"):
        weight = np.asarray(case["data"], np.float32).reshape(case["shape"])
        axis, step, schema, qtype = case["axis"], case["step"], glow.schema(case), glow.qtype(case)
        channels = weight.shape[axis]
        starts = range(0, channels, step)
        groups = [weight.take(range(i, min(i + step, channels)), axis) for i in starts]
        chosen = [channel_params(g, None, schema, qtype) for g in groups]
        assert [p.tensor_scale for p in chosen] == glow.reals(case["scales"]), case
        assert [p.tensor_zero_point for p in chosen] == case["offsets"], case
        spread = [chosen[i // step] for i in range(channels)]
        params = QuantParams(
            tuple(p.tensor_scale for p in spread), tuple(p.tensor_zero_point for p in spread), qtype, axis
        )
        if step == 1:
            assert channel_params(weight, axis, schema, qtype) == params
        assert quantize(weight, params, Rounding.GLOW).reshape(-1).tolist() == case["quantized"], case


def test_row_wise_weights_are_those_of_glow(glow):
    for case in glow.cases("rowwise_generated"):
        weight = np.asarray(case["data"], np.float32).reshape(case["shape"])
        params = channel_params(weight, 0, glow.schema(case), INT8)
        assert params.scale.tolist() == glow.reals(case["scales"])
        assert params.zero_point.tolist() == case["offsets"]
        assert quantize(weight, params, Rounding.GLOW).reshape(-1).tolist() == case["quantized"]


def channelwise_convolutions(glow):
    for case in glow.cases("channelwise_conv_generated"):
        weight = np.asarray(case["weights"], np.float32).reshape(case["weights_shape_OHWI"])
        name = "symmetric" if case["user_schema"] == "asymmetric" else case["user_schema"]
        data = glow.params([case["input_scale"], case["input_offset"]], INT8)
        yield case, data, channel_params(weight, 0, glow.schema({"schema": name}), INT8), weight


def test_a_whole_channel_wise_convolution_is_that_of_glow(glow):
    raised = 0
    for case, data, own, weight in channelwise_convolutions(glow):
        if "assert" in case or case["bias_type"] != "int32":
            continue
        bias = np.asarray(case["bias"], np.float32)
        params = weight_for_bias(data, own, bias)
        raised += params != own
        assert params.scale.tolist() == glow.reals(case["filter_scales"])
        assert params.zero_point.tolist() == case["filter_offsets"]
        assert bias_params(data, params).scale.tolist() == glow.reals(case["bias_scales"])
        assert quantize(weight, params, Rounding.GLOW).reshape(-1).tolist() == case["quantized_weights"]
        assert quantize(bias, bias_params(data, params), Rounding.GLOW).tolist() == case["quantized_bias"]
    assert raised  # the vectors hold a weight that has to give way


def test_convolutions_that_glow_refuses_have_an_input_that_is_not_in_powers_of_two(glow):
    refused = [(c, data) for c, data, _, _ in channelwise_convolutions(glow) if "assert" in c]
    assert refused
    for case, data in refused:
        assert case["user_schema"] == "symmetric_with_power2_scale"
        assert np.frexp(data.tensor_scale)[0] != 0.5  # verify_plan holds this for a whole plan


def test_the_bias_of_a_channel_wise_convolution_has_the_product_of_the_scales(glow):
    rule = glow.document("bias")["per_channel_rule"]["conv"]
    data = glow.params([rule["input_params"]["scale"], rule["input_params"]["offset"]], INT8)
    rng = np.random.default_rng(0)
    weight = rng.uniform(-1e-5, 1e-5, rule["filter"]).astype(np.float32)
    bias = rng.uniform(-1.0, 1.0, rule["bias"]).astype(np.float32)
    params = weight_for_bias(data, channel_params(weight, 0, SCHEMAS["symmetric"], INT8), bias)
    chosen = bias_params(data, params)
    assert chosen.zero_point.tolist() == [0] * 8
    assert chosen.scale.tolist() == [float(np.float32(data.tensor_scale) * s) for s in params.scale]
    back = dequantize(quantize(bias, chosen), chosen)
    assert np.abs(back - bias).max() <= 1e-7  # 2^-24 of a bias below 1, twice: the codes have 30 bits


def test_int32_biases_are_specialised_as_in_glow(glow):
    for case in glow.cases("bias_generated"):
        data, weight = (glow.params(case[k], INT8) for k in ("input", "weights"))
        own = glow.real(case["bias"][0])
        if case["bias_type"] != "int32" or data.tensor_scale * weight.tensor_scale < own:
            continue
        assert bias_params(data, weight) == glow.params(case["specialized_bias"], INT32)


def test_a_weight_that_gives_way_to_its_bias_keeps_to_powers_of_two():
    data = QuantParams((2.0**-10,), (0,), INT8)
    weight = QuantParams((2.0**-20,), (0,), INT8, axis=0)
    fitted = weight_for_bias(data, weight, np.float32([3.2195108]), SCHEMAS["symmetric-power2"])
    assert fitted.tensor_scale == 2.0**-17  # Glow's 7.63e-06
