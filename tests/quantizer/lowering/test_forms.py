"""Every form of a plan gives the quantized values of the reference implementation, in every runtime."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import onnx
import onnx_ir as ir
import pytest
from qprof_onnx.profiles.base.errors import PlanError
from qprof_onnx.quantizer.lowering.lower import lower
from qprof_onnx.quantizer.numerics.affine import INT8, UINT16, QuantParams
from qprof_onnx.quantizer.plan.plan import QuantPlan
from qprof_onnx.quantizer.targets.forms import FORMS
from qprof_onnx.quantizer.targets.machine import int8_kernels_saturate

Runs = Any
Net = Any
Lowering = Callable[..., Runs]
MakeModel = Callable[..., ir.Model]
MakePlan = Callable[..., QuantPlan]

QUANTIZERS = {"QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear", "ConvInteger", "MatMulInteger"}
EXACT = 1e-3
"""Steps of the output's scale: the same code."""
MILLIONTH = 1.0
"""Of the largest output, where that is float: float32 sums and products in another order."""


def tolerance(net: Net) -> float:
    return MILLIONTH if {"returns_float", "kinds"} & set(net.how) else EXACT


@pytest.mark.parametrize("activation", ["uint8", pytest.param("int8", marks=pytest.mark.slow)])
@pytest.mark.parametrize("form", FORMS)
def test_quantized_values_are_those_of_the_reference(
    lowered: Lowering, net: Net, form: str, *, activation: str
) -> None:
    if (activation, form, net.how.get("weight")) == ("int8", "integer", "uint8") and int8_kernels_saturate():
        pytest.skip("ConvInteger of int8 data and uint8 weights, which no target of x86 has, saturates here")
    # Else onnxruntime quantizes the activations of a MatMul whose weight alone is quantized.
    options = {"session.qdq_matmulnbits_accuracy_level": "1"}
    runs = lowered(net.text, opset=net.opset, form=form, activation=activation, options=options, **net.how)
    operators = runs.operators()
    if form == "primitives":
        assert not QUANTIZERS & set(operators)
        assert not any(operator.startswith("Q") for operator in operators)
    if form == "integer" and "weight-only" not in str(net.how):
        assert not {"Conv", "Gemm", "MatMul"} & set(operators)
        assert operators["ConvInteger"] + operators["MatMulInteger"] > 0
    assert runs.off(runs.onnxruntime()) <= tolerance(net)
    assert runs.off(runs.onnxruntime(optimized=False)) <= tolerance(net)
    # QLinearConv of onnx's reference evaluator has two dimensions only.
    if (net.name, form) != ("one and three dimensions", "qoperator"):
        assert runs.off(runs.reference()) <= tolerance(net)
    # OpenVINO has no QLinear operator of domain com.microsoft, and reads a scale for each channel of
    # QLinearConv along another axis: it loads some of these models and computes something else.
    if form != "qoperator":
        assert runs.off(runs.openvino()) <= tolerance(net)


CONV_RELU = """
net (float[1,4,8,8] x) => (float[1,4,6,6] y)
<float[4,4,3,3] w, float[4] b>
{
    c = Conv(x, w, b)
    y = Relu(c)
}"""


def test_integer_rescales_once(lowered: Lowering) -> None:
    runs = lowered(CONV_RELU, form="integer")
    order = [node.op_type for node in runs.proto.graph.node]
    assert order == [
        "QuantizeLinear",
        "ConvInteger",
        "Add",
        "Cast",
        "Mul",
        "QuantizeLinear",
        "DequantizeLinear",
    ]


def test_primitives_round_before_they_add_the_zero_point(lowered: Lowering) -> None:
    text = "net (float[2,2] x) => (float[2,2] y) { y = Neg(x) }"
    runs = lowered(text, form="primitives")
    order = [node.op_type for node in runs.proto.graph.node]
    quantize, dequantize = ["Div", "Round", "Add", "Clip", "Cast"], ["Cast", "Sub", "Mul"]
    assert order == [*quantize, *dequantize, "Neg", *quantize, *dequantize]


def test_qoperator_has_no_conversion_but_at_its_ends(lowered: Lowering) -> None:
    found = lowered(CONV_RELU, form="qoperator").operators()
    assert found == {"QuantizeLinear": 1, "QLinearConv": 1, "DequantizeLinear": 1}


def test_qoperator_imports_the_domain_that_it_uses(lowered: Lowering) -> None:
    text = "net (float[2,2] x) => (float[2,2] y) { y = Add(x, x) }"
    assert [o.domain for o in lowered(text, form="qoperator").proto.opset_import] == ["", "com.microsoft"]
    assert [o.domain for o in lowered(CONV_RELU, form="qoperator").proto.opset_import] == [""]


def test_qoperator_writes_the_layout_of_a_global_pool_which_tinygrad_does_not_read_without(
    lowered: Lowering,
) -> None:
    text = "net (float[1,4,8,8] x) => (float[1,4,1,1] y) { y = GlobalAveragePool(x) }"
    (pool,) = [n for n in lowered(text, form="qoperator").proto.graph.node if "Pool" in n.op_type]
    assert {a.name: a.i for a in pool.attribute} == {"channels_last": 0}


def test_qoperator_keeps_softmax_of_small_scale_out_of_integers(lowered: Lowering) -> None:
    """onnxruntime's wraps around there."""
    text = "net (float[2,4] x) => (float[2,4] y) { p = Sigmoid(x)  y = Softmax(p) }"
    assert lowered(text, form="qoperator").operators()["QLinearSoftmax"] == 1
    narrow = QuantParams((1 / 512,), (-128,), INT8)
    model_plan = {"y": narrow}
    runs = lowered(text, form="qoperator", activation="int8", tensors=model_plan)
    assert runs.operators()["Softmax"] == 1
    assert runs.off(runs.onnxruntime(optimized=False)) <= EXACT


def test_a_region_is_a_function_for_a_fused_group(lowered: Lowering) -> None:
    proto = lowered(CONV_RELU, form="regions").proto
    (function,) = proto.functions
    assert (function.domain, function.name) == ("qprof", "Conv_Relu_conv_0")
    assert [node.op_type for node in proto.graph.node] == [
        "QuantizeLinear",
        function.name,
        "DequantizeLinear",
    ]
    assert [t.name for t in proto.graph.initializer if "w" in t.name] == ["w_quantized"]
    assert len(function.input) == 3


def test_a_relu_is_no_part_of_the_group_when_others_see_what_it_reads(lowered: Lowering) -> None:
    text = CONV_RELU.replace("float[1,4,6,6] y", "float[1,4,6,6] y, float[1,4,6,6] c")
    (function,) = lowered(text, form="regions").proto.functions
    assert function.name == "Conv_conv_0"


def test_regions_are_fused_like_form_qdq(lowered: Lowering, net: Net) -> None:
    plain = lowered(net.text, opset=net.opset, **net.how).fused()
    found = lowered(net.text, opset=net.opset, form="regions", **net.how).fused()
    assert {op: found[op] for op in net.fused} == {op: plain[op] for op in net.fused}


def test_a_relu_that_changes_no_code_is_no_region(lowered: Lowering) -> None:
    runs = lowered("net (float[2,4] x) => (float[2,4] y) { y = Relu(x) }", form="regions")
    assert runs.operators() == {"QuantizeLinear": 1, "DequantizeLinear": 1}
    assert not runs.proto.functions


def test_regions_leave_float_nodes_alone(lowered: Lowering) -> None:
    runs = lowered(CONV_RELU, form="regions", floats=["relu_1"])
    assert [node.op_type for node in runs.proto.graph.node][-2:] == ["DequantizeLinear", "Relu"]
    assert runs.off(runs.onnxruntime()) <= MILLIONTH


@pytest.mark.parametrize("form", FORMS)
def test_names_that_need_escaping_and_clash_are_written(lowered: Lowering, form: str) -> None:
    text = """
        net (float[1,2] x) => (float[1,2] "y_quantized", float[1,2] y)
        <float[2,2] w>
        {
            y = MatMul(x, w)
            "y_quantized" = MatMul(y, w)
        }"""
    runs = lowered(text.replace('"', ""), form=form)
    assert runs.off(runs.onnxruntime()) <= EXACT


@pytest.mark.parametrize("form", FORMS)
def test_a_gemm_with_factors_is_written_between_conversions(lowered: Lowering, form: str) -> None:
    text = """
        net (float[4,6] x) => (float[4,5] y)
        <float[6,5] w, float[5] b>
        { y = Gemm<alpha=0.5, beta=2.0>(x, w, b) }"""
    runs = lowered(text, form=form)
    assert runs.operators()["Gemm"] == (0 if form == "regions" else 1)
    assert runs.off(runs.onnxruntime(optimized=False)) <= 1.0 + EXACT  # floats are rounded before the sum


@pytest.mark.parametrize("form", FORMS)
def test_both_operands_of_a_gemm_may_be_transposed(lowered: Lowering, form: str) -> None:
    text = """
        net (float[6,4] x) => (float[4,5] y)
        <float[5,6] w, float[5] b>
        { y = Gemm<transA=1, transB=1>(x, w, b) }"""
    runs = lowered(text, form=form)
    assert runs.off(runs.onnxruntime()) <= EXACT
    assert runs.off(runs.reference()) <= EXACT


@pytest.mark.parametrize("form", FORMS)
def test_dynamic_data_of_zeros_has_a_scale(lowered: Lowering, form: str) -> None:
    text = """
        net (float[2,4] x) => (float[2,3] y)
        <float[4,3] w, float zero = {0.0}>
        {
            z = Mul(x, zero)
            y = MatMul(z, w)
        }"""
    runs = lowered(text, form=form, floats=["mul_0"], kinds={"matmul_1": "dynamic"})
    assert not runs.onnxruntime()[0].any()


@pytest.mark.parametrize("form", FORMS)
def test_dynamic_is_refused_for_other_operators(
    make_model: MakeModel, make_plan: MakePlan, form: str
) -> None:
    model = make_model("net (float[2,4] x) => (float[2,4] y) { y = Add(x, x) }")
    with pytest.raises(
        PlanError,
        match=r"node 'add_0' \(Add\): dynamic parameters are for Conv, ConvTranspose as sub",
    ):
        lower(model, make_plan(model, kinds={"add_0": "dynamic"}, form=form))


def test_regions_raise_the_opset_for_types_that_it_lacks(make_model: MakeModel, make_plan: MakePlan) -> None:
    model = make_model("net (float[2,4] x) => (float[2,4] y) { y = Add(x, x) }")
    wide = QuantParams((0.5,), (0,), UINT16)
    plan = make_plan(model, form="regions", tensors={"x": wide, "y": wide})
    lowered = lower(model, plan)
    assert lowered.model.opset_imports[""] == 21
    assert tuple(map(str, lowered.findings)) == ("opset raised from 17 to 21 for the types in it",)


@pytest.mark.parametrize("form", FORMS)
def test_16_bits_are_written_where_opset_and_form_allow(lowered: Lowering, form: str) -> None:
    wide = QuantParams((2.0**-12,), (32768,), UINT16)
    tensors = {"x": wide, "c": wide, "y": wide}
    text = "net (float[2,4] x) => (float[2,4] y) { c = Add(x, x)  y = Relu(c) }"
    runs = lowered(text, opset=21, form=form, tensors=tensors)
    assert runs.off(runs.onnxruntime()) <= EXACT
    if form == "primitives":
        assert lowered(text, opset=13, form=form, tensors=tensors).proto.opset_import[0].version == 13


@pytest.mark.slow
def test_the_same_plan_gives_the_same_bytes(make_model: MakeModel, make_plan: MakePlan, net: Net) -> None:
    model = make_model(net.text, net.opset)
    for form in FORMS:
        plan = make_plan(model, form=form, **net.how)
        first, second = (ir.to_proto(lower(model, plan).model) for _ in range(2))
        assert first.SerializeToString() == second.SerializeToString(), form
        onnx.checker.check_model(first, full_check=True)
