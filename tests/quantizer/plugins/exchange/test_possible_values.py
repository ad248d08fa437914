"""What an activation can hold at all: no value of any operator leaves the interval that is claimed of it."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from onnx import helper, parser
from qprof_onnx.quantizer.operators.graph import index
from qprof_onnx.quantizer.plugins.exchange.possible_values import possible_values

from ...operators.test_table import VECTORS, one_node_model, samples_for

FIRST = (None, "Relu", "Sigmoid")
"""What the operator reads: inputs of any value, or what another operator yields."""


def after(proto: onnx.ModelProto, op_type: str | None) -> onnx.ModelProto:
    """Return the model with an operator between its input x and what reads it."""
    if op_type is None:
        return proto
    for node in proto.graph.node:
        node.input[:] = ["before" if name == "x" else name for name in node.input]
    proto.graph.node.insert(0, helper.make_node(op_type, ["x"], ["before"], name="first"))
    return proto


def claimed(proto: onnx.ModelProto) -> dict[str, tuple[float, float]]:
    return possible_values(index(ir.from_proto(proto)))


@pytest.mark.parametrize("op_type", VECTORS)
def test_no_value_of_an_operator_leaves_the_interval(op_type: str) -> None:
    for first in FIRST:
        proto = after(one_node_model(op_type), first)
        values = next(iter(samples_for(op_type, proto))).arrays["x"]
        intervals = claimed(proto)
        session = ort.InferenceSession(proto.SerializeToString())
        names = [value.name for value in session.get_outputs()]
        any_value = first is None and op_type not in ("Asin", "Acos", "Tan", "Atanh")
        for scale in (1.0, 30.0) if any_value else (1.0,):
            for name, found in zip(names, session.run(None, {"x": values * np.float32(scale)}), strict=True):
                if name in intervals and found.dtype == np.float32:
                    low, high = intervals[name]
                    room = 1e-5 * float(np.abs(found).max(initial=1.0))
                    assert low - room <= found.min(), first
                    assert found.max() <= high + room, first


def net(body: str, constants: str = "") -> onnx.ModelProto:
    return parser.parse_model(
        f'<ir_version: 9, opset_import: ["": 20]> g (float[1,2,4,4] x) => (float[] y) {constants} '
        f"{{ {body} }}"
    )


@pytest.mark.parametrize(
    ("body", "interval"),
    [
        ("y = Relu(x)", (0.0, np.inf)),
        ("a = Relu(x) y = MaxPool<kernel_shape = [2, 2]>(a)", (0.0, np.inf)),
        ("a = Sigmoid(x) b = Relu(x) y = Concat<axis = 1>(a, b)", (0.0, np.inf)),
        ("a = Sigmoid(x) y = GlobalAveragePool(a)", (0.0, 1.0)),
        ("a = Sigmoid(x) y = Mul(a, x)", None),
        ("y = MaxPool<kernel_shape = [2, 2]>(x)", None),
    ],
)
def test_intervals_go_through_what_passes_values_on(body: str, interval: tuple[float, float] | None) -> None:
    assert claimed(net(body)).get("y") == interval


@pytest.mark.parametrize(
    ("body", "constants", "interval"),
    [
        ("y = Pad(a, p, c)", "float c = {0.0}, int64[8] p = {0,0,0,0,0,0,1,1}", (0.0, 1.0)),
        ("y = Pad(a, p, c)", "float c = {5.0}, int64[8] p = {0,0,0,0,0,0,1,1}", None),
        ('y = Resize<mode = "cubic">(a, , r)', "float[4] r = {1,1,2,2}", None),
    ],
)
def test_operators_that_bring_in_other_values_have_no_interval(
    body: str, constants: str, interval: tuple[float, float] | None
) -> None:
    assert claimed(net(f"a = Sigmoid(x) {body}", f"<{constants}>")).get("y") == interval
