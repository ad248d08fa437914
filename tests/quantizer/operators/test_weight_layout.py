"""Weight layouts: channels, groups and blocks are where the operators themselves have them."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper
from qprof_onnx.quantizer.operators.table import RULES, product_layout, rule_of, weight_axes
from qprof_onnx.quantizer.operators.weight_layout import Kernel

PRODUCTS = {
    "Conv": ("Conv", {"group": 2}, (6, 4, 2, 3), (1, 8, 4, 5)),
    "depthwise Conv": ("Conv", {"group": 4}, (4, 1, 2, 2), (1, 4, 4, 5)),
    "ConvTranspose": ("ConvTranspose", {}, (4, 3, 2, 2), (1, 4, 3, 3)),
    "grouped ConvTranspose": ("ConvTranspose", {"group": 2}, (4, 3, 2, 2), (1, 4, 3, 3)),
    "Gemm": ("Gemm", {}, (5, 3), (2, 5)),
    "Gemm transB": ("Gemm", {"transB": 1}, (3, 5), (2, 5)),
    "MatMul": ("MatMul", {}, (5, 3), (2, 4, 5)),
    "MatMul of a stack": ("MatMul", {}, (2, 5, 3), (2, 4, 5)),
    "MatMul by a vector": ("MatMul", {}, (5,), (2, 4, 5)),
}


def node_of(op_type: str, attributes: dict[str, Any]) -> ir.Node:
    return ir.node(op_type, [], attributes)


def run(op_type: str, attributes: dict[str, Any], data: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Return the result of one product, by onnxruntime."""
    node = helper.make_node(op_type, ["x", "w"], ["y"], **attributes)
    values = [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, None) for n in ("x", "w", "y")]
    graph = helper.make_graph([node], "g", values[:2], values[2:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    session = ort.InferenceSession(model.SerializeToString())
    return np.asarray(session.run(None, {"x": data, "w": weight})[0])


@pytest.mark.parametrize("name", PRODUCTS)
def test_scaled_input_channels_and_weights_divided_along_them_give_the_same_result(name: str) -> None:
    op_type, attributes, shape, data_shape = PRODUCTS[name]
    rng = np.random.default_rng(4)
    data, weight = rng.normal(size=data_shape).astype("f"), rng.normal(size=shape).astype("f")
    layout = product_layout(node_of(op_type, attributes))
    assert layout is not None
    assert layout.data_axis is not None
    axes = layout.axes(node_of(op_type, attributes), shape)
    scales = 2.0 ** rng.integers(-3, 3, axes.input_channels).astype("f")
    trailing = (1,) * (data.ndim - 1 - layout.data_axis % data.ndim)
    scaled = data * scales.reshape(-1, *trailing)
    again = run(op_type, attributes, scaled, weight / axes.along_inputs(scales))
    np.testing.assert_array_equal(again, run(op_type, attributes, data, weight))  # powers of two


@pytest.mark.parametrize("name", [name for name in PRODUCTS if "vector" not in name])
def test_weights_scaled_along_their_outputs_scale_the_channels_of_the_result(name: str) -> None:
    op_type, attributes, shape, data_shape = PRODUCTS[name]
    rng = np.random.default_rng(5)
    data, weight = rng.normal(size=data_shape).astype("f"), rng.normal(size=shape).astype("f")
    node = node_of(op_type, attributes)
    layout, axes = product_layout(node), weight_axes(node, shape)
    assert layout is not None
    scales = 2.0 ** rng.integers(-3, 3, axes.output_channels).astype("f")
    result = run(op_type, attributes, data, weight)
    beside = scales.reshape(layout.shape_beside_result(scales.size, result.ndim))
    again = run(op_type, attributes, data, weight * axes.along_outputs(scales))
    np.testing.assert_array_equal(again, result * beside)


@pytest.mark.parametrize("name", PRODUCTS)
def test_channels_without_weights_between_them_lie_in_different_groups(name: str) -> None:
    op_type, attributes, shape, data_shape = PRODUCTS[name]
    node = node_of(op_type, attributes)
    layout, axes = product_layout(node), weight_axes(node, shape)
    assert layout is not None
    assert layout.data_axis is not None
    groups, outputs, inputs, _ = axes.block_shape
    data = np.zeros(data_shape, np.float32)
    np.moveaxis(data, layout.data_axis, 0)[0] = 1.0  # only the first input channel
    result = run(op_type, attributes, data, np.ones(shape, np.float32))
    assert axes.input_channels == groups * inputs == data.shape[layout.data_axis]
    if axes.output is not None and layout.result_axis is not None:
        channels = np.moveaxis(result, layout.result_axis, 0).reshape(groups * outputs, -1)
        assert np.flatnonzero(channels.any(1)).tolist() == list(range(outputs))


@given(st.sampled_from(sorted(PRODUCTS)), st.integers(1, 3), st.integers(1, 3), st.integers(1, 3))
def test_blocks_hold_every_weight_once(name: str, groups: int, ins: int, outs: int) -> None:
    op_type, attributes, _, _ = PRODUCTS[name]
    attributes = {**attributes, **({"group": groups} if "Conv" in op_type else {})}
    shapes: dict[str, tuple[int, ...]] = {
        "Conv": (groups * outs, ins, 2, 3),
        "ConvTranspose": (groups * ins, outs, 2, 3),
        "Gemm": (outs, ins) if "transB" in attributes else (ins, outs),
        "MatMul": (ins,) if "vector" in name else (groups, ins, outs),
    }
    shape = shapes[op_type]
    axes = weight_axes(node_of(op_type, attributes), shape)
    weight = np.arange(np.prod(shape)).reshape(shape)
    flat = axes.blocks(weight)
    assert flat.shape == axes.block_shape
    assert flat.shape[1:3] == (1 if "vector" in name else outs, ins)
    np.testing.assert_array_equal(axes.unblocked(flat), weight)


@pytest.mark.parametrize(
    ("op_type", "attributes", "rank", "axis"),
    [
        ("Conv", {"group": 3}, 4, 0),
        ("ConvTranspose", {}, 4, 1),
        ("ConvTranspose", {"group": 2}, 4, None),
        ("Gemm", {}, 2, 1),
        ("Gemm", {"transB": 1}, 2, 0),
        ("MatMul", {}, 3, 2),
        ("MatMul", {}, 1, None),
        ("LayerNormalization", {}, 1, None),
    ],
)
def test_scales_lie_along_the_output_channels(
    op_type: str, attributes: dict[str, Any], rank: int, axis: int | None
) -> None:
    node = node_of(op_type, attributes)
    rule = rule_of(node)
    assert rule is not None
    assert rule.weight is not None
    assert rule.weight.axis(node, rank) == axis


@pytest.mark.parametrize(
    ("op_type", "attributes", "rank", "axis"),
    [("Gather", {"axis": -1}, 2, 1), ("Gather", {}, 2, 0), ("Gather", {}, 1, None), ("LSTM", {}, 3, 1)],
)
def test_stored_constants_have_a_scale_for_each_entry_or_gate(
    op_type: str, attributes: dict[str, Any], rank: int, axis: int | None
) -> None:
    node = node_of(op_type, attributes)
    rule = rule_of(node)
    assert rule is not None
    assert {weight.axis(node, rank) for weight in rule.stored} == {axis}


@pytest.mark.parametrize(
    ("op_type", "attributes", "rank", "axis"),
    [
        ("MatMul", {}, 2, 0),
        ("MatMul", {}, 3, 1),
        ("MatMul", {}, 1, None),
        ("Gemm", {}, 2, 0),
        ("Gemm", {"transB": 1}, 2, 1),
        ("Conv", {}, 4, 1),
        ("Conv", {"group": 2}, 4, None),
    ],
)
def test_blocks_lie_along_the_input_channels_where_no_groups_split_them(
    op_type: str, attributes: dict[str, Any], rank: int, axis: int | None
) -> None:
    node = node_of(op_type, attributes)
    layout = product_layout(node)
    assert layout is not None
    assert layout.blocked_axis(node, rank) == axis


def test_products_are_the_convolutions_and_matrix_products() -> None:
    products = [rule.op_type for rule in RULES.values() if rule.weight is not None and rule.weight.is_product]
    assert products == ["Conv", "ConvTranspose", "Gemm", "MatMul"]


def test_only_convolutions_have_a_kernel() -> None:
    kernels = {op: product_layout(ir.node(op, [])) for op in ("Conv", "ConvTranspose", "Gemm", "MatMul")}
    assert [layout.kernel for layout in kernels.values() if layout is not None] == [
        Kernel.GATHERS,
        Kernel.SCATTERS,
        Kernel.NONE,
        Kernel.NONE,
    ]


def graph_of(text: str) -> ir.Model:
    model = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["": 17]> g (float[2, 3] x) => (float[2, 4] y) '
        f"<float[3, 4] w = {{{', '.join(['1'] * 12)}}}, float[4] b = {{1, 2, 3, 4}}> {{ {text} }}"
    )
    return ir.serde.deserialize_model(model)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("y = Gemm(x, w, b)", ("Gemm", 2)),
        ("y = Gemm(x, w)", ("Gemm", 2)),
        ("a = MatMul(x, w) y = Add(a, b)", ("Add", 1)),
        ("a = MatMul(x, w) y = Add(b, a)", ("Add", 0)),
        ("y = MatMul(x, w)", None),
        ("a = MatMul(x, w) y = Add(a, a)", None),
        ("a = MatMul(x, w) y = Mul(a, b)", None),
        ("a = Mul(b, b) y = Gemm(x, w, a)", None),
    ],
)
def test_a_bias_is_an_input_of_the_product_or_of_the_add_after_it(
    text: str, place: tuple[str, int] | None
) -> None:
    model = graph_of(text)
    product = next(node for node in model.graph if node.op_type in ("Gemm", "MatMul"))
    layout = product_layout(product)
    assert layout is not None
    found = layout.bias_place(product)
    assert (None if found is None else (found[0].op_type, found[1])) == place
