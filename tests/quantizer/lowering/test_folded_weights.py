"""Quantized weights of float nodes that onnxruntime dequantizes once, when it loads the model."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from onnx import numpy_helper, parser
from qprof_onnx.profiles.records.profile import DataId, Profile
from qprof_onnx.quantizer.lowering.lower import lower
from qprof_onnx.quantizer.model.identity import model_id
from qprof_onnx.quantizer.numerics.affine import dequantize, quantize
from qprof_onnx.quantizer.operators.graph import index
from qprof_onnx.quantizer.plan.plan import Kind, QuantPlan
from qprof_onnx.quantizer.plan.verify import verify_plan
from qprof_onnx.quantizer.prepare.prepare import prepare
from qprof_onnx.quantizer.targets.forms import FORMS
from qprof_onnx.quantizer.targets.loading import load_recipe

from ...reference.plan_interpreter import run_plan
from ..networks import plan_alone

Sizes = dict[str, tuple[int, ...]]
IMAGE = "float[1, 16, 9, 9] x"
STEPS = "float[5, 1, 32] x"
NETS: dict[str, tuple[str, str, Sizes]] = {
    "Conv": (IMAGE, "y = Conv <pads = [1, 1, 1, 1]> (x, w)", {"w": (32, 16, 3, 3)}),
    "depthwise Conv": (IMAGE, "y = Conv <group = 16> (x, w)", {"w": (16, 1, 8, 8)}),
    "ConvTranspose": (IMAGE, "y = ConvTranspose <strides = [2, 2]> (x, w)", {"w": (16, 32, 2, 2)}),
    "Gemm": ("float[4, 64] x", "y = Gemm <transB = 1> (x, w)", {"w": (48, 64)}),
    "stack of MatMul": ("float[2, 4, 64] x", "y = MatMul (x, w)", {"w": (2, 64, 48)}),
    "LSTM": (STEPS, "y = LSTM <hidden_size = 16> (x, w, r)", {"w": (1, 64, 32), "r": (1, 64, 16)}),
    "GRU": (STEPS, "y = GRU <hidden_size = 24> (x, w, r)", {"w": (1, 72, 32), "r": (1, 72, 24)}),
    "RNN": (STEPS, "y = RNN <hidden_size = 32> (x, w, r)", {"w": (1, 32, 32), "r": (1, 32, 32)}),
    "GRU, all inputs": (
        STEPS,
        """d = Constant <value_ints = [5]> () n = Cast <to = 6> (d)
        y = GRU <hidden_size = 24, direction = "bidirectional", linear_before_reset = 1, clip = 2.5,
                 activations = ["HardSigmoid", "Tanh", "Sigmoid", "Affine"], activation_alpha = [0.3, 0.9],
                 activation_beta = [0.4, 0.1]> (x, w, r, b, n, h)""",
        {"w": (2, 72, 32), "r": (2, 72, 24), "b": (2, 144), "h": (2, 1, 24)},
    ),
    "RNN, all inputs": (
        STEPS,
        """d = Constant <value_ints = [4]> () n = Cast <to = 6> (d)
        y = RNN <hidden_size = 40, direction = "reverse", activations = ["Relu"], clip = 1.5>
            (x, w, r, b, n, h)""",
        {"w": (1, 40, 32), "r": (1, 40, 40), "b": (1, 80), "h": (1, 1, 40)},
    ),
    "LSTM, all inputs": (
        STEPS,
        """d = Constant <value_ints = [3]> () n = Cast <to = 6> (d)
        y = LSTM <hidden_size = 24, direction = "bidirectional", input_forget = 1>
            (x, w, r, b, n, h, c, p)""",
        {
            **{"w": (2, 96, 32), "r": (2, 96, 24), "b": (2, 192)},
            **{"h": (2, 1, 24), "c": (2, 1, 24), "p": (2, 72)},
        },
    ),
    "two readers": (
        "float[4, 64] x",
        "a = MatMul (x, w) b = Relu (x) c = MatMul (b, w) y = Mul (a, c)",
        {"w": (64, 48)},
    ),
    "branches": (
        "bool p, float[4, 64] x",
        "y = If (p) <then_branch = f () => (float[4, 48] t) { t = MatMul (x, w) }, "
        "else_branch = g () => (float[4, 48] e) { r = Relu (x) e = MatMul (r, w) }>",
        {"w": (64, 48)},
    ),
    "Loop": (
        "float[4, 64] x, int64 n, bool p",
        "y = Loop (n, p, x) <body = f (int64 i, bool k, float[4, 64] v) => (bool l, float[4, 64] u) "
        "{ l = Identity (k) u = MatMul (v, w) }>",
        {"w": (64, 64)},
    ),
}


def model_of(inputs: str, text: str, sizes: Sizes, opset: int = 17) -> ir.Model:
    """Return a prepared model from x to y, with seeded weights."""
    proto = parser.parse_model(
        f'<ir_version: 10, opset_import: ["": {opset}]> g ({inputs}) => (float[] y) {{ {text} }}'
    )
    rng = np.random.default_rng(5)
    for name, size in sizes.items():
        array = rng.standard_normal(size) / np.sqrt(np.prod(size[1:]))
        proto.graph.initializer.append(numpy_helper.from_array(array.astype(np.float32), name))
    return prepare(ir.serde.deserialize_model(proto)).model


def plan_of(model: ir.Model, products: str = "float", **settings: object) -> QuantPlan:
    """Return the plan with float activations: onnxruntime's own operator would round them."""
    identity = model_id(model, "net.onnx")
    recipe = load_recipe(None, {"mode": "weight-only", **settings}, {"weight_only_activations": products})
    plan = plan_alone(model, Profile(identity, DataId(), {}), recipe)
    verify_plan(plan, index(model), identity)
    return plan


def feed_of(model: ir.Model) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    feed: dict[str, np.ndarray] = {}
    for value in model.graph.inputs:
        assert value.shape is not None
        made = rng.standard_normal(value.shape.numpy()).astype(np.float32)
        kinds = {ir.DataType.BOOL: np.array(True), ir.DataType.INT64: np.array(3)}
        feed[str(value.name)] = kinds.get(value.dtype, made) if value.dtype is not None else made
    return feed


def rounded(model: ir.Model, plan: QuantPlan) -> ir.Model:
    """Return the float model with the weights that the quantized ones stand for."""
    work = model.clone()
    for name, params in plan.tensors.items():
        value = work.graph.initializers[name]
        assert value.const_value is not None
        array = dequantize(quantize(value.const_value.numpy(), params), params)
        value.const_value = ir.Tensor(array, name=name)
    return work


def run(model: ir.Model) -> np.ndarray:
    session = ort.InferenceSession(ir.to_proto(model).SerializeToString())
    (found,) = session.run(["y"], feed_of(model))
    return np.asarray(found)


def executed(model: onnx.ModelProto, folder: Path) -> list[str]:
    """Return the operators that onnxruntime runs, those of subgraphs too."""
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.optimized_model_filepath = str(folder / "optimized.onnx")
    ort.InferenceSession(model.SerializeToString(), options)
    return [node.op_type for node in nodes_of(onnx.load(folder / "optimized.onnx").graph)]


def nodes_of(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            yield from nodes_of(attribute.g)


def weighted(plan: QuantPlan) -> set[str]:
    return {e.implementation for e in plan.nodes.values() if e.kind is Kind.WEIGHT_ONLY}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("case", NETS)
def test_folded_weights_leave_the_float_graph_to_be_run_with_rounded_weights(
    case: str, form: str, tmp_path: Path
) -> None:
    model = model_of(*NETS[case])
    plan = plan_of(model, form=form)
    assert weighted(plan) == {"folded"}
    written = lower(model, plan).model
    assert sorted(executed(ir.to_proto(written), tmp_path)) == sorted(executed(ir.to_proto(model), tmp_path))
    expected = run(rounded(model, plan))
    np.testing.assert_array_equal(run(written), expected)
    # The interpreter runs subgraphs as they are, and recurrent nodes by onnx's reference, which leaves out
    # lengths, directions and activations: there the float model with rounded weights is the only oracle.
    if case not in ("branches", "Loop") and not case.endswith("all inputs"):
        values = run_plan(model, plan, feed_of(model))["y"].values
        # 2e-6 of the largest value: float32 sums in another order.
        np.testing.assert_allclose(expected, values, rtol=0, atol=2e-6 * float(np.abs(values).max()))


@pytest.mark.parametrize(
    "settings",
    [
        {"block_size": 16},
        {"block_size": 32},
        {"weight_type": "uint8", "weight_schema": "asymmetric", "granularity": "per-tensor"},
        {"weight_schema": "symmetric-power2"},
    ],
)
@pytest.mark.parametrize("form", FORMS)
def test_any_type_and_block_is_folded(settings: dict[str, object], form: str, tmp_path: Path) -> None:
    model = model_of("float[1, 64, 2, 2] x", "y = Conv (x, w)", {"w": (48, 64, 1, 1)})
    plan = plan_of(model, form=form, **settings)
    assert weighted(plan) == {"folded"}
    written = ir.to_proto(lower(model, plan).model)
    onnx.checker.check_model(written, full_check=True)
    assert sorted(executed(written, tmp_path)) == sorted(executed(ir.to_proto(model), tmp_path))
    np.testing.assert_array_equal(run(ir.from_proto(written)), run(rounded(model, plan)))


@pytest.mark.parametrize(
    ("text", "implementation"),
    [
        ("y = MatMul (x, w)", "runtime"),
        ("y = Gemm (x, w, b)", "runtime"),
        ("y = Gemm <alpha = 0.5> (x, w, b)", "folded"),
        ("y = Gemm <beta = 2.0> (x, w, b)", "folded"),
        ("y = Gemm (x, w, c)", "folded"),
    ],
)
def test_a_weight_that_a_kernel_reads_is_not_folded(text: str, implementation: str, tmp_path: Path) -> None:
    model = model_of("float[4, 64] x", text, {"w": (64, 48), "b": (48,), "c": (4, 48)})
    plan = plan_of(model, products="int8")
    assert weighted(plan) == {implementation}
    found = executed(ir.to_proto(lower(model, plan).model), tmp_path)
    assert ("MatMulNBits" in found) == (implementation == "runtime")
    assert "DequantizeLinear" not in found


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("weight_type", ["int4", "uint4"])
def test_a_target_may_take_convolutions_in_four_bits(weight_type: str, form: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(
        "target: mine\nbase: onnxruntime-x86\nruntime: {weight_only: {Conv: [int8, int4, uint4]}}\n"
    )
    model = model_of(IMAGE, "y = Conv <pads = [1, 1, 1, 1]> (x, w)", {"w": (32, 16, 3, 3)})
    identity = model_id(model, "net.onnx")
    recipe = load_recipe(path, {"mode": "weight-only", "weight_type": weight_type, "form": form})
    plan = plan_alone(model, Profile(identity, DataId(), {}), recipe)
    verify_plan(plan, index(model), identity)
    assert (plan.tensors["w"].axis, plan.tensors["w"].block_size) == (1, 16)  # of each tap
    np.testing.assert_array_equal(run(lower(model, plan).model), run(rounded(model, plan)))
