"""ONNX files in and out: every refusal with its sentence, and atomic, repeatable saving."""

from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import pytest
from qprof_onnx.profiles.base.errors import ModelError
from qprof_onnx.quantizer.model import saving
from qprof_onnx.quantizer.model.files import model_file
from qprof_onnx.quantizer.model.identity import model_id
from qprof_onnx.quantizer.model.loading import load_model
from qprof_onnx.quantizer.model.saving import has_external_data, save_model

TEXT = (
    '<ir_version: 8, opset_import: ["" : 17]>\ng (float[1,64] x) => (float[1,64] y) { [m] y = MatMul(x, w) }'
)


def model(seed=0):
    proto = onnx.parser.parse_model(TEXT)
    w = np.random.default_rng(seed).standard_normal((64, 64)).astype(np.float32)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(w, "w"))
    return proto


def external(folder):
    """Write the model with its weight in another file and return its path."""
    path = folder / "m.onnx"
    onnx.save_model(model(), path, save_as_external_data=True, location="m.weights", size_threshold=0)
    return path


def test_a_saved_model_is_loaded_again(tmp_path):
    save_model(ir.from_proto(model()), tmp_path / "m.onnx")
    loaded = load_model(tmp_path / "m.onnx")
    assert model_id(loaded, "") == model_id(ir.from_proto(model()), "")


def test_the_same_model_gives_the_same_bytes(tmp_path):
    for name in ("a.onnx", "b.onnx"):
        save_model(ir.from_proto(model()), tmp_path / name)
    assert (tmp_path / "a.onnx").read_bytes() == (tmp_path / "b.onnx").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.onnx", "b.onnx"]


def test_external_data_is_read_in_place(tmp_path):
    loaded = load_model(external(tmp_path))
    assert isinstance(loaded.graph.initializers["w"].const_value, ir.ExternalTensor)
    assert model_id(loaded, "") == model_id(ir.from_proto(model()), "")


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="the system does not list what is mapped")
def test_a_file_of_external_data_is_mapped_once_for_all_its_tensors(tmp_path):
    arrays = {name: np.arange(4096, dtype=np.float32) + number for number, name in enumerate("uvw")}
    proto = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> net (float[4096] x) => (float[4096] y)'
        "{ a = Add (x, u)  b = Add (a, v)  y = Add (b, w) }"
    )
    proto.graph.initializer.extend(onnx.numpy_helper.from_array(a, name) for name, a in arrays.items())
    path, data = tmp_path / "m.onnx", tmp_path / "m.weights"
    onnx.save_model(proto, path, save_as_external_data=True, location=data.name, size_threshold=0)
    loaded = load_model(path)

    def maps() -> int:
        return sum(str(data) in line for line in Path("/proc/self/maps").read_text().splitlines())

    tensors = {name: loaded.graph.initializers[name].const_value for name in arrays}
    for name, tensor in tensors.items():
        assert np.array_equal(tensor.numpy(), arrays[name])
        assert tensor.tobytes() == arrays[name].tobytes()
    assert maps() == 1
    in_use = tensors["v"].numpy()
    with pytest.raises(BufferError):
        tensors["v"].release()
    assert np.array_equal(in_use, arrays["v"])
    del in_use
    tensors["u"].release()
    assert maps() == 0
    assert np.array_equal(tensors["w"].numpy(), arrays["w"])


def test_small_external_data_moves_into_the_file(tmp_path):
    loaded = load_model(external(tmp_path))
    (tmp_path / "sub").mkdir()
    save_model(loaded, tmp_path / "sub/out.onnx")
    assert [path.name for path in (tmp_path / "sub").iterdir()] == ["out.onnx"]
    assert model_id(load_model(tmp_path / "sub/out.onnx"), "") == model_id(loaded, "")


def test_large_external_data_stays_outside(tmp_path, monkeypatch):
    monkeypatch.setattr(saving, "MIN_EXTERNAL_MODEL_BYTES", 10000)
    loaded = load_model(external(tmp_path))
    save_model(loaded, tmp_path / "out.onnx")
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".data", ".onnx", ".onnx", ".weights"]
    assert (tmp_path / "out.onnx").stat().st_size < 1000
    assert loaded.graph.initializers["w"].const_value.location == "m.weights"  # the argument stays
    assert model_id(load_model(tmp_path / "out.onnx"), "") == model_id(loaded, "")


def test_what_is_made_of_large_external_data_goes_outside_too(tmp_path, monkeypatch):
    monkeypatch.setattr(saving, "MIN_EXTERNAL_MODEL_BYTES", 10000)
    loaded = load_model(external(tmp_path))
    assert has_external_data(loaded)
    in_memory = loaded.clone()
    ir.external_data.load_to_model(in_memory)
    assert not has_external_data(in_memory)
    save_model(in_memory, tmp_path / "one.onnx")
    save_model(in_memory, tmp_path / "two.onnx", external=True)
    assert not list(tmp_path.glob("one.onnx.*.data"))
    assert len(list(tmp_path.glob("two.onnx.*.data"))) == 1
    assert model_id(load_model(tmp_path / "two.onnx"), "") == model_id(load_model(tmp_path / "one.onnx"), "")


def test_weights_that_do_not_fit_one_file_go_outside(tmp_path, monkeypatch):
    monkeypatch.setattr(saving, "PROTOBUF_LIMIT", 10000)
    save_model(ir.from_proto(model()), tmp_path / "out.onnx")
    [data] = tmp_path.glob("out.onnx.*.data")
    assert data.stat().st_size == 64 * 64 * 4
    first = (tmp_path / "out.onnx").read_bytes()
    save_model(ir.from_proto(model()), tmp_path / "out.onnx")  # over itself
    assert (tmp_path / "out.onnx").read_bytes() == first
    load_model(tmp_path / "out.onnx")


def test_a_model_is_saved_over_the_file_it_came_from(tmp_path, monkeypatch):
    monkeypatch.setattr(saving, "MIN_EXTERNAL_MODEL_BYTES", 10000)
    save_model(load_model(external(tmp_path)), tmp_path / "out.onnx")
    before = model_id(load_model(tmp_path / "out.onnx"), "")
    save_model(load_model(tmp_path / "out.onnx"), tmp_path / "out.onnx")
    assert model_id(load_model(tmp_path / "out.onnx"), "") == before


@pytest.mark.parametrize("limit", [1 << 31, 10000])
def test_a_missing_folder_is_made(tmp_path, monkeypatch, limit):
    monkeypatch.setattr(saving, "PROTOBUF_LIMIT", limit)
    save_model(ir.from_proto(model()), tmp_path / "new/out.onnx")
    assert model_id(load_model(tmp_path / "new/out.onnx"), "")


def write(path, proto):
    path.write_bytes(proto.SerializeToString())


def cut_off(path):
    path.write_bytes(model().SerializeToString()[:5000])


def empty(path):
    path.write_bytes(b"")


def text(path):
    path.write_text("This is not a model.\n")


def folder(path):
    path.mkdir()


def missing(path):
    pass


def no_outputs(path):
    proto = model()
    del proto.graph.output[:]
    write(path, proto)


def unknown_operator(path):
    proto = model()
    proto.graph.node[0].op_type = "MatMull"
    write(path, proto)


def unknown_input(path):
    proto = model()
    proto.graph.node[0].input[0] = "z"
    write(path, proto)


def short_weights(path):
    external(path.parent)
    data = path.parent / "m.weights"
    data.write_bytes(data.read_bytes()[:100])


def outer_output(path):
    write(
        path,
        onnx.parser.parse_model(
            '<ir_version: 8, opset_import: ["" : 17]>\n'
            "g (float[2] x, bool c) => (float[2] y) { t = Neg(x)  [i] y = If(c)<"
            "then_branch = a () => (float[2] t) { u = Abs(x) },"
            "else_branch = b () => (float[2] v) { v = Abs(x) }> }"
        ),
    )


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (missing, r"m.onnx: no such file; check the path of the model"),
        (folder, r"m.onnx: is a folder; name an .onnx file"),
        (empty, r"m.onnx: not an ONNX model, or empty; export or download it again"),
        (text, r"m.onnx: not an ONNX model, or cut off; export or download it again"),
        (cut_off, r"m.onnx: not an ONNX model, or cut off; export or download it again"),
        (no_outputs, r"m.onnx: the graph has no outputs; export it with at least one"),
        (
            unknown_operator,
            r"m.onnx: not a valid ONNX model: No Op registered for MatMull .* in:.*; export",
        ),
        (
            unknown_input,
            r"m.onnx: not a valid ONNX model: .* however input 'z' of node: name: m OpType: MatMul",
        ),
        (
            short_weights,
            r"m.weights: 100 bytes, but tensor 'w' of m.onnx ends at byte 16384; the file is cut off",
        ),
        (
            outer_output,
            r"m.onnx: not a valid ONNX model: Graph output 't' is not an output of any node in graph",
        ),
    ],
)
def test_a_bad_file_is_refused_in_one_sentence(tmp_path, spoil, sentence):
    path = tmp_path / "m.onnx"
    spoil(path)
    with pytest.raises(ModelError, match=sentence) as caught:
        load_model(path)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 600


def test_an_external_tensor_in_an_attribute_is_loaded(tmp_path):
    proto = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]>\n'
        "g (float[2] x) => (float[2] y) { k = Constant<value = float[2] {1.0, 2.0}>()  y = Add(x, k) }"
    )
    array = onnx.numpy_helper.from_array(np.array([1, 2], np.float32))  # raw bytes, which can go outside
    proto.graph.node[0].attribute[0].t.CopyFrom(array)
    onnx.save_model(
        proto,
        tmp_path / "m.onnx",
        save_as_external_data=True,
        location="m.weights",
        size_threshold=0,
        convert_attribute=True,
    )
    save_model(load_model(tmp_path / "m.onnx"), tmp_path / "out.onnx")
    (tmp_path / "m.weights").unlink()
    loaded = load_model(tmp_path / "out.onnx")
    assert loaded.graph[0].attributes["value"].as_tensor().numpy().tolist() == [1, 2]


def test_a_model_that_the_onnx_checker_refuses_may_hold_much_text(tmp_path):
    proto = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]>\n'
        "g (int64[N] i, float[2, 64] x) => (string[N] t, float[2, 64] y)"
        " { t = Gather(words, i)  y = SimplifiedLayerNormalization <axis = -1> (x, scale) }"
    )
    words = [b"%020d" % place for place in range(100)]
    proto.graph.initializer.append(onnx.helper.make_tensor("words", onnx.TensorProto.STRING, [100], words))
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.ones(64, np.float32), "scale"))
    onnx.save_model(proto, tmp_path / "m.onnx")
    assert load_model(tmp_path / "m.onnx").graph.initializers["words"].const_value.numpy().tolist() == words


def test_a_cycle_is_refused(tmp_path):
    proto = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["": 17]>
        net (float[2] x) => (float[2] y) { h = Add(x, y)  y = Exp(h) }"""
    )
    onnx.save(proto, tmp_path / "m.onnx")
    with pytest.raises(ModelError, match="not a valid ONNX model"):
        load_model(tmp_path / "m.onnx")


# ------------------------------------------------------------------------------------------------ in memory


@pytest.mark.parametrize("kind", ["proto", "ir"])
def test_a_model_in_memory_is_written_to_a_file_that_is_gone_afterwards(kind: str) -> None:
    proto = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> my_net (float[N, 2] x) => (float[N, 2] y) '
        "<float[2] w = {1, 2}> { y = Mul(x, w) }"
    )
    before = proto.SerializeToString(deterministic=True)
    given = proto if kind == "proto" else ir.from_proto(proto)
    with model_file(given) as path:
        assert path.name == "my_net.onnx"
        assert [node.op_type for node in load_model(path).graph] == ["Mul"]
    assert not path.exists()
    assert proto.SerializeToString(deterministic=True) == before


def test_the_file_of_a_path_is_the_path(tmp_path: Path) -> None:
    with model_file(str(tmp_path / "any.onnx")) as path:
        assert path == tmp_path / "any.onnx"


def test_an_error_names_the_temporary_file_without_its_folder() -> None:
    with pytest.raises(ModelError) as caught, model_file(onnx.ModelProto()) as path:
        load_model(path)
    assert str(caught.value).startswith("model.onnx: not an ONNX model")


def test_a_proto_whose_weights_are_in_a_file_is_refused() -> None:
    proto = onnx.ModelProto()
    tensor = proto.graph.initializer.add(name="w", data_location=onnx.TensorProto.EXTERNAL)
    said = f"'{tensor.name}' has its data in a file, and a model in memory has no folder"
    with pytest.raises(ModelError, match=said), model_file(proto):
        pass


def test_what_is_no_model_is_refused() -> None:
    with pytest.raises(ModelError, match="model: is of type int; give a path"), model_file(3):  # type: ignore[arg-type]
        pass
