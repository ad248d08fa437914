"""Implementations of tables and clips: every code, in the reference evaluator, onnxruntime and OpenVINO."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from onnx.reference import ReferenceEvaluator
from qprof_onnx.profiles.base.errors import PlanError
from qprof_onnx.profiles.records.profile import ModelId
from qprof_onnx.quantizer.lowering.lower import lower
from qprof_onnx.quantizer.numerics.affine import TYPES, QuantParams, QuantType, dequantize, quantize
from qprof_onnx.quantizer.numerics.lookup_tables import build_table
from qprof_onnx.quantizer.numerics.schemas import SCHEMAS, choose_params
from qprof_onnx.quantizer.operators.functions import function_of
from qprof_onnx.quantizer.plan.plan import Kind, NodePlan, QuantPlan
from qprof_onnx.quantizer.targets.config import QuantConfig

Lowering = Callable[..., Any]


def one_node(
    op: str, entry: NodePlan, source: QuantParams, result: QuantParams, opset: int = 21
) -> onnx.ModelProto:
    """Return the lowered model of one node on 256 numbers."""
    header = f'<ir_version: 10, opset_import: ["" : {opset}]>'
    text = f"{header} net (float[1,256] x) => (float[1,256] y) {{ y = {op} }}"
    model = ir.from_proto(onnx.parser.parse_model(text))
    next(iter(model.graph)).name = "node"
    plan = QuantPlan(ModelId("s", "w", opset), QuantConfig(), {"x": source, "y": result}, {"node": entry})
    proto = ir.to_proto(lower(model, plan).model)
    onnx.checker.check_model(proto, full_check=True)
    return proto


def all_values(params: QuantParams) -> np.ndarray:
    qtype = params.qtype
    return dequantize(np.arange(qtype.low, qtype.high + 1).astype(qtype.numpy_dtype), params)


def in_reference(proto: onnx.ModelProto, x: np.ndarray) -> np.ndarray:
    result: np.ndarray = np.asarray(ReferenceEvaluator(proto).run(None, {"x": x[None]}))[0, 0]
    return result


def in_onnxruntime(proto: onnx.ModelProto, x: np.ndarray) -> np.ndarray:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    return np.asarray(ort.InferenceSession(proto.SerializeToString(), options).run(None, {"x": x[None]}))[
        0, 0
    ]


def in_openvino(proto: onnx.ModelProto, x: np.ndarray) -> np.ndarray:
    openvino = pytest.importorskip("openvino", reason="of the extra test-all")

    core = openvino.Core()
    compiled = core.compile_model(core.read_model(proto.SerializeToString()), "CPU")
    result: np.ndarray = np.asarray(compiled({"x": x[None]})[0])[0]
    return result


RUNTIMES = {"reference": in_reference, "onnxruntime": in_onnxruntime, "openvino": in_openvino}
CURVES = (
    "Sigmoid",
    "Tanh",
    "HardSwish",
    "Gelu",
    "Erf",
    "Exp",
    "Elu",
    "Softplus",
    "LeakyRelu",
    "HardSigmoid",
    "Mish",
)


def curve_params(op: str, qtype: QuantType) -> tuple[QuantParams, QuantParams]:
    source = choose_params(-4.0, 5.0, SCHEMAS["asymmetric"], qtype)
    y = function_of(ir.node(op, [ir.Value(name="x")]), 21)(all_values(source).astype(np.float64))
    return source, choose_params(float(y.min()), float(y.max()), SCHEMAS["asymmetric"], qtype)


def quantized_floats(op: str, source: QuantParams, result: QuantParams) -> np.ndarray:
    """Return the float function quantized, the reference of every implementation."""
    return build_table(function_of(ir.node(op, [ir.Value(name="x")]), 21), source, result)


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize("op", CURVES)
def test_tables_are_exact_on_every_code_and_those_of_a_runtime_within_one(op: str, runtime: str) -> None:
    for qtype in ("uint8", "int8"):
        source, result = curve_params(op, TYPES[qtype])
        x, wanted = all_values(source), quantized_floats(op, source, result)
        portable, of_runtime = (
            one_node(f"{op}(x)", NodePlan(Kind.LOOKUP_TABLE, implementation=how), source, result)
            for how in ("portable", "runtime")
        )
        assert op not in {n.op_type for n in portable.graph.node}
        np.testing.assert_array_equal(quantize(RUNTIMES[runtime](portable, x), result), wanted)
        # one code: each evaluator has its own float32 approximation of the curve, which may fall over a tie
        quantized = quantize(RUNTIMES[runtime](of_runtime, x), result).astype(int)
        assert np.abs(quantized - wanted.astype(int)).max() <= 1


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize("qtype", ["uint8", "int8"])
@pytest.mark.parametrize("high", [0.5, 1.0, 3.0, 8.0, 40.0])
def test_tanh_through_the_sigmoid_table_is_tanh_on_every_code(qtype: str, high: float, runtime: str) -> None:
    source = choose_params(-high, high, SCHEMAS["asymmetric"], TYPES[qtype])
    result = QuantParams((1 / 128,), (TYPES[qtype].low + 128,), TYPES[qtype])
    proto = one_node("Tanh(x)", NodePlan(Kind.LOOKUP_TABLE, implementation="sigmoid"), source, result)
    assert "Tanh" not in {n.op_type for n in proto.graph.node}
    quantized = quantize(RUNTIMES[runtime](proto, all_values(source)), result).astype(int)
    # one code: the float32 sigmoid may fall over a tie of 256 sigmoid(2x), where rounding tanh does not
    assert np.abs(quantized - quantized_floats("Tanh", source, result).astype(int)).max() <= 1


@pytest.mark.parametrize("qtype", ["uint8", "int8"])
def test_onnxruntime_makes_a_table_of_the_sigmoid_spelling(lowered: Lowering, qtype: str) -> None:
    text = "net (float[1,64] x) => (float[1,64] y) { t = Tanh(x) \n y = Sigmoid(t) }"
    implementations = {"tanh_0": "sigmoid", "sigmoid_1": "runtime"}
    runs = lowered(text, activation=qtype, implementations=implementations)
    assert runs.fused()["QLinearSigmoid"] == 2
    assert not {"Sigmoid", "Tanh"} & set(runs.fused())


CONV_TANH = """
net (float[1,4,8,8] x) => (float[1,4,8,8] y)
<float[4,4,3,3] w1, float[4] b1, float[4,4,3,3] w2, float[4] b2>
{
    c = Conv<pads=[1,1,1,1]>(x, w1, b1)
    t = Tanh(c)
    y = Conv<pads=[1,1,1,1]>(t, w2, b2)
}"""


@pytest.mark.parametrize("qtype", ["uint8", "int8"])
@pytest.mark.parametrize("implementation", ["sigmoid", "portable"])
def test_convolutions_around_a_table_stay_integer(lowered: Lowering, implementation: str, qtype: str) -> None:
    runs = lowered(CONV_TANH, activation=qtype, implementations={"tanh_1": implementation})
    assert runs.fused()["QLinearConv"] == 2
    scale = runs.lowered.model.graph.initializers["y_scale"].const_value.numpy()
    # 2 steps: both convolutions and the table round
    assert np.abs(runs.reference()[0] - runs.onnxruntime()[0]).max() <= 2.001 * scale
    assert np.abs(runs.reference()[0] - runs.openvino()[0]).max() <= 2.001 * scale


def test_tables_with_the_same_entries_are_stored_once(lowered: Lowering) -> None:
    text = "net (float[1,8] x) => (float[1,8] y, float[1,8] z) { y = Tanh(x) \n z = Tanh(x) }"
    runs = lowered(text, implementations={"tanh_0": "portable", "tanh_1": "portable"})
    assert [n for n in runs.lowered.model.graph.initializers if n.endswith("_table")] == ["y_table"]


def test_the_sigmoid_spelling_refuses_other_parameters(uint8_params: QuantParams) -> None:
    with pytest.raises(PlanError, match=r"node 'node' \(Tanh\): .* with scale 1/128"):
        one_node("Tanh(x)", NodePlan(Kind.LOOKUP_TABLE, implementation="sigmoid"), uint8_params, uint8_params)


def test_a_table_without_parameters_is_refused(uint8_params: QuantParams) -> None:
    model = ir.from_proto(
        onnx.parser.parse_model(
            '<ir_version: 8, opset_import: ["" : 17]> net (float[4] x) => (float[4] y) { y = Tanh(x) }'
        )
    )
    next(iter(model.graph)).name = "node"
    entry = NodePlan(Kind.LOOKUP_TABLE, implementation="portable")
    plan = QuantPlan(ModelId("s", "w", 17), QuantConfig(), {"x": uint8_params}, {"node": entry})
    with pytest.raises(PlanError, match=r"node 'node' .* needs parameters of input and output"):
        lower(model, plan)


CLIPS = {"Relu(x)": (0.0, np.inf), "Clip(x, zero)": (0.0, np.inf), "Clip(x, zero, six)": (0.0, 6.0)}


def clip_params(qtype: str, low: float, high: float) -> QuantParams:
    return choose_params(low, high, SCHEMAS["asymmetric"], TYPES[qtype])


def clip_model(op: str, params: QuantParams, implementation: str) -> onnx.ModelProto:
    text = (
        '<ir_version: 8, opset_import: ["" : 19]> net (float[1,256] x) => (float[1,256] y)'
        f"<float zero = {{0.0}}, float six = {{6.0}}, float minus = {{-1.0}}> {{ y = {op} }}"
    )
    model = ir.from_proto(onnx.parser.parse_model(text))
    next(iter(model.graph)).name = "node"
    entry = NodePlan(Kind.PASS_THROUGH, implementation=implementation)
    plan = QuantPlan(ModelId("s", "w", 19), QuantConfig(), {"x": params, "y": params}, {"node": entry})
    proto = ir.to_proto(lower(model, plan).model)
    onnx.checker.check_model(proto, full_check=True)
    return proto


@pytest.mark.parametrize("implementation", ["", "integer", "leaky-relu"])
@pytest.mark.parametrize("qtype", ["uint8", "int8"])
def test_a_relu_that_saturation_covers_is_removed(qtype: str, implementation: str) -> None:
    proto = clip_model("Relu(x)", clip_params(qtype, 0.0, 5.0), implementation)
    assert [n.op_type for n in proto.graph.node] == ["QuantizeLinear", "DequantizeLinear"]


@pytest.mark.parametrize("qtype", ["uint8", "int8"])
def test_a_clip_that_saturation_covers_is_removed(qtype: str) -> None:
    proto = clip_model("Clip(x, zero, six)", clip_params(qtype, 0.0, 6.0), "")
    assert [n.op_type for n in proto.graph.node] == ["QuantizeLinear", "DequantizeLinear"]


def test_a_clip_is_kept_when_quantized_values_reach_above_it() -> None:
    proto = clip_model("Clip(x, zero, six)", clip_params("uint8", 0.0, 6.1), "")
    assert "Clip" in {n.op_type for n in proto.graph.node}


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize("op", CLIPS)
def test_clips_are_exact_on_every_code(op: str, runtime: str) -> None:
    for qtype, how in product(("uint8", "int8"), ("", "integer", "leaky-relu")):
        if how == "leaky-relu" and "six" in op:
            continue
        params = clip_params(qtype, -3.0, 8.0)
        x = all_values(params)
        wanted = quantize(np.clip(x, *CLIPS[op]), params)
        found = quantize(RUNTIMES[runtime](clip_model(op, params, how), x), params)
        np.testing.assert_array_equal(found, wanted)


DYNAMIC_CLIP = "net (float[1,8] x, float low) => (float[1,8] y) { y = Clip(x, low) }"


def test_a_clip_with_bounds_at_run_time_is_kept(lowered: Lowering) -> None:
    runs = lowered(DYNAMIC_CLIP)
    assert runs.operators()["Clip"] == 1
    np.testing.assert_array_equal(runs.reference()[0], runs.onnxruntime()[0])


def test_a_clip_with_bounds_at_run_time_is_kept_between_conversions(lowered: Lowering) -> None:
    runs, plain = lowered(DYNAMIC_CLIP, implementations={"clip_0": "integer"}), lowered(DYNAMIC_CLIP)
    assert runs.proto.graph == plain.proto.graph


def test_a_clip_with_bounds_at_run_time_is_no_leaky_relu(lowered: Lowering) -> None:
    with pytest.raises(PlanError, match="a clip from 0"):
        lowered(DYNAMIC_CLIP, implementations={"clip_0": "leaky-relu"})


def test_padding_with_a_value_at_run_time_is_kept_between_conversions(lowered: Lowering) -> None:
    text = """
    net (float[1,8] x, float fill) => (float[1,10] y)
    <int64[4] pads = {0,1,0,1}>
    { y = Pad(x, pads, fill) }"""
    runs = lowered(text, implementations={"pad_0": "integer"})
    assert [node.op_type for node in runs.proto.graph.node][:3] == [
        "QuantizeLinear",
        "DequantizeLinear",
        "Pad",
    ]
