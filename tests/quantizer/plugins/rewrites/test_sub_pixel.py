"""ConvTranspose as Conv: exact in every form, for every kernel, stride and padding."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from qprof_onnx.quantizer.targets.forms import FORMS

Lowering = Callable[..., Any]

EXACT = 1e-3
"""Steps of the output's scale: the same integers."""

CASES = {
    "kernel 2, stride 2": ("1,4,5,6", "strides=[2,2]", "4,3,2,2"),
    "kernel 3, stride 2": ("1,4,5,6", "strides=[2,2], pads=[1,1,1,1], output_padding=[1,1]", "4,3,3,3"),
    "kernel 3, odd size": ("2,4,5,6", "strides=[2,2], pads=[1,1,1,1]", "4,3,3,3"),
    "kernel 4, stride 2": ("1,4,5,6", "strides=[2,2], pads=[1,1,1,1]", "4,3,4,4"),
    "kernel below stride": ("1,4,3,4", "strides=[3,3], output_padding=[2,1]", "4,2,2,2"),
    "two strides": ("1,4,5,6", "strides=[2,3], pads=[0,1,2,0]", "4,3,5,4"),
    "wide padding": ("1,4,7,8", "strides=[2,2], pads=[5,3,4,6]", "4,3,6,7"),
    "stride 1": ("1,4,5,6", "pads=[1,0,1,2]", "4,3,3,4"),
    "groups": ("1,4,5,6", "strides=[2,2], pads=[1,1,1,1], group=2", "4,3,4,4"),
    "one axis": ("2,4,9", "strides=[4], pads=[2,1]", "4,3,7"),
    "one axis, groups": ("1,4,9", "strides=[2], pads=[1,1], group=4", "4,2,4"),
    "three axes": ("1,3,3,4,2", "strides=[2,2,2], pads=[1,0,1,0,1,1]", "3,2,3,2,3"),
    "unknown sizes": ("N,4,H,W", "strides=[2,2], pads=[1,1,1,1]", "4,3,4,4"),
    "unknown width": ("N,4,5,W", "strides=[2,2], pads=[1,0,1,1]", "4,3,3,4"),
    "unknown length": ("N,4,L", "strides=[2], pads=[1,1]", "4,3,4"),
}


def text_of(case: str) -> str:
    shape, attributes, weight = CASES[case]
    groups = 2 if "group=2" in attributes else 4 if "group=4" in attributes else 1
    channels = groups * int(weight.split(",")[1])
    result = ",".join(["M", str(channels), *(f"D{i}" for i in range(shape.count(",") - 1))])
    return f"""
    net (float[{shape}] x) => (float[{result}] y)
    <float[{weight}] w, float[{channels}] b>
    {{
        t = ConvTranspose<{attributes}>(x, w, b)
        y = Relu(t)
    }}"""


def how(case: str) -> dict[str, Any]:
    # onnxruntime has a scale for each channel of ConvTranspose's weight in one group only
    return {"implementations": {"convtranspose_0": "sub-pixel"}, "per_channel": "group" not in CASES[case][1]}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("form", FORMS)
def test_the_quantized_values_are_those_of_the_reference(lowered: Lowering, form: str, case: str) -> None:
    runs = lowered(text_of(case), form=form, **how(case))
    operators = {node.op_type for graph in runs.lowered.model.graphs() for node in graph}
    assert "ConvTranspose" not in operators | {
        node.op_type for function in runs.lowered.model.functions.values() for node in function
    }
    assert runs.off(runs.onnxruntime()) <= EXACT
    assert runs.off(runs.onnxruntime(optimized=False)) <= EXACT


@pytest.mark.parametrize("activation", ["uint8", "int8"])
@pytest.mark.parametrize("weight", ["int8", "uint8"])
def test_types_and_zero_points_of_the_weight_are_kept(
    lowered: Lowering, weight: str, activation: str
) -> None:
    case = "kernel below stride"
    runs = lowered(text_of(case), weight=weight, activation=activation, **{**how(case), "per_channel": False})
    assert runs.off(runs.onnxruntime(optimized=False)) <= EXACT
    assert runs.off(runs.reference()) <= EXACT


def fused(lowered: Lowering, case: str, form: str = "qdq") -> dict[str, int]:
    return dict(lowered(text_of(case), form=form, **how(case)).fused())


@pytest.mark.parametrize("form", ["qdq", "qoperator", "regions"])
def test_onnxruntime_interleaves_with_one_transpose_between_those_at_the_ends(
    lowered: Lowering, form: str
) -> None:
    found = fused(lowered, "kernel 4, stride 2", form)
    assert found["QLinearConv"] == 1
    assert (found["Transpose"], found["Reshape"], found["Slice"]) == (3, 2, 1)
    assert "ConvTranspose" not in found


def test_one_axis_is_interleaved_by_a_reshape_alone(lowered: Lowering) -> None:
    found = fused(lowered, "unknown length")
    assert (found["QLinearConv"], found["Transpose"], found["Reshape"]) == (1, 2, 1)


def test_sizes_computed_at_run_time_come_from_the_quantized_tensor(lowered: Lowering) -> None:
    text = text_of("unknown sizes").replace("t = ", "s = Sigmoid(x) t = ").replace("(x, w", "(s, w")
    runs = lowered(text, implementations={"convtranspose_1": "sub-pixel"})
    maker = {name: node.op_type for node in runs.proto.graph.node for name in node.output}
    assert [maker[node.input[0]] for node in runs.proto.graph.node if node.op_type == "Shape"] == [
        "QuantizeLinear"
    ]


def test_what_was_added_belongs_to_the_node_of_the_model(lowered: Lowering) -> None:
    runs = lowered(text_of("unknown sizes"), form="qoperator", **how("unknown sizes"))
    names = runs.lowered.names
    assert set(names.nodes) == {"convtranspose_0", "relu_1"}
    types = {node.name: node.op_type for node in runs.proto.graph.node}
    assert {"QLinearConv", "Slice", "Shape"} < {types[name] for name in names.nodes["convtranspose_0"]}
    assert set(names.tensors) == {"x", "w", "b", "t", "y"}
    assert {prop.key for prop in runs.proto.metadata_props} & {"qprof.quantized_tensors"} == set()
