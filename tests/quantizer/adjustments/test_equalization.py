"""What is decided about channels, biases and rounding, and what it does to the quantized model."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx_ir as ir
import onnxruntime as ort
import pytest
from qprof_onnx.profiles.records.profile import Profile, TensorProfile
from qprof_onnx.profiles.runner.calibrate import calibrate
from qprof_onnx.profiles.runner.settings import RunSettings
from qprof_onnx.profiles.samples.values import Sample
from qprof_onnx.quantizer.adjustments.equalization import apply_equalization, equalized_profile
from qprof_onnx.quantizer.lowering.lower import lower
from qprof_onnx.quantizer.model.identity import model_id
from qprof_onnx.quantizer.numerics.affine import UINT8, QuantParams, dequantize, quantize
from qprof_onnx.quantizer.numerics.density import channel_density, channel_mse, equalized
from qprof_onnx.quantizer.numerics.quantization_noise import expected_noise
from qprof_onnx.quantizer.operators.graph import index
from qprof_onnx.quantizer.plan.plan import EqualizationScales, Kind
from qprof_onnx.quantizer.plan.store import dumps, loads
from qprof_onnx.quantizer.planning.plan_model import (
    PlannedModel,
    model_facts,
    open_plan,
    plan_from,
)
from qprof_onnx.quantizer.planning.weighted_channels import weighted_channels
from qprof_onnx.quantizer.targets.loading import load_recipe

from ..networks import Network, network

UNEVEN = np.array([1.0, 0.5, 0.1, 0.04, 0.02, 0.02, 0.01, 0.3], np.float32)


def uneven(text: str = "a = Conv(x, w, b) t = Relu(a) y = Conv(t, v)") -> Network:
    """Two convolutions; the channels between them differ a hundredfold, and all matter as much."""
    shapes = {"w": (8, 8, 3, 3), "b": (8,), "v": (8, 8, 3, 3)}
    plain = network(text, {name: shape for name, shape in shapes.items() if name in text})
    model = plain.model.clone()
    for name in ("w", "b"):
        value = model.graph.initializers.get(name)
        if value is not None and value.const_value is not None:
            array = value.const_value.numpy()
            value.const_value = ir.Tensor(array * UNEVEN.reshape(-1, *(1,) * (array.ndim - 1)), name=name)
    last = model.graph.initializers["v"]
    assert last.const_value is not None
    last.const_value = ir.Tensor(last.const_value.numpy() / UNEVEN.reshape(1, -1, 1, 1), name="v")
    identity = model_id(model, "net.onnx")
    rng = np.random.default_rng(3)
    samples = [Sample(str(i), {"x": rng.standard_normal((1, 8, 6, 6)).astype("f")}) for i in range(64)]
    graph = index(model)
    return Network(
        model,
        graph,
        calibrate(model, samples, identity, RunSettings(channels=weighted_channels(graph))),
        identity,
    )


def planned(net: Network, **settings: object) -> PlannedModel:
    recipe = load_recipe(None, {"calibrator": "minmax", **settings})
    return plan_from(model_facts(net.prepared, net.profile, recipe))


def outputs(model: ir.Model, seeds: range) -> np.ndarray:
    session = ort.InferenceSession(ir.to_proto(model).SerializeToString())
    feeds = (np.random.default_rng(s).standard_normal((1, 8, 6, 6)).astype("f") for s in seeds)
    return np.stack([session.run(None, {"x": feed})[0] for feed in feeds])


def noise_db(net: Network, **settings: object) -> float:
    """Return the signal over noise of the quantized model on other data than the profile's."""
    made = planned(net, **settings)
    real = outputs(net.model, range(50, 66))
    error = outputs(lower(made.model, made.plan).model, range(50, 66)) - real
    return float(10 * np.log10(np.square(real).sum() / np.square(error).sum()))


PLAIN = {"equalization": "off", "bias_correction": "off"}


def test_uneven_channels_are_equalized_and_noise_falls() -> None:
    net = uneven()
    plan = planned(net, bias_correction="off").plan
    factors = plan.adjustments.equalization["t"]
    assert not factors.inserted
    assert factors.scales[0] / factors.scales[6] >= 16
    assert noise_db(net, bias_correction="off") > noise_db(net, **PLAIN) + 10.0


def test_even_channels_are_left_alone() -> None:
    net = network("a = Conv(x, w) t = Relu(a) y = Conv(t, v)", {"w": (8, 8, 3, 3), "v": (8, 8, 3, 3)})
    assert not planned(net, bias_correction="off").plan.adjustments


def test_a_mul_is_put_in_where_no_constant_can_divide() -> None:
    net = uneven("a = Conv(x, w, b) t = Elu(a) y = Conv(t, v)")
    made = planned(net, bias_correction="off")
    (name,) = made.plan.adjustments.equalization
    assert made.plan.adjustments.equalization[name].inserted
    assert made.plan.nodes[f"{name}_scaled"].kind is Kind.FLOAT
    assert "added to balance channels" in made.plan.nodes[f"{name}_scaled"].reason
    assert not planned(net, bias_correction="off", equalization="free").plan.adjustments


@pytest.mark.parametrize("function", ["Relu", "Elu"])
def test_the_estimate_is_that_of_the_equalized_model(function: str) -> None:
    net = uneven(f"a = Conv(x, w, b) t = {function}(a) y = Conv(t, v)")
    before, after = (
        planned(net, bias_correction="off", equalization=setting).plan.origin.estimated_sqnr["y"]
        for setting in ("off", "auto")
    )
    assert abs(before - noise_db(net, **PLAIN)) < 3.0
    assert abs(after - noise_db(net, bias_correction="off")) < 3.0
    assert after > before + 1.5


def test_off_means_nothing_is_changed() -> None:
    made = planned(uneven(), **PLAIN)
    assert not made.plan.adjustments
    assert [finding.sentence for finding in made.plan.findings] == ["output 'y': values (no rule applies)"]


def test_a_profile_without_channels_is_told() -> None:
    net = uneven()
    bare = {name: replace(tensor, channels=None) for name, tensor in net.profile.items()}
    old = replace(net, profile=replace(net.profile, tensors=bare))
    plan = planned(old).plan
    assert not plan.adjustments
    assert any("no records of channels" in note for note in map(str, plan.findings))


def test_a_plan_with_adjustments_comes_back_from_its_file() -> None:
    net = uneven()
    plan = planned(net).plan
    assert plan.adjustments.equalization
    assert plan.adjustments.biases
    again = loads(dumps(plan))
    assert again == plan
    opened = open_plan(net.prepared, again)
    first = ir.to_proto(lower(opened.model, opened.plan).model)
    second = ir.to_proto(lower(planned(net).model, plan).model)
    assert first.SerializeToString(deterministic=True) == second.SerializeToString(deterministic=True)


def test_correction_removes_the_mean_error_of_the_outputs() -> None:
    net = uneven()
    errors = {}
    for correction in ("off", "auto"):
        made = planned(net, equalization="off", bias_correction=correction)
        error = outputs(lower(made.model, made.plan).model, range(100, 164)) - outputs(
            net.model, range(100, 164)
        )
        errors[correction] = np.abs(error.mean((0, 1, 3, 4)))
    # What is left of the mean is noise of 64 samples and of the activations' rounding.
    assert errors["auto"].sum() < 0.5 * errors["off"].sum()


@pytest.mark.parametrize("length", [6, 8])
def test_means_along_one_axis_correct_no_node_that_sums_over_another(length: int) -> None:
    weights = {"w": (8, 8, 1), "v": (length, length), "c": (length,)}
    text = "a = Conv(x, w) b = MatMul(x, v) d = Add(b, c) y = Add(a, d)"
    net = network(text, weights, shape=(1, 8, length))
    plan = planned(net, equalization="off").plan
    assert plan.nodes["MatMul_b"].kind is Kind.QUANTIZED
    assert plan.adjustments.biases == {}  # the profile has the means of the channels of the Conv


def test_float_nodes_keep_their_biases() -> None:
    net = uneven()
    made = planned(net, keep_float=["Conv"])
    assert made.plan.adjustments.biases == {}


def channelled(values: np.ndarray) -> TensorProfile:
    """Return the profile of a tensor (elements, channels), made by the profiler."""
    net = network("y = MatMul(x, v)", {"v": (values.shape[1], 2)}, values.shape)
    samples = [Sample("0", {"x": values.astype("f")})]
    profile: Profile = calibrate(net.model, samples, net.identity, RunSettings(channels={"x": -1}))
    return profile["x"]


def mixed() -> np.ndarray:
    """Channels of several shapes and widths."""
    rng = np.random.default_rng(8)
    draws = [
        rng.normal(0, 3, 4000),
        rng.normal(1, 0.1, 4000),
        rng.exponential(0.5, 4000),
        np.maximum(rng.normal(0, 0.2, 4000), 0.0),
        rng.uniform(-0.05, 0.02, 4000),
        np.zeros(4000),
    ]
    return np.stack(draws, 1).astype("f")


def test_the_estimated_histogram_gives_the_noise_of_the_equalized_tensor() -> None:
    values = mixed()[:, :5]
    divisors = np.array([1.0, 0.25, 0.5, 0.125, 1 / 64])
    tensor = channelled(values)
    density = channel_density(tensor)
    assert density is not None
    estimated, real = equalized(tensor, density, divisors), channelled(values / divisors.astype("f"))
    assert (estimated.minimum, estimated.maximum) == (real.minimum, real.maximum)
    for scale, zero_point in ((0.08, 128), (0.05, 100), (0.2, 128)):
        params = QuantParams((float(np.float32(scale)),), (zero_point,), UINT8)
        first, second = (expected_noise(t, params).sqnr_db for t in (estimated, real))
        assert first == pytest.approx(second, abs=1.0)  # the shapes within a channel are not known
        errors = channel_mse(density, divisors, params)
        codes = dequantize(quantize(values / divisors.astype("f"), params), params)
        measured = np.square(codes - values / divisors).mean()
        assert errors.mean() == pytest.approx(measured, rel=0.3)


def test_a_tensor_without_values_has_no_densities() -> None:
    tensor = channelled(mixed())
    assert channel_density(replace(tensor, channels=None)) is None


def test_what_lies_on_the_way_gets_a_range_too() -> None:
    net = uneven()
    factors = {"t": EqualizationScales(1, tuple(float(2.0**-i) for i in range(8)))}
    profile = equalized_profile(net.graph, net.profile, factors)
    model = apply_equalization(net.model, factors)
    rng = np.random.default_rng(3)
    samples = [Sample(str(i), {"x": rng.standard_normal((1, 8, 6, 6)).astype("f")}) for i in range(64)]
    real = calibrate(model, samples, net.identity)
    for name in ("a", "t"):
        scaled = f"{name}_scaled"
        assert profile[scaled].maximum == pytest.approx(real[scaled].maximum, rel=1e-6)


def test_what_lies_on_the_way_keeps_its_shape() -> None:
    text = "a = Conv (x, w) t = Transpose <perm = [0, 2, 3, 1]> (a) b = Relu (t) y = MatMul (b, u)"
    net = network(text, {"w": (16, 8, 3, 3), "u": (16, 4)})
    factors = {"b": EqualizationScales(3, tuple(float(2.0 ** -(i % 4)) for i in range(16)))}
    profile = equalized_profile(net.graph, net.profile, factors)
    assert {name: profile[f"{name}_scaled"].shape for name in "atb"} == {
        name: net.profile[name].shape for name in "atb"
    }


def test_what_is_float_without_adjustments_stays_float() -> None:
    net = uneven("a = Conv(x, w, b) t = Elu(a) y = Conv(t, v)")
    plain, made = planned(net, **PLAIN).plan, planned(net).plan
    assert made.adjustments.equalization
    assert {name: made.nodes[name] for name, e in plain.nodes.items() if e.kind is Kind.FLOAT} == {
        name: e for name, e in plain.nodes.items() if e.kind is Kind.FLOAT
    }
    assert made.config == replace(plain.config, equalization="auto", bias_correction="auto")
