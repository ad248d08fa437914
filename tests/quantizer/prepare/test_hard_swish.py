"""HardSwish put together from its parts, and what must stay in parts."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import numpy_helper, parser
from onnx.reference import ReferenceEvaluator
from qprof_onnx.quantizer.prepare.prepare import prepare

CONSTANTS = {"three": 3.0, "zero": 0.0, "six": 6.0, "sixth": 1 / 6, "five": 5.0}


def parse(nodes: str, opset: int = 14) -> onnx.ModelProto:
    text = f'<ir_version: 8, opset_import: ["": {opset}]> g (float[2, 5] x) => (float[2, 5] y) {{ {nodes} }}'
    proto = parser.parse_model(text)
    for name, value in CONSTANTS.items():
        proto.graph.initializer.append(numpy_helper.from_array(np.array(value, np.float32), name))
    return proto


def operators(proto: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in prepare(ir.serde.deserialize_model(proto)).model.graph]


WRITTEN_OUT = [
    "a = Add (x, three) b = Clip (a, zero, six) c = Mul (x, b) y = Div (c, six)",
    "a = Add (three, x) b = Clip (a, zero, six) c = Mul (b, x) y = Mul (c, sixth)",
    "a = Add (x, three) b = Clip (a, zero, six) c = Div (b, six) y = Mul (x, c)",
    "a = Add (x, three) b = Clip (a, zero, six) c = Mul (sixth, b) y = Mul (c, x)",
    "h = HardSigmoid <alpha = 0.16666667, beta = 0.5> (x) y = Mul (x, h)",
]


def assert_same_numbers(proto: onnx.ModelProto, model: ir.Model) -> None:
    x = np.linspace(-5, 8, 10, dtype=np.float32).reshape(2, 5)
    expected, got = (ReferenceEvaluator(m).run(None, {"x": x})[0] for m in (proto, ir.to_proto(model)))
    np.testing.assert_allclose(got, expected, rtol=1e-6, atol=1e-6)  # products are rounded in another order


@pytest.mark.parametrize("nodes", WRITTEN_OUT)
@pytest.mark.parametrize(("opset", "written"), [(14, ["HardSwish"]), (13, ["HardSigmoid", "Mul"])])
def test_every_spelling_becomes_one_operator_or_its_gate_and_a_product(
    nodes: str, opset: int, written: list[str]
) -> None:
    proto = parse(nodes, opset)
    once = prepare(ir.serde.deserialize_model(proto)).model
    assert [node.op_type for node in once.graph] == written
    assert ir.serde.serialize_model(once) == ir.serde.serialize_model(prepare(once).model)
    assert_same_numbers(proto, once)


@pytest.mark.parametrize(
    "nodes",
    [
        "a = Add (x, three) b = Clip (a, zero, five) c = Mul (x, b) y = Div (c, six)",
        "a = Add (x, five) b = Clip (a, zero, six) c = Mul (x, b) y = Div (c, six)",
        "a = Add (x, three) b = Clip (a, zero, six) c = Mul (x, b) y = Div (c, five)",
        "a = Add (x, three) b = Clip (a, zero, six) c = Mul (a, b) y = Div (c, six)",
        "a = Add (x, three) b = Clip (a, zero, six) c = Mul (x, b) d = Div (c, six) y = Add (d, b)",
        "h = HardSigmoid (x) y = Mul (x, h)",
    ],
)
def test_what_is_another_function_stays_in_parts(nodes: str) -> None:
    assert "HardSwish" not in operators(parse(nodes))


@pytest.mark.parametrize("opset", [13, 17])
@pytest.mark.parametrize(
    "nodes",
    [
        "a = Add (x, three) b = Clip (a, zero, six) y = Div (b, six)",
        "a = Add (three, x) b = Clip (a, zero, six) y = Mul (b, sixth)",
        "a = Add (five, x) b = Clip (a, zero, six) y = Mul (sixth, b)",
        "b = Clip (x, zero, five) y = Div (b, five)",
    ],
)
def test_a_clipped_line_is_a_hard_sigmoid(nodes: str, opset: int) -> None:
    proto = parse(nodes, opset)
    model = prepare(ir.serde.deserialize_model(proto)).model
    assert [node.op_type for node in model.graph] == ["HardSigmoid"]
    assert_same_numbers(proto, model)


@pytest.mark.parametrize(
    "nodes",
    [
        "a = Add (x, three) b = Clip (a, zero, six) y = Div (b, five)",
        "a = Add (x, three) b = Clip (a, three, six) y = Div (b, six)",
        "a = Add (x, three) b = Clip (a, zero, six) c = Div (b, six) y = Add (c, b)",
    ],
)
def test_what_does_not_end_at_0_and_1_is_no_hard_sigmoid(nodes: str) -> None:
    assert "HardSigmoid" not in operators(parse(nodes))
