"""An embedding table and the output layer with the same weights are stored once."""

from __future__ import annotations

from collections import Counter

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from onnx import numpy_helper, parser
from qprof_onnx.profiles.records.profile import DataId, Profile
from qprof_onnx.quantizer.lowering.lower import lower
from qprof_onnx.quantizer.model.identity import model_id
from qprof_onnx.quantizer.operators.graph import index
from qprof_onnx.quantizer.plan.plan import QuantPlan
from qprof_onnx.quantizer.plugins.exchange.quantized_models import source_of_model
from qprof_onnx.quantizer.plugins.exchange.source_plan import plan_of_source
from qprof_onnx.quantizer.prepare.prepare import prepare
from qprof_onnx.quantizer.targets.loading import load_recipe
from qprof_onnx.quantizer.targets.target import Recipe

from ..networks import plan_alone

WORDS, WIDTH = 600, 256
SETTINGS = [
    {"weight_type": "int4", "fit_size": "least"},
    {"weight_type": "uint4", "form": "qoperator", "block_size": 64, "fit_size": "least"},
    {"weight_type": "int4", "weight_schema": "symmetric", "products": "float", "fit_size": "least"},
    {"weight_type": "int8"},
    {"weight_type": "int8", "products": "float"},
]
"""`products` is what the target multiplies 4-bit weights with."""


def model_of(*, tied: bool = True, width: int = WIDTH) -> ir.Model:
    """Return a model that looks words up, and scores them with the same table, or with another one."""
    proto = parser.parse_model(
        f"""<ir_version: 10, opset_import: ["": 21]> g (int64[2, 5] ids) => (float[2, 5, {WORDS}] y)
        {{ e = Gather (table, ids) h = Tanh (e) t = Transpose <perm = [1, 0]> ({"table" if tied else "other"})
           y = MatMul (h, t) }}"""
    )
    rng = np.random.default_rng(0)
    for name in ("table",) if tied else ("table", "other"):
        array = rng.standard_normal((WORDS, width)).astype(np.float32)
        proto.graph.initializer.append(numpy_helper.from_array(array, name))
    return prepare(ir.from_proto(proto)).model


def plan_of(model: ir.Model, settings: dict[str, object]) -> QuantPlan:
    profile = Profile(model_id(model, "net.onnx"), DataId(), {})
    return plan_alone(model, profile, recipe_of(settings))


def recipe_of(settings: dict[str, object]) -> Recipe:
    asked = {"mode": "weight-only", **settings}
    runtime = {"weight_only_activations": asked.pop("products", "int8")}
    return load_recipe(None, asked, runtime)


def stored(model: ir.Model) -> int:
    """Return the bytes of the integers of a model."""
    tensors = [value.const_value for value in model.graph.initializers.values()]
    return sum(
        t.nbytes for t in tensors if t is not None and t.dtype in (ir.DataType.UINT8, ir.DataType.INT8)
    )


def run(model: ir.Model, *, optimised: bool) -> np.ndarray:
    levels, options = ort.GraphOptimizationLevel, ort.SessionOptions()
    options.graph_optimization_level = levels.ORT_ENABLE_ALL if optimised else levels.ORT_DISABLE_ALL
    proto = ir.to_proto(model)
    onnx.checker.check_model(proto)
    ids = np.array([[0, 7, 599, 7, 31], [1, 2, 3, 4, 5]])
    return np.asarray(ort.InferenceSession(proto.SerializeToString(), options).run(None, {"ids": ids})[0])


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_a_tied_table_is_stored_once_and_nothing_else_changes(
    settings: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = model_of()
    plan = plan_of(model, settings)
    shared = lower(model, plan).model
    monkeypatch.setattr("qprof_onnx.quantizer.lowering.lower.share_tied_tables", lambda *_: None)
    apart = lower(model, plan).model
    whole = settings["weight_type"] == "int8"
    has_points = not whole and settings.get("weight_schema") != "symmetric"
    blocks = WORDS * WIDTH // int(settings.get("block_size", 32))
    assert stored(apart) - stored(shared) == WORDS * WIDTH * (1 if whole else 0.5) + has_points * blocks / 2
    for optimised in (True, False):
        assert np.array_equal(run(shared, optimised=optimised), run(apart, optimised=optimised))


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_a_table_of_other_values_keeps_its_own_bytes(settings: dict[str, object]) -> None:
    model = model_of(tied=False)
    written = lower(model, plan_of(model, settings)).model
    assert not {"Reshape", "Transpose"} & Counter(node.op_type for node in written.graph).keys()
    assert stored(written) >= 2 * WORDS * WIDTH * (1 if settings["weight_type"] == "int8" else 0.5)


@pytest.mark.parametrize("settings", SETTINGS[:4], ids=str)
def test_a_plan_comes_back_from_a_model_with_a_tied_table(settings: dict[str, object]) -> None:
    model = model_of()
    plan = plan_of(model, settings)
    written = lower(model, plan).model
    source = source_of_model(index(model), written.clone(), "own.onnx", "qprof")
    again = plan_of_source(model, source, recipe_of(settings))
    assert {n: e.kind for n, e in again.nodes.items()} == {n: e.kind for n, e in plan.nodes.items()}
    for optimised in (True, False):
        result = lower(model, again).model
        assert np.array_equal(run(written, optimised=optimised), run(result, optimised=optimised))


@pytest.mark.parametrize(("width", "block"), [(192, 64), (576, 64), (96, 32), (640, 128), (48, 16)])
def test_8_bits_are_in_blocks_that_fill_the_width_so_that_the_table_is_stored_once(
    width: int, block: int
) -> None:
    model = model_of(width=width)
    written = lower(model, plan_of(model, {"weight_type": "int8"})).model
    assert stored(written) == WORDS * width
    (product,) = (node for node in written.graph if node.op_type == "MatMulNBits")
    assert product.attributes["block_size"].as_int() == block


BODIES = {
    "Loop": """n = Constant <value_int = 2> () go = Constant <value = bool {{1}}> ()
        last, y = Loop (n, go, ids) <body = step (int64 i, bool k, int64[2, 5] w) =>
            (bool l, int64[2, 5] v, float[2, 5, {words}] o)
            {{ l = Identity (k) v = Identity (w) {head} o = Tanh (p) }}>""",
    "Scan": """y = Scan <num_scan_inputs = 1, body = step (int64[5] w) => (float[5, {words}] o)
        {{ {head} o = Tanh (p) }}> (ids)""",
    "If in a Loop": """n = Constant <value_int = 2> () go = Constant <value = bool {{1}}> ()
        last, y = Loop (n, go, ids) <body = step (int64 i, bool k, int64[2, 5] w) =>
            (bool l, int64[2, 5] v, float[2, 5, {words}] o) {{ l = Identity (k) v = Identity (w)
            z = Constant <value_int = 1> () f = Less (i, z)
            o = If (f) <then_branch = first () => (float[2, 5, {words}] a) {{ {head} a = Tanh (p) }},
                else_branch = later () => (float[2, 5, {words}] b) {{ {other} b = Identity (p2) }}> }}>""",
}
"""Bodies that read a table of the main graph, for its rows and transposed."""
HEAD = "e = Gather (table, w) h = Tanh (e) t = Transpose <perm = [1, 0]> (table) p = MatMul (h, t)"
OTHER = "e2 = Gather (table, w) t2 = Transpose <perm = [1, 0]> (table) p2 = MatMul (e2, t2)"


def model_with_body(name: str) -> onnx.ModelProto:
    nodes = BODIES[name].format(words=WORDS, head=HEAD, other=OTHER)
    proto = parser.parse_model(
        f'<ir_version: 10, opset_import: ["": 21]> g (int64[2, 5] ids) => (float[a, b, c] y) {{ {nodes} }}'
    )
    if name != "Scan":
        del proto.graph.output[0].type.tensor_type.shape.dim[:]
        for size in (2, 2, 5, WORDS):
            proto.graph.output[0].type.tensor_type.shape.dim.add(dim_value=size)
    array = np.random.default_rng(0).standard_normal((WORDS, WIDTH)) / np.sqrt(WIDTH)
    proto.graph.initializer.append(numpy_helper.from_array(array.astype(np.float32), "table"))
    return proto


@pytest.mark.parametrize("body", BODIES)
def test_a_table_that_bodies_read_transposed_is_one_constant_of_the_main_graph(body: str) -> None:
    proto = model_with_body(body)
    model = prepare(ir.from_proto(proto)).model
    assert "Transpose" not in {node.op_type for node in model.graph.all_nodes()}
    large = [v.const_value for v in model.graph.initializers.values()]
    assert [t.shape.numpy() for t in large if t is not None and t.size > WORDS] == [
        (WORDS, WIDTH),
        (WIDTH, WORDS),
    ]
    outputs = [run(each, optimised=False) for each in (model, ir.from_proto(proto))]
    assert np.allclose(*outputs, rtol=0, atol=1e-6)  # onnxruntime sums in another order with a constant


@pytest.mark.parametrize("body", BODIES)
def test_the_output_layer_of_a_body_reads_a_tied_table_as_a_weight(body: str) -> None:
    model = prepare(ir.from_proto(model_with_body(body))).model
    plan = plan_of(model, {"weight_type": "int8"})
    written = lower(model, plan).model
    assert stored(written) >= WORDS * WIDTH
    assert len(ir.to_proto(written).SerializeToString()) < 2.2 * WORDS * WIDTH  # int8, once for each reader
    float_output, output = run(model, optimised=True), run(written, optimised=True)
    assert np.abs(output - float_output).max() < 0.02  # of at most 1: noise of 8 bits, of table and product


def test_a_transposed_table_that_stays_float_is_stored_once() -> None:
    model = prepare(ir.from_proto(model_with_body("Loop"))).model
    everything = tuple(str(node.name) for node in model.graph.all_nodes())
    written = lower(model, plan_of(model, {"keep_float": everything})).model
    assert len(ir.to_proto(written).SerializeToString()) < 1.1 * 4 * WORDS * WIDTH
    assert run(written, optimised=True).tobytes() == run(model, optimised=True).tobytes()
