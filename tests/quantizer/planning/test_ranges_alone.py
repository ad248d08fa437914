"""Plans from a profile of another tool that has the range of each tensor, and nothing else."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import pytest
from qprof_onnx.profiles.records.histogram import UNKNOWN_BINS
from qprof_onnx.profiles.records.profile import DataId, ModelId, Profile, TensorProfile
from qprof_onnx.profiles.runner.calibrate import calibrate
from qprof_onnx.profiles.samples.values import Sample
from qprof_onnx.quantizer.model.identity import model_id
from qprof_onnx.quantizer.noise.assumed_values import ASSUMED_RMS, with_assumed_values
from qprof_onnx.quantizer.numerics.density import signal_power
from qprof_onnx.quantizer.operators.graph import index
from qprof_onnx.quantizer.plan.plan import Kind
from qprof_onnx.quantizer.planning.plan_model import PlannedModel, model_facts, plan_from
from qprof_onnx.quantizer.prepare.prepare import PreparedModel, prepare
from qprof_onnx.quantizer.targets.cost_table import costs_of
from qprof_onnx.quantizer.targets.loading import load_recipe

RNG = np.random.default_rng(5)


def with_ranges_alone(profile: Profile) -> Profile:
    """Return the profile as another tool would have recorded it."""
    tensors = {
        name: replace(tensor, histogram=UNKNOWN_BINS, channels=None)
        for name, tensor in profile.tensors.items()
    }
    return replace(profile, tensors=tensors, noise=(), check_samples=())


def planned(text: str, weights: dict[str, np.ndarray], feed: np.ndarray, **settings: object) -> PlannedModel:
    proto = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {text}')
    proto.graph.initializer.extend(onnx.numpy_helper.from_array(a, n) for n, a in weights.items())
    model = prepare(ir.serde.deserialize_model(proto)).model
    profile = calibrate(model, [Sample("0", {"x": feed})], model_id(model, "net.onnx"))
    recipe = load_recipe(None, settings)
    prepared = PreparedModel(model, index(model), profile.model, ())
    return plan_from(model_facts(prepared, with_ranges_alone(profile), recipe))


SQUARE = RNG.standard_normal((64, 64)).astype(np.float32) / 8.0
LOGARITHM = "net (float[N, 64] x) => (float[N, 64] y) { m = MatMul (x, w)  s = Mul (m, m)  y = Log (s) }"
PRODUCTS = "net (float[N, 64] x) => (float[N, 64] y) { m = MatMul (x, w)  r = Relu (m)  y = MatMul (r, w) }"


@pytest.mark.parametrize(("text", "is_quantized"), [(LOGARITHM, False), (PRODUCTS, True)])
def test_a_node_with_too_much_noise_stays_float(text: str, is_quantized: bool) -> None:
    feed = RNG.standard_normal((500, 64)).astype(np.float32)
    plan = planned(text, {"w": SQUARE}, feed, target="onnx").plan
    assert any(entry.kind is Kind.QUANTIZED for entry in plan.nodes.values()) == is_quantized


def test_no_figure_is_told_of_values_that_are_assumed() -> None:
    feed = RNG.standard_normal((500, 64)).astype(np.float32)
    assert planned(PRODUCTS, {"w": SQUARE}, feed, target="onnx").plan.origin.estimated_sqnr == {}


def test_ranges_are_taken_as_they_are() -> None:
    feed = RNG.standard_normal((500, 64)).astype(np.float32)
    plan = planned(PRODUCTS, {"w": SQUARE}, feed, target="onnx").plan
    assert plan.config.calibrator == "minmax"
    (scale,) = plan.tensors["x"].scale
    assert scale == pytest.approx((feed.max() - feed.min()) / 255.0, rel=1e-6)


@pytest.mark.parametrize("size", ["H", "16"])
def test_time_is_predicted_only_where_sizes_are_known(size: str) -> None:
    shapes = f"float[N, 3, {size}, 16] x) => (float[N, 8, {size}, 16] y"
    text = f"net ({shapes}) {{ y = Conv <pads = [1, 1, 1, 1]> (x, w) }}"
    feed = RNG.standard_normal((4, 3, 16, 16)).astype(np.float32)
    weight = RNG.standard_normal((8, 3, 3, 3)).astype(np.float32)
    facts = planned(text, {"w": weight}, feed, target="onnxruntime-x86").source_facts
    recipe = replace(facts.recipe, measured=costs_of(facts.target.costs))
    facts = replace(facts, recipe=recipe)
    assert (facts.cost_model is None, facts.file_costs is None) == ((size == "H"),) * 2


def test_a_recurrent_node_is_dynamic_only_where_that_was_asked_for() -> None:
    text = """net (float[L, 1, 64] x) => (float[L, 1, 1, 128] y) {
        y = LSTM <hidden_size: int = 128> (x, w, r) }"""
    shapes = {"w": (1, 512, 64), "r": (1, 512, 128)}
    weights = {name: RNG.standard_normal(s).astype(np.float32) / 8.0 for name, s in shapes.items()}
    feed = RNG.standard_normal((20, 1, 64)).astype(np.float32)
    kinds = {
        mode: {entry.kind for entry in planned(text, weights, feed, mode=mode).plan.nodes.values()}
        for mode in ("static", "dynamic")
    }
    assert kinds["dynamic"] == {Kind.DYNAMIC}
    assert Kind.DYNAMIC not in kinds["static"]


@pytest.mark.parametrize(("low", "high"), [(0.0, 6.0), (-3.0, 1.0), (2.0, 5.0), (-5.0, -1.0)])
def test_assumed_values_are_in_the_range_and_weaker_than_it(low: float, high: float) -> None:
    tensor = TensorProfile("float", (1,), low, high, 1, 0, 0, 0, UNKNOWN_BINS)
    profile = Profile(ModelId("a", "b", 17), DataId(), {"t": tensor}, tool="another")
    assumed = with_assumed_values(profile)["t"]
    edges = assumed.histogram.edges()
    assert (edges[0], edges[-1], assumed.minimum, assumed.maximum) == (low, high, low, high)
    nearest = min(max(low, 0.0), high)
    spread = signal_power(assumed) ** 0.5 - abs(nearest)
    assert 0.0 < spread < 1.5 * ASSUMED_RMS * max(high - nearest, nearest - low)
