"""Large constants that a model computes from small ones: a written model computes them too."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
import qprof_onnx as qprof
from onnx import numpy_helper, parser
from qprof_onnx.quantizer.prepare.constant_folding import unfold_constants
from qprof_onnx.quantizer.prepare.prepare import prepare

SPECTRUM = """
<ir_version: 9, opset_import: ["": 17]>
spectrum (float[2, 256] x) => (float[2, 64] y)
<float zero = {0.0}, float one = {1.0}, float many = {256.0}, float half = {128.0},
 float turn = {0.0245436926}, int64[1] first = {1}> {
    steps = Range (zero, many, one)
    bins = Range (zero, half, one)
    column = Unsqueeze (steps, first)
    angle = Mul (column, bins)
    turned = Mul (angle, turn)
    table = Cos (turned)
    part = MatMul (x, table)
    power = Mul (part, part)
    y = MatMul (power, w)
}
"""
"""Its table of 128 kB is computed from six numbers."""


@pytest.fixture
def spectrum() -> onnx.ModelProto:
    model = parser.parse_model(SPECTRUM)
    weight = np.random.default_rng(0).random((128, 64), np.float32)
    model.graph.initializer.append(numpy_helper.from_array(weight, "w"))
    return model


def answer(model: onnx.ModelProto | Path) -> np.ndarray:
    x = np.random.default_rng(1).standard_normal((2, 256)).astype(np.float32)
    source = str(model) if isinstance(model, Path) else model.SerializeToString()
    (y,) = ort.InferenceSession(source, providers=["CPUExecutionProvider"]).run(None, {"x": x})
    return np.asarray(y)


def test_a_model_with_int8_weights_is_no_larger_for_what_it_computes(
    spectrum: onnx.ModelProto, tmp_path: Path
) -> None:
    result = qprof.quantize(spectrum, config="weight-only-8")
    result.save(tmp_path / "small.onnx")
    assert (tmp_path / "small.onnx").stat().st_size < 0.6 * spectrum.ByteSize()
    written = onnx.load(tmp_path / "small.onnx")
    onnx.checker.check_model(written, full_check=True)
    assert [node.op_type for node in written.graph.node][:3] == ["Mul", "Mul", "Cos"]
    expected = answer(spectrum)
    assert np.abs(answer(tmp_path / "small.onnx") - expected).max() < 0.02 * np.abs(expected).max()


def test_a_model_of_which_nothing_is_quantized_is_written_as_it_was_given(
    spectrum: onnx.ModelProto, tmp_path: Path
) -> None:
    samples = [{"x": np.full((2, 256), 0.5, np.float32)}]
    result = qprof.quantize(spectrum, qprof.profile(spectrum, samples), keep_float=["*"])
    result.save(tmp_path / "same.onnx")
    written = onnx.load(tmp_path / "same.onnx")
    assert [node.op_type for node in written.graph.node] == [node.op_type for node in spectrum.graph.node]
    assert {p.key: p.value for p in written.metadata_props}["qprof.plan"]
    np.testing.assert_array_equal(answer(written), answer(spectrum))


def test_constants_that_were_unfolded_fold_to_the_same(spectrum: onnx.ModelProto) -> None:
    folded = prepare(ir.serde.deserialize_model(spectrum)).model
    again = folded.clone()
    unfold_constants(again)
    assert len(again.graph) > len(folded.graph)
    refolded = prepare(again).model
    for name in ("table", "w"):
        one, other = (model.graph.initializers[name].const_value for model in (folded, refolded))
        assert one is not None
        assert other is not None
        np.testing.assert_array_equal(one.numpy(), other.numpy())


def test_a_constant_that_is_read_twice_at_each_of_sixty_steps_is_looked_at_once() -> None:
    sums = "\n".join(f"s{step + 1} = Add (s{step}, s{step})" for step in range(60))
    net = parser.parse_model(
        f"""<ir_version: 9, opset_import: ["": 17]> net (float[2048] x) => (float[2048] y)
        <float zero = {{0.0}}, float one = {{1.0}}, float many = {{2048.0}}>
        {{ s0 = Range (zero, many, one) {sums} y = Mul (x, s60) }}"""
    )
    model = prepare(ir.serde.deserialize_model(net)).model
    assert len(model.graph) == 1
    unfold_constants(model)
    assert [node.op_type for node in model.graph] == ["Range", *["Add"] * 60, "Mul"]
    unfolded = ir.to_proto(model)
    onnx.checker.check_model(unfolded, full_check=True)


def test_a_constant_that_was_changed_since_stays(spectrum: onnx.ModelProto) -> None:
    model = prepare(ir.serde.deserialize_model(spectrum)).model
    table = model.graph.initializers["table"]
    assert table.const_value is not None
    table.const_value = ir.Tensor(table.const_value.numpy() * 2, name="table")
    unfold_constants(model)
    assert "table" in model.graph.initializers
    assert [node.op_type for node in model.graph] == ["MatMul", "Mul", "MatMul"]


def test_a_constant_that_takes_no_more_bytes_than_its_source_stays(spectrum: onnx.ModelProto) -> None:
    turned = parser.parse_model(
        SPECTRUM.replace("y = MatMul (power, w)", "v = Transpose (u) y = MatMul (power, v)")
    )
    weight = np.random.default_rng(0).random((64, 128), np.float32)
    turned.graph.initializer.append(numpy_helper.from_array(weight, "u"))
    model = prepare(ir.serde.deserialize_model(turned)).model
    unfold_constants(model)
    assert "v" in model.graph.initializers
    np.testing.assert_allclose(answer(ir.to_proto(model)), answer(turned), rtol=1e-4)
