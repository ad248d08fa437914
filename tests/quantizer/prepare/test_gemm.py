"""MatMul and its bias as one Gemm, and what must stay apart."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import numpy_helper, parser
from onnx.reference import ReferenceEvaluator
from qprof_onnx.quantizer.prepare.prepare import prepare

CONSTANTS = {"w": (5, 3), "row": (3,), "one_row": (1, 3)}


def parse(nodes: str, inputs: str = "float[2, 5] x", output: str = "float[2, 3] y") -> onnx.ModelProto:
    proto = parser.parse_model(
        f'<ir_version: 8, opset_import: ["": 14]> g ({inputs}) => ({output}) {{ {nodes} }}'
    )
    rng = np.random.default_rng(5)
    for name, shape in CONSTANTS.items():
        proto.graph.initializer.append(
            numpy_helper.from_array(rng.standard_normal(shape).astype(np.float32), name)
        )
    return proto


def prepared(proto: onnx.ModelProto) -> onnx.ModelProto:
    found: onnx.ModelProto = ir.to_proto(prepare(ir.serde.deserialize_model(proto)).model)
    return found


@pytest.mark.parametrize("bias", ["row", "one_row"])
@pytest.mark.parametrize("order", ["Add (p, {})", "Add ({}, p)"])
def test_a_product_and_its_bias_become_one_node_that_computes_the_same(bias: str, order: str) -> None:
    proto = parse(f"p = MatMul (x, w) y = {order.format(bias)}")
    found = prepared(proto)
    (node,) = found.graph.node
    assert (node.op_type, list(node.output)) == ("Gemm", ["y"])
    feed = {"x": np.random.default_rng(1).standard_normal((2, 5)).astype(np.float32)}
    (wanted,), (result,) = (ReferenceEvaluator(m).run(None, feed) for m in (proto, found))
    np.testing.assert_allclose(result, wanted, rtol=1e-6, atol=1e-6)  # float32 sums in another order


APART = {
    "a stack of matrices": (
        "p = MatMul (x, w) y = Add (p, row)",
        {"inputs": "float[4, 2, 5] x", "output": "float[4, 2, 3] y"},
    ),
    "a product that others read": ("p = MatMul (x, w) a = Add (p, row) y = Mul (a, p)", {}),
    "a bias that is no constant": (
        "p = MatMul (x, w) y = Add (p, b)",
        {"inputs": "float[2, 5] x, float[3] b"},
    ),
    "no constant matrix": (
        "p = MatMul (x, v) y = Add (p, row)",
        {"inputs": "float[2, 5] x, float[5, 3] v"},
    ),
}


@pytest.mark.parametrize("name", APART)
def test_other_sums_stay_apart(name: str) -> None:
    nodes, types = APART[name]
    assert [n.op_type for n in prepared(parse(nodes, **types)).graph.node][:2] == ["MatMul", "Add"]
