"""What the rewritten graph looks like: names, sharing, who reads which form, refusals."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from qprof_onnx.profiles.base.errors import PlanError
from qprof_onnx.quantizer.lowering.lower import lower
from qprof_onnx.quantizer.numerics.affine import INT8, INT16, UINT8, QuantParams, dequantize
from qprof_onnx.quantizer.numerics.schemas import SCHEMAS, channel_params, choose_params
from qprof_onnx.quantizer.plan.plan import Kind, NodePlan, QuantPlan

Lowering = Callable[..., Any]
MakeModel = Callable[..., ir.Model]
MakePlan = Callable[..., QuantPlan]

CONV = """
net (float[1,2,4,4] x) => (float[1,2,4,4] y)
<float[2,2,3,3] w, float[2] b>
{
    c = Conv<pads=[1,1,1,1]>(x, w, b)
    y = Relu(c)
}"""


def writers(runs: Any) -> dict[str, onnx.NodeProto]:
    return {name: node for node in runs.proto.graph.node for name in node.output}


def initializers(runs: Any) -> dict[str, np.ndarray]:
    return {t.name: onnx.numpy_helper.to_array(t) for t in runs.proto.graph.initializer}


def test_names_tell_what_a_tensor_is(lowered: Lowering) -> None:
    runs = lowered(CONV)
    assert list(writers(runs)) == [
        "x_quantized",
        "x_dequantized",
        "w_dequantized",
        "b_dequantized",
        "c_raw",
        "c_quantized",
        "y",
    ]
    assert sorted(initializers(runs)) == [
        "b_quantized",
        "b_scale",
        "c_scale",
        "c_zero_point",
        "w_quantized",
        "w_scale",
        "w_zero_point",
        "x_scale",
        "x_zero_point",
    ]


def test_weights_are_stored_quantized_only(lowered: Lowering) -> None:
    stored = initializers(lowered(CONV))
    assert stored["w_quantized"].dtype == np.int8
    assert stored["w_scale"].shape == (2,)
    assert stored["b_quantized"].dtype == np.int32
    assert "w" not in stored


def test_an_int32_bias_has_no_zero_point(lowered: Lowering) -> None:
    assert list(writers(lowered(CONV))["b_dequantized"].input) == ["b_quantized", "b_scale"]


def test_weights_per_tensor_have_no_axis(lowered: Lowering) -> None:
    runs = lowered(CONV, per_channel=False)
    assert not writers(runs)["w_dequantized"].attribute
    assert initializers(runs)["w_scale"].shape == ()
    assert runs.fused()["QLinearConv"] == 1


SHARED = """
net (float[4,8] x) => (float[4,8] y)
<float[8,8] w, float[8] b>
{
    g = Gemm<transB=1>(x, w, b)
    y = Gemm<transB=1>(g, w, b)
}"""


def test_a_shared_weight_is_stored_once(lowered: Lowering) -> None:
    runs = lowered(SHARED)
    assert [n for n, a in initializers(runs).items() if a.size == 64] == ["w_quantized"]
    gemms = [n for n in runs.proto.graph.node if n.op_type == "Gemm"]
    assert gemms[0].input[1] == gemms[1].input[1] == "w_dequantized"


def test_a_shared_bias_is_stored_for_each_node(lowered: Lowering) -> None:
    text = SHARED.replace("(g, w, b)", "(x, w, b)").replace("float[4,8] y)", "float[4,8] y, float[4,8] g)")
    runs = lowered(text)
    gemms = [n for n in runs.proto.graph.node if n.op_type == "Gemm"]
    assert gemms[0].input[2] != gemms[1].input[2]
    biases = [writers(runs)[g.input[2]].input[0] for g in gemms]
    assert biases == ["b_quantized", "b_quantized_1"]
    assert runs.fused()["QGemm"] == 2


def test_new_names_avoid_every_name_there_is(lowered: Lowering) -> None:
    text = """
    net (float[1,4] x, float[1,4] x_quantized) => (float[1,4] y, float[1,4] y_raw)
    <float[1,4] x_scale>
    {
        y = Add(x, x_quantized)
        y_raw = Add(y, x_scale)
    }"""
    runs = lowered(text)
    names = [*writers(runs), *initializers(runs), "x", "x_quantized"]
    assert len(names) == len(set(names))
    assert "x_quantized_1" in names
    np.testing.assert_allclose(runs.reference()[0], runs.onnxruntime()[0], atol=1e-6)


def test_equal_parameters_are_stored_once(lowered: Lowering) -> None:
    text = "net (float[1,4,4,4] x) => (float[1,4,2,2] y) { y = MaxPool<kernel_shape=[2,2],strides=[2,2]>(x) }"
    assert sorted(initializers(lowered(text))) == ["x_scale", "x_zero_point"]


def test_a_conversion_is_made_once_for_all_readers(lowered: Lowering) -> None:
    text = "net (float[1,4] x) => (float[1,4] y, float[1,4] z) { y = Add(x, x) \n z = Mul(x, x) }"
    assert lowered(text).operators() == {"QuantizeLinear": 3, "DequantizeLinear": 3, "Add": 1, "Mul": 1}


# Who reads what


def test_a_float_node_reads_dequantized_values(lowered: Lowering) -> None:
    text = "net (float[1,4] x) => (float[1,4] y) { a = Add(x, x) \n y = Sin(a) }"
    runs = lowered(text, floats=["sin_1"])
    made = writers(runs)
    assert list(made["y"].input) == ["a"]
    assert made["a"].op_type == "DequantizeLinear"


def test_a_float_node_reads_a_float_tensor_raw_beside_a_quantized_reader(lowered: Lowering) -> None:
    text = "net (float[1,4] x) => (float[1,4] y, float[1,4] z) { s = Sin(x) \n y = Exp(s) \n z = Add(s, s) }"
    runs = lowered(text, floats=["sin_0", "exp_1"])
    made = writers(runs)
    assert list(made["y"].input) == ["s"]
    assert made["s"].op_type == "Sin"
    assert made["z_raw"].input[0] == "s_dequantized"


def test_a_float_node_reads_a_constant_raw(lowered: Lowering) -> None:
    text = """
    net (float[1,2,4,4] x) => (float[1,2,4,4] y, float[1,2,4,4] z)
    <float[2,2,1,1] w>
    {
        y = Conv(x, w)
        z = Conv(x, w)
    }"""
    runs = lowered(text, floats=["conv_1"])
    assert list(writers(runs)["z"].input) == ["x", "w"]
    assert {"w", "w_quantized"} <= set(initializers(runs))


def test_an_input_with_other_parameters_is_converted_on_its_edge(lowered: Lowering) -> None:
    text = "net (float[1,4] x) => (float[1,4] y) { a = Add(x, x) \n y = Mul(a, a) }"
    other = QuantParams((0.125,), (100,), UINT8)
    runs = lowered(text, overrides={"mul_1": {1: other}})
    made = writers(runs)
    left, right = made["y_raw"].input
    assert left == "a"
    requantize = made[made[right].input[0]]
    assert requantize.op_type == "QuantizeLinear"
    assert requantize.input[0] == "a"
    assert initializers(runs)[requantize.input[1]] == np.float32(0.125)
    assert initializers(runs)[made[right].input[2]] == 100


def test_a_node_that_returns_float_keeps_the_name_of_its_output(lowered: Lowering) -> None:
    text = "net (float[4,8] x) => (float[4,4] y) <float[8,4] w> { y = MatMul(x, w) }"
    runs = lowered(text, returns_float=["y"])
    assert writers(runs)["y"].op_type == "MatMul"


def test_an_if_body_sees_the_float_form_of_a_captured_tensor(lowered: Lowering) -> None:
    text = """
    net (float[1,4] x, bool flag) => (float[1,4] y)
    {
        a = Add(x, x)
        y = If<then_branch = yes () => (float[1,4] p) { p = Sin(a) },
               else_branch = no () => (float[1,4] q) { q = Mul(a, x) }>(flag)
    }"""
    runs = lowered(text, floats=["if_1"])
    made = writers(runs)
    assert made["a"].op_type == "DequantizeLinear"
    branch = next(a.g for a in made["y"].attribute if a.name == "then_branch")
    assert list(branch.node[0].input) == ["a"]
    # 1e-6: the sine of two libraries
    np.testing.assert_allclose(runs.reference()[0], runs.onnxruntime()[0], atol=1e-6)


def test_a_removed_relu_leaves_both_outputs_of_the_graph(lowered: Lowering) -> None:
    text = CONV.replace("float[1,2,4,4] y)", "float[1,2,4,4] y, float[1,2,4,4] c)")
    runs = lowered(text)
    made = writers(runs)
    assert "Relu" not in runs.operators()
    assert made["y"].input[0] == made["c"].input[0] == "c_quantized"


def test_pad_on_integers_fills_with_its_quantized_value(lowered: Lowering) -> None:
    text = """
    net (float[1,2,4,4] x) => (float[1,2,6,6] y)
    <int64[8] pads = {0,0,1,1,0,0,1,1}>
    { y = Pad(x, pads) }"""
    runs = lowered(text, implementations={"pad_0": "integer"})
    assert set(runs.fused()) == {"QuantizeLinear", "Pad", "DequantizeLinear"}
    padded = runs.reference()[0]
    assert set(padded[0, 0, 0].tolist()) == {0.0}
    np.testing.assert_array_equal(padded, runs.onnxruntime()[0])


def test_maximum_on_integers_needs_equal_parameters(lowered: Lowering) -> None:
    text = "net (float[1,8] a, float[1,8] b) => (float[1,8] y) { y = Max(a, b) }"
    tied = lowered(text, implementations={"max_0": "integer"}, ties={"a": "y", "b": "y"})
    assert set(tied.fused()) == {"QuantizeLinear", "Max", "DequantizeLinear"}
    np.testing.assert_array_equal(tied.reference()[0], tied.onnxruntime()[0])
    with pytest.raises(PlanError, match="input 0 must have the parameters of the output"):
        lowered(text, implementations={"max_0": "integer"})


def test_a_leaky_relu_is_fused_where_a_relu_is_not(lowered: Lowering) -> None:
    how = {"activation": "int8", "schema": "symmetric"}
    assert lowered(CONV, **how).fused()["Relu"] == 1
    runs = lowered(CONV, implementations={"relu_1": "leaky-relu"}, **how)
    assert runs.fused()["QLinearLeakyRelu"] == 1
    np.testing.assert_array_equal(runs.reference()[0], runs.onnxruntime()[0])


def test_a_leaky_clip_that_also_cuts_above_is_refused(lowered: Lowering) -> None:
    text = """
    net (float[1,8] x) => (float[1,8] y) <float zero = {0.0}, float top = {0.5}> { y = Clip(x, zero, top) }"""
    with pytest.raises(PlanError, match=r"node 'clip_0' \(Clip\): LeakyRelu with slope 0"):
        lowered(text, activation="int8", schema="symmetric-power2", implementations={"clip_0": "leaky-relu"})


def test_weight_only_computes_in_float(lowered: Lowering) -> None:
    text = "net (float[4,8] x) => (float[4,4] y) <float[8,4] w> { y = MatMul(x, w) }"
    runs = lowered(text, kinds={"matmul_0": Kind.WEIGHT_ONLY}, returns_float=["y"], weight="int8")
    made = writers(runs)
    assert list(made["y"].input) == ["x", "w_dequantized"]
    params = channel_params(
        initializers(lowered(text, floats=["matmul_0"]))["w"], 1, SCHEMAS["symmetric"], INT8
    )
    weight = dequantize(initializers(runs)["w_quantized"], params)
    # 1e-6: float32 sums of eight products. (Optimized, onnxruntime quantizes x in its MatMulNBits.)
    np.testing.assert_allclose(runs.onnxruntime(optimized=False)[0], runs.arrays["x"] @ weight, atol=1e-6)
    assert runs.fused() == {"MatMulNBits": 1}


# Opset and refusals


def test_int16_raises_the_opset_and_says_so(make_model: MakeModel) -> None:
    model = make_model("net (float[1,4] x) => (float[4,1] y) { y = Transpose(x) }")
    wide = choose_params(-1.0, 1.0, SCHEMAS["symmetric"], INT16)
    plan = plan_for_one(model, NodePlan(Kind.PASS_THROUGH), {"x": wide, "y": wide})
    result = lower(model, plan)
    assert tuple(map(str, result.findings)) == ("opset raised from 17 to 21 for the types in it",)
    assert result.model.opset_imports[""] == 21
    onnx.checker.check_model(ir.to_proto(result.model), full_check=True)


def plan_for_one(model: ir.Model, entry: NodePlan, tensors: dict[str, QuantParams]) -> QuantPlan:
    from qprof_onnx.profiles.records.profile import ModelId
    from qprof_onnx.quantizer.targets.config import QuantConfig

    nodes = {node.name or "": entry for node in model.graph}
    return QuantPlan(ModelId("s", "w", 17), QuantConfig(), tensors, nodes)


@pytest.mark.parametrize("opset", [13, 17, 21, 23])
def test_every_opset_from_13_is_written(lowered: Lowering, opset: int) -> None:
    runs = lowered(CONV, opset=opset)
    assert runs.lowered.model.opset_imports[""] == opset
    assert runs.lowered.findings == ()
    assert runs.fused()["QLinearConv"] == 1


def test_an_unknown_spelling_is_refused_by_name(make_model: MakeModel, make_plan: MakePlan) -> None:
    model = make_model(CONV)
    plan = make_plan(model, implementations={"conv_0": "portable"})
    with pytest.raises(
        PlanError, match=r"\(Conv\): quantized with implementation 'portable' is not written in form qdq"
    ):
        lower(model, plan)


def test_a_node_without_entry_is_refused(make_model: MakeModel, make_plan: MakePlan) -> None:
    model = make_model(CONV)
    plan = make_plan(model)
    nodes = {name: entry for name, entry in plan.nodes.items() if name != "relu_1"}
    with pytest.raises(PlanError, match="node 'relu_1': the plan has no entry"):
        lower(model, replace(plan, nodes=nodes))


def test_a_node_that_stays_float_keeps_its_bytes(make_model: MakeModel, make_plan: MakePlan) -> None:
    model = make_model(CONV)
    result = lower(model, make_plan(model, floats=["conv_0", "relu_1"])).model
    assert ir.to_proto(result).graph.node[0] == ir.to_proto(model).graph.node[0]
    assert ir.to_proto(result).graph.initializer == ir.to_proto(model).graph.initializer
