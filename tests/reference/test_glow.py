"""The arithmetic that only Glow has, against Glow's numbers."""

from __future__ import annotations

import ctypes
import ctypes.util
import hashlib
import platform

import numpy as np
import pytest
from qprof_onnx.quantizer.numerics.affine import INT8, INT32, TYPES
from qprof_onnx.quantizer.numerics.schemas import SCHEMAS, choose_params

from .glow import (
    RunningHistogram,
    average,
    choose_params_kl,
    integer_scale,
    lookup_table,
    specialized_bias,
    specialized_bias_weight,
    updated_histogram,
)

TINY = float(np.finfo(np.float32).tiny)
CURVES = {
    "sigmoid": lambda x: 1.0 / (1.0 + np.exp(-x)),
    "tanh": np.tanh,
    "exp": np.exp,
    "log": lambda x: np.log(np.maximum(x, TINY)),
}


def in_double(name: str):
    return lambda x: CURVES[name](x.astype(np.float64)).astype(np.float32)


def start(bins: int) -> RunningHistogram:
    return RunningHistogram(np.zeros(bins, np.float32), float(np.finfo(np.float32).max), 0.0)


def test_profiling_histograms_are_those_of_glow_after_every_batch(glow):
    for case in glow.cases("histogram_generated"):
        state = start(case["bins"])
        for batch, expected in zip(case["batches"], case["after_each_batch"], strict=True):
            state = updated_histogram(state, np.asarray(glow.reals(batch), np.float32))
            assert (state.minimum, state.maximum) == (glow.real(expected["min"]), glow.real(expected["max"]))
            assert state.counts.tolist() == glow.counts(case["bins"], expected["histogram"]).tolist()


def test_glow_unit_test_of_running_minimum_and_maximum_holds(glow):
    state = start(10)
    for case in glow.document("histogram")["running_min_max"]["cases"]:
        state = updated_histogram(state, np.asarray(case["batch"], np.float32))
        assert abs(state.minimum - case["min"]) <= case["tolerance"]
        assert abs(state.maximum - case["max"]) <= case["tolerance"]


def test_a_count_stops_at_2_to_the_24_as_in_glow():
    full = RunningHistogram(np.full(1, (1 << 24) - 1, np.float32), 0.0, 1.0)
    assert updated_histogram(full, np.array([0.5, 0.5, 0.5], np.float32)).counts.tolist() == [1 << 24]


def test_averages_are_those_of_glow(glow):
    for case in glow.cases("tensor_average_generated"):
        counts = np.asarray(case["histogram"], np.float32)
        assert average(counts, glow.real(case["min"]), glow.real(case["max"])) == glow.real(case["expected"])
    for case in glow.document("histogram")["tensor_average"]["cases"]:
        counts = np.asarray(case["histogram"], np.float32)
        assert average(counts, case["min"], case["max"]) == case["expected"]


def test_kl_parameters_are_those_of_glow_but_for_ranges_without_zero(glow):
    differing = 0
    for case in glow.cases("choose_params_kl_generated"):
        low, high = glow.real(case["min"]), glow.real(case["max"])
        counts = glow.counts(case["bins"], case["histogram"])
        params = choose_params_kl(low, high, counts, glow.schema(case), glow.qtype(case))
        if (params.tensor_scale, params.tensor_zero_point) == (glow.real(case["scale"]), case["offset"]):
            continue
        # Glow clips the bottom off all-positive data and then shifts the rest down: the top is lost.
        differing += 1
        assert low > 0.0
        first, steps = glow.qtype(case).low, glow.qtype(case).high - glow.qtype(case).low
        assert (params.tensor_zero_point, case["offset"]) == (first, first)
        assert params.tensor_scale * steps > glow.real(case["scale"]) * steps
        assert glow.real(case["scale"]) * steps < 0.95 * high
    assert differing == 3


def test_integer_scales_are_those_of_glow(glow):
    for case in glow.cases("scale_offset32to8_generated"):
        scale = integer_scale(glow.real(case["scale"]), case["offset"])
        assert (scale.pre, scale.post, scale.factor) == (case["pre"], case["post"], case["int_scale"])
        assert scale.offset == case["out_offset"]
        assert scale.apply(np.asarray(case["inputs"], np.int32)).tolist() == case["transformed"]
    for case in glow.document("scale_offset32to8")["glow_values"]:
        scale = integer_scale(glow.real(case["scale"]), 0)
        assert (scale.pre, scale.post, scale.factor) == (case["pre"], case["post"], case["int_scale"])


def test_integer_scales_are_within_one_of_the_exact_product(glow):
    rule = glow.document("scale_offset32to8")["property"]
    x = np.arange(-128, 127)
    for scale in rule["scales"] + rule["power_of_two_scales"]:
        inputs = np.rint(x / float(np.float32(scale))).astype(np.int32)
        assert np.abs(integer_scale(glow.real(scale), 0).apply(inputs) - x).max() <= rule["tolerance"]


def test_biases_are_specialised_as_in_glow(glow):
    for case in glow.cases("bias_generated"):
        qtype, zero = TYPES[case["bias_type"]], case["bias_is_zero"]
        own = glow.params(case["bias"], qtype)
        data, weight = (glow.params(case[k], INT8) for k in ("input", "weights"))
        assert specialized_bias(own, data, weight, zero) == glow.params(case["specialized_bias"], qtype)
        both = case["specialized_bias_weights"]
        expected = (glow.params(both["bias"], qtype), glow.params(both["weights"], INT8))
        assert specialized_bias_weight(own, data, weight, zero) == expected


def test_an_int32_bias_keeps_a_scale_that_is_larger_than_the_product():
    coarse = choose_params(1e9, 1e9, SCHEMAS["asymmetric"], INT32)
    fine = choose_params(-1e-3, 1e-3, SCHEMAS["symmetric"], INT8)
    assert specialized_bias(coarse, fine, fine, zero=False).tensor_scale == coarse.tensor_scale


def test_int8_tables_are_those_of_glow(glow):
    tables = [c for c in glow.cases("lut_generated") if c["type"] == "int8"]
    for case in tables:
        data, output = (glow.params(case[k], INT8) for k in ("input", "output"))
        assert lookup_table(in_double(case["function"]), data, output).tolist() == case["table"], case


def test_the_fixed_ranges_of_the_tables_give_the_parameters_of_glow(glow):
    ranges = {"sigmoid": ((-6.0, 6.0), (0.0, 1.0)), "tanh": ((-3.0, 3.0), (-1.0, 1.0))}
    for case in glow.cases("lut_generated"):
        if "schema" in case:
            for span, key in zip(ranges[case["function"]], ("input", "output"), strict=True):
                params = choose_params(*span, glow.schema(case), glow.qtype(case))
                assert params == glow.params(case[key], glow.qtype(case)), case
    for case in glow.document("lut")["lowering"]["cases"]:
        for key in ("input", "output"):
            span = glow.reals(case[f"table_{key}_range"])
            params = choose_params(*span, SCHEMAS["asymmetric"], INT8)
            assert params == glow.params(case[f"{key}_scale_offset"], INT8), case


def test_int16_tables_are_within_one_of_glow(glow):
    # Glow calls the float32 functions of the C library, whose last bit tips a rounding now and then.
    tables = [c for c in glow.cases("lut_generated") if c["type"] == "int16"]
    assert tables
    for case in tables:
        data, output = (glow.params(case[k], glow.qtype(case)) for k in ("input", "output"))
        table = lookup_table(in_double(case["function"]), data, output).astype(np.int64)
        assert np.abs(table[::257] - case["table_every_257th"]).max() <= 1
        assert np.count_nonzero(table[::257] != case["table_every_257th"]) <= 3


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="Glow's vectors hold glibc's expf and tanhf")
def test_int16_tables_are_those_of_glow_with_the_functions_of_its_c_library(glow):
    library = ctypes.CDLL(ctypes.util.find_library("m"))
    for name in ("expf", "tanhf"):
        getattr(library, name).restype, getattr(library, name).argtypes = ctypes.c_float, [ctypes.c_float]

    def mapped(name, values):
        return np.array([getattr(library, name)(v) for v in values.tolist()], np.float32)

    curves = {
        "sigmoid": lambda x: np.float32(1) / (np.float32(1) + mapped("expf", -x)),
        "tanh": lambda x: mapped("tanhf", x),
    }
    for case in (c for c in glow.cases("lut_generated") if c["type"] == "int16"):
        data, output = (glow.params(case[k], glow.qtype(case)) for k in ("input", "output"))
        table = lookup_table(curves[case["function"]], data, output)
        digest = hashlib.sha256(table.astype("<i2").tobytes()).hexdigest()
        assert digest == case["table_sha256_int16_little_endian"], case["function"]
