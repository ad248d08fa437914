"""What recurrent operators make of noise."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx.parser
import onnx_ir as ir
import pytest
from onnx import numpy_helper
from qprof_onnx.profiles.records.profile import SampleNoise
from qprof_onnx.profiles.runner.calibrate import calibrate
from qprof_onnx.profiles.samples.values import Sample
from qprof_onnx.quantizer.model.identity import model_id
from qprof_onnx.quantizer.noise.estimator import NoiseEstimator
from qprof_onnx.quantizer.noise.measure import measure_noise
from qprof_onnx.quantizer.noise.propagation import forecast_flow
from qprof_onnx.quantizer.noise.recurrence import Recurrence, recurrence_of
from qprof_onnx.quantizer.operators.graph import index
from qprof_onnx.quantizer.planning.facts import planning_facts
from qprof_onnx.quantizer.planning.noise_budget import make_plan
from qprof_onnx.quantizer.prepare.prepare import PreparedModel, prepare
from qprof_onnx.quantizer.targets.loading import load_recipe

UNITS, STEPS = 16, 12


def proto_of(operator: str, returned: float = 1.0) -> onnx.ModelProto:
    """Return an operator with normal weights: rows of W have power 1, those of R `returned`."""
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[operator]
    text = f"""<ir_version: 8, opset_import: ["": 17]>
    net (float[{STEPS}, 1, {UNITS}] x) => (float[a, b, c, d] y) {{
      y = {operator} <hidden_size = {UNITS}> (x, w, r, b)
    }}"""
    proto, rng = onnx.parser.parse_model(text), np.random.default_rng(5)
    for name, power in (("w", 1.0), ("r", returned)):
        array = rng.standard_normal((1, gates * UNITS, UNITS))
        array *= np.sqrt(power / np.square(array).sum() * gates * UNITS)
        proto.graph.initializer.append(numpy_helper.from_array(array.astype(np.float32), name))
    biases = np.zeros((1, 2 * gates * UNITS), np.float32)
    proto.graph.initializer.append(numpy_helper.from_array(biases, "b"))
    return proto


def recurrence(operator: str = "LSTM", level: object = 1.0, returned: float = 1.0) -> Recurrence:
    model = prepare(ir.serde.deserialize_model(proto_of(operator, returned))).model
    found = recurrence_of(index(model).nodes[0], index(model), read(np.asarray(level)))
    assert found is not None
    return found


def read(levels: np.ndarray) -> tuple[SampleNoise]:
    """Return what a node read in one sample."""
    x = (levels * np.random.default_rng(6).standard_normal((STEPS, 1, UNITS))).astype(np.float32)
    return (SampleNoise("0" * 32, {}, sequences={"x": x}),)


def test_rounding_with_one_step_loses_the_channels_that_a_weight_makes_up_for() -> None:
    levels = np.geomspace(1.0, 1e-4, UNITS)
    model = prepare(ir.serde.deserialize_model(proto_of("LSTM"))).model
    w = model.graph.initializers["w"]
    assert w.const_value is not None
    w.const_value = ir.tensor((w.const_value.numpy() / levels).astype(np.float32), name="w")
    found = recurrence_of(index(model).nodes[0], index(model), read(levels))
    assert found is not None
    step = 2.0 * float(np.abs(found.x).max()) / 255.0
    assert found.of_rounding(step) > 0.05


def test_of_small_levels_noise_is_about_as_much_as_of_the_input() -> None:
    found = recurrence("RNN", level=0.001, returned=0.1)
    # 3 dB: the noise that lasts is one vector that was drawn.
    assert 0.5 < found.per_unit * np.square(found.x).mean() < 2.0
    assert found.of_rounding(1e6) == pytest.approx(1.0, rel=1e-9)


def test_beyond_saturation_the_output_does_not_grow_with_the_input() -> None:
    assert recurrence(level=100.0).signal < 3.0 * recurrence(level=3.0).signal


def test_one_step_of_rounding_costs_more_where_levels_change_from_step_to_step() -> None:
    levels = 10.0 ** np.random.default_rng(8).uniform(-3.0, 2.0, (STEPS, 1, 1))
    spread, even = recurrence(level=levels), recurrence(level=30.0)
    lost = [found.of_rounding(float(np.abs(found.x).max()) / 127.0) for found in (spread, even)]
    assert lost[0] > 5.0 * lost[1]


def test_noise_in_the_state_of_an_rnn_is_that_of_as_much_input() -> None:
    """An RNN adds both: with the weight of the state, noise in the state is noise in the input."""
    found = recurrence("RNN")
    power = 1e-4 * found.signal
    rng = np.random.default_rng(1)
    noise = rng.uniform(-1.0, 1.0, (*found.x.shape[:2], UNITS)) * np.sqrt(3.0 * power)
    weights = {**found.weights, "h": np.zeros((1, 1, UNITS), np.float32)}
    both = np.concatenate([found.x, noise.astype(np.float32)], axis=2)
    joined = np.concatenate([weights["w"], weights["r"]], axis=2)
    (noisy, *_) = found.session.run(None, {**weights, "x": both, "w": joined})
    (exact, *_) = found.session.run(None, {**weights, "x": found.x})
    lost = np.square(noisy - exact).mean() / found.signal
    assert found.of_state(power) == pytest.approx(lost, rel=1e-4)  # sums of float32 in another order


@pytest.mark.parametrize("operator", ["LSTM", "GRU", "RNN"])
def test_noise_of_the_state_accumulates_with_what_returns(operator: str) -> None:
    little, much = (recurrence(operator, returned=power) for power in (0.05, 1.0))
    lost = [found.of_state(1e-4 * found.signal) for found in (little, much)]
    assert 0.0 < lost[0] < lost[1]


def test_the_same_is_estimated_again() -> None:
    first, again = recurrence(), recurrence()
    assert (first.per_unit, first.of_weight("r", 1e-4)) == (again.per_unit, again.of_weight("r", 1e-4))
    assert first.of_weight("w", 1e-4) < 4.1 * first.of_weight("w", 0.25e-4)  # power of noise adds up


def test_sequences_are_those_that_the_node_read_and_where_none_are_known_noise_is_as_the_signal() -> None:
    model = prepare(ir.serde.deserialize_model(proto_of("LSTM"))).model
    x = np.random.default_rng(6).standard_normal((STEPS, 1, UNITS)).astype(np.float32)
    (noise,) = measure_noise(model, ["x", "y"], [("0" * 32, Sample("0", {"x": x}))])
    assert noise.sequences.keys() == {"x"}
    np.testing.assert_array_equal(noise.sequences["x"], x)
    assert recurrence_of(index(model).nodes[0], index(model), ()) is None


def test_the_rounded_state_counts_where_only_the_last_one_is_read() -> None:
    """Both models compute the same; one takes the last state from all of them."""
    found = []
    for read in ("all, last = {} (x, w, r, b)", "all = {} (x, w, r, b)  last = Gather <axis = 0> (all, end)"):
        node = f"LSTM <hidden_size = {UNITS}>"
        text = f"""<ir_version: 8, opset_import: ["": 17]>
        net (float[{STEPS}, 1, {UNITS}] x) => (float[a, b, c] y) {{
          {read.format(node)}  y = MatMul (last, p)
        }}"""
        proto = onnx.parser.parse_model(text)
        proto.graph.initializer.extend(proto_of("LSTM").graph.initializer)
        p = np.random.default_rng(3).standard_normal((UNITS, 4)).astype(np.float32)
        proto.graph.initializer.extend(
            [numpy_helper.from_array(p, "p"), numpy_helper.from_array(np.array(-1), "end")]
        )
        model = prepare(ir.serde.deserialize_model(proto)).model
        rng = np.random.default_rng(6)
        samples = [
            Sample(str(i), {"x": rng.standard_normal((STEPS, 1, UNITS)).astype(np.float32)}) for i in range(8)
        ]
        profile = calibrate(model, samples, model_id(model, "net"))
        known = PreparedModel(model, index(model), profile.model, ())
        measured = measure_noise(model, set(profile), [(f"{at:032}", s) for at, s in enumerate(samples)])
        profile = replace(profile, noise=measured)
        facts = planning_facts(known, profile, load_recipe(None, {"mode": "dynamic"}))
        plan = make_plan(facts)
        gains = facts.noise_gains
        flow = forecast_flow(gains, gains.outputs_with_signal())
        sources = NoiseEstimator(facts.activations, gains).sources(flow, plan)
        (name,) = (n.name for n in facts.graph.nodes if n.op_type == "LSTM")
        shares = [float(s.share[0]) for s in sources if s.node == name and s.is_inner]
        assert len(shares) == 1
        found.append(shares[0])
    assert 0.3 < found[0] / found[1] < 3.0
