"""Floating-point types of few bits, held against ml_dtypes, onnx's vectors, its reference and onnxruntime."""

from __future__ import annotations

import functools
import importlib
import warnings
from collections.abc import Iterator

import ml_dtypes
import numpy as np
import onnx.parser
import onnxruntime
import pytest
from onnx import TensorProto
from onnx.backend.test.case import node as onnx_cases
from onnx.backend.test.case.test_case import TestCase
from onnx.helper import tensor_dtype_to_np_dtype
from onnx.numpy_helper import to_array
from onnx.reference import ReferenceEvaluator
from qprof_onnx.profiles.base.errors import DataError, PlanError
from qprof_onnx.quantizer.numerics.affine import (
    FLOAT4E2M1,
    FLOAT8E4M3FN,
    FLOAT8E4M3FNUZ,
    FLOAT8E5M2,
    TYPES,
    FloatFormat,
    QuantParams,
    QuantType,
    dequantize,
    levels,
    quantize,
)
from qprof_onnx.quantizer.numerics.schemas import SCHEMAS, channel_params, choose_params
from qprof_onnx.quantizer.targets.config import FLOAT_TYPES

FLOATS = [qtype for qtype in TYPES.values() if qtype.is_float and qtype.scales is None]
FLOAT8 = [qtype for qtype in FLOATS if qtype.bits == 8]
EDGES = np.array(
    # around the largest values of e4m3fn, fnuz and e5m2, ties, the smallest numbers, and no numbers
    [
        *(448, 463.9, 464, 465, 480, 1e9, 240, 247, 248, 249, 57344, 61439, 61440, 61441, 65536, np.inf),
        *(0.0, 2**-10, 2**-9, 1.5 * 2**-9, 2**-11, 2**-17, 1.0625, 1.1875, 0.48, 5, 6, 7, 0.25, 0.75, 2.5),
    ],
    np.float32,
)
EDGES = np.concatenate([EDGES, -EDGES, np.random.default_rng(0).normal(0.0, 60.0, 4000).astype(np.float32)])


@functools.cache
def vectors() -> tuple[TestCase, ...]:
    """Return onnx's own test cases of the operators that convert."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # values are cast that overflow
        for name in ("cast", "quantizelinear", "dequantizelinear"):  # importing one makes its cases
            importlib.import_module(f"{onnx_cases.__name__}.{name}")
    return tuple(onnx_cases._NodeTestCases)


def floats(operator: str, position: int) -> Iterator[tuple[TestCase, TensorProto.DataType]]:
    """Yield those cases whose input (0 and up) or output (-1) is of a type that qprof knows as floats."""
    for case in vectors():
        graph = case.model.graph
        if graph.node[0].op_type != operator:
            continue
        value = graph.output[0] if position < 0 else graph.input[position]
        kind = value.type.tensor_type.elem_type
        if TensorProto.DataType.Name(kind).lower() in {qtype.name for qtype in FLOATS}:
            yield case, kind


def arrays(case: TestCase) -> tuple[list[np.ndarray], np.ndarray]:
    """Return the inputs and the output of a test case."""
    inputs, outputs = (
        [to_array(value) if isinstance(value, TensorProto) else np.asarray(value) for value in values]
        for values in case.data_sets[0]
    )
    return inputs, outputs[0]


def type_of(kind: int) -> tuple[QuantParams, np.dtype]:
    name = TensorProto.DataType.Name(kind).lower()
    return QuantParams((1.0,), (0,), TYPES[name]), tensor_dtype_to_np_dtype(kind)


@pytest.mark.parametrize("qtype", FLOATS, ids=lambda t: t.name)
def test_the_values_of_all_codes_are_those_of_ml_dtypes_and_of_onnx(qtype) -> None:
    assert qtype.number is not None
    codes = np.arange(1 << qtype.bits, dtype=np.uint8)
    assert np.array_equal(
        qtype.number.values, codes.view(qtype.numpy_dtype).astype(np.float64), equal_nan=True
    )
    assert tensor_dtype_to_np_dtype(getattr(TensorProto, qtype.name.upper())) == qtype.numpy_dtype
    assert qtype.high == float(ml_dtypes.finfo(qtype.numpy_dtype).max) == -qtype.low
    assert np.all(np.diff(levels(qtype)) > 0.0)


@pytest.mark.parametrize("qtype", FLOATS, ids=lambda t: t.name)
def test_every_finite_code_survives_dequantizing_and_quantizing(qtype) -> None:
    params = QuantParams((float(np.float32(0.37)),), (0,), qtype)
    codes = np.arange(1 << qtype.bits, dtype=np.uint8).view(qtype.numpy_dtype)
    codes = codes[np.isfinite(codes.astype(np.float32))]
    assert quantize(dequantize(codes, params), params).tobytes() == codes.tobytes()


@pytest.mark.parametrize("operator", ["QuantizeLinear", "Cast"])
def test_onnx_s_vectors_of_quantizing_are_met(operator) -> None:
    count = 0
    for case, kind in floats(operator, -1):
        inputs, expected = arrays(case)
        attributes = {a.name: a.i for a in case.model.graph.node[0].attribute}
        if attributes.get("saturate", 1) == 0 or inputs[0].dtype.kind not in "fV":
            continue
        scale = inputs[1].reshape(-1) if operator == "QuantizeLinear" else np.ones(1, np.float32)
        axis = None if scale.size == 1 else attributes.get("axis", 1)
        block = attributes.get("block_size") or None
        params = QuantParams(scale, np.zeros(scale.size, np.int32), type_of(kind)[0].qtype, axis, block)
        values = inputs[0].astype(np.float32)
        if operator == "Cast" and params.qtype is FLOAT4E2M1:  # has no NaN
            values, expected = values[~np.isnan(values)], expected[~np.isnan(values)]
        found = quantize(values, params).astype(np.float32)  # the sign of 0 is not written in all vectors
        assert np.array_equal(found, expected.astype(np.float32), equal_nan=True), case.name
        count += 1
    assert count >= (3 if operator == "QuantizeLinear" else 8)


@pytest.mark.parametrize("operator", ["DequantizeLinear", "Cast"])
def test_onnx_s_vectors_of_dequantizing_are_met(operator) -> None:
    count = 0
    for case, kind in floats(operator, 0):
        inputs, expected = arrays(case)
        if expected.dtype not in (np.float32, np.float16):
            continue
        scale = inputs[1].reshape(-1) if operator == "DequantizeLinear" else np.ones(1, np.float32)
        params = QuantParams(scale, np.zeros(scale.size, np.int32), type_of(kind)[0].qtype)
        found = dequantize(inputs[0], params).astype(expected.dtype)
        assert np.array_equal(found, expected, equal_nan=True), case.name
        count += 1
    assert count >= (4 if operator == "DequantizeLinear" else 8)


def model_of(qtype, body: str, result: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["" : {23 if qtype.bits == 4 else 21}]>
        m (float[n] x, float s, {qtype.name} z) => ({result}[n] y) {{ {body} }}"""
    )


BOTH = "q = QuantizeLinear (x, s, z)  y = DequantizeLinear (q, s, z)"


@pytest.mark.parametrize("qtype", FLOATS, ids=lambda t: t.name)
@pytest.mark.parametrize("scale", [1.0, 0.37])
def test_values_are_those_of_the_reference_and_of_onnxruntime(qtype, scale) -> None:
    params = QuantParams((float(np.float32(scale)),), (0,), qtype)
    expected = dequantize(quantize(EDGES, params), params)
    model = model_of(qtype, BOTH, "float")
    feeds = {"x": EDGES, "s": params.scale_array, "z": params.zero_point_array}
    assert np.array_equal(ReferenceEvaluator(model).run(None, feeds)[0], expected)
    if qtype.bits == 4:  # onnxruntime has no kernel
        return
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    # Types of ml_dtypes do not reach onnxruntime as inputs: the zero point is a constant.
    zero = onnx.helper.make_tensor("z", getattr(TensorProto, qtype.name.upper()), [], b"\0", raw=True)
    model.graph.initializer.append(zero)
    del model.graph.input[2], feeds["z"]
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
    assert np.array_equal(session.run(None, feeds)[0], expected)


@pytest.mark.parametrize("qtype", FLOAT8, ids=lambda t: t.name)
def test_all_bytes_dequantize_as_in_the_reference_and_in_onnxruntime(qtype) -> None:
    codes = np.arange(256, dtype=np.uint8)
    kind = getattr(TensorProto, qtype.name.upper())
    model = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["" : 21]>
        m (float s) => (float[256] y) { y = DequantizeLinear (c, s) }"""
    )
    model.graph.initializer.append(onnx.helper.make_tensor("c", kind, [256], codes.tobytes(), raw=True))
    params = QuantParams((0.375,), (0,), qtype)
    expected = dequantize(codes.view(qtype.numpy_dtype), params)
    feeds = {"s": params.scale_array}
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
    for found in (ReferenceEvaluator(model).run(None, feeds)[0], session.run(None, feeds)[0]):
        assert np.array_equal(found, expected, equal_nan=True)


@pytest.mark.extra
@pytest.mark.parametrize("qtype", [FLOAT8E4M3FN, FLOAT8E5M2], ids=lambda t: t.name)
def test_all_bytes_of_numbers_dequantize_as_in_openvino(qtype) -> None:
    openvino = pytest.importorskip("openvino")
    codes = np.arange(256, dtype=np.uint8)
    kind = getattr(TensorProto, qtype.name.upper())
    model = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["" : 21]> m (float[256] x) => (float[256] y) <float s = {0.375}>
        { d = DequantizeLinear (c, s, z) y = Add (d, x) }"""
    )
    for name, dims, content in (("c", [256], codes.tobytes()), ("z", [], b"\0")):
        model.graph.initializer.append(onnx.helper.make_tensor(name, kind, dims, content, raw=True))
    core = openvino.Core()
    settings = {"INFERENCE_PRECISION_HINT": "f32"}
    compiled = core.compile_model(core.read_model(model.SerializeToString()), "CPU", settings)
    (found,) = compiled({"x": np.zeros(256, np.float32)}).values()
    expected = dequantize(codes.view(qtype.numpy_dtype), QuantParams((0.375,), (0,), qtype))
    numbers = np.isfinite(expected)  # NaN becomes the lowest value where OpenVINO quantizes
    assert np.array_equal(found[numbers], expected[numbers])


def test_what_is_beyond_saturates_and_nan_stays_where_the_type_has_it() -> None:
    values = np.array([np.inf, -1e9, 464.0, 465.0, 2.0**-10, np.nan], np.float32)
    found = quantize(values, QuantParams((1.0,), (0,), FLOAT8E4M3FN)).astype(np.float32)
    assert found[:5].tolist() == [448.0, -448.0, 448.0, 448.0, 0.0]
    assert np.isnan(found[5])
    assert quantize(np.inf, QuantParams((1.0,), (0,), FLOAT8E5M2)).astype(np.float32) == 57344.0
    assert quantize(-0.0, QuantParams((1.0,), (0,), FLOAT8E4M3FNUZ)).tobytes() == b"\0"
    with pytest.raises(DataError, match="1 of 6 values are NaN"):
        quantize(values, QuantParams((1.0,), (0,), FLOAT4E2M1))


def test_a_zero_point_other_than_zero_is_refused() -> None:
    with pytest.raises(PlanError, match="zero_point 1 is outside of float8e4m3fn; give 0"):
        QuantParams((1.0,), (1,), FLOAT8E4M3FN)


@pytest.mark.parametrize("schema", SCHEMAS)
@pytest.mark.parametrize("qtype", FLOATS, ids=lambda t: t.name)
def test_the_scale_is_the_largest_magnitude_over_the_largest_value(schema, qtype) -> None:
    params = choose_params(-3.0, 5.0, SCHEMAS[schema], qtype)
    exact = np.float32(5.0 / qtype.high)
    scale = float(2.0 ** np.ceil(np.log2(exact))) if SCHEMAS[schema].power_of_two else float(exact)
    assert params == QuantParams((scale,), (0,), qtype)


def test_each_channel_of_a_weight_has_a_scale_of_its_own() -> None:
    weight = np.array([[1.0, -448.0], [0.0, 0.0], [0.25, 0.5]], np.float32)
    params = channel_params(weight, 0, SCHEMAS["symmetric"], FLOAT8E4M3FN)
    assert params.scale.tolist() == [1.0, np.float32(0.1), np.float32(0.5 / 448.0)]
    assert params.axis == 0


@pytest.mark.parametrize("further", [("float6e2m3", 2, 3, 1), ("float6e3m2", 3, 2, 3)], ids=lambda f: f[0])
def test_a_further_format_is_one_entry(further) -> None:
    name, exponent, mantissa, bias = further
    qtype = QuantType(name, 6, True, number=FloatFormat(exponent, mantissa, bias, "none"))
    assert qtype.numpy_dtype == tensor_dtype_to_np_dtype(getattr(TensorProto, name.upper()))
    codes = np.arange(64, dtype=np.uint8).view(qtype.numpy_dtype)
    assert np.array_equal(qtype.number.values, codes.astype(np.float64))
    assert qtype.high == float(ml_dtypes.finfo(qtype.numpy_dtype).max)
    values = np.random.default_rng(0).normal(0.0, 2.0, 500).astype(np.float32)
    params = choose_params(float(values.min()), float(values.max()), SCHEMAS["symmetric"], qtype)
    found = dequantize(quantize(values, params), params) / params.tensor_scale
    steps = values.astype(np.float64) / params.tensor_scale
    assert np.abs(found - steps).max() <= np.abs(levels(qtype)[:, None] - steps).min(0).max() + 1e-6


def test_the_words_of_settings_are_names_of_types() -> None:
    assert set(FLOAT_TYPES) == {qtype.name for qtype in FLOAT8}
