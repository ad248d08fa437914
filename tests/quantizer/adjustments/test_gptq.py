"""Weights rounded with samples: rows, their moments, codes, and what becomes of them in a plan."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import onnx_ir as ir
import onnxruntime as ort
import pytest
from hypothesis import given
from hypothesis import strategies as st
from qprof_onnx.profiles.base.errors import ConfigError, DataError, PlanError
from qprof_onnx.profiles.runner.calibrate import calibrate
from qprof_onnx.profiles.runner.settings import RunSettings
from qprof_onnx.profiles.samples.values import Sample
from qprof_onnx.quantizer.adjustments import second_moments
from qprof_onnx.quantizer.adjustments.gptq import columns_of, gptq, rebased
from qprof_onnx.quantizer.adjustments.second_moments import (
    Moments,
    _with_rows,
    collect_moments,
    im2col_rows,
    moments_of,
    product_input,
)
from qprof_onnx.quantizer.lowering.lower import lower
from qprof_onnx.quantizer.plan.plan import Kind
from qprof_onnx.quantizer.plan.store import dumps, loads
from qprof_onnx.quantizer.planning.plan_model import (
    PlannedModel,
    check_without_samples,
    model_facts,
    open_plan,
    plan_from,
    rounded_with_samples,
)
from qprof_onnx.quantizer.planning.weighted_channels import weighted_channels
from qprof_onnx.quantizer.targets.forms import FORMS
from qprof_onnx.quantizer.targets.loading import load_recipe

from ...reference.plan_interpreter import run_plan
from ..adjustments.test_equalization import uneven
from ..networks import Network, network

TWO = ("a = Conv(x, w, b) t = Relu(a) y = Conv(t, v)", {"w": (8, 8, 3, 3), "b": (8,), "v": (8, 8, 3, 3)})
PLAIN = {"calibrator": "minmax", "equalization": "off", "min_output_sqnr": 0.0}


def correlated(seed: int, shape: tuple[int, ...] = (1, 8, 6, 6)) -> np.ndarray:
    """Return data whose channels are mixtures of two sources, with some noise."""
    rng = np.random.default_rng(seed)
    mixing = np.random.default_rng(1).standard_normal((shape[1], 2))
    sources = rng.standard_normal((2, *shape[2:]))
    noise = 0.1 * rng.standard_normal(shape[1:])
    return (np.einsum("cs,s...->c...", mixing, sources) + noise + 0.5)[None].astype("f")


def samples(count: int = 24, shape: tuple[int, ...] = (1, 8, 6, 6)) -> list[Sample]:
    return [Sample(str(i), {"x": correlated(i, shape)}) for i in range(count)]


def profiled(net: Network, feeds: list[Sample]) -> Network:
    """Return the network with the profile of these samples."""
    channels = weighted_channels(net.graph)
    return replace(net, profile=calibrate(net.model, feeds, net.identity, RunSettings(channels=channels)))


def rounded(net: Network, feeds: list[Sample], **settings: object) -> PlannedModel:
    recipe = load_recipe(None, {**PLAIN, "rounding": "gptq", **settings})
    made = plan_from(model_facts(net.prepared, net.profile, recipe))
    return rounded_with_samples(made, feeds)


def errors(net: Network, made: PlannedModel, shape: tuple[int, ...] = (1, 8, 6, 6)) -> np.ndarray:
    """Return what the quantized model is off by on other data than the samples."""
    feeds = [{"x": correlated(i, shape)} for i in range(100, 132)]
    sessions = [
        ort.InferenceSession(ir.to_proto(model).SerializeToString())
        for model in (net.model, lower(made.model, made.plan).model)
    ]
    real, coarse = (np.stack([s.run(None, feed)[0] for feed in feeds]) for s in sessions)
    return np.asarray(coarse - real)


READERS = {
    "Conv": ("y = Conv<strides = [2, 1], pads = [1, 0, 2, 1], dilations = [1, 2]>(x, w)", (4, 8, 3, 2)),
    "grouped Conv": ("y = Conv<group = 4, pads = [1, 1, 1, 1]>(x, w)", (8, 2, 3, 3)),
    "depthwise Conv": ("y = Conv<group = 8, strides = [2, 2]>(x, w)", (8, 1, 3, 3)),
    "Conv with auto_pad": ('y = Conv<auto_pad = "SAME_UPPER", strides = [2, 2]>(x, w)', (4, 8, 2, 3)),
    "Conv padded below": ('y = Conv<auto_pad = "SAME_LOWER">(x, w)', (4, 8, 2, 4)),
    "Conv that is valid": ('y = Conv<auto_pad = "VALID">(x, w)', (4, 8, 3, 3)),
    "ConvTranspose": ("y = ConvTranspose<strides = [2, 3], group = 2>(x, w)", (8, 3, 2, 3)),
    "MatMul": ("y = MatMul(x, w)", (6, 5)),
}


@pytest.mark.parametrize("name", READERS)
def test_rows_times_columns_are_what_the_operator_computes(name: str) -> None:
    text, shape = READERS[name]
    net = network(text, {"w": shape})
    (node,) = net.graph.nodes
    weight = net.graph.constant("w")
    assert weight is not None
    reading = product_input(net.graph, node, weight)
    assert reading is not None
    x = np.random.default_rng(5).standard_normal((1, 8, 6, 6)).astype("f")
    session = ort.InferenceSession(ir.to_proto(net.model).SerializeToString())
    expected = session.run(None, {"x": x})[0]
    rows = im2col_rows(x, reading, 10**6)
    columns = columns_of(node, weight.astype(np.float64))
    made = np.matmul(columns, rows.transpose(0, 2, 1))
    # Every output is one of the products: as multisets they are equal, up to float32 sums of 48 terms.
    np.testing.assert_allclose(np.sort(made.reshape(-1)), np.sort(expected.reshape(-1)), atol=2e-5)


def test_gemm_reads_its_rows_whichever_way_its_weight_lies() -> None:
    for text, shape in (("y = Gemm<transB = 1>(x, w)", (5, 12)), ("y = Gemm(x, w)", (12, 5))):
        net = network(text, {"w": shape}, (3, 12))
        weight = net.graph.constant("w")
        assert weight is not None
        reading = product_input(net.graph, net.graph.nodes[0], weight)
        assert reading is not None
        x = np.arange(36, dtype="f").reshape(3, 12)
        np.testing.assert_array_equal(im2col_rows(x, reading, 100)[0], x)


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        ("y = MatMul(x, w)", (8, 6, 5)),  # a stack of matrices
        ("y = ConvTranspose<strides = [2, 2]>(x, w)", (8, 4, 3, 3)),  # kernels overlap
    ],
)
def test_what_rows_do_not_tell_is_left_to_the_nearest(text: str, shape: tuple[int, ...]) -> None:
    net = network(text, {"w": shape})
    weight = net.graph.constant("w")
    assert weight is not None
    assert product_input(net.graph, net.graph.nodes[0], weight) is None


def test_few_of_many_rows_lie_evenly_among_them() -> None:
    net = network("y = MatMul(x, w)", {"w": (1, 4)}, (1, 8, 50, 1))
    weight = net.graph.constant("w")
    assert weight is not None
    reading = product_input(net.graph, net.graph.nodes[0], weight)
    assert reading is not None
    rows = im2col_rows(np.arange(400, dtype="f").reshape(1, 8, 50, 1), reading, 40)[0, :, 0]
    assert 38 <= rows.size <= 40
    assert np.diff(rows).max() < 30  # ten would be even
    assert (np.diff(rows) > 0).all()


matrices = st.integers(0, 2**32 - 1).map(np.random.default_rng)


@given(matrices, st.floats(1e-20, 1e20))
def test_moments_do_not_depend_on_the_order_of_rows(rng: np.random.Generator, size: float) -> None:
    rows = rng.standard_normal((2, 50, 7)) * size
    found, turned = moments_of(rows, "rows"), moments_of(rows[:, rng.permutation(50)], "rows")
    np.testing.assert_array_equal(found.second[0], turned.second[0])
    np.testing.assert_array_equal(found.first, turned.first)
    exact = np.matmul(rows.transpose(0, 2, 1), rows)
    # Each value is off by half of 2^-14 of the largest at most.
    bound = 2.0**-14 * 50 * np.abs(rows).max() ** 2
    np.testing.assert_allclose(found.second[0], exact, atol=bound)


def test_moments_add_up_and_can_be_centred() -> None:
    rows = np.random.default_rng(2).standard_normal((1, 64, 5)) + 3.0
    both = _with_rows(moments_of(rows[:, :32], "rows"), rows[:, 32:], "rows")
    assert both.rows == 64
    centred = both.mean(0, centred=True)
    # The grid is 2^-14 of the largest value, which is about 6.
    np.testing.assert_allclose(centred[0], np.cov(rows[0].T, bias=True), atol=5e-3)


def test_long_rows_are_cut_into_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = np.random.default_rng(2).standard_normal((2, 30, 10))
    whole = moments_of(rows, "rows").mean(0, centred=True)
    monkeypatch.setattr(second_moments, "COLUMNS", 4)
    pieces = moments_of(rows, "rows")
    assert [part.shape for part in pieces.second] == [(2, 4, 4), (2, 3, 3), (2, 3, 3)]
    np.testing.assert_array_equal(pieces.mean(1, centred=True), whole[:, 4:7, 4:7])


def test_rows_that_are_not_finite_are_refused() -> None:
    with pytest.raises(DataError, match="sample 3: tensor 't': contains NaN or Inf; leave the sample out"):
        moments_of(np.array([[[1.0, np.nan]]]), "sample 3: tensor 't'")


def flat(rng: np.random.Generator, columns: int = 12) -> tuple[np.ndarray, ...]:
    """Return a weight with steps of 0.25 between -4 and 4, and second moments of correlated rows."""
    weight = rng.uniform(-1, 1, (2, 5, columns))
    rows = rng.standard_normal((2, 40, 3)) @ rng.standard_normal((2, 3, columns))
    rows += 0.05 * rng.standard_normal(rows.shape)
    bounds = (np.full(weight.shape, bound) for bound in (0.25, -4.0, 4.0))
    return (weight, *bounds, np.matmul(rows.transpose(0, 2, 1), rows) / 40)


def cost(weight: np.ndarray, steps: np.ndarray, second: np.ndarray) -> np.ndarray:
    error = weight - 0.25 * steps
    return np.asarray(np.einsum("goc,gcd,god->go", error, second, error))


def test_the_identity_gives_the_nearest_codes() -> None:
    weight, scale, low, high, second = flat(np.random.default_rng(0))
    identity = np.broadcast_to(np.eye(12), second.shape)
    nearest = np.clip(np.rint(weight / scale), low, high)
    np.testing.assert_array_equal(gptq(weight, scale, low, high, identity), nearest)
    np.testing.assert_array_equal(gptq(weight, scale, low, high, 0.0 * second), nearest)


@given(matrices)
def test_errors_that_are_fed_back_cost_no_more_and_mostly_far_less(rng: np.random.Generator) -> None:
    weight, scale, low, high, second = flat(rng)
    steps = gptq(weight, scale, low, high, second)
    np.testing.assert_array_equal(steps, np.clip(np.rint(steps), low, high))
    nearest = np.clip(np.rint(weight / scale), low, high)
    found, plain = cost(weight, steps, second), cost(weight, nearest, second)
    assert (found <= plain * (1.0 + 1e-9)).all()  # the same sums in another order
    assert found.sum() < 0.7 * plain.sum()


def test_blocks_of_columns_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    given_ = flat(np.random.default_rng(3), 40)
    whole = gptq(*given_)
    monkeypatch.setattr("qprof_onnx.quantizer.adjustments.gptq.BLOCK", 7)
    np.testing.assert_array_equal(gptq(*given_), whole)


def obs(weight: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Round by the inverse of the moments, column after column, as the paper tells it (one group)."""
    order = np.argsort(np.diag(second), kind="stable")[::-1]
    damped = second + 0.01 * np.mean(np.diag(second)) * np.eye(second.shape[0])
    left, steps = weight.copy(), np.empty(weight.shape)
    remaining = list(order)
    for at in order:
        inverse = np.linalg.inv(damped[np.ix_(remaining, remaining)])
        place = remaining.index(at)
        steps[:, at] = np.clip(np.rint(left[:, at] / 0.25), -4, 4)
        error = (left[:, at] - 0.25 * steps[:, at]) / inverse[place, place]
        left[:, remaining] -= error[:, None] * inverse[place]
        remaining.remove(at)
    return steps


def test_the_codes_are_those_of_the_paper() -> None:
    weight, scale, low, high, second = flat(np.random.default_rng(4))
    steps = gptq(weight, scale, low, high, second)
    for group in range(2):
        expected = obs(weight[group], second[group])
        kept = cost(weight, steps, second)[group] < cost(weight, np.rint(weight / scale), second)[group]
        assert kept.sum() >= 4
        np.testing.assert_array_equal(steps[group][kept], expected[kept])


def test_correlated_inputs_cost_less_than_with_the_nearest_codes() -> None:
    shape = (1, 16, 4, 4)
    net = profiled(
        network("y = Conv(x, w)", {"w": (8, 16, 3, 3)}, shape),
        samples(shape=shape),
    )
    made = rounded(net, samples(shape=shape), mode="weight-only")
    (name,) = made.plan.adjustments.roundings
    plain = plan_from(
        model_facts(net.prepared, net.profile, load_recipe(None, {**PLAIN, "mode": "weight-only"}))
    )
    assert made.plan.nodes[name].kind is Kind.WEIGHT_ONLY
    assert np.square(errors(net, made, shape)).sum() < 0.4 * np.square(errors(net, plain, shape)).sum()


def two_rounded() -> tuple[Network, PlannedModel]:
    net = profiled(network(*TWO), samples())
    return net, rounded(net, samples())


def test_only_weights_differ_from_the_plan_with_the_nearest_codes() -> None:
    net, made = two_rounded()
    plain = plan_from(model_facts(net.prepared, net.profile, load_recipe(None, PLAIN))).plan
    assert {name: entry.kind for name, entry in made.plan.nodes.items()} == {
        name: entry.kind for name, entry in plain.nodes.items()
    }
    assert made.plan.adjustments.biases.keys() == plain.adjustments.biases.keys()
    assert made.plan.adjustments.biases != plain.adjustments.biases
    assert made.plan.tensors["x"] == plain.tensors["x"]


def test_biases_make_up_for_the_codes_that_were_chosen() -> None:
    net, made = two_rounded()
    bare = replace(made.plan, adjustments=replace(made.plan.adjustments, biases={}))
    without = PlannedModel(bare, made.model, made.graph)
    means = [np.abs(errors(net, m).mean((0, 1, 3, 4))).sum() for m in (made, without)]
    # What is left of the mean is noise of the activations' rounding, and of the borders of the map.
    assert means[0] < 0.8 * means[1]


@pytest.mark.parametrize("form", FORMS)
def test_every_form_writes_the_adjusted_model_and_the_codes(form: str) -> None:
    made = rounded(uneven(), samples(), equalization="auto", form=form)
    adjusted = made.plan.adjustments
    assert all((adjusted.equalization, adjusted.biases, adjusted.roundings))
    feed = correlated(70)
    expected = run_plan(made.model, made.plan, {"x": feed})["y"]
    session = ort.InferenceSession(ir.to_proto(lower(made.model, made.plan).model).SerializeToString())
    assert expected.params is not None
    # One step: onnxruntime rescales the sums in float32, the reference rounds them once.
    assert (
        np.abs(session.run(None, {"x": feed})[0] - expected.values).max()
        <= 1.01 * expected.params.tensor_scale
    )


def test_codes_for_other_parameters_are_refused() -> None:
    _, made = two_rounded()
    params = made.plan.tensors["w"]
    wider = replace(params, scale=2.0 * params.scale)
    edited = replace(made.plan, tensors={**made.plan.tensors, "w": wider})
    with pytest.raises(PlanError, match="was made for other parameters of the weight; put"):
        lower(made.model, edited)


def test_codes_of_another_number_are_refused() -> None:
    _, made = two_rounded()
    name, entry = next(iter(made.plan.adjustments.roundings.items()))
    short = {name: replace(entry, offsets=entry.offsets[1:])}
    edited = replace(made.plan, adjustments=replace(made.plan.adjustments, roundings=short))
    with pytest.raises(PlanError, match="575 offsets for a weight of 576 elements; remove the entry"):
        lower(made.model, edited)


def test_a_channel_with_another_scale_takes_the_nearest_codes() -> None:
    _, made = two_rounded()
    params = made.plan.tensors["w"]
    raised = replace(params, scale=np.append(2.0 * params.scale[:1], params.scale[1:]))
    other = replace(made.plan, tensors={**made.plan.tensors, "w": raised})
    name = next(n.name for n in made.graph.nodes if n.inputs[1] == "w")
    assert name is not None
    carried = rebased(made.graph, made.plan.adjustments.roundings, made.plan, other)
    old, new = (
        np.frombuffer(found[name].offsets, np.int8).reshape(8, -1)
        for found in (made.plan.adjustments.roundings, carried)
    )
    assert np.any(old[0])
    assert not np.any(new[0])
    np.testing.assert_array_equal(new[1:], old[1:])
    lower(made.model, replace(other, adjustments=replace(other.adjustments, roundings=carried, biases={})))


def test_channels_that_are_divided_have_the_moments_of_what_is_read() -> None:
    net = uneven()
    feeds = [
        Sample(str(i), {"x": np.random.default_rng(i).standard_normal((1, 8, 6, 6)).astype("f")})
        for i in range(8)
    ]
    made = rounded(net, feeds, equalization="auto")
    assert made.plan.adjustments.equalization
    assert len(made.plan.adjustments.roundings) == 2
    opened = open_plan(net.prepared, loads(dumps(made.plan)))
    assert opened.plan == made.plan


def test_slices_of_the_model_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    net = profiled(network(*TWO), samples())
    seen: list[tuple[int, int | None]] = []
    recipe = load_recipe(None, PLAIN)
    made = plan_from(model_facts(net.prepared, net.profile, recipe))
    whole = rounded_with_samples(made, samples())
    monkeypatch.setattr(second_moments, "MEMORY", 1)
    sliced = rounded_with_samples(made, samples(), lambda done, total: seen.append((done, total)))
    assert sliced.plan == whole.plan
    assert seen == [(i, 48) for i in range(1, 49)]


def test_parts_of_a_matrix_are_rounded_as_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    shape = (1, 64, 1, 64)
    net = profiled(network("y = MatMul(x, w)", {"w": (64, 32)}, shape), samples(shape=shape))
    settings = {"mode": "weight-only", "weight_type": "int4"}
    whole = rounded(net, samples(shape=shape), **settings)
    model = ir.to_proto(lower(whole.model, whole.plan).model).SerializeToString(deterministic=True)
    monkeypatch.setattr("qprof_onnx.quantizer.adjustments.gptq.CHUNK", 64 * 5)
    monkeypatch.setattr("qprof_onnx.quantizer.adjustments.rounded_weights.CHUNK_ELEMENTS", 3 * 32)
    monkeypatch.setattr("qprof_onnx.quantizer.adjustments.rounded_weights.MIN_LAZY_BYTES", 1)
    parts = rounded(net, samples(shape=shape), **settings)
    assert parts.plan.adjustments.roundings
    assert parts.plan == whole.plan
    again = lower(parts.model, parts.plan).model
    assert ir.to_proto(again).SerializeToString(deterministic=True) == model


def test_nodes_that_read_the_same_rows_share_their_moments() -> None:
    net = network("a = Conv(x, w) b = Conv(x, v) y = Add(a, b)", {"w": (4, 8, 3, 3), "v": (4, 8, 3, 3)})
    inputs = {product_input(net.graph, n, np.empty((4, 8, 3, 3))) for n in net.graph.nodes[:2]}
    assert len(inputs) == 1
    asked = [reading for reading in inputs if reading is not None]
    ((_, moments),) = collect_moments(net.model, asked, samples(3))
    assert isinstance(moments, Moments)
    assert moments.rows == 3 * 16


def test_no_samples_and_bad_samples_are_refused() -> None:
    with pytest.raises(ConfigError, match="rounding gptq: needs samples, which 'qprof quantize"):
        check_without_samples(load_recipe(None, {"rounding": "gptq"}).config)
    net = profiled(network(*TWO), samples())
    with pytest.raises(DataError, match="there are no samples; give at least one"):
        rounded(net, [])
    bad = [*samples(2), Sample("bad", {"x": np.full((1, 8, 6, 6), np.nan, np.float32)})]
    with pytest.raises(DataError, match="sample bad: tensor 'x': contains NaN or Inf"):
        rounded(net, bad)


def test_a_plan_without_weights_in_codes_runs_nothing() -> None:
    net = profiled(network(*TWO), samples())
    made = rounded(net, [], keep_float=["Conv"])
    assert not made.plan.adjustments


HASH = """
import hashlib
import numpy as np
from qprof_onnx.quantizer.adjustments.gptq import gptq
from qprof_onnx.quantizer.adjustments.second_moments import moments_of
rng = np.random.default_rng(0)
rows = rng.standard_normal((1, 1000, 40)) @ rng.standard_normal((40, 400))
second = moments_of(rows, "rows").mean(0)
weight = rng.standard_normal((1, 32, 400)).astype("f").astype(float)
bounds = [np.full(weight.shape, v) for v in (0.25, -8.0, 7.0)]
for found in (gptq(weight, *bounds, second).astype("i1"), second):
    print(hashlib.sha256(found.tobytes()).hexdigest())
"""


@pytest.mark.slow
def test_codes_and_moments_are_the_same_on_any_number_of_threads() -> None:
    found = set()
    for threads in ("1", "2"):
        names = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
        environment = {**os.environ, **dict.fromkeys(names, threads)}
        done = subprocess.run(
            [sys.executable, "-c", HASH], env=environment, capture_output=True, text=True, check=True
        )
        found.add(done.stdout)
    assert len(found) == 1
