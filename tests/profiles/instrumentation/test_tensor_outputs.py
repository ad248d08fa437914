"""Observations are decided without an edit; then the graph is edited, in a copy."""

from __future__ import annotations

import onnx
import onnx.parser
import onnx_ir as ir
from qprof_onnx.profiles.instrumentation.observations import observations
from qprof_onnx.profiles.instrumentation.tensor_outputs import with_outputs


def model() -> ir.Model:
    proto = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["": 13]>
        net (float[N, 4] x, bfloat16[N] q) => (float[N, 4] z) {
            y = Neg (x)  f = Flatten (y)  b = Neg (q)  z = Relu (f) }"""
    )
    return ir.from_proto(onnx.shape_inference.infer_shapes(proto))


def test_a_decision_changes_no_graph_and_names_no_output() -> None:
    net = model()
    before = ir.to_proto(net).SerializeToString()
    observed = observations(net)
    assert ir.to_proto(net).SerializeToString() == before
    assert {o.name: o.source for o in observed} == dict.fromkeys("xqyfbz")


def test_what_is_read_is_an_output_of_the_copy() -> None:
    net = model()
    copy, observed = with_outputs(net, observations(net))
    sources = {o.name: o.source for o in observed}
    assert sources == {"x": None, "q": None, "y": "y", "f": "f", "b": "b:float", "z": "z"}
    assert [value.name for value in copy.graph.outputs] == ["z", "y", "f", "b:float"]
    assert [value.name for value in net.graph.outputs] == ["z"]
