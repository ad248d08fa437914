"""A chain as one table: for every code of its input, the code of the chain in float, whatever the form."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper, parser
from onnx.reference import ReferenceEvaluator
from qprof_onnx.profiles.records.profile import ModelId
from qprof_onnx.quantizer.lowering.lower import lower
from qprof_onnx.quantizer.numerics.affine import TYPES, QuantParams, dequantize, quantize
from qprof_onnx.quantizer.numerics.schemas import SCHEMAS, choose_params
from qprof_onnx.quantizer.operators.functions import function_of
from qprof_onnx.quantizer.operators.graph import index
from qprof_onnx.quantizer.plan.plan import Kind, NodePlan, QuantPlan
from qprof_onnx.quantizer.planning.chains import find_chains
from qprof_onnx.quantizer.prepare.prepare import prepare
from qprof_onnx.quantizer.targets.config import QuantConfig

from ...reference.plan_interpreter import run_plan

UNARY = ("Sigmoid", "Tanh", "Erf", "Softplus", "Abs", "Neg", "LeakyRelu", "Elu", "Atan", "Softsign")
BINARY = ("Add", "Sub", "Mul", "Max", "Min")
FORMS = ("qdq", "integer", "primitives", "regions", "qoperator")

Step = tuple[str, int, int, float]
"""Operator, the tensors that it reads (counted from the last one), and a constant that may stand for one."""

STEPS = st.lists(
    st.tuples(
        st.sampled_from((*UNARY, *BINARY)),
        st.integers(0, 3),
        st.integers(0, 4),
        st.floats(-3, 3, width=32),
    ),
    min_size=1,
    max_size=7,
)


def chain_model(steps: list[Step]) -> onnx.ModelProto:
    """A graph in which y is a function of x: each step reads earlier ones, and the rest is added up."""
    names, nodes, constants, unread = ["x"], [], [], {"x"}
    for number, (op, first, second, constant) in enumerate(steps):
        inputs = [names[-1 - first % len(names)]]
        if op in BINARY and second == 4:
            constants.append(numpy_helper.from_array(np.float32(constant), f"k{number}"))
            inputs.append(f"k{number}")
        elif op in BINARY:
            inputs.append(names[-1 - second % len(names)])
        unread -= set(inputs)
        names.append(f"t{number}")
        unread.add(names[-1])
        nodes.append(helper.make_node(op, inputs, [names[-1]], name=f"n{number}"))
    rest = [name for name in names if name in unread]
    nodes.append(helper.make_node("Sum", [*rest, names[-1]], ["y"], name="last"))
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 256]) for name in "xy")
    graph = helper.make_graph(nodes, "chain", [x], [y], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return onnx.shape_inference.infer_shapes(model)


def in_float64(proto: onnx.ModelProto, x: np.ndarray) -> np.ndarray:
    """Run a model with all its numbers in double precision."""
    wide = onnx.ModelProto.FromString(proto.SerializeToString())
    for tensor in wide.graph.initializer:
        tensor.CopyFrom(
            numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float64), tensor.name)
        )
    del wide.graph.value_info[:]
    for value in (*wide.graph.input, *wide.graph.output):
        value.type.tensor_type.elem_type = TensorProto.DOUBLE
    with np.errstate(all="ignore"):  # as the library evaluates the same operators
        return np.asarray(ReferenceEvaluator(wide).run(None, {"x": x.astype(np.float64)})[0])


def plan_of(model: ir.Model, tensors: dict[str, QuantParams], form: str) -> QuantPlan:
    table = NodePlan(Kind.LOOKUP_TABLE, implementation="portable")
    nodes = {node.name or "": table for node in model.graph}
    return QuantPlan(ModelId("", "", 17), QuantConfig(form=form), tensors, nodes)


@pytest.mark.slow
@given(STEPS, st.sampled_from(("uint8", "int8")), st.floats(0.01, 8), st.sampled_from(FORMS))
@settings(max_examples=100, deadline=None)
def test_every_code_is_that_of_the_chain_in_float(
    steps: list[Step], qtype: str, top: float, form: str
) -> None:
    proto = chain_model(steps)
    model = ir.from_proto(proto)
    source = choose_params(-top, top / 2, SCHEMAS["asymmetric"], TYPES[qtype])
    inputs = np.arange(source.qtype.low, source.qtype.high + 1).astype(source.qtype.numpy_dtype)
    x = dequantize(inputs, source)[None]
    exact = in_float64(proto, x)
    result = choose_params(float(exact.min()), float(exact.max()), SCHEMAS["asymmetric"], TYPES[qtype])
    expected = quantize(exact, result)
    plan = plan_of(model, {"x": source, "y": result}, form)
    made = ir.to_proto(lower(model, plan).model)
    onnx.checker.check_model(made, full_check=True)
    got = ort.InferenceSession(made.SerializeToString()).run(None, {"x": x})[0]
    assert np.array_equal(got, dequantize(expected, result))
    known = run_plan(model, plan, {"x": x})["y"]
    # The oracle knows x without the rounding of float32, which may put a tie apart: one code.
    assert known.quantized is not None
    assert np.abs(known.quantized.astype(int) - expected.astype(int)).max() <= 1


@pytest.mark.parametrize("op_type", ["Mean", "Sum", "Max", "Min", "Add"])
def test_a_constant_of_one_element_may_have_any_number_of_dimensions(op_type: str) -> None:
    x, k = ir.Value(name="x"), ir.Value(name="k", const_value=ir.tensor(np.full((1, 1, 1), 0.5, np.float32)))
    function = function_of(ir.node(op_type, [x, k]), 17)
    expected = {"Mean": 0.75, "Sum": 1.5, "Max": 1.0, "Min": 0.5, "Add": 1.5}[op_type]
    assert np.array_equal(function(np.ones(5)), np.full(5, expected))


@given(STEPS)
@settings(max_examples=100, deadline=None)
def test_all_of_it_is_found_as_a_chain(steps: list[Step]) -> None:
    model = ir.from_proto(chain_model(steps))
    (chain,) = find_chains(index(model))
    assert chain.source.name == "x"
    assert sorted(node.name or "" for node in chain.nodes) == sorted(node.name or "" for node in model.graph)


def lowered_and_run(
    proto: onnx.ModelProto, form: str, implementation: str, largest: float
) -> tuple[onnx.ModelProto, npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """Return a model of x and y with an implementation of its chain, what onnxruntime computes for each of
    the 256 codes of x in [-largest, largest], and what double precision does, rounded to y's codes."""
    model = ir.from_proto(proto)
    source = choose_params(-largest, largest, SCHEMAS["asymmetric"], TYPES["uint8"])
    x = dequantize(np.arange(256).astype(np.uint8), source)[None]
    exact = in_float64(proto, x)
    result = choose_params(float(exact.min()), float(exact.max()), SCHEMAS["asymmetric"], TYPES["uint8"])
    plan = plan_of(model, {"x": source, "y": result}, form)
    nodes = {name: replace(entry, implementation=implementation) for name, entry in plan.nodes.items()}
    made = ir.to_proto(lower(model, replace(plan, nodes=nodes)).model)
    got = ort.InferenceSession(made.SerializeToString()).run(None, {"x": x})[0]
    return made, got, dequantize(quantize(exact, result), result)


@pytest.mark.parametrize("form", FORMS)
def test_between_conversions_nothing_is_rounded_on_the_way(form: str) -> None:
    """As a runtime that makes tables itself is given it; forms without conversions make the table."""
    proto = chain_model([("Sigmoid", 0, 0, 0.0), ("Mul", 0, 1, 0.0)])
    _, got, exact = lowered_and_run(proto, form, "runtime", 6.0)
    assert np.array_equal(got, exact)


def written_out(name: str, shape: list[int | str]) -> onnx.ModelProto:
    """SiLU, SiLU with a scaled gate, or Gelu, of x."""
    text = {
        "silu": "g = Sigmoid (x) y = Mul (x, g)",
        "quick": "k = Constant <value_float = 1.702> () b = Mul (x, k) g = Sigmoid (b) y = Mul (x, g)",
        "gelu": """r = Constant <value_float = 1.4142135> () o = Constant <value_float = 1.0> ()
            h = Constant <value_float = 0.5> () d = Div (x, r) e = Erf (d) f = Add (e, o)
            p = Mul (x, f) y = Mul (p, h)""",
    }[name]
    dims = ",".join(map(str, shape))
    proto = parser.parse_model(
        f'<ir_version: 8, opset_import: ["": 17]> g (float[{dims}] x) => (float[{dims}] y) {{ {text} }}'
    )
    return ir.to_proto(prepare(ir.from_proto(proto)).model)


@pytest.mark.parametrize("form", ["qdq", "qoperator"])
@pytest.mark.parametrize("name", ["silu", "quick", "gelu"])
def test_a_fused_chain_has_the_codes_of_the_chain_in_double_precision(name: str, form: str) -> None:
    proto = written_out(name, [1, 256])
    made, got, exact = lowered_and_run(proto, form, "fused", 9.0)
    assert [node.op_type for node in made.graph.node if node.domain == "com.microsoft"] == [
        "Gelu" if name == "gelu" else "QuickGelu"
    ]
    assert np.array_equal(got, exact)


@pytest.mark.parametrize("name", ["silu", "quick", "gelu"])
def test_a_float_chain_is_fused_to_float_rounding(name: str) -> None:
    proto = written_out(name, [1, 256])
    model = ir.from_proto(proto)
    source = choose_params(-9.0, 9.0, SCHEMAS["asymmetric"], TYPES["uint8"])
    x = dequantize(np.arange(256).astype(np.uint8), source)[None]
    plan = plan_of(model, {"x": source}, "qdq")
    float_ = NodePlan(Kind.FLOAT, "by request", implementation="fused")
    made = ir.to_proto(lower(model, replace(plan, nodes=dict.fromkeys(plan.nodes, float_))).model)
    assert [node.domain for node in made.graph.node] == ["com.microsoft"]
    got = ort.InferenceSession(made.SerializeToString()).run(None, {"x": x})[0]
    # Of float32 with 24 bits: a few roundings of values up to 9.
    assert np.abs(got - in_float64(proto, x)).max() <= 9.0 * 2.0**-21
