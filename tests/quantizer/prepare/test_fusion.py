"""Each fusion by itself on a tiny graph: what it changes, what it leaves alone, and the same outputs."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import pytest
from onnx.reference import ReferenceEvaluator
from qprof_onnx.quantizer.prepare.cleanup import name_nodes
from qprof_onnx.quantizer.prepare.fusion import (
    flatten_biases,
    fold_batch_normalizations,
    fold_into_convolutions,
    fold_pads,
    fold_scales_and_shifts,
    fuse_hard_swish,
    join_biases,
    merge_affine_chains,
    pad_all_axes,
    split_batch_normalizations,
    widen_numbers,
)
from qprof_onnx.quantizer.prepare.shapes import infer_shapes

Step = Callable[[ir.Model], int]

CONSTANTS = """
<float[2,2,1,1] w = {1, -2, 3, 0.5}, float[2] g = {0.5, 2}, float[2] b = {1, -1}, float[2] m = {0.25, 0.5},
 float[2] v = {1, 4}, float[2,1,1] c = {2, -3}, float[2,1,1] d = {0.5, 1}, float[2,2] k = {1, 2, 3, 4},
 float[2] r = {5, -6}, float[1,2] row = {5, -6}, float[2,2] full = {1, 2, 3, 4}, float one = {3},
 float zero = {0}, float six = {6}, float half = {0.5}, float[1,1] wide = {2}, float huge = {3e38},
 float[2,1,1,1] apart = {2, -5},
 float[1,1,1] deep = {6}, int64[8] pads = {0, 0, 1, 1, 0, 0, 1, 1}, int64[8] crop = {0, 0, -1, 0, 0, 0, 0, 0},
 int64[8] batch = {1, 0, 0, 0, 0, 0, 0, 0}>
"""
IMAGE, MATRIX, COLUMN = "float[1,2,3,3] x", "float[2,2] x", "float[3,1] x"


def parsed(body: str, source: str = IMAGE) -> onnx.ModelProto:
    """Return a model of opset 14 without the constants that `body` does not name."""
    rank = source.count(",") + 1
    output = f"float[{','.join('ABCD'[:rank])}] y"
    text = f'<ir_version: 8, opset_import: ["" : 14]> g ({source}) => ({output}) {CONSTANTS} {{ {body} }}'
    proto = onnx.parser.parse_model(text)
    read = {name for node in proto.graph.node for name in node.input}
    kept = [tensor for tensor in proto.graph.initializer if tensor.name in read]
    del proto.graph.initializer[:]
    proto.graph.initializer.extend(kept)
    return proto


def stepped(step: Step, proto: onnx.ModelProto) -> tuple[int, ir.Model]:
    """Return how much the step changes, and the model after it; types inferred and nodes named before."""
    model = ir.from_proto(proto)
    name_nodes(model)
    infer_shapes(model)
    return step(model), model


def outputs(proto: onnx.ModelProto) -> np.ndarray:
    shape = [dim.dim_value for dim in proto.graph.input[0].type.tensor_type.shape.dim]
    x = np.random.default_rng(4).standard_normal(shape).astype(np.float32) * 3
    found: np.ndarray = ReferenceEvaluator(proto).run(None, {"x": x})[0]
    return found


CHANGED = {
    "a BatchNormalization after Conv": (
        fold_batch_normalizations,
        "t = Conv(x, w)  y = BatchNormalization(t, g, b, m, v)",
        IMAGE,
        ["Conv"],
    ),
    "a BatchNormalization after Gemm": (
        fold_batch_normalizations,
        "t = Gemm(x, k, r)  y = BatchNormalization(t, g, b, m, v)",
        MATRIX,
        ["Gemm"],
    ),
    "a BatchNormalization after another operator": (
        split_batch_normalizations,
        "t = Relu(x)  y = BatchNormalization(t, g, b, m, v)",
        IMAGE,
        ["Relu", "Mul", "Add"],
    ),
    "Mul by a constant for each channel after Conv": (
        fold_scales_and_shifts,
        "t = Conv(x, w)  y = Mul(t, c)",
        IMAGE,
        ["Conv"],
    ),
    "Div by one number after MatMul": (
        fold_scales_and_shifts,
        "t = MatMul(x, k)  y = Div(t, six)",
        MATRIX,
        ["MatMul"],
    ),
    "Add before the product's output": (
        fold_scales_and_shifts,
        "t = Conv(x, w)  y = Add(c, t)",
        IMAGE,
        ["Conv"],
    ),
    "Sub of a constant for each channel": (
        fold_scales_and_shifts,
        "t = Conv(x, w)  y = Sub(t, c)",
        IMAGE,
        ["Conv"],
    ),
    "Mul by one number before a padded Conv": (
        fold_into_convolutions,
        "t = Mul(x, six)  y = Conv<pads = [1, 1, 1, 1]>(t, w)",
        IMAGE,
        ["Conv"],
    ),
    "Mul by a constant for each channel before a grouped Conv": (
        fold_into_convolutions,
        "t = Mul(c, x)  y = Conv<group = 2>(t, apart)",
        IMAGE,
        ["Conv"],
    ),
    "Add of a constant for each channel before Conv": (
        fold_into_convolutions,
        "t = Add(x, c)  y = Conv(t, w, b)",
        IMAGE,
        ["Conv"],
    ),
    "Add of one number before a Conv without bias": (
        fold_into_convolutions,
        "t = Add(six, x)  y = Conv(t, w)",
        IMAGE,
        ["Conv"],
    ),
    "Mul, Add of one number each before a padded Conv": (
        fold_into_convolutions,
        "s = Mul(x, six)  t = Add(s, half)  y = Conv<pads = [1, 1, 1, 1]>(t, w, b)",
        IMAGE,
        ["Add", "Conv"],
    ),
    "Mul before two Convs": (
        fold_into_convolutions,
        "t = Mul(x, six)  p = Conv(t, w)  q = Conv(t, w, b)  y = Add(p, q)",
        IMAGE,
        ["Conv", "Conv", "Add"],
    ),
    "MatMul and Add of a row": (join_biases, "t = MatMul(x, k)  y = Add(t, r)", MATRIX, ["Gemm"]),
    "a row and MatMul": (join_biases, "t = MatMul(x, k)  y = Add(row, t)", MATRIX, ["Gemm"]),
    "a bias of shape [1, N]": (flatten_biases, "y = Gemm(x, k, row)", MATRIX, ["Gemm"]),
    "a bias of shape []": (flatten_biases, "y = Gemm(x, k, one)", MATRIX, ["Gemm"]),
    "a number beside a last dimension of 1": (widen_numbers, "y = Add(x, one)", COLUMN, ["Add"]),
    "a number before a last dimension of 1": (widen_numbers, "y = Sub(one, x)", COLUMN, ["Sub"]),
    "a bias of shape [1, 1]": (flatten_biases, "y = Gemm(x, k, wide)", MATRIX, ["Gemm"]),
    "the parts of HardSwish": (
        fuse_hard_swish,
        "a = Add(x, one)  t = Clip(a, zero, six)  p = Mul(x, t)  y = Div(p, six)",
        IMAGE,
        ["HardSwish"],
    ),
    "two Mul by constants": (merge_affine_chains, "t = Mul(x, c)  y = Mul(one, t)", IMAGE, ["Mul"]),
    "two Add of constants": (merge_affine_chains, "t = Add(x, c)  y = Add(t, one)", IMAGE, ["Add"]),
    "Mul, Add and Mul": (
        merge_affine_chains,
        "s = Mul(x, c)  t = Add(s, d)  y = Mul(t, one)",
        IMAGE,
        ["Mul", "Add"],
    ),
    "zero padding before Conv": (fold_pads, "t = Pad(x, pads)  y = Conv(t, w)", IMAGE, ["Conv"]),
}


@pytest.mark.parametrize("case", CHANGED)
def test_a_fusion_leaves_fewer_nodes_that_compute_the_same(case: str) -> None:
    step, body, source, operators = CHANGED[case]
    proto = parsed(body, source)
    changed, model = stepped(step, proto)
    after = ir.to_proto(model)
    onnx.checker.check_model(after)
    assert changed == 1
    assert [node.op_type for node in model.graph] == operators
    assert model.graph.outputs[0].name == "y"
    np.testing.assert_allclose(outputs(after), outputs(proto), rtol=1e-5, atol=1e-5)  # weights rounded again


@pytest.mark.parametrize("case", CHANGED)
def test_a_second_pass_of_a_fusion_changes_nothing(case: str) -> None:
    step, body, source, _ = CHANGED[case]
    _, model = stepped(step, parsed(body, source))
    before = ir.to_proto(model).SerializeToString()
    assert step(model) == 0
    assert ir.to_proto(model).SerializeToString() == before


LEFT = {
    "a BatchNormalization whose Conv has two consumers": (
        fold_batch_normalizations,
        "t = Conv(x, w)  n = BatchNormalization(t, g, b, m, v)  y = Add(n, t)",
        IMAGE,
    ),
    "a BatchNormalization in training mode": (
        fold_batch_normalizations,
        "t = Conv(x, w)  y, mean, var = BatchNormalization<training_mode = 1>(t, g, b, m, v)",
        IMAGE,
    ),
    "a BatchNormalization with computed parameters": (
        split_batch_normalizations,
        "s = Abs(v)  y = BatchNormalization(x, g, b, m, s)",
        IMAGE,
    ),
    "a scale that differs along another axis": (
        fold_scales_and_shifts,
        "t = Gemm(x, k)  y = Mul(t, full)",
        MATRIX,
    ),
    "a scale whose rank is higher than that of the product": (
        fold_scales_and_shifts,
        "t = MatMul(x, k)  y = Mul(t, wide)",
        MATRIX,
    ),
    "a scale that overflows the weights": (fold_scales_and_shifts, "t = Conv(x, w)  y = Mul(t, huge)", IMAGE),
    "a quotient by the product": (fold_scales_and_shifts, "t = Conv(x, w)  y = Div(one, t)", IMAGE),
    "a quotient by 0": (fold_scales_and_shifts, "t = Conv(x, w)  y = Div(t, zero)", IMAGE),
    "a sum of numbers before padding": (
        fold_into_convolutions,
        "t = Add(x, one)  y = Conv<pads = [1, 1, 1, 1]>(t, w)",
        IMAGE,
    ),
    "a sum before SAME": (
        fold_into_convolutions,
        't = Add(x, c)  y = Conv<auto_pad = "SAME_UPPER">(t, w)',
        IMAGE,
    ),
    "a factor that another operator reads too": (
        fold_into_convolutions,
        "t = Mul(x, six)  u = Conv(t, w)  y = Add(u, t)",
        IMAGE,
    ),
    "a factor that makes channels of one": (
        fold_into_convolutions,
        "t = Mul(x, c)  y = Conv(t, w)",
        "float[1,1,3,3] x",
    ),
    "a factor that overflows the weights before them": (
        fold_into_convolutions,
        "t = Mul(x, huge)  y = Conv(t, w)",
        IMAGE,
    ),
    "a factor after a product of activations, as at the end of a Gelu": (
        fold_into_convolutions,
        "e = Erf(x)  p = Mul(x, e)  t = Mul(p, half)  y = Conv(t, w)",
        IMAGE,
    ),
    "a bias that differs for each row": (join_biases, "t = MatMul(x, k)  y = Add(t, full)", MATRIX),
    "a bias of a stack of matrices": (join_biases, "t = MatMul(x, k)  y = Add(t, r)", "float[3,2,2] x"),
    "a product that others read": (join_biases, "t = MatMul(x, k)  u = Add(t, r)  y = Mul(u, t)", MATRIX),
    "a product of two activations": (join_biases, "t = MatMul(x, x)  y = Add(t, r)", MATRIX),
    "a bias that is no constant": (join_biases, "t = MatMul(x, k)  y = Add(t, x)", MATRIX),
    "a bias that is one number": (join_biases, "t = MatMul(x, k)  y = Add(t, one)", MATRIX),
    "a bias of shape [N]": (flatten_biases, "y = Gemm(x, k, r)", MATRIX),
    "a bias of shape [M, N]": (flatten_biases, "y = Gemm(x, k, full)", MATRIX),
    "a number beside rows": (widen_numbers, "y = Add(x, one)", MATRIX),
    "a number of as many dimensions": (widen_numbers, "y = Add(x, wide)", COLUMN),
    "a number beside a mean": (
        widen_numbers,
        "t = ReduceMean<axes = [1]>(x)  y = Add(t, one)",
        MATRIX,
    ),
    "a gate of another tensor": (
        fuse_hard_swish,
        "n = Neg(x)  a = Add(n, one)  t = Clip(a, zero, six)  p = Mul(x, t)  y = Div(p, six)",
        IMAGE,
    ),
    "a gate by a constant of more dimensions": (
        fuse_hard_swish,
        "a = Add(x, one)  t = Clip(a, zero, six)  p = Mul(x, t)  y = Div(p, deep)",
        MATRIX,
    ),
    "a gate with another factor": (
        fuse_hard_swish,
        "a = Add(x, one)  t = Clip(a, zero, six)  p = Mul(x, t)  y = Mul(p, half)",
        IMAGE,
    ),
    "an Add before a Mul": (merge_affine_chains, "t = Add(x, c)  y = Mul(t, one)", IMAGE),
    "an outer product of constants": (
        merge_affine_chains,
        "t = Mul(x, c)  y = Mul(t, full)",
        "float[1,2,2,2] x",
    ),
    "a product of constants that overflows": (
        merge_affine_chains,
        "t = Mul(x, huge)  y = Mul(t, six)",
        IMAGE,
    ),
    "a Mul whose output has two consumers": (
        merge_affine_chains,
        "t = Mul(x, c)  u = Mul(t, one)  y = Sub(u, t)",
        IMAGE,
    ),
    "padding with another number": (fold_pads, "t = Pad(x, pads, half)  y = Conv(t, w)", IMAGE),
    "padding of the batch": (fold_pads, "t = Pad(x, batch)  y = Conv(t, w)", IMAGE),
    "padding that crops": (fold_pads, "t = Pad(x, crop)  y = Conv(t, w)", IMAGE),
    "padding by reflection": (fold_pads, 't = Pad<mode = "reflect">(x, pads)  y = Conv(t, w)', IMAGE),
    "padding before SAME": (fold_pads, 't = Pad(x, pads)  y = Conv<auto_pad = "SAME_UPPER">(t, w)', IMAGE),
}


@pytest.mark.parametrize("case", LEFT)
def test_a_fusion_leaves_other_graphs_as_they_are(case: str) -> None:
    step, body, source = LEFT[case]
    proto = parsed(body, source)
    model = ir.from_proto(proto)
    name_nodes(model)
    infer_shapes(model)
    before = ir.to_proto(model).SerializeToString()
    assert step(model) == 0
    assert ir.to_proto(model).SerializeToString() == before


def test_a_weight_that_others_read_keeps_its_values_for_them() -> None:
    proto = parsed("t = Conv(x, w)  u = Mul(t, c)  s = Conv(x, w)  y = Add(u, s)")
    changed, model = stepped(fold_scales_and_shifts, proto)
    assert changed == 1
    np.testing.assert_allclose(outputs(ir.to_proto(model)), outputs(proto), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "node",
    [
        "Pad (x, amounts, , axes)",
        "Pad (x, amounts, six, axes)",
        'Pad <mode = "reflect"> (x, amounts, six, axes)',
        'Pad <mode = "edge"> (x, amounts, , axes)',
    ],
)
def test_padding_is_written_for_all_axes(node: str) -> None:
    constants = "<int64[4] amounts = {1, 0, 2, 1}, int64[2] axes = {-1, 2}, float six = {6}>"
    header = '<ir_version: 8, opset_import: ["" : 18]>'
    text = f"{header} g (float[1,2,3,3] x) => (float[A,B,C,D] y) {constants} {{ y = {node} }}"
    proto = onnx.parser.parse_model(text)
    changed, model = stepped(pad_all_axes, proto)
    (pad,) = model.graph
    assert changed >= 1
    assert len(pad.inputs) == (3 if "six" in node and "reflect" not in node else 2)
    np.testing.assert_array_equal(outputs(ir.to_proto(model)), outputs(proto))
    assert pad_all_axes(model) == 0
