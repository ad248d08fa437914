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


CHANGED: dict[Step, dict[str, tuple[str, ...]]] = {
    fold_batch_normalizations: {
        "a BatchNormalization after Conv": ("t = Conv(x, w)  y = BatchNormalization(t, g, b, m, v)", "Conv"),
        "a BatchNormalization after Gemm": (
            "t = Gemm(x, k, r)  y = BatchNormalization(t, g, b, m, v)",
            "Gemm",
            MATRIX,
        ),
    },
    split_batch_normalizations: {
        "a BatchNormalization after another operator": (
            "t = Relu(x)  y = BatchNormalization(t, g, b, m, v)",
            "Relu Mul Add",
        ),
    },
    fold_scales_and_shifts: {
        "Mul by a constant for each channel after Conv": ("t = Conv(x, w)  y = Mul(t, c)", "Conv"),
        "Div by one number after MatMul": ("t = MatMul(x, k)  y = Div(t, six)", "MatMul", MATRIX),
        "Add before the product's output": ("t = Conv(x, w)  y = Add(c, t)", "Conv"),
        "Sub of a constant for each channel": ("t = Conv(x, w)  y = Sub(t, c)", "Conv"),
    },
    fold_into_convolutions: {
        "Mul by one number before a padded Conv": (
            "t = Mul(x, six)  y = Conv<pads = [1, 1, 1, 1]>(t, w)",
            "Conv",
        ),
        "Mul by a constant for each channel before a grouped Conv": (
            "t = Mul(c, x)  y = Conv<group = 2>(t, apart)",
            "Conv",
        ),
        "Add of a constant for each channel before Conv": ("t = Add(x, c)  y = Conv(t, w, b)", "Conv"),
        "Add of one number before a Conv without bias": ("t = Add(six, x)  y = Conv(t, w)", "Conv"),
        "Mul, Add of one number each before a padded Conv": (
            "s = Mul(x, six)  t = Add(s, half)  y = Conv<pads = [1, 1, 1, 1]>(t, w, b)",
            "Add Conv",
        ),
        "Mul before two Convs": (
            "t = Mul(x, six)  p = Conv(t, w)  q = Conv(t, w, b)  y = Add(p, q)",
            "Conv Conv Add",
        ),
    },
    join_biases: {
        "MatMul and Add of a row": ("t = MatMul(x, k)  y = Add(t, r)", "Gemm", MATRIX),
        "a row and MatMul": ("t = MatMul(x, k)  y = Add(row, t)", "Gemm", MATRIX),
    },
    flatten_biases: {
        "a bias of shape [1, N]": ("y = Gemm(x, k, row)", "Gemm", MATRIX),
        "a bias of shape []": ("y = Gemm(x, k, one)", "Gemm", MATRIX),
        "a bias of shape [1, 1]": ("y = Gemm(x, k, wide)", "Gemm", MATRIX),
    },
    widen_numbers: {
        "a number beside a last dimension of 1": ("y = Add(x, one)", "Add", COLUMN),
        "a number before a last dimension of 1": ("y = Sub(one, x)", "Sub", COLUMN),
    },
    fuse_hard_swish: {
        "the parts of HardSwish": (
            "a = Add(x, one)  t = Clip(a, zero, six)  p = Mul(x, t)  y = Div(p, six)",
            "HardSwish",
        ),
    },
    merge_affine_chains: {
        "two Mul by constants": ("t = Mul(x, c)  y = Mul(one, t)", "Mul"),
        "two Add of constants": ("t = Add(x, c)  y = Add(t, one)", "Add"),
        "Mul, Add and Mul": ("s = Mul(x, c)  t = Add(s, d)  y = Mul(t, one)", "Mul Add"),
    },
    fold_pads: {
        "zero padding before Conv": ("t = Pad(x, pads)  y = Conv(t, w)", "Conv"),
    },
}


@pytest.mark.parametrize(
    ("step", "case"), [(step, case) for step, cases in CHANGED.items() for case in cases]
)
def test_a_fusion_leaves_fewer_nodes_that_compute_the_same_and_nothing_for_a_second_pass(
    step: Step, case: str
) -> None:
    body, operators, *source = CHANGED[step][case]
    proto = parsed(body, *source)
    changed, model = stepped(step, proto)
    after = ir.to_proto(model)
    onnx.checker.check_model(after)
    assert changed == 1
    assert [node.op_type for node in model.graph] == operators.split()
    assert model.graph.outputs[0].name == "y"
    np.testing.assert_allclose(outputs(after), outputs(proto), rtol=1e-5, atol=1e-5)  # weights rounded again
    assert step(model) == 0
    assert ir.to_proto(model).SerializeToString() == after.SerializeToString()


LEFT: dict[Step, dict[str, tuple[str, ...]]] = {
    fold_batch_normalizations: {
        "a BatchNormalization whose Conv has two consumers": (
            "t = Conv(x, w)  n = BatchNormalization(t, g, b, m, v)  y = Add(n, t)",
        ),
        "a BatchNormalization in training mode": (
            "t = Conv(x, w)  y, mean, var = BatchNormalization<training_mode = 1>(t, g, b, m, v)",
        ),
    },
    split_batch_normalizations: {
        "a BatchNormalization with computed parameters": (
            "s = Abs(v)  y = BatchNormalization(x, g, b, m, s)",
        ),
    },
    fold_scales_and_shifts: {
        "a scale that differs along another axis": ("t = Gemm(x, k)  y = Mul(t, full)", MATRIX),
        "a scale whose rank is higher than that of the product": (
            "t = MatMul(x, k)  y = Mul(t, wide)",
            MATRIX,
        ),
        "a scale that overflows the weights": ("t = Conv(x, w)  y = Mul(t, huge)",),
        "a quotient by the product": ("t = Conv(x, w)  y = Div(one, t)",),
        "a quotient by 0": ("t = Conv(x, w)  y = Div(t, zero)",),
    },
    fold_into_convolutions: {
        "a sum of numbers before padding": ("t = Add(x, one)  y = Conv<pads = [1, 1, 1, 1]>(t, w)",),
        "a sum before SAME": ('t = Add(x, c)  y = Conv<auto_pad = "SAME_UPPER">(t, w)',),
        "a factor that another operator reads too": ("t = Mul(x, six)  u = Conv(t, w)  y = Add(u, t)",),
        "a factor that makes channels of one": ("t = Mul(x, c)  y = Conv(t, w)", "float[1,1,3,3] x"),
        "a factor that overflows the weights before them": ("t = Mul(x, huge)  y = Conv(t, w)",),
        "a factor after a product of activations, as at the end of a Gelu": (
            "e = Erf(x)  p = Mul(x, e)  t = Mul(p, half)  y = Conv(t, w)",
        ),
    },
    join_biases: {
        "a bias that differs for each row": ("t = MatMul(x, k)  y = Add(t, full)", MATRIX),
        "a bias of a stack of matrices": ("t = MatMul(x, k)  y = Add(t, r)", "float[3,2,2] x"),
        "a product that others read": ("t = MatMul(x, k)  u = Add(t, r)  y = Mul(u, t)", MATRIX),
        "a product of two activations": ("t = MatMul(x, x)  y = Add(t, r)", MATRIX),
        "a bias that is no constant": ("t = MatMul(x, k)  y = Add(t, x)", MATRIX),
        "a bias that is one number": ("t = MatMul(x, k)  y = Add(t, one)", MATRIX),
    },
    flatten_biases: {
        "a bias of shape [N]": ("y = Gemm(x, k, r)", MATRIX),
        "a bias of shape [M, N]": ("y = Gemm(x, k, full)", MATRIX),
    },
    widen_numbers: {
        "a number beside rows": ("y = Add(x, one)", MATRIX),
        "a number of as many dimensions": ("y = Add(x, wide)", COLUMN),
        "a number beside a mean": ("t = ReduceMean<axes = [1]>(x)  y = Add(t, one)", MATRIX),
    },
    fuse_hard_swish: {
        "a gate of another tensor": (
            "n = Neg(x)  a = Add(n, one)  t = Clip(a, zero, six)  p = Mul(x, t)  y = Div(p, six)",
        ),
        "a gate by a constant of more dimensions": (
            "a = Add(x, one)  t = Clip(a, zero, six)  p = Mul(x, t)  y = Div(p, deep)",
            MATRIX,
        ),
        "a gate with another factor": (
            "a = Add(x, one)  t = Clip(a, zero, six)  p = Mul(x, t)  y = Mul(p, half)",
        ),
    },
    merge_affine_chains: {
        "an Add before a Mul": ("t = Add(x, c)  y = Mul(t, one)",),
        "an outer product of constants": ("t = Mul(x, c)  y = Mul(t, full)", "float[1,2,2,2] x"),
        "a product of constants that overflows": ("t = Mul(x, huge)  y = Mul(t, six)",),
        "a Mul whose output has two consumers": ("t = Mul(x, c)  u = Mul(t, one)  y = Sub(u, t)",),
    },
    fold_pads: {
        "padding with another number": ("t = Pad(x, pads, half)  y = Conv(t, w)",),
        "padding of the batch": ("t = Pad(x, batch)  y = Conv(t, w)",),
        "padding that crops": ("t = Pad(x, crop)  y = Conv(t, w)",),
        "padding by reflection": ('t = Pad<mode = "reflect">(x, pads)  y = Conv(t, w)',),
        "padding before SAME": ('t = Pad(x, pads)  y = Conv<auto_pad = "SAME_UPPER">(t, w)',),
    },
}


@pytest.mark.parametrize(("step", "case"), [(step, case) for step, cases in LEFT.items() for case in cases])
def test_a_fusion_leaves_other_graphs_as_they_are(step: Step, case: str) -> None:
    model = ir.from_proto(parsed(*LEFT[step][case]))
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
