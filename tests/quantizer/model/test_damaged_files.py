"""A damaged model file is refused with the file, the place and what to do; never with another exception."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import TensorProto, helper, numpy_helper
from qprof_onnx.profiles.base.errors import ModelError
from qprof_onnx.quantizer.model.loading import load_model

TEXT = """<ir_version: 8, opset_import: ["": 17]>
net (float[N, 4] x) => (float[N, 3] y) { [a] h = MatMul(x, w) [b] r = Relu(h) [c] y = Gemm(r, v, k) }"""

IN_A_BRANCH = """<ir_version: 8, opset_import: ["": 17]>
net (float[2] x, bool c) => (float[2] y) {
    [i] y = If(c) <then_branch = t () => (float[2] p) { [k] q = Constant<value_float = 2.0>() p = Mul(x, q) },
                   else_branch = e () => (float[2] r) { r = Neg(x) }>
}"""

Damage = Callable[[onnx.ModelProto], None]


def model() -> onnx.ModelProto:
    """Return two layers with weights w, v and bias k."""
    proto = onnx.parser.parse_model(TEXT)
    rng = np.random.default_rng(0)
    for name, shape in (("w", (4, 5)), ("v", (5, 3)), ("k", (3,))):
        proto.graph.initializer.append(
            numpy_helper.from_array(rng.standard_normal(shape).astype(np.float32), name)
        )
    return proto


def in_weight(**fields: object) -> Damage:
    """Return the damage of setting fields of the first weight."""

    def damage(proto: onnx.ModelProto) -> None:
        for name, value in fields.items():
            if name == "dims":
                proto.graph.initializer[0].dims[:] = value  # type: ignore[assignment]
            else:
                setattr(proto.graph.initializer[0], name, value)

    return damage


def in_input(**fields: int) -> Damage:
    """Return the damage of setting the type or the second dimension of the input."""

    def damage(proto: onnx.ModelProto) -> None:
        tensor = proto.graph.input[0].type.tensor_type
        tensor.elem_type = fields.get("elem_type", 1)
        tensor.shape.dim[1].dim_value = fields.get("dim", 4)

    return damage


def map_input(proto: onnx.ModelProto) -> None:
    """Make the input a map."""
    proto.graph.input[0].type.map_type.key_type = TensorProto.INT64


def one_name_by_two_nodes(proto: onnx.ModelProto) -> None:
    """Let two nodes make r."""
    proto.graph.node[0].output[0] = "r"


def unknown_output(proto: onnx.ModelProto) -> None:
    """Name an output that no node makes."""
    proto.graph.output.append(helper.make_tensor_value_info("z", 1, [3]))


def nameless_output(proto: onnx.ModelProto) -> None:
    """Name an output by nothing."""
    proto.graph.output[0].name = ""


def attribute_without_type(proto: onnx.ModelProto) -> None:
    """Give the Gemm an attribute of no type."""
    proto.graph.node[2].attribute.append(helper.make_attribute("alpha", 1.0))
    proto.graph.node[2].attribute[0].ClearField("type")


def attribute_without_value(proto: onnx.ModelProto) -> None:
    """Give the Gemm a tensor attribute without the tensor."""
    proto.graph.node[2].attribute.add(name="alpha", type=onnx.AttributeProto.TENSOR)


def typed_data_too_short(proto: onnx.ModelProto) -> None:
    """Hold two of three elements as numbers."""
    bias = proto.graph.initializer[2]
    bias.ClearField("raw_data")
    bias.float_data.extend([1.0, 2.0])


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (in_weight(raw_data=bytes(160)), "its type float and its dimensions [4, 5] take 80 bytes"),
        (in_weight(raw_data=bytes(40)), "its type float and its dimensions [4, 5] take 80 bytes"),
        (in_weight(dims=[]), "tensor 'w': its type float and its dimensions [] take 4 bytes, and it has 80"),
        (in_weight(dims=[-4, -5]), "tensor 'w': has the dimensions [-4, -5], one below 0"),
        (in_weight(dims=[1 << 62, 5]), "too many elements"),
        (in_weight(dims=[*[1] * 69, 4, 5]), "tensor 'w': has 71 dimensions; at most 64 can be"),
        *(
            (in_weight(data_type=kind), f"take {size} bytes, and it has 80")
            for kind, size in (
                (TensorProto.INT8, 20),
                (TensorProto.BOOL, 20),
                (TensorProto.FLOAT16, 40),
                (TensorProto.BFLOAT16, 40),
                (TensorProto.FLOAT8E4M3FN, 20),
                (TensorProto.INT4, 10),
                (TensorProto.COMPLEX128, 320),
            )
        ),
        (in_weight(data_type=99), "tensor 'w': is of type 99, which ONNX does not have"),
        (in_weight(data_type=-1), "tensor 'w': is of type -1, which ONNX does not have"),
        (in_weight(data_type=TensorProto.STRING), "tensor 'w': contains text as raw bytes"),
        (typed_data_too_short, "its type float and its dimensions [3] take 3 elements, and it has 2"),
        (map_input, "input 'x': is a map"),
        (in_input(elem_type=0), "input 'x': has no type"),
        (in_input(elem_type=99), "input 'x': is of type 99"),
        (in_input(dim=1 << 40), "input 'x': has the dimensions [1099511627776], "),
        (in_input(dim=1 << 62), "no sample of it fits into memory"),
        (one_name_by_two_nodes, "not a valid ONNX model: Nodes in a graph must be topologically sorted"),
        (unknown_output, "not a valid ONNX model: Graph output 'z' is not an output of any node"),
        (nameless_output, "not a valid ONNX model: Field 'name' of 'value_info' is required"),
        (attribute_without_type, "not a valid ONNX model: Field 'type' of 'attr' is required but missing"),
        (attribute_without_value, "not a valid ONNX model: Mismatched attribute type in 'c : alpha'"),
    ],
)  # fmt: skip
def test_what_cannot_be_run_is_refused(tmp_path: Path, damage: Damage, sentence: str) -> None:
    proto = model()
    damage(proto)
    assert_refused(tmp_path, proto.SerializeToString(), sentence)


def assert_refused(folder: Path, data: bytes, sentence: str) -> None:
    """Load a file that holds these bytes, and hold the error to name the file, the fault, and what to do."""
    (folder / "m.onnx").write_bytes(data)
    with pytest.raises(ModelError) as caught:
        load_model(folder / "m.onnx")
    message = str(caught.value)
    assert message.startswith(f"{folder / 'm.onnx'}: ")
    assert sentence in message
    assert "; " in message
    assert "\n" not in message
    assert len(message) < 600


@pytest.mark.parametrize(
    ("text", "place"),
    [
        (b"Relu", r"node 'b' (R\xfflu), field op_type"),
        (b"float32_name", r"tensor 'R\xfflu'"),
        (b"node_name", r"node 'R\xfflu' (Relu), field name"),
        (b"some_input", r"value 'R\xfflu', field name"),
        (b"some_dim", r"value 'x', field dim_param"),
    ],
)
def test_a_name_that_is_not_utf8_is_refused_with_its_place(tmp_path: Path, text: bytes, place: str) -> None:
    proto = model()
    proto.graph.initializer[2].name = "float32_name"
    proto.graph.node[2].input[2] = ""
    if text == b"node_name":
        proto.graph.node[1].name = "node_name"
    if text == b"some_input":
        proto.graph.input.append(helper.make_tensor_value_info("some_input", 1, [3]))
    if text == b"some_dim":
        proto.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "some_dim"
    data = proto.SerializeToString()
    spoilt = data.replace(text, b"R\xfflu".ljust(len(text), b"_") if len(text) != 4 else b"R\xfflu")
    assert spoilt != data
    assert_refused(tmp_path, spoilt, place.split("'", maxsplit=1)[0])


def test_names_that_are_not_utf8_are_refused_before_constants_of_one_name_are_mended(tmp_path: Path) -> None:
    nodes = [helper.make_node("Constant", [], [name], value_float=1.0) for name in ("QQ", "QQ", "b", "b")]
    nodes.append(helper.make_node("Add", ["QQ", "b"], ["y"]))
    graph = helper.make_graph(nodes, "g", [], [helper.make_tensor_value_info("y", 1, [])])
    data = helper.make_model(graph).SerializeToString().replace(b"QQ", b"\xff\xfe")
    assert_refused(tmp_path, data, "text that is not UTF-8; the file is damaged")


def test_text_that_protobuf_itself_refuses_is_named_by_its_field(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte in field: onnx.NodeProto.name")

    monkeypatch.setattr(onnx, "load_model", refuse)
    assert_refused(tmp_path, b"", "field onnx.NodeProto.name: text that is not UTF-8")


def test_an_attribute_of_bytes_that_are_no_text_is_taken_or_refused_with_the_place(tmp_path: Path) -> None:
    proto = model()
    proto.graph.node[2].attribute.append(helper.make_attribute("mode", b"\xff\xff\xff\xff"))
    assert_refused(
        tmp_path, proto.SerializeToString(), "not a valid ONNX model: Unrecognized attribute: mode"
    )


def test_a_constant_without_attributes_in_a_branch_is_refused(tmp_path: Path) -> None:
    proto = onnx.parser.parse_model(IN_A_BRANCH)
    del proto.graph.node[0].attribute[0].g.node[0].attribute[:]
    assert_refused(
        tmp_path, proto.SerializeToString(), "node 'k' (Constant): has 0 attributes and needs the one"
    )


# ---------------------------------------------------------------------------------------------- external data


def external(folder: Path, **entries: str) -> Path:
    """Write the model with its weights in another file; then set entries of the first tensor."""
    path = folder / "m.onnx"
    onnx.save_model(model(), path, save_as_external_data=True, location="m.weights", size_threshold=0)
    proto = onnx.load(path, load_external_data=False)
    for entry in proto.graph.initializer[0].external_data:
        entry.value = entries.get(entry.key, entry.value)
    path.write_bytes(proto.SerializeToString())
    return path


@pytest.mark.parametrize(
    ("entries", "sentence"),
    [
        ({"offset": "abc"}, "tensor 'w': the offset of its data is 'abc', not a number of bytes"),
        ({"length": "1e3"}, "tensor 'w': the length of its data is '1e3', not a number of bytes"),
        ({"length": "9" * 40}, "not a number of bytes"),
        ({"length": "8"}, "its type and dimensions take 80 bytes, and its data in 'm.weights' has 8"),
        ({"location": ""}, "tensor 'w': has its data in a file that it does not name"),
        ({"location": "../m.weights"}, "its data in '../m.weights', outside the model's folder"),
        ({"location": "/proc/self/environ"}, "in '/proc/self/environ', outside the model's folder"),
        ({"location": "a/../../m"}, "outside the model's folder"),
        ({"location": "link"}, "tensor 'w': has its data in 'link', outside the model's folder"),
        ({"location": "nowhere"}, "tensor 'w': has its data in 'nowhere', which is missing"),
    ],
)  # fmt: skip
def test_external_data_that_cannot_be_is_refused(
    tmp_path: Path, entries: dict[str, str], sentence: str
) -> None:
    (tmp_path / "m").mkdir()
    (tmp_path / "secret").write_bytes(bytes(10))
    (tmp_path / "m" / "link").symlink_to(tmp_path / "secret")
    path = external(tmp_path / "m", **entries)
    with pytest.raises(ModelError) as caught:
        load_model(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert sentence in str(caught.value)
    assert "10 bytes" not in str(caught.value)  # nothing of a file elsewhere is told


def test_a_model_and_its_data_may_be_links_into_one_folder(tmp_path: Path) -> None:
    """So do the caches of model hubs keep them; onnxruntime takes them, the ONNX checker does not."""
    (tmp_path / "blobs").mkdir()
    (tmp_path / "snapshot").mkdir()
    external(tmp_path / "blobs")
    for name in ("m.onnx", "m.weights"):
        (tmp_path / "snapshot" / name).symlink_to(f"../blobs/{name}")
    weights = load_model(tmp_path / "snapshot" / "m.onnx").graph.initializers["w"].const_value
    assert weights is not None
    assert np.array_equal(weights.numpy(), numpy_helper.to_array(model().graph.initializer[0]))


def test_weights_are_found_after_a_change_of_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    proto = model()
    proto.graph.initializer.append(numpy_helper.from_array(np.ones((512,), np.float32), "large"))
    proto.graph.output.append(helper.make_tensor_value_info("large", 1, [512]))
    (tmp_path / "a").mkdir()
    path = tmp_path / "a" / "m.onnx"
    onnx.save_model(proto, path, save_as_external_data=True, location="m.weights", size_threshold=0)
    monkeypatch.chdir(tmp_path)
    loaded = load_model("a/m.onnx")
    monkeypatch.chdir("/")
    large = loaded.graph.initializers["large"].const_value
    assert large is not None
    assert large.numpy().sum() == 512


def test_a_file_whose_name_is_not_utf8_is_refused(tmp_path: Path) -> None:
    path = os.fsdecode(os.fsencode(tmp_path) + b"/\xff.onnx")
    with pytest.raises(
        ModelError, match=r"\\xff.onnx: the name is not UTF-8, which onnxruntime needs; rename"
    ):
        load_model(path)


def test_an_unknown_key_of_external_data_prints_nothing(tmp_path: Path) -> None:
    onnx.save_model(
        model(), tmp_path / "net.onnx", save_as_external_data=True, location="net.bin", size_threshold=0
    )
    proto = onnx.load_model(tmp_path / "net.onnx", load_external_data=False)
    proto.graph.initializer[0].external_data.add(key="\0ength", value="80")
    (tmp_path / "net.onnx").write_bytes(proto.SerializeToString())
    load_model(tmp_path / "net.onnx")  # onnx_ir warns, and warnings are errors in tests
