"""Weights of 4 and 8 bits in onnxruntime's MatMulNBits and GatherBlockQuantized."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import onnxruntime as ort
import pytest
import qprof_onnx as qprof
from onnx.reference import ReferenceEvaluator
from qprof_onnx.profiles.base.errors import PlanError
from qprof_onnx.profiles.records.profile import DataId, Profile
from qprof_onnx.quantizer.lowering.lower import lower
from qprof_onnx.quantizer.model.identity import model_id
from qprof_onnx.quantizer.numerics.affine import dequantize, quantize
from qprof_onnx.quantizer.operators.graph import index
from qprof_onnx.quantizer.plan.plan import Kind, NodePlan, QuantPlan
from qprof_onnx.quantizer.plan.verify import verify_plan
from qprof_onnx.quantizer.targets.loading import load_recipe

from ...reference.contrib_operators import CONTRIB
from ...reference.plan_interpreter import run_plan
from ..networks import plan_alone
from .test_folded_weights import executed, feed_of, model_of

Sizes = dict[str, tuple[int, ...]]
FORMS = ("qdq", "qoperator")
NETS: dict[str, tuple[str, str, Sizes]] = {
    "MatMul": ("float[3, 4, 64] x", "y = MatMul (x, w)", {"w": (64, 48)}),
    "a last block that is not full": ("float[4, 72] x", "y = MatMul (x, w)", {"w": (72, 25)}),
    "fewer inputs than a block": ("float[4, 20] x", "y = MatMul (x, w)", {"w": (20, 60)}),
    "Gemm": ("float[4, 64] x", "y = Gemm (x, w, b)", {"w": (64, 48), "b": (48,)}),
    "Gemm, transposed": ("float[4, 72] x", "y = Gemm <transB = 1> (x, w, b)", {"w": (48, 72), "b": (48,)}),
    "two readers": (
        "float[4, 64] x",
        "a = MatMul (x, w) b = Relu (x) c = MatMul (b, w) y = Mul (a, c)",
        {"w": (64, 48)},
    ),
    "embedding table": (
        "float[4] x",
        "c = Constant <value_float = 99.0> () s = Mul (x, c) n = Cast <to = 7> (s) "
        "e = Gather (t, n) y = MatMul (e, w)",
        {"t": (512, 40), "w": (40, 48)},
    ),
}
TYPES = [
    {"weight_type": "int8"},
    {"weight_type": "int8", "block_size": 32},
    {"weight_type": "int4"},
    {"weight_type": "int4", "weight_schema": "symmetric", "block_size": 16},
    {"weight_type": "uint4", "block_size": 128},
    {"weight_type": "uint8", "weight_schema": "asymmetric", "granularity": "per-tensor"},
]


LEAST = {"fit_size": "least"}
"""4 bits in tables and last products too."""


def plan_of(model: ir.Model, products: str = "float", **settings: object) -> QuantPlan:
    """Return the plan of a model; `products` is what the target multiplies 4-bit weights with."""
    identity = model_id(model, "net.onnx")
    runtime = {"weight_only_activations": products}
    recipe = load_recipe(None, {"mode": "weight-only", **LEAST, **settings}, runtime)
    plan = plan_alone(model, Profile(identity, DataId(), {}), recipe)
    verify_plan(plan, index(model), identity)
    return plan


@pytest.mark.parametrize("settings", TYPES, ids=lambda settings: "-".join(map(str, settings.values())))
@pytest.mark.parametrize("case", NETS)
def test_packed_weights_compute_what_the_plan_means(case: str, settings: dict[str, object]) -> None:
    model = model_of(*NETS[case])
    rounding = str(settings["weight_type"]).endswith("8")  # of activations: with 8 bits there is no other way
    plan = plan_of(model, "int8" if rounding else "float", **settings)
    used = {e.implementation for e in plan.nodes.values() if e.kind is Kind.WEIGHT_ONLY}
    assert used <= {"runtime", "integer"} if rounding else used <= {"runtime-float", "runtime"}
    written = ir.to_proto(lower(model, plan).model)
    expected = run_plan(model, plan, feed_of(model))["y"].values
    (ours,) = ReferenceEvaluator(written, new_ops=CONTRIB).run(None, feed_of(model))
    (found,) = ort.InferenceSession(written.SerializeToString()).run(None, feed_of(model))
    largest = float(np.abs(expected).max())
    # 2e-6 of the largest value: float32 sums in another order. 2 %: activations are rounded to 8 bits.
    np.testing.assert_allclose(ours, expected, rtol=0, atol=2e-6 * largest)
    np.testing.assert_allclose(found, expected, rtol=0, atol=(2e-2 if rounding else 2e-6) * largest)


@pytest.mark.parametrize("form", FORMS)
def test_packed_weights_leave_the_opset_and_are_executed_as_written(form: str, tmp_path: Path) -> None:
    model = model_of(*NETS["embedding table"])
    lowered = lower(model, plan_of(model, weight_type="int4", form=form)).model
    assert lowered.opset_imports[""] == model.opset_imports[""]
    found = executed(ir.to_proto(lowered), tmp_path)
    assert sorted(found) == ["Cast", "GatherBlockQuantized", "MatMulNBits", "Mul"]


def test_a_constant_that_two_products_read_is_written_once() -> None:
    model = model_of(*NETS["two readers"])
    lowered = lower(model, plan_of(model, weight_type="int4")).model
    packed = [name for name in lowered.graph.initializers if name.endswith("_packed")]
    assert packed == ["w_packed"]


@pytest.mark.parametrize("form", ["integer", "primitives", "regions"])
def test_portable_forms_have_conversions_in_blocks_instead(form: str) -> None:
    model = model_of(*NETS["MatMul"])
    plan = plan_of(model, weight_type="int4", form=form)
    assert plan.nodes[next(iter(plan.nodes))].implementation == ""
    assert not any(node.domain == "com.microsoft" for node in lower(model, plan).model.graph)


def test_a_plan_that_asks_for_packed_weights_elsewhere_is_refused() -> None:
    model = model_of("float[1, 32, 9, 9] x", "y = Conv (x, w)", {"w": (32, 32, 1, 1)})
    plan = plan_of(model, weight_type="int4")
    name = next(iter(plan.nodes))
    entry = NodePlan(Kind.WEIGHT_ONLY, "", {}, "runtime")
    with pytest.raises(PlanError, match="packed weights are for MatMul and Gemm"):
        lower(model, QuantPlan(plan.model, plan.config, plan.tensors, {name: entry}))


def test_packed_bytes_are_those_of_the_documentation() -> None:
    model = model_of("float[1, 16] x", "y = MatMul (x, w)", {"w": (16, 64)})
    plan = plan_of(model, weight_type="int4", block_size=16, weight_schema="symmetric")
    (node,) = lower(model, plan).model.graph
    array = model.graph.initializers["w"].const_value
    assert array is not None
    scale = plan.tensors["w"].scale
    values = np.clip(np.rint(array.numpy()[:2, 0] / scale[0]), -8, 7).astype(int) + 8
    packed = node.inputs[1]
    assert packed is not None
    assert packed.const_value is not None
    assert packed.const_value.numpy()[0, 0, 0] == values[0] + 16 * values[1]
    assert [onnx.helper.get_attribute_value(ir.to_proto(a)) for a in node.attributes.values()] == [
        16,
        64,
        16,
        4,
        0,
    ]


@pytest.mark.parametrize("body", ["y = MatMul (x, w)", "a = MatMul (x, w) y = Add (a, b)"])
@pytest.mark.parametrize("schema", ["symmetric", "asymmetric"])
@pytest.mark.parametrize("shape", [(96, 24), (72, 40)], ids=["full blocks", "last block not full"])
def test_weights_of_two_bits_are_computed_by_onnxruntime(
    body: str, schema: str, shape: tuple[int, int], tmp_path: Path
) -> None:
    array = np.random.default_rng(2).standard_normal(shape).astype(np.float32)
    model = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["": 17]> g (float[M, {shape[0]}] x) => (float[M, {shape[1]}] y) '
        f"{{ {body} }}"
    )
    bias = np.arange(shape[1], dtype=np.float32) * ("b" in body)
    for name, values in {"w": array, "b": bias}.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(values, name))
    onnx.save(model, tmp_path / "m.onnx")
    result = qprof.quantize(
        tmp_path / "m.onnx",
        output=tmp_path / "q.onnx",
        config="weight-only-2",
        target="onnxruntime-x86",
        weight_schema=schema,
    )
    (node,) = onnx.load(tmp_path / "q.onnx").graph.node
    assert {a.name: a.i for a in node.attribute}["bits"] == 2
    params = result.plan.tensors["w"]
    stored = dequantize(quantize(array, params), params)
    rows = np.random.default_rng(3).standard_normal((3, shape[0])).astype(np.float32)
    session = ort.InferenceSession(tmp_path / "q.onnx")
    error = session.run(None, {"x": rows})[0] - bias - rows @ stored
    assert (
        np.square(error).mean() < 1e-3 * np.square(rows @ stored).mean()
    )  # its kernel rounds rows to 8 bits


@pytest.mark.parametrize("level", ["ORT_DISABLE_ALL", "ORT_ENABLE_ALL"])
@pytest.mark.parametrize("bits", [2, 4, 8])
def test_packed_weights_are_read_in_float16_at_every_level_of_optimization(
    bits: int, level: str, tmp_path: Path
) -> None:
    model = model_of("float[4, 128] x", "y = MatMul (x, w)", {"w": (128, 96)})
    path, out = tmp_path / "m.onnx", tmp_path / "q.onnx"
    ir.save(model, path)
    qprof.quantize(
        path, output=out, config=f"weight-only-{bits}", target="onnxruntime-x86", float_type="float16"
    )
    written = onnx.load(out)
    assert "MatMulNBits" in [node.op_type for node in written.graph.node]
    (expected,) = ReferenceEvaluator(written, new_ops=CONTRIB).run(None, feed_of(model))
    options = ort.SessionOptions()
    options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, level)
    (found,) = ort.InferenceSession(str(out), options).run(None, feed_of(model))
    # 0.5 %: sums of float16.
    np.testing.assert_allclose(found, expected, rtol=0, atol=5e-3 * np.abs(expected).max())
