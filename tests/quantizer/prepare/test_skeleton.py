"""The message for shape inference has what a file of the model has, but for names and texts."""

from __future__ import annotations

import onnx
import onnx.parser
import onnx_ir as ir
import pytest
from qprof_onnx.quantizer.prepare.skeleton import skeleton

MODELS = {
    "attributes of every plain type": (
        "g (float[1,3,8,8] x, float[4,3,3,3] w) => (float[1,4,N,M] y, float[1,4,8,8] z) {"
        ' c = Conv <kernel_shape = [3, 3], pads = [1, 1, 1, 1], group = 1, auto_pad = "NOTSET"> (x, w)'
        " y = LeakyRelu <alpha = 0.3> (c) z = Identity (c) }"
    ),
    "an input that is left out": "g (float[2,4] x, float[2,4] low) => (float[2,4] y) { y = Clip (x, , low) }",
    "a subgraph, a tensor as an attribute, a sequence": (
        "g (bool go, float[2,4] x) => (float[A,B] y) {"
        " at = Constant <value = int64 {1}> () q = SequenceConstruct (x, x) p = SequenceAt (q, at)"
        " y = If (go) <then_branch = t () => (float[2,4] a) { a = Add (x, p) },"
        " else_branch = e () => (float[2,4] b) { k = Constant <value = float {2.0}> () b = Mul (x, k) }> }"
    ),
}


def stripped(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return a message without the names of nodes, which inference does not read."""

    def strip(graph: onnx.GraphProto) -> None:
        for node in graph.node:
            node.ClearField("name")
            for attribute in node.attribute:
                strip(attribute.g)
                if attribute.type != onnx.AttributeProto.GRAPH:
                    attribute.ClearField("g")

    strip(proto.graph)
    return proto


@pytest.mark.parametrize("name", MODELS)
def test_the_skeleton_is_the_message_of_the_model(name: str) -> None:
    header = '<ir_version: 8, opset_import: ["" : 17]> '
    proto = onnx.parser.parse_model(header + MODELS[name])
    model = ir.from_proto(onnx.shape_inference.infer_shapes(proto))
    assert onnx.ModelProto.FromString(skeleton(model)) == stripped(ir.to_proto(model))
