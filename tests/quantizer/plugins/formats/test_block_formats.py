"""Weights in blocks of floating-point numbers: read by the checker, and computed alike in three runtimes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest
import qprof_onnx as qprof
from onnx.reference import ReferenceEvaluator
from qprof_onnx.profiles.base.errors import ConfigError
from qprof_onnx.quantizer.evaluation.runtimes import open_session

FORMATS = {
    # Opset, types of weight and scales, least SQNR of the output (dB)
    "weight-only-float8": (21, "FLOAT8E4M3FN", "FLOAT", 25.0),
    "weight-only-mxfp8": (24, "FLOAT8E4M3FN", "FLOAT8E8M0", 25.0),
    "weight-only-mxfp4": (24, "FLOAT4E2M1", "FLOAT8E8M0", 14.0),
    "weight-only-nvfp4": (23, "FLOAT4E2M1", "FLOAT8E4M3FN", 16.0),
}
ROWS = np.random.default_rng(1).standard_normal((5, 128)).astype(np.float32)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(0)
    net = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g (float[M, 128] x) => (float[M, 40] y) '
        "{ a = MatMul(x, w) b = Relu(a) y = MatMul(b, v) }"
    )
    for name, shape in {"w": (128, 192), "v": (192, 40)}.items():
        array = rng.standard_normal(shape).astype(np.float32) / 10
        net.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    path = tmp_path_factory.mktemp("blocks") / "m.onnx"
    onnx.save(net, path)
    return path


@pytest.mark.parametrize("word", FORMATS)
def test_a_format_is_computed_alike_in_all_runtimes(word: str, model: Path, tmp_path: Path) -> None:
    opset, weight, scales, least = FORMATS[word]
    out = tmp_path / "q.onnx"
    result = qprof.quantize(model, output=out, config=word, target="openvino")
    assert not [f for f in result.findings if "stays float" in f.sentence]
    written = onnx.load(out)
    onnx.checker.check_model(written, full_check=True)
    assert written.opset_import[0].version == opset
    kinds = {t.name: onnx.TensorProto.DataType.Name(t.data_type) for t in written.graph.initializer}
    assert (kinds["w_quantized"], kinds["w_scale"]) == (weight, scales)
    reference = ReferenceEvaluator(written).run(None, {"x": ROWS})[0]
    exact = ReferenceEvaluator(str(model)).run(None, {"x": ROWS})[0]
    assert 10 * np.log10(np.square(exact).sum() / np.square(reference - exact).sum()) > least
    ours = open_session(str(out), "q").run(None, {"x": ROWS})[0]  # float4e2m1 is float32 there
    np.testing.assert_allclose(ours, reference, rtol=0, atol=1e-5)  # the order of 192 float32 products
    openvino = pytest.importorskip("openvino", reason="of the extra test-all")
    hint = {"INFERENCE_PRECISION_HINT": "f32"}
    compiled = openvino.compile_model(str(out), "CPU", hint)
    np.testing.assert_allclose(compiled(ROWS)[0], reference, rtol=0, atol=1e-5)


@pytest.mark.parametrize("word", FORMATS)
def test_scales_are_the_same_where_the_rest_is_float16(word: str, model: Path, tmp_path: Path) -> None:
    files = [tmp_path / "single.onnx", tmp_path / "half.onnx"]
    for file, kind in zip(files, ("float32", "float16"), strict=True):
        qprof.quantize(model, output=file, config=word, target="onnx", float_type=kind)
    single, half = (ReferenceEvaluator(str(file)).run(None, {"x": ROWS})[0] for file in files)
    onnx.checker.check_model(half_model := onnx.load(files[1]), full_check=True)
    assert {"FLOAT16"} <= {_type_of(value) for value in half_model.graph.value_info}
    # Scales of float8 are rounded up to float16; the sums are of float16 throughout.
    np.testing.assert_allclose(half, single, rtol=0, atol=0.01 * np.abs(single).max() + 0.05)


def _type_of(value: onnx.ValueInfoProto) -> str:
    return str(onnx.TensorProto.DataType.Name(value.type.tensor_type.elem_type))


@pytest.mark.parametrize("word", FORMATS)
def test_other_targets_refuse_a_format_with_what_they_have(word: str, model: Path, tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"x86 has no kernel of it; use int8, uint8, int4, .*, or target onnx or openvino"
    ):
        qprof.quantize(model, output=tmp_path / "q.onnx", config=word, target="onnxruntime-x86")


def test_a_weight_that_blocks_do_not_divide_has_8_bits_or_stays_float(tmp_path: Path) -> None:
    net = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g (float[M, 100] x) => (float[M, 64] y) { y = MatMul(x, w) }'
    )
    array = np.random.default_rng(0).standard_normal((100, 64)).astype(np.float32)
    net.graph.initializer.append(onnx.numpy_helper.from_array(array, "w"))
    onnx.save(net, tmp_path / "m.onnx")
    path, word = tmp_path / "m.onnx", "weight-only-nvfp4"
    result = qprof.quantize(path, output=tmp_path / "q.onnx", config=word, target="onnx")
    (entry,) = result.plan.nodes.values()
    assert "in int8" in entry.reason
    assert "no block divides its 100 rows" in entry.reason
    floats = qprof.quantize(path, output=tmp_path / "f.onnx", config=word, target="tensorrt")
    assert not floats.plan.tensors


def test_a_large_model_is_not_loaded_in_float32(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("qprof_onnx.quantizer.evaluation.written_model.MAX_RUN_BYTES", 1)
    result = qprof.quantize(model, output=tmp_path / "q.onnx", config="weight-only-nvfp4", target="openvino")
    assert [f for f in result.findings if "it was not loaded: onnxruntime has no kernel" in f.sentence]


def test_a_plan_with_blocks_is_read_back(model: Path, tmp_path: Path) -> None:
    words = {"config": "weight-only-nvfp4", "target": "openvino"}
    first = qprof.quantize(model, output=tmp_path / "q.onnx", save_plan=tmp_path / "p.yaml", **words)
    qprof.quantize(model, output=tmp_path / "again.onnx", plan=tmp_path / "p.yaml")
    assert (tmp_path / "q.onnx").read_bytes() == (tmp_path / "again.onnx").read_bytes()
    assert first.plan.tensors["w"].qtype.name == "nvfp4"


def test_a_weight_that_a_branch_reads_from_around_it_is_computed_too(tmp_path: Path) -> None:
    net = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g (float[5, 128] x, bool c) => (float[5, 40] y) { '
        "y = If (c) <then_branch = a () => (float[5, 40] p) { p = MatMul(x, w) }, "
        "else_branch = b () => (float[5, 40] q) { r = Neg(x) q = MatMul(r, w) }> }"
    )
    array = np.random.default_rng(0).standard_normal((128, 40)).astype(np.float32)
    net.graph.initializer.append(onnx.numpy_helper.from_array(array, "w"))
    path, out = tmp_path / "m.onnx", tmp_path / "q.onnx"
    onnx.save(net, path)
    qprof.quantize(path, output=out, config="weight-only-nvfp4", target="onnx")
    feed = {"x": ROWS, "c": np.array(True)}
    reference = ReferenceEvaluator(str(out)).run(None, feed)[0]
    ours = open_session(str(out), "q").run(None, feed)[0]  # float4e2m1 is float32 there
    np.testing.assert_allclose(ours, reference, rtol=0, atol=1e-4)


@pytest.mark.parametrize("word", ["weight-only-nvfp4", "weight-only-mxfp4"])
def test_a_model_that_onnxruntime_alone_understands_is_judged_and_read_with_floats_of_4_bits(
    word: str, tmp_path: Path
) -> None:
    """onnxruntime decides where the ONNX checker knows an operator not, and lacks a kernel of the weights."""
    rng = np.random.default_rng(0)
    net = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g (float[M, 128] x) => (float[M, 40] y) '
        "{ n = SimplifiedLayerNormalization (x, s) y = MatMul (n, w) }"
    )
    for name, shape in {"s": (128,), "w": (128, 40)}.items():
        array = rng.standard_normal(shape).astype(np.float32)
        net.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    onnx.save(net, tmp_path / "m.onnx")
    out = tmp_path / "q.onnx"
    samples = [{"x": ROWS + at} for at in range(8)]
    result = qprof.quantize(
        tmp_path / "m.onnx", None, out, data=samples, config=word, target="onnx", latency=False, budget=0
    )
    assert result.judged is not None
    evaluation = result.judged.evaluation
    again = qprof.evaluate(tmp_path / "m.onnx", out, samples)
    assert again.outputs[0].difference is not None
    assert again.outputs[0].difference.sqnr > 10.0
    assert (evaluation.quantized_model, result.model_path) == ("q.onnx", out)


def test_floats_of_4_bits_of_another_tool_are_half_floats_where_their_scales_are(tmp_path: Path) -> None:
    net = onnx.parser.parse_model(
        '<ir_version: 11, opset_import: ["": 23]> g (float16[2, 16] x) => (float16[2, 3] y) '
        "{ d = DequantizeLinear <axis = 0, block_size = 16> (w, s) y = MatMul (x, d) }"
    )
    codes = np.arange(48).reshape(16, 3) % 16
    tensor = onnx.TensorProto(name="w", dims=(16, 3), data_type=onnx.TensorProto.FLOAT4E2M1)
    flat = codes.reshape(-1)
    tensor.raw_data = (flat[::2] | flat[1::2] << 4).astype(np.uint8).tobytes()
    net.graph.initializer.append(tensor)
    scales = np.array([[0.5, 1.0, 2.0]], np.float16)
    net.graph.initializer.append(onnx.numpy_helper.from_array(scales, "s"))
    onnx.save(net, tmp_path / "m.onnx")
    x = np.ones((2, 16), np.float16)
    expected = ReferenceEvaluator(net).run(None, {"x": x})[0]
    session = open_session(str(tmp_path / "m.onnx"), "m")
    np.testing.assert_array_equal(session.run(None, {"x": x})[0], expected)
