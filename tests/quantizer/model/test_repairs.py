"""What onnxruntime runs is accepted, computes the same bits when it was mended."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnx.parser
import onnxruntime as ort
import pytest
from onnx import helper, numpy_helper
from qprof_onnx.profiles.base.errors import ModelError
from qprof_onnx.quantizer.model.loading import load_model
from qprof_onnx.quantizer.model.saving import save_model
from qprof_onnx.quantizer.prepare.prepare import open_prepared

HEAD = '<ir_version: 8, opset_import: ["" : 17]> '
TEXT = (
    HEAD
    + "net (float[N, 4] x) => (float[N, 3] y) { [a] h = MatMul(x, w) [b] r = Relu(h) [c] y = Gemm(r, v, k) }"
)
WITH_FUNCTION = (
    '<ir_version: 8, opset_import: ["" : 17, "own" : 1]> net (float[N, 4] x) => (float[N, 3] y) '
    "{ [a] h = MatMul(x, w) [b] r = own.f(h) [c] y = Gemm(r, v, k) } "
    '<domain: "own", opset_import: ["" : 13]> f (p) => (q) { q = Relu(p) }'
)

Oddity = Callable[[onnx.ModelProto], None]


def with_weights(text: str = TEXT) -> onnx.ModelProto:
    """Return two layers with weights w, v and bias k."""
    proto = onnx.parser.parse_model(text)
    rng = np.random.default_rng(0)
    for name, shape in (("w", (4, 5)), ("v", (5, 3)), ("k", (3,))):
        array = rng.standard_normal(shape).astype(np.float32)
        proto.graph.initializer.append(numpy_helper.from_array(array, name))
    return proto


def untyped_output(proto: onnx.ModelProto) -> None:
    proto.graph.output[0].ClearField("type")


def output_without_shape(proto: onnx.ModelProto) -> None:
    proto.graph.output[0].type.tensor_type.ClearField("shape")


def input_without_shape(proto: onnx.ModelProto) -> None:
    proto.graph.input[0].type.tensor_type.ClearField("shape")


def untyped_output_of_a_contrib_operator(proto: onnx.ModelProto) -> None:
    proto.graph.node.add(op_type="FastGelu", domain="com.microsoft", input=["y"], output=["z"])
    proto.opset_import.add(domain="com.microsoft", version=1)
    proto.graph.output[0].ClearField("type")
    proto.graph.output[0].name = "z"


def graph_without_name(proto: onnx.ModelProto) -> None:
    proto.graph.ClearField("name")


def initializers_that_are_no_inputs(proto: onnx.ModelProto) -> None:
    proto.ir_version = 3


def ir_version_2_with_opsets(proto: onnx.ModelProto) -> None:
    proto.ir_version = 2


def ir_version_0(proto: onnx.ModelProto) -> None:
    proto.ir_version = 0


def opset_twice(proto: onnx.ModelProto) -> None:
    del proto.opset_import[:]
    proto.opset_import.add(version=11)
    proto.opset_import.add(domain="ai.onnx", version=17)
    proto.graph.node[1].op_type = "Softmax"  # coerces to two dimensions before opset 13


def missing_import(proto: onnx.ModelProto) -> None:
    proto.graph.node[1].op_type = "FastGelu"
    proto.graph.node[1].domain = "com.microsoft"


def nodes_of_the_long_domain(proto: onnx.ModelProto) -> None:
    for node in proto.graph.node:
        node.domain = "ai.onnx"


def unsorted_nodes(proto: onnx.ModelProto) -> None:
    nodes = list(proto.graph.node)[::-1]
    del proto.graph.node[:]
    proto.graph.node.extend(nodes)


def sparse_initializer(proto: onnx.ModelProto) -> None:
    dense = numpy_helper.to_array(proto.graph.initializer[0])
    values = numpy_helper.from_array(dense[dense > 0], "w")
    indices = numpy_helper.from_array(np.flatnonzero(dense > 0).astype(np.int64), "w_indices")
    del proto.graph.initializer[0]
    proto.graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, dense.shape))


def elements_twice(proto: onnx.ModelProto) -> None:
    proto.graph.initializer[2].float_data.extend([0.0, 0.0, 0.0])


def sparse_constant(proto: onnx.ModelProto) -> None:
    sparse_initializer(proto)
    sparse = proto.graph.sparse_initializer.pop()
    proto.graph.node.insert(0, helper.make_node("Constant", [], ["w"], sparse_value=sparse))


def function_of_a_standard_name(proto: onnx.ModelProto) -> None:
    nodes = [helper.make_node("Neg", ["a"], ["b"])]
    opsets = [helper.make_opsetid("", 17)]
    proto.functions.append(helper.make_function("", "Relu", ["a"], ["b"], nodes, opsets))


def opset_0(proto: onnx.ModelProto) -> None:
    proto.opset_import[0].version = 0


def device_configuration(proto: onnx.ModelProto) -> None:
    proto.configuration.add(name="two", num_devices=2)
    proto.graph.node[0].device_configurations.add(pipeline_stage=1)


def constant(name: str, numbers: list[float]) -> onnx.NodeProto:
    array = numpy_helper.from_array(np.array(numbers, np.float32))
    return helper.make_node("Constant", [], ["k"], name=name, value=array)


def two_constants(proto: onnx.ModelProto) -> None:
    del proto.graph.initializer[2]
    for name, numbers in (("early", [1.0, 2.0, 3.0]), ("late", [4.0, 5.0, 6.0])):
        proto.graph.node.insert(0 if name == "early" else 1, constant(name, numbers))


def constant_and_initializer(proto: onnx.ModelProto) -> None:
    proto.graph.node.insert(0, constant("early", [1.0, 2.0, 3.0]))


def attribute_of_no_function(proto: onnx.ModelProto) -> None:
    attribute = proto.graph.node[2].attribute.add(
        name="alpha", type=onnx.AttributeProto.FLOAT, ref_attr_name="s"
    )
    attribute.f = 0.5


def nothing(_: onnx.ModelProto) -> None:
    pass


@pytest.mark.parametrize(
    "oddity",
    [
        *(nothing, untyped_output, output_without_shape, untyped_output_of_a_contrib_operator),
        *(input_without_shape, graph_without_name, initializers_that_are_no_inputs, ir_version_2_with_opsets),
        *(ir_version_0, opset_twice, missing_import, nodes_of_the_long_domain, unsorted_nodes),
        device_configuration,
    ],
)
def test_a_mended_model_computes_the_same_bits(tmp_path: Path, oddity: Oddity) -> None:
    proto = with_weights()
    oddity(proto)
    assert_same_bits(tmp_path, proto.SerializeToString())


@pytest.mark.parametrize(
    ("oddity", "sentence"),
    [
        (elements_twice, "tensor 'k': has elements in float_data, which belong in raw_data"),
        (sparse_initializer, "tensor 'w' is sparse; export it with dense weights"),
        (sparse_constant, "cannot be read as a graph: Sparse tensors are not supported"),
        (two_constants, "cannot be read as a graph: Output 'k' is redeclared"),
        (constant_and_initializer, "cannot be read as a graph: Output 'k' is redeclared"),
        (function_of_a_standard_name, "function 'Relu' has the name of a standard operator"),
        (attribute_of_no_function, "node 'c' (Gemm): attribute 'alpha' is that of a function"),
        (opset_0, "not a valid ONNX model: No Op registered for MatMul with domain_version of 0"),
    ],
)  # fmt: skip
def test_what_only_damaged_files_have_is_refused_with_the_place(
    tmp_path: Path, oddity: Oddity, sentence: str
) -> None:
    proto = with_weights()
    oddity(proto)
    (tmp_path / "m.onnx").write_bytes(proto.SerializeToString())
    with pytest.raises(ModelError, match=re.escape(sentence)):
        load_model(tmp_path / "m.onnx")


def assert_same_bits(folder: Path, data: bytes) -> None:
    """Compare the prepared model with the file as onnxruntime runs it."""
    (folder / "m.onnx").write_bytes(data)
    prepared = open_prepared(folder / "m.onnx")
    assert not prepared.findings
    save_model(prepared.model, folder / "prepared.onnx")
    for wanted, got in zip(outputs(folder / "m.onnx"), outputs(folder / "prepared.onnx"), strict=True):
        assert wanted.dtype == got.dtype
        assert np.array_equal(wanted, got)


def outputs(path: Path) -> list[npt.NDArray[Any]]:
    """Return what onnxruntime computes for two rows, without optimising the graph."""
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    result: list[npt.NDArray[Any]] = session.run(
        None, {"x": np.random.default_rng(1).standard_normal((2, 4)).astype(np.float32)}
    )
    return result


def test_what_only_the_checker_refuses_is_accepted(tmp_path: Path) -> None:
    assert_same_bits(tmp_path, with_weights(WITH_FUNCTION).SerializeToString())


def test_an_operator_of_a_function_is_that_of_the_opset_of_the_model(tmp_path: Path) -> None:
    """The standard forbids a function with an operator that has changed; onnxruntime takes the model's."""
    text = WITH_FUNCTION.replace("q = Relu(p)", "q = Softmax<axis = 0>(p)")  # of the whole before opset 13
    proto = with_weights(text.replace('["" : 13]', '["" : 11]'))
    assert_same_bits(tmp_path, proto.SerializeToString())


def test_text_for_people_that_is_not_utf8_is_replaced(tmp_path: Path) -> None:
    proto = with_weights()
    proto.producer_name = "some_tool"
    data = proto.SerializeToString().replace(b"some_tool", b"some\xfftool")
    assert_same_bits(tmp_path, data)


def test_an_output_that_is_a_list_of_maps_is_accepted(tmp_path: Path) -> None:
    """Classifiers of scikit-learn end in ZipMap, which onnx_ir has no type for."""
    proto = with_weights()
    attribute = helper.make_attribute("classlabels_int64s", [0, 1, 2])
    proto.graph.node.add(op_type="ZipMap", domain="ai.onnx.ml", input=["y"], output=["z"]).attribute.append(
        attribute
    )
    proto.opset_import.add(domain="ai.onnx.ml", version=1)
    output = proto.graph.output.add(name="z").type.sequence_type.elem_type.map_type
    output.key_type = onnx.TensorProto.INT64
    output.value_type.tensor_type.elem_type = onnx.TensorProto.FLOAT
    onnx.save(proto, tmp_path / "m.onnx")
    prepared = open_prepared(tmp_path / "m.onnx")
    save_model(prepared.model, tmp_path / "prepared.onnx")
    first, last = outputs(tmp_path / "m.onnx"), outputs(tmp_path / "prepared.onnx")
    assert np.array_equal(first[0], last[0])
    assert first[1] == last[1]


def test_small_constants_in_external_data_enter_shape_inference(tmp_path: Path) -> None:
    proto = onnx.parser.parse_model(
        HEAD + "net (float[2, 3, 4] x) => (float[A, B] y) { h = Reshape(x, s)  y = Relu(h) }"
    )
    proto.graph.initializer.append(numpy_helper.from_array(np.array([6, -1], np.int64), "s"))
    onnx.save_model(
        proto, tmp_path / "m.onnx", save_as_external_data=True, location="m.data", size_threshold=0
    )
    assert open_prepared(tmp_path / "m.onnx").graph.shape("h") == (6, 4)
