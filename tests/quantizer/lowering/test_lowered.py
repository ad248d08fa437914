"""What the lowering says about the names that it has given, and what the record in a model file adds."""

from __future__ import annotations

import json

import onnx_ir as ir
import pytest
from qprof_onnx.quantizer.lowering.lower import lower
from qprof_onnx.quantizer.lowering.lowered import RECORD, LoweredModel
from qprof_onnx.quantizer.plugins.layers.layers import matches, read_recorded_tensors
from qprof_onnx.quantizer.targets.forms import FORMS

from ..networks import WIDE, Network, network


@pytest.fixture(scope="module")
def small() -> Network:
    return network(
        "a = Conv (x, v) b = Relu (a) p = MaxPool <kernel_shape = [2, 2]> (b) c = Conv (p, w) y = Erf (c)",
        {"v": WIDE, "w": (8, 8, 1, 1)},
    )


def lowered(small: Network, form: str) -> LoweredModel:
    return lower(small.model, small.plan(form=form))


@pytest.mark.parametrize("form", FORMS)
def test_the_names_are_names_of_the_model(small: Network, form: str) -> None:
    result = lowered(small, form)
    graph = result.model.graph
    present = {v.name for node in graph for v in node.outputs} | set(graph.initializers)
    present |= {v.name for v in graph.inputs}
    forms = [name for w in result.names.tensors.values() for name in (*w.floats, *w.quantized)]
    assert set(forms) <= present
    assert {name for names in result.names.nodes.values() for name in names} <= {n.name for n in graph}


@pytest.mark.parametrize("form", FORMS)
def test_every_tensor_and_node_of_the_prepared_model_has_an_entry(small: Network, form: str) -> None:
    names = lowered(small, form).names
    assert set(small.graph.values) <= set(names.tensors)
    assert {node.name for node in small.graph.nodes} == set(names.nodes)


def test_a_quantized_tensor_has_its_parameters(small: Network) -> None:
    written = lowered(small, "qdq").names.tensors["p"]
    plan = small.plan()
    assert list(written.quantized.values()) == [plan.tensors["p"]]
    assert written.stored in written.quantized
    assert "p" in written.floats


@pytest.mark.parametrize("form", FORMS)
def test_activations_are_found_in_the_model_of_every_form(small: Network, form: str) -> None:
    found = {match.tensor for match in matches(small.model, lowered(small, form).model)}
    # The Relu is part of the Conv before it.
    assert found == {"x", "b", "p", "c", "y"}


def test_a_model_whose_tensors_have_their_own_names_has_no_record() -> None:
    net = network("a = Conv (x, v) b = Relu (a) y = Erf (b)", {"v": WIDE})
    assert RECORD not in lowered(net, "qdq").model.metadata_props


def test_a_tensor_that_is_read_as_integers_alone_is_in_the_record_of_form_qdq(small: Network) -> None:
    assert list(read_recorded_tensors(lowered(small, "qdq").model)) == ["b"]


def test_a_record_of_an_earlier_model_is_replaced(small: Network) -> None:
    small.model.metadata_props[RECORD] = json.dumps({"old": {}})
    try:
        assert "old" not in read_recorded_tensors(lowered(small, "qdq").model)
        assert "old" not in read_recorded_tensors(lowered(small, "qoperator").model)
    finally:
        del small.model.metadata_props[RECORD]


def test_the_record_outlives_the_file(small: Network) -> None:
    model = lowered(small, "qoperator").model
    again = ir.from_proto(ir.to_proto(model))
    assert read_recorded_tensors(again) == read_recorded_tensors(model) != {}
