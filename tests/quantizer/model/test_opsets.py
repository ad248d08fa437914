"""A model in another opset keeps its own tensors, wherever they are."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
from qprof_onnx.quantizer.model.loading import load_model
from qprof_onnx.quantizer.model.opsets import in_opset

TEXT = """<ir_version: 8, opset_import: ["": 13]>
net (float[1, 64] x, bool c) => (float[1, 64] z) <int64[1] k = {1}> {
    y = MatMul(x, w)
    s = ReduceMax<axes = [1]>(y)
    q = Squeeze(s, k)
    r = Unsqueeze(q, k)
    z = If(c) <then_branch = a () => (float[1, 64] t) { t = Add(y, r) },
               else_branch = b () => (float[1, 64] u) { u = Sub(y, v) }>
}"""


def saved(folder: Path, location: str) -> Path:
    """Write a model with weights in its graph and in a branch, all in a file of their own."""
    proto = onnx.parser.parse_model(TEXT)
    rng = np.random.default_rng(0)
    branch = proto.graph.node[-1].attribute[1].g
    for graph, name, shape in ((proto.graph, "w", (64, 64)), (branch, "v", (64, 64))):
        array = rng.standard_normal(shape).astype(np.float32)
        graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    branch.output[0].type.tensor_type.shape.dim[0].dim_value = 64
    proto.graph.output[0].type.tensor_type.shape.dim[0].dim_param = "rows"
    folder.mkdir()
    onnx.save_model(
        proto, folder / "m.onnx", save_as_external_data=True, location=location, size_threshold=1000
    )
    return folder / "m.onnx"


def initialisers(model: ir.Model) -> dict[str, ir.TensorProtocol | None]:
    return {name: v.const_value for graph in model.graphs() for name, v in graph.initializers.items()}


def test_external_data_keeps_its_folder_in_subgraphs_too(tmp_path: Path) -> None:
    model = load_model(saved(tmp_path / "a", "m.onnx.data"))
    before, after = initialisers(model), initialisers(in_opset(model, 21))
    assert {name: after[name] for name in before} == before
    assert isinstance(after["w"], ir.ExternalTensor)
    assert isinstance(after["v"], ir.ExternalTensor)
    assert after["w"].path == str(tmp_path / "a" / "m.onnx.data")


def test_the_nodes_are_those_of_the_later_opset_and_the_argument_is_left_alone(tmp_path: Path) -> None:
    model = load_model(saved(tmp_path / "a", "m.onnx.data"))
    raised = in_opset(model, 21)
    assert (model.opset_imports[""], raised.opset_imports[""]) == (13, 21)
    reduce = next(node for node in raised.graph if node.op_type == "ReduceMax")
    assert "axes" not in reduce.attributes
    assert "axes" in next(node for node in model.graph if node.op_type == "ReduceMax").attributes
    assert initialisers(model)["w"] is initialisers(raised)["w"]


def test_operators_that_onnx_has_not_in_the_opset_are_taken_along() -> None:
    text = """<ir_version: 8, opset_import: ["" : 14]>
    g (float[2,4] x, float[4] s) => (float[2,4] y) { a = Relu (x) [n] y = LayerNormalization (a, s) }"""
    later = in_opset(ir.from_proto(onnx.parser.parse_model(text)), 21)
    assert [(node.domain, node.op_type) for node in later.graph] == [("", "Relu"), ("", "LayerNormalization")]
    assert dict(later.opset_imports) == {"": 21}
