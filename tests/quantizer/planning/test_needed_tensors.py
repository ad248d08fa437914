"""Which activations need a profile: those that operators of the table read or make."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import pytest
from qprof_onnx.profiles.base.errors import ConfigError
from qprof_onnx.profiles.records.store import load_profile
from qprof_onnx.profiles.runner.settings import RunSettings
from qprof_onnx.quantizer.api.from_profile import write_quantized
from qprof_onnx.quantizer.api.profiling import profile_model
from qprof_onnx.quantizer.noise.activation_ranges import clip_outputs
from qprof_onnx.quantizer.operators.graph import index
from qprof_onnx.quantizer.operators.table import rule_of
from qprof_onnx.quantizer.planning.needed_tensors import needed_tensors
from qprof_onnx.quantizer.planning.weighted_channels import weighted_channels

DIGITS = Path(__file__).parents[3] / "examples" / "digits"

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
    assert needed_tensors(graph) == {"a", "s", "y"}


def test_a_profile_of_what_is_needed_makes_the_same_model(tmp_path: Path) -> None:
    for tensors in ("all", "needed"):
        profile, model = tmp_path / f"{tensors}.yaml", tmp_path / f"{tensors}.onnx"
        profile_model(DIGITS / "model.onnx", DIGITS / "calibration", profile, RunSettings(tensors=tensors))
        write_quantized(DIGITS / "model.onnx", profile, model)
    every, needed = (onnx.load(tmp_path / f"{tensors}.onnx") for tensors in ("all", "needed"))
    assert every.graph == needed.graph
    entries = [{p.key: p.value for p in model.metadata_props} for model in (every, needed)]
    estimates = {"qprof.profile", "qprof.estimated_sqnr", "qprof.sqnr_bands"}
    assert {key for key in entries[0] if entries[0][key] != entries[1][key]} <= estimates
    assert set(load_profile(tmp_path / "needed.yaml")) <= set(load_profile(tmp_path / "all.yaml"))


WEIGHED = """<ir_version: 8, opset_import: ["": 17]>
    net (float[N, 4, 8, 8] x, float[N, 8, 8] s) => (float[N, 6] y, float[N, 8, 8] z) {
        c = Conv (x, w)
        t = ConvTranspose (c, v)
        p = GlobalAveragePool (t)
        f = Flatten (p)
        y = Gemm (f, m)
        g = Transpose <perm = [1, 0]> (f)
        h = Gemm <transA = 1> (g, m)
        a = MatMul (s, k)
        z = MatMul (a, s)
    }"""


def test_channels_of_what_meets_a_constant_weight_are_recorded() -> None:
    """Not so of products of two activations, and of products that have no integer form."""
    proto = onnx.parser.parse_model(WEIGHED)
    shapes = {"w": (5, 4, 3, 3), "v": (5, 3, 2, 2), "m": (3, 6), "k": (8, 8)}
    for name, shape in shapes.items():
        proto.graph.initializer.append(onnx.numpy_helper.from_array(np.ones(shape, np.float32), name))
    graph = index(ir.from_proto(onnx.shape_inference.infer_shapes(proto)))
    assert weighted_channels(graph) == {"x": 1, "c": 1, "f": 1, "s": -1}


def test_channels_of_what_a_recurrent_node_reads_are_recorded() -> None:
    proto = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["": 17]>
        net (float[N, 1, 8] x) => (float[N, 1, 1, 4] y) { y = LSTM <hidden_size = 4> (x, w, r) }"""
    )
    for name, shape in {"w": (1, 16, 8), "r": (1, 16, 4)}.items():
        proto.graph.initializer.append(onnx.numpy_helper.from_array(np.ones(shape, np.float32), name))
    assert weighted_channels(index(ir.from_proto(proto))) == {"x": -1}


def test_of_two_axes_the_first_in_graph_order_decides() -> None:
    proto = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["": 17]>
        net (float[N, 4, 8] x) => (float[N, 4, 5] y, float[N, 2, 8] z) {
            y = MatMul (x, k)  z = Conv (x, w) }"""
    )
    for name, shape in {"k": (8, 5), "w": (2, 4, 1)}.items():
        proto.graph.initializer.append(onnx.numpy_helper.from_array(np.ones(shape, np.float32), name))
    assert weighted_channels(index(ir.from_proto(onnx.shape_inference.infer_shapes(proto)))) == {"x": -1}


def test_an_unknown_choice_of_channels_is_refused() -> None:
    with pytest.raises(
        ConfigError,
        match=r"channels: is 'of'; give 'weighted-layers', 'off' or a mapping",
    ):
        profile_model(DIGITS / "model.onnx", DIGITS / "calibration", run=RunSettings(channels="of"))


CLIPS = """<ir_version: 8, opset_import: ["": 17]>
    net (float[N, 4] x) => (float[N, 4] y, float[N, 4] d) {
        a = Abs (x)
        b = Relu (a)
        c = Neg (b)
        e = Relu (c)
        f = Add (c, e)
        d = Neg (f)
        y = Relu (d)
    }"""


def test_what_is_only_clipped_needs_no_profile_of_its_own() -> None:
    """`c` has another reader and `d` is an output."""
    graph = index(graph_of(CLIPS))
    assert clip_outputs(graph) == {"a": "b"}
    assert needed_tensors(graph) == {"x", "b", "c", "e", "f", "d", "y"}


def test_of_clips_in_a_row_the_last_serves() -> None:
    graph = index(
        graph_of(
            """<ir_version: 8, opset_import: ["": 17]> g (float[N] x) => (float[N] y) {
            a = Neg (x)  b = Relu (a)  c = Relu (b)  y = Neg (c) }"""
        )
    )
    assert clip_outputs(graph) == {"a": "c", "b": "c"}


def test_an_input_of_the_model_that_is_clipped_keeps_its_profile() -> None:
    graph = index(
        graph_of('<ir_version: 8, opset_import: ["": 17]> g (float[N] x) => (float[N] y) { y = Relu (x) }')
    )
    assert clip_outputs(graph) == {}
