"""What recurrent operators make of noise."""

from __future__ import annotations

import numpy as np
import onnx.parser
import onnx_ir as ir
import pytest
from onnx import numpy_helper
from qprof_onnx.profiles.records.profile import Profile
from qprof_onnx.profiles.runner.calibrate import calibrate
from qprof_onnx.profiles.runner.settings import RunSettings
from qprof_onnx.profiles.samples.values import Sample
from qprof_onnx.quantizer.model.identity import model_id
from qprof_onnx.quantizer.noise.estimator import NoiseEstimator
from qprof_onnx.quantizer.noise.propagation import forecast_flow, measured_gains
from qprof_onnx.quantizer.noise.recurrence import (
    Recurrence,
    drawn_sequences,
    feature_densities,
    recurrence_of,
)
from qprof_onnx.quantizer.operators.graph import index
from qprof_onnx.quantizer.planning.facts import planning_facts
from qprof_onnx.quantizer.planning.noise_budget import make_plan
from qprof_onnx.quantizer.planning.weighted_channels import weighted_channels
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
    rng = np.random.default_rng(6)
    x = (np.asarray(level) * rng.standard_normal((STEPS, 1, UNITS))).astype(np.float32)
    profile = calibrate(model, [Sample("0", {"x": x})], model_id(model, "net"))
    graph = index(model)
    (node,) = (node for node in graph.nodes if node.op_type == operator)
    found = recurrence_of(node, graph, profile)
    assert found is not None
    return found


def test_drawn_sequences_are_as_spread_as_what_was_profiled() -> None:
    levels = 10.0 ** np.random.default_rng(8).uniform(-2.0, 2.0, (STEPS, 1, 1))
    spread, even = recurrence(level=levels), recurrence(level=3.0)
    for found, low, high in ((spread, 0.9, 1.6), (even, 0.3, 0.7)):
        decades = np.log10(np.abs(found.x[found.x != 0.0]))
        assert low < decades.std() < high  # 1.15 and 0.48 over all levels
    assert even.x.std() == pytest.approx(3.0, rel=0.15)  # 192 values are a sample


def test_signs_and_zeros_are_drawn_as_often_as_they_were_profiled() -> None:
    model = prepare(ir.serde.deserialize_model(proto_of("LSTM"))).model
    x = np.maximum(np.random.default_rng(9).standard_normal((STEPS, 1, UNITS)), 0.0).astype(np.float32)
    profile = calibrate(model, [Sample("0", {"x": x})], model_id(model, "net"))
    drawn = drawn_sequences(feature_densities(profile["x"], 32), (64, 4, 32))
    assert drawn.min() == 0.0
    assert np.mean(drawn == 0.0) == pytest.approx(np.mean(x == 0.0), abs=0.02)


def spread_channels(levels: object) -> tuple[Profile, np.ndarray]:
    """Return the profile of an input whose channels have these levels, with their records, and its values."""
    model = prepare(ir.serde.deserialize_model(proto_of("LSTM"))).model
    rng = np.random.default_rng(10)
    samples = [np.abs(rng.standard_normal((STEPS, 1, UNITS))) * np.asarray(levels) for _ in range(20)]
    run = RunSettings(channels=weighted_channels(index(model)))
    feeds = [Sample(str(i), {"x": x.astype(np.float32)}) for i, x in enumerate(samples)]
    return calibrate(model, feeds, model_id(model, "net"), run), np.concatenate(samples)


def test_each_feature_is_drawn_as_its_channel_is_spread() -> None:
    levels = np.geomspace(1.0, 1e-6, UNITS)
    profile, x = spread_channels(levels)
    drawn = drawn_sequences(feature_densities(profile["x"], UNITS), (64, 4, UNITS))
    assert drawn.min() >= 0.0
    # Power to 20 %: quantiles leave out the ends of a bin, and of 256 values one in 240 is beyond all others.
    np.testing.assert_allclose(np.square(drawn).mean((0, 1)), np.square(x).mean((0, 1)), rtol=0.2)


def test_rounding_with_one_step_loses_the_channels_that_a_weight_makes_up_for() -> None:
    levels = np.geomspace(1.0, 1e-4, UNITS)
    model = prepare(ir.serde.deserialize_model(proto_of("LSTM"))).model
    w = model.graph.initializers["w"]
    assert w.const_value is not None
    w.const_value = ir.tensor((w.const_value.numpy() / levels).astype(np.float32), name="w")
    profile, x = spread_channels(levels)
    found = recurrence_of(index(model).nodes[0], index(model), profile)
    assert found is not None
    step = float(x.max()) / 255.0
    assert found.of_rounding(step) > 0.05


def test_of_small_levels_noise_is_about_as_much_as_of_the_input() -> None:
    found = recurrence("RNN", level=0.001, returned=0.1)
    assert found.of_error(np.float32(0.1) * found.x) == pytest.approx(
        0.01, rel=1e-3
    )  # tanh is not quite linear
    assert found.of_rounding(1e6) == pytest.approx(found.of_error(-found.x), rel=1e-9)


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
    w, r = found.feeds["w"], found.feeds["r"]
    both = np.concatenate([found.x, noise.astype(np.float32)], axis=2)
    (noisy, *_) = found.session.run(None, {**found.feeds, "x": both, "w": np.concatenate([w, r], axis=2)})
    (exact, *_) = found.session.run(None, dict(found.feeds))
    lost = np.square(noisy - exact).mean() / found.signal
    assert found.of_state(power) == pytest.approx(lost, rel=1e-4)  # sums of float32 in another order


@pytest.mark.parametrize("operator", ["LSTM", "GRU", "RNN"])
def test_noise_of_the_state_accumulates_with_what_returns(operator: str) -> None:
    little, much = (recurrence(operator, returned=power) for power in (0.05, 1.0))
    lost = [found.of_state(1e-4 * found.signal) for found in (little, much)]
    assert 0.0 < lost[0] < lost[1]


def test_the_same_is_estimated_again() -> None:
    first, again = recurrence(), recurrence()
    assert (first.per_unit, first.of_state_weight(1e-4)) == (again.per_unit, again.of_state_weight(1e-4))
    assert first.of_input_weight(1e-4) < 4.1 * first.of_input_weight(0.25e-4)  # power of noise adds up


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
        facts = planning_facts(known, profile, load_recipe(None, {"mode": "dynamic"}))
        plan = make_plan(facts)
        gains = measured_gains(facts.graph, facts.profile, 17, ())
        flow = forecast_flow(gains, gains.outputs_with_signal())
        sources = NoiseEstimator(facts.activations, gains).sources(flow, plan)
        (name,) = (n.name for n in facts.graph.nodes if n.op_type == "LSTM")
        shares = [float(s.share[0]) for s in sources if s.node == name and s.is_inner]
        assert len(shares) == 1
        found.append(shares[0])
    assert 0.3 < found[0] / found[1] < 3.0
