"""The index of a graph, and the fingerprint: what enters it and what does not."""

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import pytest
from qprof_onnx.profiles.base.errors import ProfileError
from qprof_onnx.profiles.records.profile import ModelId
from qprof_onnx.quantizer.model.graph import constant_of, input_name, name_of, output_name
from qprof_onnx.quantizer.model.identity import check_model, model_id
from qprof_onnx.quantizer.operators.graph import index

TEXT = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[N,3] x, bool c) => (float[N,2] y) <float[3,4] w, int64[2] s = {-1, 2}> {
  [m] t = MatMul(x, w)
  [a] d = Add(t, t)
  [r] e = Reshape(d, s)
  [i] f = If(c)<
    then_branch = p () => (float[N,2] u) { [n] u = Neg(e) },
    else_branch = q () => (float[N,2] v) { [o] v = Mul(e, e) }>
  [k] g16 = Cast<to=10>(f)
  [z] y = Cast<to=1>(g16)
}
"""


def parse(text=TEXT, **weights):
    proto = onnx.parser.parse_model(text)
    given = {"w": np.arange(12, dtype=np.float32).reshape(3, 4)} if "float[3,4] w" in text else {}
    given |= weights
    kept = [tensor for tensor in proto.graph.initializer if tensor.name not in given]
    del proto.graph.initializer[:]
    proto.graph.initializer.extend(kept)
    proto.graph.initializer.extend(onnx.numpy_helper.from_array(a, name) for name, a in given.items())
    return proto


def identify(proto):
    return model_id(ir.from_proto(proto), "m.onnx")


def test_nodes_inputs_and_outputs_are_in_order():
    graph = index(ir.from_proto(parse()))
    assert [node.name for node in graph.nodes] == ["m", "a", "r", "n", "o", "i", "k", "z"]
    assert graph.inputs == ("x", "c")
    assert graph.outputs == ("y",)


def test_a_producer_is_the_node_that_makes_the_value():
    graph = index(ir.from_proto(parse()))
    assert graph.producer("t").name == "m"
    assert graph.producer("x") is None
    assert graph.producer("w") is None


def test_a_node_that_reads_a_value_twice_consumes_it_twice():
    graph = index(ir.from_proto(parse()))
    assert [(node.name, position) for node, position in graph.consumers("t")] == [("a", 0), ("a", 1)]
    assert graph.consumers("y") == ()


def test_inputs_have_names_by_position_and_those_left_out_none():
    model = ir.from_proto(
        onnx.parser.parse_model(
            '<ir_version: 8, opset_import: ["" : 17]> g (float[2] x, float h) => (float[2] y)'
            '{ [c] y = Clip(x, "", h) }'
        )
    )
    (view,) = index(model).nodes
    assert (view.inputs, view.outputs, view.name) == (("x", "", "h"), ("y",), "c")
    assert [view.input(i) for i in range(4)] == ["x", "", "h", ""]
    assert view.rule is not None
    assert (view.activations, view.results, view.output) == (("x",), ("y",), "y")
    (node,) = model.graph
    assert [input_name(node, i) for i in range(4)] == ["x", "", "h", ""]
    assert (name_of(node), name_of(node.inputs[2]), name_of(None), output_name(node)) == ("c", "h", "", "y")


def test_a_constant_is_an_initialiser_that_is_not_an_input():
    model = ir.from_proto(parse())
    graph = index(model)
    assert constant_of(graph.values["w"]).shape == (3, 4)
    assert constant_of(graph.values["x"]) is None
    assert constant_of(graph.values["t"]) is None
    assert constant_of(None) is None
    model.graph.inputs.append(graph.values["w"])
    assert constant_of(graph.values["w"]) is None


def test_a_branch_consumes_what_it_reads_from_outside():
    graph = index(ir.from_proto(parse()))
    assert [(node.name, position) for node, position in graph.consumers("e")] == [
        ("n", 0),
        ("o", 0),
        ("o", 1),
    ]


def test_what_a_branch_gives_is_a_result_as_the_outputs_of_the_model_are():
    graph = index(ir.from_proto(parse()))
    branch = next(node for node in graph.nodes if node.name == "i").attributes["then_branch"].as_graph()
    assert all(graph.is_result(value.name) for value in branch.outputs)
    assert graph.is_result("y")
    assert not graph.is_result("t")


def test_initialisers_are_constants():
    graph = index(ir.from_proto(parse()))
    assert graph.constant("s").tolist() == [-1, 2]
    assert graph.is_constant("w")
    assert graph.constant("x") is None
    assert graph.constant("nowhere") is None


def test_types_and_shapes_are_known_by_name():
    proto = parse()
    proto.graph.value_info.append(
        onnx.helper.make_tensor_value_info("g16", onnx.TensorProto.FLOAT16, ["N", 2])
    )
    graph = index(ir.from_proto(proto))
    assert graph.shape("x") == (None, 3)
    assert graph.shape("t") is None
    assert [graph.is_float(name) for name in ("x", "g16", "w", "s", "c", "t")] == [
        True,
        True,
        True,
        False,
        False,
        False,
    ]
    assert graph.dtype("s") == ir.DataType.INT64
    assert graph.dtype("t") is None


def test_the_fingerprint_is_the_same_on_every_machine():
    """Changing these digests makes every profile that a user has unusable."""
    found = identify(parse())
    assert found == ModelId(
        structure="70bcdaad25e85f0c08beaf4448aa9f31472bb6055a9dd9cf4aedd8e9101d578c",
        weights="5e3d94bd8bfa87ba965aca60152547ca4e53f08b139a3710c3abb88031464d64",
        opset=17,
    )
    assert found.file == "m.onnx"


def swap_weights(proto):
    copies = [onnx.TensorProto.FromString(t.SerializeToString()) for t in reversed(proto.graph.initializer)]
    del proto.graph.initializer[:]
    proto.graph.initializer.extend(copies)


def store_as_floats(proto):
    tensor = proto.graph.initializer[1]
    array = onnx.numpy_helper.to_array(tensor)
    tensor.CopyFrom(onnx.helper.make_tensor("w", 1, array.shape, array.ravel().tolist()))


def first_input(proto):
    return proto.graph.input[0].type.tensor_type


STRUCTURAL = {
    "operator": lambda m: setattr(m.graph.node[1], "op_type", "Mul"),
    "node name": lambda m: setattr(m.graph.node[1], "name", "b"),
    "attribute": lambda m: setattr(m.graph.node[4].attribute[0], "i", 16),
    "connection": lambda m: m.graph.node[1].input.__setitem__(1, "x"),
    "branch": lambda m: setattr(m.graph.node[3].attribute[0].g.node[0], "op_type", "Abs"),
    "fixed dimension": lambda m: setattr(first_input(m).shape.dim[1], "dim_value", 4),
    "type of an input": lambda m: setattr(first_input(m), "elem_type", onnx.TensorProto.DOUBLE),
    "name of a weight": lambda m: setattr(m.graph.initializer[1], "name", "w2"),
    "shape of a weight": lambda m: m.graph.initializer[1].dims.__setitem__(slice(None), [4, 3]),
    "target shape": lambda m: m.graph.initializer[0].int64_data.__setitem__(1, 3),
    "opset": lambda m: setattr(m.opset_import[0], "version", 16),
}

IRRELEVANT = {
    "first element of the target shape": lambda m: m.graph.initializer[0].int64_data.__setitem__(0, 8),
    "batch": lambda m: setattr(first_input(m).shape.dim[0], "dim_value", 8),
    "name of a free dimension": lambda m: setattr(first_input(m).shape.dim[0], "dim_param", "batch"),
    "value info": lambda m: m.graph.value_info.append(onnx.helper.make_tensor_value_info("t", 1, [None, 4])),
    "doc string": lambda m: setattr(m.graph.node[0], "doc_string", "text"),
    "metadata": lambda m: m.metadata_props.add(key="a", value="b"),
    "IR version": lambda m: setattr(m, "ir_version", 9),
    "producer": lambda m: setattr(m, "producer_name", "other"),
    "order of weights": swap_weights,
    "storage of weights": store_as_floats,
}


@pytest.mark.parametrize("what", STRUCTURAL)
def test_the_structure_knows(what):
    proto = parse()
    STRUCTURAL[what](proto)
    assert proto != parse()
    assert identify(proto).structure != identify(parse()).structure


@pytest.mark.parametrize("what", IRRELEVANT)
def test_the_fingerprint_does_not_know(what):
    proto = parse()
    IRRELEVANT[what](proto)
    assert proto != parse()
    assert identify(proto) == identify(parse())


def test_training_changes_the_weights_and_not_the_structure():
    trained = identify(parse(w=np.ones((3, 4), np.float32)))
    assert trained.structure == identify(parse()).structure
    assert trained.weights != identify(parse()).weights


def test_weights_in_branches_are_weights():
    text = TEXT.replace("u = Neg(e)", "b = Constant<value = float[2] {%s}>() u = Add(e, b)")
    one, other = (identify(parse(text.replace("%s", value))) for value in ("1.0, 2.0", "1.0, 3.0"))
    assert one.structure == other.structure
    assert one.weights != other.weights


def test_swapped_weights_are_other_weights():
    body = "g (float[2] x) => (float[2] y) { t = Add(x, a)  y = Mul(t, b) }"
    text = '<ir_version: 8, opset_import: ["" : 17]>\n' + body
    a, b = np.array([1, 2], np.float32), np.array([3, 4], np.float32)
    assert identify(parse(text, a=a, b=b)).weights != identify(parse(text, a=b, b=a)).weights


A = ModelId("a" * 64, "b" * 64, 17, "old.onnx")


def test_the_same_model_passes():
    check_model(A, ModelId(A.structure, A.weights, 17, "renamed.onnx"), "p.yaml")


def test_another_graph_is_refused_whatever_its_weights():
    with pytest.raises(
        ProfileError, match=r"^p.yaml: made for old.onnx, and new.onnx has another graph; .*dump-profile"
    ):
        check_model(A, ModelId("c" * 64, A.weights, 17, "new.onnx"), "p.yaml", same_weights=False)


def test_another_opset_is_named():
    with pytest.raises(ProfileError, match=r"and this model has another graph \(opset 13, not 17\)"):
        check_model(A, ModelId("c" * 64, A.weights, 13), "p.yaml")


def test_other_weights_are_refused_where_they_have_to_be_the_same():
    retrained = ModelId(A.structure, "c" * 64, 17)
    with pytest.raises(ProfileError, match=r"the graph is the same, but its weights changed .*dump-profile"):
        check_model(A, retrained, "p.yaml")
    check_model(A, retrained, "p.yaml", same_weights=False)
