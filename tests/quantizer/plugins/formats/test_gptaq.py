"""GPTAQ: weights rounded for the inputs that the quantized model has, which a simulation computes."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import onnx_ir as ir
import onnxruntime as ort
import pytest
from hypothesis import given
from hypothesis import strategies as st
from qprof_onnx.profiles.base.errors import ConfigError
from qprof_onnx.profiles.samples.values import Sample
from qprof_onnx.quantizer.adjustments.gptq import gptaq, gptq
from qprof_onnx.quantizer.adjustments.rounded_weights import quantized_weights
from qprof_onnx.quantizer.adjustments.second_moments import moments_of, moments_of_pair
from qprof_onnx.quantizer.lowering.lower import lower
from qprof_onnx.quantizer.numerics.affine import dequantize, quantize
from qprof_onnx.quantizer.plan.store import dumps
from qprof_onnx.quantizer.planning.plan_model import (
    PlannedModel,
    model_facts,
    plan_from,
    rounded_with_samples,
)
from qprof_onnx.quantizer.plugins.formats.gptaq import (
    SegmentRuns,
    float_program,
    simulated_program,
    stages_of,
)
from qprof_onnx.quantizer.targets.loading import load_recipe

from ...adjustments.test_gptq import PLAIN, TWO, correlated, profiled, samples
from ...networks import Network, network

matrices = st.integers(0, 2**32 - 1).map(np.random.default_rng)
INT4 = {"mode": "weight-only", "weight_type": "int4"}


def made(net: Network, **settings: object) -> PlannedModel:
    return plan_from(
        model_facts(net.prepared, net.profile, load_recipe("onnxruntime-x86", {**PLAIN, **settings}))
    )


def rounded(net: Network, rounding: str, count: int = 24, **settings: object) -> PlannedModel:
    return rounded_with_samples(made(net, **settings, rounding=rounding), samples(count))


def layer(rng: np.random.Generator, columns: int = 6) -> tuple[np.ndarray, ...]:
    """Return a weight with steps of 0.5 from -4 to 4, and rows of the float and of the quantized model."""
    weight = rng.uniform(-1, 1, (1, 4, columns))
    x = rng.standard_normal((1, 60, 3)) @ rng.standard_normal((3, columns))
    x += 0.3 * rng.standard_normal(x.shape)
    bounds = (np.full(weight.shape, bound) for bound in (0.5, -4.0, 4.0))
    return (weight, *bounds, x, x + 0.2 * rng.standard_normal(x.shape) - 0.1 * x[:, :, ::-1])


def found_and_cost(rng: np.random.Generator, columns: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return quantized weights, their cost and that of the nearest: what they leave of the target."""
    weight, scale, low, high, x, y = layer(rng, columns)
    second = np.matmul(y.transpose(0, 2, 1), y) / 60
    steps, target = gptaq(weight, scale, low, high, second, cross=np.matmul(x.transpose(0, 2, 1), y) / 60)
    both = (target - 0.5 * found for found in (steps, np.rint(weight / scale)))
    own, nearest = (np.einsum("goc,gcd,god->go", e, second, e) for e in both)
    return steps, own, nearest


@given(matrices)
def test_no_channel_is_worse_than_with_the_nearest_values(rng: np.random.Generator) -> None:
    steps, own, nearest = found_and_cost(rng, 6)
    assert (own <= nearest * (1.0 + 1e-9)).all()  # the same sums in another order
    np.testing.assert_array_equal(steps, np.clip(np.rint(steps), -4, 4))


def test_it_is_near_the_best_of_all_roundings_of_a_tiny_layer() -> None:
    chosen, best, plain = 0.0, 0.0, 0.0
    for seed in range(8):
        weight, scale, low, high, x, y = layer(np.random.default_rng(seed), 4)
        second, cross = (np.matmul(rows.transpose(0, 2, 1), y) / 60 for rows in (y, x))
        _, target = gptaq(weight, scale, low, high, second, cross=cross)
        every = np.array(list(itertools.product(range(-4, 5), repeat=4))) * 0.5
        left = target[0][:, None] - every
        least = np.einsum("onc,cd,ond->on", left, second[0], left).min(1)
        _, own, nearest = found_and_cost(np.random.default_rng(seed), 4)
        assert (least <= own[0] + 1e-9).all()
        chosen, best, plain = chosen + own.sum(), best + least.sum(), plain + nearest.sum()
    assert chosen - best < 0.2 * (plain - best)


def test_a_single_column_has_the_best_value_of_all() -> None:
    weight, scale, low, high, x, y = layer(np.random.default_rng(3), 1)
    second, cross = (np.matmul(rows.transpose(0, 2, 1), y) / 60 for rows in (y, x))
    steps, target = gptaq(weight, scale, low, high, second, cross=cross)
    np.testing.assert_array_equal(steps, np.clip(np.rint(target / scale), low, high))


def test_without_earlier_errors_the_target_is_the_weight() -> None:
    weight, scale, low, high, x, _ = layer(np.random.default_rng(1))
    second = np.matmul(x.transpose(0, 2, 1), x) / 60
    steps, target = gptaq(weight, scale, low, high, second, cross=second)
    np.testing.assert_allclose(target, weight, atol=1e-12)
    exact = gptq(weight, scale, low, high, second, damping=0.1)
    np.testing.assert_array_equal(steps, exact)


def test_columns_that_are_always_0_keep_their_nearest_values() -> None:
    weight, scale, low, high, _, _ = layer(np.random.default_rng(2))
    nothing = np.zeros((1, 6, 6))
    steps, target = gptaq(weight, scale, low, high, nothing, cross=nothing)
    np.testing.assert_array_equal(target, weight)
    np.testing.assert_array_equal(steps, np.rint(weight / scale))


def test_moments_of_pairs_are_those_of_both_and_can_be_centred() -> None:
    rng = np.random.default_rng(4)
    x, y = rng.standard_normal((2, 1, 64, 5)) + 3.0
    halves = [moments_of_pair(x[:, part], y[:, part], "rows") for part in (slice(32), slice(32, 64))]
    both = halves[0].added(halves[1])
    ((own, cross),) = both.means()
    np.testing.assert_array_equal(own, moments_of(y[:, :32], "rows").added(halves[1].own).means()[0])
    # The grid is 2^-14 of the largest value, which is about 6.
    np.testing.assert_allclose(cross[0], x[0].T @ y[0] / 64, atol=5e-3)
    ((_, centred),) = both.means(centred=True)
    np.testing.assert_allclose(centred[0], (x - x.mean(1))[0].T @ y[0] / 64, atol=5e-3)


CONV = "Conv<pads = [1, 1, 1, 1]>"
DEEP = f"a = {CONV}(x, w) b = Relu(a) c = {CONV}(b, v) d = Relu(c) y = {CONV}(d, u)"
WEIGHTS = dict.fromkeys("wvut", (8, 8, 3, 3))


MATRICES = "a = MatMul(x, w) b = Relu(a) c = MatMul(b, v) d = Relu(c) y = MatMul(d, u)"


def vectors(first: int, count: int = 12) -> list[Sample]:
    """Return samples of 64 vectors that are mixtures of eight sources, with some noise."""
    mixing = np.random.default_rng(5).standard_normal((8, 64))
    found = []
    for seed in range(first, first + count):
        rng = np.random.default_rng(seed)
        x = rng.standard_normal((64, 8)) @ mixing + 0.3 * rng.standard_normal((64, 64))
        found.append(Sample(str(seed), {"x": x.astype("f")}))
    return found


def test_errors_of_earlier_products_are_made_up_for() -> None:
    net = profiled(network(MATRICES, dict.fromkeys("wvu", (64, 64)), (64, 64)), vectors(0))
    left = []
    for rounding in ("nearest", "gptq", "gptaq"):
        one = made(net, **INT4, rounding=rounding)
        if rounding != "nearest":
            one = rounded_with_samples(one, vectors(0))
        sessions = [
            ort.InferenceSession(ir.to_proto(model).SerializeToString())
            for model in (net.model, lower(one.model, one.plan).model)
        ]
        real, coarse = (np.stack([s.run(None, v.arrays)[0] for v in vectors(100)]) for s in sessions)
        left.append(float(np.square(real - coarse).sum()))
    nearest, plain, asymmetric = left
    assert asymmetric < 0.9 * plain < 0.9 * nearest


BRANCHES = f"a = {CONV}(x, w) b = {CONV}(x, v) c = Add(a, b) e = {CONV}(c, u) f = Add(c, e) y = {CONV}(f, t)"


def test_products_of_a_stage_do_not_depend_on_each_other() -> None:
    net = profiled(network(BRANCHES, WEIGHTS), samples())
    one = made(net)
    stages = stages_of(one.graph, one.model, one.plan)
    found = [sum(len(weights) for weights in stage.weights.values()) for stage in stages]
    assert found == [2, 1, 1]
    assert [stage.start for stage in stages] == [0, *(stage.end for stage in stages[:-1])]
    assert stages[-1].end == len(one.model.graph)


@pytest.mark.parametrize("text", [DEEP, BRANCHES, f"a = {CONV}(x, w) b = Sigmoid(a) y = {CONV}(b, v)"])
def test_the_simulation_computes_what_the_quantized_model_computes(text: str, tmp_path: Path) -> None:
    net = profiled(network(text, {n: s for n, s in WEIGHTS.items() if f" {n})" in text}), samples())
    one = made(net, bias_correction="off")
    runs = SegmentRuns(simulated_program(one.model, one.graph, one.plan), samples(3), tmp_path)
    for weight in quantized_weights(one.graph, one.plan):
        values = dequantize(quantize(weight.array, weight.params), weight.params)
        runs.set_constant(str(weight.value.name), values)
    middle, end = 2, len(one.model.graph)
    runs.advance(0, middle)
    output = one.model.graph.outputs[0].name
    found = np.stack([values[str(output)] for _, values in runs.values(middle, end, [str(output)])])
    session = ort.InferenceSession(ir.to_proto(lower(one.model, one.plan).model).SerializeToString())
    expected = np.stack([session.run(None, {"x": sample.arrays["x"]})[0] for sample in samples(3)])
    step = one.plan.tensors[str(output)].tensor_scale
    # Ties of sums that are rescaled in float32, one after another, are a step; most values are equal.
    assert np.abs(found - expected).max() <= 2.01 * step
    assert (np.abs(found - expected) < 0.01 * step).mean() > 0.9


def test_a_program_without_rounding_is_the_model_wherever_it_is_cut(tmp_path: Path) -> None:
    net = network(BRANCHES, WEIGHTS)
    session = ort.InferenceSession(ir.to_proto(net.model).SerializeToString())
    expected = session.run(None, {"x": correlated(0)})[0]
    for cut in range(len(net.model.graph)):
        folder = tmp_path / str(cut)
        folder.mkdir()
        runs = SegmentRuns(float_program(net.model), samples(1), folder)
        runs.advance(0, cut)
        ((name, values),) = runs.values(cut, len(net.model.graph), ["y"])
        assert name == "0"
        # The optimiser fuses other nodes where the graph is cut.
        np.testing.assert_allclose(values["y"], expected, rtol=1e-4, atol=1e-5)


class Killed(BaseException):
    """As a signal would."""


def test_a_resumed_run_gives_the_bytes_of_an_uninterrupted_one(tmp_path: Path) -> None:
    net, file = profiled(network(*TWO), samples()), tmp_path / "roundings"
    planned = made(net, rounding="gptaq")
    expected = dumps(rounded_with_samples(planned, samples(6)).plan)

    def kill(done: int, total: int | None) -> None:
        raise Killed

    with pytest.raises(Killed):
        rounded_with_samples(planned, samples(6), kill, file)
    size = file.stat().st_size
    resumed = rounded_with_samples(planned, samples(6), checkpoint=file)
    assert dumps(resumed.plan) == expected
    assert file.stat().st_size > size
    with pytest.raises(ConfigError, match="belongs to a run with other rounding and samples, so it cannot"):
        rounded_with_samples(made(net, rounding="gptq"), samples(5), checkpoint=file)
