"""Every value that a node reads must be visible to it."""

from __future__ import annotations

import onnx_ir as ir
import pytest
from onnx import parser
from qprof_onnx.profiles.base.errors import PlanError
from qprof_onnx.quantizer.model.graph import check_scopes

TEXT = """<ir_version: 8, opset_import: ["": 17]> g (float[2] x, bool c) => (float[2] y) {
    a = Relu(x)
    b = If (c) <then_branch = yes () => (o) { i = Neg(a)  o = Abs(i) },
        else_branch = no () => (p) { p = Neg(a) }>
    y = Add(a, b)
}"""


def model() -> ir.Model:
    return ir.serde.deserialize_model(parser.parse_model(TEXT))


def test_values_of_an_outer_graph_are_visible_in_a_subgraph() -> None:
    given = model()
    assert check_scopes(given, "step") is given


def test_a_value_of_a_branch_is_not_visible_in_the_graph_around_it() -> None:
    given = model()
    inner = next(value for node in given.graph.all_nodes() for value in node.outputs if value.name == "i")
    given.graph[2].replace_input_with(0, inner)
    with pytest.raises(PlanError, match=r"^step: node '.*' reads 'i', which is not made before it"):
        check_scopes(given, "step")


def test_a_value_that_is_made_later_is_not_visible() -> None:
    given = model()
    given.graph[0].replace_input_with(0, given.graph[2].outputs[0])
    with pytest.raises(PlanError, match="reads 'y', which is not made before it"):
        check_scopes(given, "step")
