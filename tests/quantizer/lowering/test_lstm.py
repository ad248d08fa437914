"""LSTM, GRU and RNN with quantized weights: which are, why, and what they compute."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from onnx import numpy_helper, parser
from onnx.reference import ReferenceEvaluator
from qprof_onnx.profiles.base.errors import PlanError
from qprof_onnx.profiles.records.profile import DataId, Profile
from qprof_onnx.profiles.runner.calibrate import calibrate
from qprof_onnx.profiles.samples.values import Sample
from qprof_onnx.quantizer.lowering.lower import lower
from qprof_onnx.quantizer.model.identity import model_id
from qprof_onnx.quantizer.numerics.affine import INT8, QuantParams
from qprof_onnx.quantizer.operators.graph import index
from qprof_onnx.quantizer.plan.plan import Kind, NodePlan, QuantPlan
from qprof_onnx.quantizer.plan.reasons import ReasonCode
from qprof_onnx.quantizer.plan.verify import verify_plan
from qprof_onnx.quantizer.prepare.prepare import prepare
from qprof_onnx.quantizer.targets.loading import load_recipe

from ...reference.contrib_operators import CONTRIB
from ...reference.lstm import LstmWeights, run_lstm
from ...reference.plan_interpreter import run_plan
from ..networks import plan_alone

Array = npt.NDArray[np.float32]

STEPS, BATCH, INPUTS, HIDDEN = 9, 3, 64, 48
LENGTHS = np.array([9, 4, 1], np.int32)
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}

# variant -> attributes, inputs behind x, w and r
VARIANTS: dict[str, tuple[str, str]] = {
    "forward": ("", "b"),
    "reverse": ('direction = "reverse", ', "b"),
    "bidirectional": ('direction = "bidirectional", ', "b"),
    "lengths": ('direction = "bidirectional", ', "b, n"),
    "states": ("", "b, , h, c"),
    "no bias": ("", ", , h"),
    "peepholes": ('direction = "bidirectional", ', "b, , h, c, p"),
    "clipped": ("clip = 0.4, input_forget = 1, ", "b"),
    "relu": ('activations = ["Sigmoid", "Tanh", "Relu"], ', "b"),
}


def model_of(variant: str = "forward", op: str = "LSTM", attributes: str = "") -> ir.Model:
    """Return a prepared model of one recurrent node from x to y, the last state and, of LSTM, the cell."""
    given, inputs = VARIANTS[variant]
    inputs = f"x, w, r, {inputs}"
    outputs = "y, s, e" if op == "LSTM" else "y, s"
    typed = ", ".join(f"float[] {name}" for name in outputs.split(", "))
    proto = parser.parse_model(
        f'<ir_version: 8, opset_import: ["": 17]> g (float[{STEPS}, {BATCH}, {INPUTS}] x) => ({typed}) '
        f"{{ {outputs} = {op} <{given}{attributes}hidden_size = {HIDDEN}> ({inputs}) }}"
    )
    rng = np.random.default_rng(3)
    directions, gates = 2 if "bidirectional" in given else 1, GATES[op]
    sizes = {
        "w": (directions, gates * HIDDEN, INPUTS),
        "r": (directions, gates * HIDDEN, HIDDEN),
        "b": (directions, 2 * gates * HIDDEN),
        "h": (directions, BATCH, HIDDEN),
        "c": (directions, BATCH, HIDDEN),
        "p": (directions, 3 * HIDDEN),
    }
    arrays = {name: rng.standard_normal(size).astype(np.float32) * 0.2 for name, size in sizes.items()}
    for name, array in {**arrays, "n": LENGTHS}.items():
        if name in inputs.split(", "):
            proto.graph.initializer.append(numpy_helper.from_array(array, name))
    return prepare(ir.serde.deserialize_model(proto)).model


def sound() -> Mapping[str, Array]:
    x = np.random.default_rng(4).standard_normal((STEPS, BATCH, INPUTS)).astype(np.float32)
    return {"x": x}


def plan_of(
    model: ir.Model, *, profiled: bool = True, target: str | None = None, **settings: object
) -> QuantPlan:
    """Return the plan of a model, verified."""
    identity, graph = model_id(model, "net.onnx"), index(model)
    profile = Profile(identity, DataId(), {})
    if profiled:
        profile = calibrate(model, [Sample("0", sound())], identity)
    plan = plan_alone(model, profile, load_recipe(target, settings))
    verify_plan(plan, graph, identity)
    return plan


def node_of(plan: QuantPlan) -> NodePlan:
    (entry,) = plan.nodes.values()
    return entry


def run(model: ir.Model, data: Mapping[str, Array] | None = None) -> list[Array]:
    proto = ir.to_proto(model)
    onnx.checker.check_model(proto)
    found: list[Array] = session_of(proto).run(None, sound() if data is None else data)
    return found


def session_of(proto: onnx.ModelProto) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1  # several divide the batch, and each makes the scale of its own part
    return ort.InferenceSession(proto.SerializeToString(), options)


@pytest.mark.parametrize("granularity", ["per-channel", "per-tensor"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_onnxruntime_computes_what_the_plan_of_a_dynamic_lstm_means(variant: str, granularity: str) -> None:
    model = model_of(variant)
    plan = plan_of(model, target="onnxruntime-x86", mode="dynamic", profiled=False, granularity=granularity)
    assert node_of(plan).kind is Kind.DYNAMIC
    expected = run_plan(model, plan, sound())
    for name, found in zip("yse", run(lower(model, plan).model), strict=True):
        # 1e-5: onnxruntime's sigmoid and tanh are polynomials, off by some 1e-7, which nine steps add up.
        np.testing.assert_allclose(found, expected[name].values, rtol=0, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_dynamic_lstm_stays_near_float(variant: str) -> None:
    model = model_of(variant)
    quantized = lower(model, plan_of(model, target="onnxruntime-x86")).model
    for exact, found in zip(run(model), run(quantized), strict=True):
        assert 10 * np.log10(np.mean(exact**2) / np.mean((exact - found) ** 2)) > 30.0


@pytest.mark.parametrize("variant", ["forward", "lengths", "states", "clipped", "peepholes"])
def test_the_reference_evaluator_runs_the_operator_too(variant: str) -> None:
    model = model_of(variant)
    lowered = lower(model, plan_of(model, target="onnxruntime-x86")).model
    found = ReferenceEvaluator(ir.to_proto(lowered), new_ops=CONTRIB).run(None, dict(sound()))
    for a, b in zip(found, run(lowered), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-5)  # as above


def test_the_reference_agrees_with_a_float_lstm_where_quantizing_is_exact() -> None:
    """Integer inputs and weights, and no recurrent weights: nothing is rounded."""
    model = model_of()
    x = np.random.default_rng(1).integers(0, 256, (1, BATCH, INPUTS)).astype(np.float32)
    x[0, 0, :2] = 0, 255  # so that the scale is 1
    w = np.random.default_rng(2).integers(-127, 128, (1, INPUTS, 4 * HIDDEN)).astype(np.int8)
    w = w.transpose(0, 2, 1)
    scales = np.full((1, 4 * HIDDEN), 2.0**-14, np.float32)
    r = np.zeros((1, 4 * HIDDEN, HIDDEN), np.int8)
    found = run_lstm(x, LstmWeights(w, scales, r, scales))
    for name, array in (("w", w * 2.0**-14), ("r", r)):
        model.graph.initializers[name].const_value = ir.tensor(array.astype(np.float32), name=name)
    model.graph.initializers["b"].const_value = ir.tensor(np.zeros((1, 8 * HIDDEN), np.float32), name="b")
    proto = ir.to_proto(model)
    proto.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 1
    for a, b in zip(found, ReferenceEvaluator(proto).run(None, {"x": x}), strict=True):
        np.testing.assert_allclose(a, b.reshape(a.shape), rtol=0, atol=1e-6)  # float32 sums


def test_branches_share_the_weights_of_the_graph_around_them() -> None:
    outer = model_of()
    lstm = f"LSTM <hidden_size = {HIDDEN}> (x, w, r, b)"
    proto = parser.parse_model(
        f'<ir_version: 8, opset_import: ["": 17]> g (float[{STEPS}, {BATCH}, {INPUTS}] x, bool c) '
        f"=> (float[] y) {{ y = If (c) <then_branch = t () => (float[] o) {{ o, s = {lstm} }}, "
        f"else_branch = e () => (float[] o) {{ p, s = {lstm} o = Neg (p) }}> }}"
    )
    for name in ("w", "r", "b"):
        value = outer.graph.initializers[name].const_value
        assert value is not None
        proto.graph.initializer.append(numpy_helper.from_array(value.numpy(), name))
    model = prepare(ir.serde.deserialize_model(proto)).model
    dynamic = {"target": "onnxruntime-x86", "mode": "dynamic"}
    plan = plan_of(model, profiled=False, **dynamic)
    assert sorted(entry.kind.value for entry in plan.nodes.values()) == [
        "dynamic",
        "dynamic",
        "float",
        "float",
    ]
    outer_plan = plan_of(outer, profiled=False, **dynamic)
    lowered = lower(model, plan).model
    assert "w" not in lowered.graph.initializers
    session = session_of(ir.to_proto(lowered))
    expected = run_plan(outer, outer_plan, sound())["y"].values
    for taken, sign in ((True, 1), (False, -1)):
        (found,) = session.run(None, {**sound(), "c": np.array(taken)})
        np.testing.assert_allclose(sign * found, expected, rtol=0, atol=1e-5)  # polynomials, as above


# Which, and why


@pytest.mark.parametrize("mode", ["static", "dynamic", "auto"])
def test_an_lstm_is_dynamic_in_every_mode_that_quantizes_activations(mode: str) -> None:
    entry = node_of(plan_of(model_of(), mode=mode))
    assert (entry.kind, entry.implementation) == (Kind.DYNAMIC, "runtime")


def test_a_dynamic_lstm_has_its_figures() -> None:
    reason = node_of(plan_of(model_of())).reason
    assert reason.startswith("weight 1 x 192 x 64 and 1 x 192 x 48 in int8: 4")
    assert "; dynamic parameters of 'x' and 'y': 4" in reason


@pytest.mark.parametrize("form", ["integer", "primitives", "regions"])
def test_forms_for_every_reader_leave_an_lstm_float(form: str) -> None:
    model = model_of()
    plan = plan_of(model, form=form)
    assert node_of(plan).stays_float
    assert node_of(plan).reason == f"form {form} has no operator for a dynamic LSTM; qdq has"
    assert not [n for n in lower(model, plan).model.graph if n.domain]


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"attributes": "layout = 1, "}, "LSTM with layout=1 has no integer form"),
        ({"op": "GRU"}, "onnxruntime-x86 has no kernel of GRU for dynamic quantization"),
        ({"op": "RNN"}, "onnxruntime-x86 has no kernel of RNN for dynamic quantization"),
    ],
)
def test_what_the_runtime_has_no_kernel_for_stays_float(settings: dict[str, str], reason: str) -> None:
    entry = node_of(plan_of(model_of(**settings), mode="dynamic", profiled=False))
    assert (entry.kind, entry.reason) == (Kind.FLOAT, reason)


def test_limits_of_noise_hold_for_an_lstm() -> None:
    assert node_of(plan_of(model_of(), min_tensor_sqnr=60.0)).stays_float
    noisy = node_of(plan_of(model_of(), min_output_sqnr=60.0))
    assert noisy.kind is Kind.FLOAT
    assert "quantization noise would leave" in noisy.reason


def test_an_lstm_whose_input_8_bits_are_too_few_for_stays_float_with_the_figure() -> None:
    model = model_of()
    identity, quiet = model_id(model, "net.onnx"), sound()
    x = quiet["x"] / quiet["x"].std()
    loud = x.copy()
    loud.flat[0] = 300.0  # one value of 27,648, so that a step is as large as the others
    samples = [Sample(str(place), {**quiet, "x": loud if place == 0 else x}) for place in range(16)]
    plan = plan_alone(model, calibrate(model, samples, identity), load_recipe())
    reason = node_of(plan).float_reason
    assert reason.code is ReasonCode.BELOW_SQNR_LIMIT
    assert "'x' to uint8" in node_of(plan).reason


def test_a_small_lstm_is_dynamic_only_where_that_is_asked_for() -> None:
    model = model_of()
    for name in ("w", "r"):  # a quarter of the size
        value = model.graph.initializers[name]
        assert value.const_value is not None
        small = value.const_value.numpy()[:, : 4 * 12, : 64 if name == "w" else 12]
        value.const_value = ir.tensor(small, name=name)
    model.graph.initializers["b"].const_value = ir.tensor(np.zeros((1, 96), np.float32), name="b")
    model.graph.node(0).attributes["hidden_size"] = ir.AttrInt64("hidden_size", 12)
    for value in model.graph.node(0).outputs:
        value.shape = None
    assert node_of(plan_of(model)).reason == "its weights have 3648 elements; below 16384 float is as fast"
    assert node_of(plan_of(model, mode="dynamic")).kind is Kind.DYNAMIC


def test_a_kept_lstm_stays_float() -> None:
    assert node_of(plan_of(model_of(), keep_float=("LSTM",))).kind is Kind.FLOAT


@pytest.mark.parametrize("op", ["LSTM", "GRU", "RNN"])
def test_weights_of_recurrent_nodes_are_stored_quantized(op: str) -> None:
    model = model_of(op=op)
    plan = plan_of(model, mode="weight-only", profiled=False)
    assert node_of(plan).kind is Kind.WEIGHT_ONLY
    stored = [name for name, p in plan.tensors.items() if p.qtype == INT8 and p.axis == 1]
    assert stored == ["w", "r"]
    lowered = lower(model, plan).model
    assert lowered.graph.initializers["w_quantized"].dtype == ir.DataType.INT8
    expected = run_plan(model, plan, sound())
    for name, found in zip("yse", run(lowered), strict=False):
        np.testing.assert_allclose(found, expected[name].values, rtol=0, atol=1e-5)  # polynomials, as above


def test_a_plan_that_asks_for_what_cannot_be_written_is_refused() -> None:
    model = model_of()
    plan = plan_of(model)
    per_input = {**plan.tensors, "w": QuantParams((1.0,) * INPUTS, (0,) * INPUTS, INT8, axis=2)}
    with pytest.raises(PlanError, match="8-bit weights with zero_point 0, one scale or one along axis 1"):
        lower(model, QuantPlan(plan.model, plan.config, per_input, plan.nodes))
    other = model_of(attributes="layout = 1, ")
    with pytest.raises(PlanError, match="only LSTM with layout 0 is dynamic"):
        lower(other, QuantPlan(plan.model, plan.config, plan.tensors, plan.nodes))
