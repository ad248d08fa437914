"""Small edits of a graph: names, constants, nodes removed and merged."""

from __future__ import annotations

import numpy as np
import onnx.parser
import onnx_ir as ir
from qprof_onnx.profiles.instrumentation.subgraphs import graph_attributes, graphs_of, value_names
from qprof_onnx.quantizer.model.editing import (
    FreeNames,
    bypass,
    discard,
    feeding,
    free_name,
    merge_into,
    replace_constant,
    sole_user,
)
from qprof_onnx.quantizer.model.graph import constant_of, subgraphs

IF = (
    "If(c)<then_branch = a () => (float[2] p) { p = Neg(t) },"
    " else_branch = e () => (float[2] q) { q = Abs(t) }>"
)


def parsed(text: str) -> ir.Model:
    return ir.from_proto(onnx.parser.parse_model('<ir_version: 8, opset_import: ["" : 17]>' + text))


def test_names_in_a_row_are_those_that_are_found_one_by_one() -> None:
    wanted, taken = ["a", "a", "b", "a_2", "a"], {"a", "a_3", "b_2"}
    names = FreeNames(set(taken))
    assert [names.take(name) for name in wanted] == [free_name(name, taken) for name in wanted]


def test_many_nodes_of_one_name_take_no_time() -> None:
    names = FreeNames({"If_"})
    assert [names.take("If_") for _ in range(50_000)][-1] == "If__50001"


def test_a_free_name_gets_the_first_number_that_is_free() -> None:
    taken = {"a", "a_2"}
    assert [free_name("a", taken), free_name("a", taken), free_name("b", taken)] == ["a_3", "a_4", "b"]
    assert taken == {"a", "a_2", "a_3", "a_4", "b"}


def test_names_of_values_are_those_of_all_graphs() -> None:
    model = parsed(f"g (float[2] x, bool c) => (float[2] y) {{ t = Relu(x)  y = {IF} }}")
    assert value_names(model) == {"x", "c", "t", "y", "p", "q"}


def test_a_value_that_a_subgraph_reads_has_no_sole_user() -> None:
    model = parsed(f"g (float[2] x, bool c) => (float[2] y) {{ t = Relu(x)  y = {IF} }}")
    assert sole_user(model.graph[0].outputs[0]) is None


def test_a_producer_with_one_consumer_is_found_by_its_type() -> None:
    model = parsed("g (float[2] x) => (float[2] y) { t = Relu(x)  y = Neg(t) }")
    relu, neg = model.graph
    assert sole_user(relu.outputs[0]) is neg
    assert feeding(neg.inputs[0], "Relu") is relu
    assert feeding(neg.inputs[0], "Abs") is None
    assert feeding(relu.inputs[0], "Relu") is None


def test_a_constant_of_one_consumer_is_replaced_under_its_name() -> None:
    model = parsed("g (float[2] x) => (float[2] y) <float[2] k = {1, 2}> { [n] y = Add(x, k) }")
    replace_constant(model.graph[0], 1, np.zeros(2, np.float32), value_names(model))
    assert list(model.graph.initializers) == ["k"]
    assert constant_of(model.graph[0].inputs[1]).tolist() == [0.0, 0.0]


def test_a_constant_of_two_consumers_is_replaced_for_one_under_a_new_name() -> None:
    model = parsed(
        "g (float[2] x) => (float[2] y) <float[2] k = {1, 2}> { [m] t = Add(x, k)  [n] y = Mul(t, k) }"
    )
    replace_constant(model.graph[1], 1, np.zeros(2, np.float32), value_names(model))
    assert list(model.graph.initializers) == ["k", "k_n"]
    assert constant_of(model.graph[0].inputs[1]).tolist() == [1.0, 2.0]


def test_a_discarded_node_with_subgraphs_no_longer_uses_what_they_read() -> None:
    model = parsed(f"g (float[2] x, bool c) => (float[2] y) {{ t = Relu(x)  d = {IF}  y = Neg(x) }}")
    value = model.graph[0].outputs[0]
    assert len(value.uses()) == 2
    discard(model.graph[1])
    assert not value.uses()


def test_a_bypassed_node_hands_its_name_to_the_producer_of_an_output() -> None:
    model = parsed("g (float[2] x) => (float[2] y) { t = Relu(x)  y = Identity(t) }")
    relu, identity = model.graph
    assert bypass(identity, relu.outputs[0])
    assert [node.outputs[0].name for node in model.graph] == ["y"]


def test_a_node_between_input_and_output_is_not_bypassed() -> None:
    model = parsed("g (float[2] x) => (float[2] y) { y = Identity(x) }")
    assert not bypass(model.graph[0], model.graph.inputs[0])
    assert len(model.graph) == 1


def test_a_node_that_another_is_merged_into_makes_its_output() -> None:
    model = parsed("g (float[2] x) => (float[2] y) { t = Relu(x)  y = Neg(t) }")
    relu, neg = model.graph
    merge_into(relu, neg)
    assert list(model.graph) == [relu]
    assert model.graph.outputs[0] is relu.outputs[0]


def test_only_control_flow_runs_its_graphs_as_written() -> None:
    model = parsed(f"g (float[2] x, bool c) => (float[2] y) {{ t = Relu(x)  y = {IF} }}")
    relu, branches = model.graph
    assert [graph.name for graph in subgraphs(branches)] == ["a", "e"]
    assert subgraphs(relu) == graph_attributes(relu) == ()
    own = ir.Node("own", "Map", [], [branches.attributes["then_branch"]])
    assert subgraphs(own) == ()
    assert [graph.name for graph in graph_attributes(own)] == ["a"]
    assert graphs_of(ir.AttrInt64("axis", 0)) == ()
