"""Models in 16-bit floats: float32 inside, their inputs and outputs as they were."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import onnxruntime as ort
import pytest
from qprof_onnx.quantizer.api.from_profile import write_quantized
from qprof_onnx.quantizer.api.profiling import profile_model
from qprof_onnx.quantizer.model.external_data import WidenedTensor
from qprof_onnx.quantizer.model.identity import model_id
from qprof_onnx.quantizer.model.saving import weight_files
from qprof_onnx.quantizer.prepare.float16 import narrow_constants
from qprof_onnx.quantizer.prepare.prepare import ModelFile, prepare

EXAMPLE = Path(__file__).parents[3] / "examples" / "digits"
HALF = (onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16)

# The parser wants 16-bit floats as their bits: 15360 is 1, 16384 is 2, 14336 is a half.
SMALL = """<ir_version: 8, opset_import: ["": 17]>
small (float16[N, 3] x, bool c) => (float16[N, 2] y, float16[N, 2] t)
<float16[3, 2] w = {15360, 16384, 15360, 16384, 15360, 15360}> {
    m = MatMul(x, w)
    t = If (c) <then_branch = yes () => (float16[N, 2] p) {
                    one = Constant <value = float16[1] {15360}> ()  p = Add(m, one) },
                else_branch = no () => (float16[N, 2] q) { q = Neg(m) }>
    s = Shape(m)
    z = ConstantOfShape <value = float16[1] {14336}> (s)
    f = Cast <to = 1> (t)
    g = Cast <to = 10> (f)
    y = Mul(g, z)
}"""


def prepared(text: str) -> onnx.ModelProto:
    return ir.to_proto(prepare(ir.from_proto(onnx.parser.parse_model(text))).model)


def graphs_of(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from graphs_of(attribute.g)


def run(model: onnx.ModelProto, feed: dict[str, Any]) -> list[Any]:
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return list(session.run(None, feed))


def half(path: Path) -> onnx.ModelProto:
    """Return a model with every float32 weight, input and output in float16; it has no casts of its own."""
    model = onnx.load(path)
    for tensor in model.graph.initializer:
        if tensor.data_type == onnx.TensorProto.FLOAT:
            array = onnx.numpy_helper.to_array(tensor).astype(np.float16)
            tensor.CopyFrom(onnx.numpy_helper.from_array(array, tensor.name))
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.elem_type = onnx.TensorProto.FLOAT16
    del model.graph.value_info[:]
    onnx.checker.check_model(model, full_check=True)
    return model


def test_nothing_is_in_16_bits_but_the_inputs_and_outputs() -> None:
    model = prepared(SMALL)
    onnx.checker.check_model(model, full_check=True)
    assert [v.type.tensor_type.elem_type for v in (*model.graph.input, *model.graph.output)] == [
        *(onnx.TensorProto.FLOAT16, onnx.TensorProto.BOOL),
        *(onnx.TensorProto.FLOAT16, onnx.TensorProto.FLOAT16),
    ]
    for graph in graphs_of(model.graph):
        assert not [t.name for t in graph.initializer if t.data_type in HALF]
    casts = {node.output[0]: node.attribute[0].i for node in model.graph.node if node.op_type == "Cast"}
    assert casts == {"x_float": 1, "y": 10, "t": 10}


@pytest.mark.parametrize("taken", [True, False])
def test_it_computes_what_it_did(taken: bool) -> None:
    feed = {"x": np.arange(6, dtype=np.float16).reshape(2, 3), "c": np.array(taken)}
    for wanted, got in zip(
        run(onnx.parser.parse_model(SMALL), feed), run(prepared(SMALL), feed), strict=True
    ):
        np.testing.assert_array_equal(wanted, got)  # small integers and halves: exact in both types


def test_preparing_again_changes_nothing() -> None:
    once = prepare(ir.from_proto(onnx.parser.parse_model(SMALL)))
    again = prepare(once.model)
    assert ir.to_proto(again.model) == ir.to_proto(once.model)
    assert (once.narrow, again.narrow) == (ir.DataType.FLOAT16, ir.DataType.FLOAT16)
    (note,) = map(str, once.findings)
    assert note.startswith("a model in 16-bit floats: its float nodes compute in float32")


def test_bfloat16_becomes_float32_too() -> None:
    text = """<ir_version: 8, opset_import: ["": 17]>
    net (bfloat16[2] x) => (bfloat16[2] y) <bfloat16[2] w = {16384, 16512}> { m = Mul(x, w)  y = Neg(m) }"""
    model = prepared(text)
    (weight,) = model.graph.initializer
    np.testing.assert_array_equal(onnx.numpy_helper.to_array(weight), np.array([2, 4], np.float32))
    assert prepare(ir.from_proto(model)).narrow == ir.DataType.BFLOAT16
    x = np.array([1.5, -3], ml_dtypes.bfloat16)
    value = ort.OrtValue.ortvalue_from_numpy_with_onnx_type(x.view(np.uint16), onnx.TensorProto.BFLOAT16)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (y,) = session.run_with_ort_values(["y"], {"x": value})
    assert y.element_type() == onnx.TensorProto.BFLOAT16


def test_a_float32_model_is_none_of_this() -> None:
    text = """<ir_version: 8, opset_import: ["": 17]>
    net (float[2] x) => (float[2] y) { h = Neg(x)  y = Exp(h) }"""
    result = prepare(ir.from_proto(onnx.parser.parse_model(text)))
    assert (result.narrow, result.findings) == (None, ())
    assert [node.op_type for node in result.model.graph] == ["Neg", "Exp"]


def test_an_input_that_is_an_output_stays_as_it_is() -> None:
    text = """<ir_version: 8, opset_import: ["": 17]>
    net (float16[2] x) => (float16[2] x, float16[2] y) { y = Neg(x) }"""
    model = prepared(text)
    assert [value.name for value in model.graph.output] == ["x", "y"]
    assert [node.op_type for node in model.graph.node] == ["Cast", "Neg", "Cast"]


def test_large_constants_are_stored_in_half_the_bytes_where_that_loses_nothing() -> None:
    exact = np.arange(2048, dtype=np.float32)
    values = {"exact": exact, "not": exact + np.float32(1e-3), "small": exact[:8], "huge": exact * 1e6}
    nodes = [onnx.helper.make_node("Neg", [name], [f"minus_{name}"]) for name in values]
    outputs = [
        onnx.helper.make_tensor_value_info(f"minus_{name}", onnx.TensorProto.FLOAT, array.shape)
        for name, array in values.items()
    ]
    weights = [onnx.numpy_helper.from_array(array, name) for name, array in values.items()]
    graph = onnx.helper.make_graph(nodes, "net", [], outputs, weights)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    narrow = ir.to_proto(narrow_constants(ir.from_proto(model), ir.DataType.FLOAT16))
    onnx.checker.check_model(narrow, full_check=True)
    types = {tensor.name: tensor.data_type for tensor in narrow.graph.initializer}
    assert types == {"exact_float16": 10, "not": 1, "small": 1, "huge": 1}
    for wanted, got in zip(run(model, {}), run(narrow, {}), strict=True):
        np.testing.assert_array_equal(wanted, got)


def test_a_trained_model_in_float16_is_quantized_and_still_knows_its_digits(tmp_path: Path) -> None:
    original = EXAMPLE / "model.onnx"
    model = half(original)
    onnx.save(model, tmp_path / "half.onnx")
    name = model.graph.input[0].name
    (tmp_path / "data").mkdir()
    files = sorted((EXAMPLE / "calibration").glob("*.npz"))
    images = [np.load(file)[name] for file in files]
    for number, image in enumerate(images):
        np.savez(tmp_path / "data" / f"{number:04}.npz", **{name: image.astype(np.float16)})
    profile_model(tmp_path / "half.onnx", tmp_path / "data", tmp_path / "profile.yaml")
    result = write_quantized(tmp_path / "half.onnx", tmp_path / "profile.yaml", tmp_path / "int8.onnx")
    assert result.kinds["quantized"] >= 8
    batch = np.concatenate(images)
    wanted = run(onnx.load(original), {name: batch})[0].argmax(axis=1)
    (got,) = run(onnx.load(tmp_path / "int8.onnx"), {name: batch.astype(np.float16)})
    assert got.dtype == np.float16
    # at most one answer in fifty changes on the way from float32 through float16 to 8 bits
    assert np.mean(got.argmax(axis=1) == wanted) >= 0.98


def outside(folder: Path) -> Path:
    """Return the file of a model whose table, turned for its head, is in a file beside it."""
    table = np.random.default_rng(3).standard_normal((64, 24)).astype(np.float16)
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> tied (int64[N] ids) => (float16[N, 64] y) '
        "{ x = Gather (table, ids) turned = Transpose <perm = [1, 0]> (table) y = MatMul (x, turned) }"
    )
    model.graph.initializer.append(onnx.numpy_helper.from_array(table, "table"))
    onnx.save(model, folder / "m.onnx", save_as_external_data=True, location="m.data", size_threshold=0)
    return folder / "m.onnx"


def test_weights_in_a_file_are_widened_as_they_are_read_and_moved_as_they_lie(tmp_path: Path) -> None:
    model = ModelFile(outside(tmp_path)).prepared.model
    assert weight_files(model) == {tmp_path / "m.data"}
    table, turned = (model.graph.initializers[name].const_value for name in ("table", "turned"))
    for tensor in (table, turned):
        assert isinstance(tensor, WidenedTensor)
        assert (tensor.dtype, tensor.narrow.dtype) == (ir.DataType.FLOAT, ir.DataType.FLOAT16)
    np.testing.assert_array_equal(turned.numpy(), table.numpy().T)


def test_a_fingerprint_is_that_of_the_same_numbers_in_float32(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("qprof_onnx.quantizer.model.identity.PART_ELEMENTS", 100)
    mapped = ModelFile(outside(tmp_path)).prepared.model
    held = mapped.clone()
    for value in held.graph.initializers.values():
        assert value.const_value is not None
        value.const_value = ir.Tensor(np.ascontiguousarray(value.const_value.numpy()), name=value.name)
    assert model_id(mapped, "m") == model_id(held, "m")
