"""Which activations need a profile: those that operators of the table read or make."""

from __future__ import annotations

from pathlib import Path

import onnx
import onnx.parser
import onnx_ir as ir
from qprof_onnx.profiles.store import load_profile
from qprof_onnx.quantizer.graph import index
from qprof_onnx.quantizer.needed import needed_tensors
from qprof_onnx.quantizer.pipeline import dump_profile, quantize
from qprof_onnx.quantizer.rules import rule_of

DIGITS = Path(__file__).parents[2] / "examples" / "digits"

UNKNOWN = """<ir_version: 8, opset_import: ["": 17]>
    net (float[N, 4] x) => (float[N, 4] y, int64[N] i) {
        a = Einsum <equation = "ij->ij"> (x)
        s = ThresholdedRelu (a)
        c = Hardmax (s)
        d = Hardmax (c)
        e = Hardmax (d)
        y = Relu (e)
        i = ArgMax <axis = 1, keepdims = 0> (y)
    }"""


def graph_of(text: str) -> ir.Model:
    proto = onnx.parser.parse_model(text)
    return ir.from_proto(onnx.shape_inference.infer_shapes(proto))


def test_what_lies_between_operators_without_a_rule_is_not_needed() -> None:
    graph = index(graph_of(UNKNOWN))
    without = {node.op_type for node in graph.nodes if rule_of(node) is None}
    assert {"Einsum", "Hardmax", "ArgMax"} == without
    assert needed_tensors(graph) == {"a", "s", "e", "y"}


def test_a_profile_of_what_is_needed_makes_the_same_model(tmp_path: Path) -> None:
    for tensors in ("all", "needed"):
        profile, model = tmp_path / f"{tensors}.yaml", tmp_path / f"{tensors}.onnx"
        dump_profile(DIGITS / "model.onnx", DIGITS / "calibration", profile, tensors=tensors)
        quantize(DIGITS / "model.onnx", profile, model)
    assert (tmp_path / "all.onnx").read_bytes() == (tmp_path / "needed.onnx").read_bytes()
    assert set(load_profile(tmp_path / "needed.yaml")) <= set(load_profile(tmp_path / "all.yaml"))
