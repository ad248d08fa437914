"""Quantized models of other tools with weights in blocks of floating-point numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import onnx
import onnx.parser
import pytest
import qprof_onnx as qprof
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from qprof_onnx.quantizer.plugins.exchange.exchanging import import_plan

WEIGHT = np.random.default_rng(7).standard_normal((96, 40)).astype(np.float32)
X = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["M", 96])
ROWS = np.random.default_rng(8).standard_normal((4, 96)).astype(np.float32)


@pytest.fixture
def original(tmp_path: Path) -> Path:
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g (float[M, 96] x) => (float[M, 40] y) { y = MatMul(x, w) }'
    )
    model.graph.initializer.append(numpy_helper.from_array(WEIGHT, "w"))
    onnx.save(model, tmp_path / "m.onnx")
    return tmp_path / "m.onnx"


def tensor(name: str, array: npt.NDArray[Any], kind: int) -> onnx.TensorProto:
    data = array.view(np.uint8)
    if kind == TensorProto.FLOAT4E2M1:
        codes = data.reshape(-1) & 0xF
        data = codes[::2] | (codes[1::2] << 4)
    return helper.make_tensor(name, kind, array.shape, data.tobytes(), raw=True)


def model_optimizer_nvfp4() -> onnx.ModelProto:
    """Return the product as Model Optimizer 0.47 writes it: weight [out, in], parts listed as inputs."""
    weight = WEIGHT.T
    whole = np.float32(np.abs(weight).max() / (6 * 448))
    largest = np.abs(weight.reshape(40, 6, 16)).max(-1)
    stored = (largest / (np.float32(6) * whole)).astype(ml_dtypes.float8_e4m3fn)
    steps = weight.reshape(40, 6, 16) / (stored.astype(np.float32)[..., None] * whole)
    codes = np.clip(steps, -6, 6).astype(ml_dtypes.float4_e2m1fn).reshape(40, 96)
    parts = [
        tensor("w_f4", codes, TensorProto.FLOAT4E2M1),
        tensor("w_f8_scale", stored, TensorProto.FLOAT8E4M3FN),
        numpy_helper.from_array(np.array([whole]), "w_f8_scale_f32_scale"),
    ]
    nodes = [
        helper.make_node("DequantizeLinear", ["w_f8_scale", "w_f8_scale_f32_scale"], ["w_f32_scale"]),
        helper.make_node("DequantizeLinear", ["w_f4", "w_f32_scale"], ["wd"], axis=-1, block_size=16),
        helper.make_node("Transpose", ["wd"], ["wt"], perm=[1, 0]),
        helper.make_node("MatMul", ["x", "wt"], ["y"]),
    ]
    inputs = [helper.make_tensor_value_info(part.name, part.data_type, part.dims) for part in parts]
    return _model(
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["M", 96]), *inputs], nodes, parts, 23
    )


def microscaling(scale_is_cast: bool) -> onnx.ModelProto:
    """Return the product with e4m3 elements and e8m0 scales, read directly or behind a Cast."""
    blocks = WEIGHT.reshape(3, 32, 40)
    scale = np.exp2(np.floor(np.log2(np.abs(blocks).max(1))) - 8).astype(np.float32)
    codes = np.clip(blocks / scale[:, None], -448, 448).astype(ml_dtypes.float8_e4m3fn).reshape(96, 40)
    parts = [
        tensor("q", codes, TensorProto.FLOAT8E4M3FN),
        tensor("s", scale.astype(ml_dtypes.float8_e8m0fnu), TensorProto.FLOAT8E8M0),
    ]
    cast = [helper.make_node("Cast", ["s"], ["sf"], to=TensorProto.FLOAT)] if scale_is_cast else []
    words: dict[str, Any] = {"axis": 0, "block_size": 32}
    if not scale_is_cast:
        words["output_dtype"] = TensorProto.FLOAT
    nodes = [
        *cast,
        helper.make_node("DequantizeLinear", ["q", "sf" if scale_is_cast else "s"], ["wd"], **words),
        helper.make_node("MatMul", ["x", "wd"], ["y"]),
    ]
    return _model([X], nodes, parts, 24)


def _model(inputs: Any, nodes: Any, parts: Any, opset: int) -> onnx.ModelProto:
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["M", 40])
    graph = helper.make_graph(nodes, "g", inputs, [output], parts)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=11)
    onnx.checker.check_model(model, full_check=True)
    return model


SOURCES = {
    "nvfp4": model_optimizer_nvfp4,
    "mxfp8": lambda: microscaling(scale_is_cast=False),
    "mxfp8, cast": lambda: microscaling(scale_is_cast=True),
}


@pytest.mark.parametrize("name", SOURCES)
def test_a_model_is_written_again_with_the_same_numbers(name: str, original: Path, tmp_path: Path) -> None:
    source = SOURCES[name]()
    onnx.save(source, tmp_path / "their.onnx")
    plan = import_plan(tmp_path / "their.onnx", original, tmp_path / "p.yaml", target="openvino")
    assert plan.tensors["w"].qtype.name == name.partition(",")[0]
    assert plan.config.weight_type == name.partition(",")[0]
    qprof.quantize(original, output=tmp_path / "q.onnx", plan=tmp_path / "p.yaml")
    each = {"x": np.eye(96, dtype=np.float32)}  # one weight in each sum: no order of adding matters
    theirs = ReferenceEvaluator(source).run(None, each)[0]
    ours = ReferenceEvaluator(str(tmp_path / "q.onnx")).run(None, each)[0]
    np.testing.assert_array_equal(ours, theirs)


def test_numbers_that_are_not_the_nearest_are_kept(original: Path, tmp_path: Path) -> None:
    scale = np.float32(np.abs(WEIGHT).max(0) / 448)
    codes = (WEIGHT / scale).astype(ml_dtypes.float8_e4m3fn)
    other = codes.view(np.uint8).copy()
    other[5, :7] ^= 1  # a neighbour, as of a tool that multiplies with the reciprocal
    codes = other.view(ml_dtypes.float8_e4m3fn)
    parts = [tensor("q", codes, TensorProto.FLOAT8E4M3FN), numpy_helper.from_array(scale, "s")]
    nodes = [
        helper.make_node("DequantizeLinear", ["q", "s"], ["wd"], axis=1),
        helper.make_node("MatMul", ["x", "wd"], ["y"]),
    ]
    source = _model([X], nodes, parts, 21)
    onnx.save(source, tmp_path / "their.onnx")
    import_plan(tmp_path / "their.onnx", original, tmp_path / "p.yaml", target="openvino")
    qprof.quantize(original, output=tmp_path / "q.onnx", plan=tmp_path / "p.yaml")
    written = {t.name: numpy_helper.to_array(t) for t in onnx.load(tmp_path / "q.onnx").graph.initializer}
    np.testing.assert_array_equal(written["w_quantized"].view(np.uint8), other)
