"""The calibration runner: the same numbers as the instrumented model, whatever the order and the shards."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, reduce
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import onnxruntime as ort
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from qprof_onnx.profiles.base.errors import ConfigError, DataError, ModelError
from qprof_onnx.profiles.instrumentation.observations import observations
from qprof_onnx.profiles.instrumentation.tensor_outputs import with_outputs
from qprof_onnx.profiles.observers.tensor_observer import TensorObserver
from qprof_onnx.profiles.records.histogram import Histogram
from qprof_onnx.profiles.records.profile import DataId, ModelId, Profile, TensorProfile
from qprof_onnx.profiles.records.store import dumps
from qprof_onnx.profiles.runner.calibrate import calibrate
from qprof_onnx.profiles.runner.settings import RunSettings
from qprof_onnx.profiles.runtime import session as session_module
from qprof_onnx.profiles.samples.samples import data_id, input_specs, open_samples
from qprof_onnx.profiles.samples.values import InputSpec, Sample
from qprof_onnx.quantizer.plugins.instrument.instrument import with_profiling_nodes

from ...reference.profiling_outputs import profile_from_outputs

Change = Callable[[Profile], Profile]
ID = ModelId("structure", "weights", 13)

LOG = """<ir_version: 8, opset_import: ["": 13]>
    logs (float[N, 4] x) => (float[N, 4] z) { [log] y = Log(x)  [relu] z = Relu(y) }"""


def model_of(text: str) -> ir.Model:
    return ir.from_proto(onnx.shape_inference.infer_shapes(onnx.parser.parse_model(text)))


@cache
def conv_net() -> ir.Model:
    proto = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["": 13]>
        net (float[N, 1, H, 8] x) => (float[N, 10] scores) {
            [conv1] c = Conv <pads = [1, 1, 1, 1]> (x, w1, b1)
            [tanh] t = Tanh (c)
            [pool] p = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (t)
            [conv2] d = Conv (p, w2)
            [relu] r = Relu (d)
            [mean] m = GlobalAveragePool (r)
            [flat] f = Flatten (m)
            [gemm] g = Gemm (f, w3, b3)
            [scores] scores = Sigmoid (g)
        }"""
    )
    rng = np.random.default_rng(0)
    shapes = {"w1": (8, 1, 3, 3), "b1": (8,), "w2": (16, 8, 3, 3), "w3": (16, 10), "b3": (10,)}
    for name, shape in shapes.items():
        weight = rng.standard_normal(shape).astype(np.float32) / 4
        proto.graph.initializer.append(onnx.numpy_helper.from_array(weight, name))
    return ir.from_proto(onnx.shape_inference.infer_shapes(proto))


def images(number: int = 6, seed: int = 0) -> list[Sample]:
    rng = np.random.default_rng(seed)
    shapes = [(1 + i % 2, 1, 8 + 2 * (i % 3), 8) for i in range(number)]
    return [Sample(f"{i}.npz", {"x": rng.random(shape, np.float32)}) for i, shape in enumerate(shapes)]


def sample(**feed: Any) -> Sample:
    return Sample("a.npz", feed)


def run_instrumented(model: ir.Model, samples: Sequence[Sample]) -> dict[str, TensorProfile]:
    """The slow way: what the model's own QuantizationProfile nodes say, merged over the samples."""
    instrumented = with_profiling_nodes(model)
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(
        ir.to_proto(instrumented).SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    names = [output.name for output in session.get_outputs()]
    runs = [
        profile_from_outputs(instrumented, dict(zip(names, session.run(None, dict(s.arrays)), strict=True)))
        for s in samples
    ]
    return {name: reduce(TensorProfile.merged, [run[name] for run in runs]) for name in runs[0]}


# ------------------------------------------------------------------------------------------- what it finds


def unoptimised(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the runner run the graph node for node, as the instrumented model is run here."""
    monkeypatch.setattr(session_module, "OPTIMISATION", ort.GraphOptimizationLevel.ORT_DISABLE_ALL)


def test_it_finds_the_same_as_the_instrumented_model(
    monkeypatch: pytest.MonkeyPatch, by_element: Change
) -> None:
    unoptimised(monkeypatch)
    profile = by_element(calibrate(conv_net(), images(), ID))
    slow = run_instrumented(conv_net(), images())
    assert list(profile.tensors.items()) == list(slow.items())
    assert len(profile) == 10


def test_it_finds_the_same_as_the_instrumented_model_with_nan_inside(by_element: Change) -> None:
    model = model_of(LOG)
    rng = np.random.default_rng(0)
    samples = [sample(x=rng.standard_normal((i, 4)).astype(np.float32).round(1)) for i in range(4)]
    profile = by_element(calibrate(model, samples, ID, RunSettings(channels="off")))
    assert profile.tensors == run_instrumented(model, samples)
    assert profile["y"].nan > 0
    assert profile["y"].inf > 0


def test_a_profile_says_what_flowed_through_a_tensor() -> None:
    model = model_of(
        '<ir_version: 8, opset_import: ["": 13]> g (float[N, 2] x) => (float[N, 2] y) { y = Neg(x) }'
    )
    rows = {"a": [1.5, 0.0], "b": [-4.0, -0.0]}
    samples = [Sample(name, {"x": np.array([row], np.float32)}) for name, row in rows.items()]
    found = calibrate(model, samples, ID)["y"]
    assert found == TensorProfile(
        dtype="float",
        shape=(None, 2),
        minimum=-1.5,
        maximum=4.0,
        count=4,
        zeros=2,
        nan=0,
        inf=0,
        histogram=Histogram.of(np.array([-1.5, 0.0, 4.0, 0.0])),
    )


def test_the_model_is_not_changed() -> None:
    before = ir.to_proto(conv_net()).SerializeToString()
    calibrate(conv_net(), images(1), ID)
    assert ir.to_proto(conv_net()).SerializeToString() == before


def test_every_floating_point_type_is_profiled() -> None:
    model = model_of(
        """<ir_version: 8, opset_import: ["": 13]> g (float[N] x, bfloat16[N] q) => (double[N] d) {
        b = Cast<to = 16>(x)  h = Cast<to = 10>(b)  d = Cast<to = 11>(h)
        i = Cast<to = 7>(x)  e = Cast<to = 1>(q) }"""
    )
    values = np.array([1.0, 2.3, -0.007, 0.0], np.float32)
    short = values.astype(ml_dtypes.bfloat16)
    profile = calibrate(model, [sample(x=values, q=short)], ID)
    assert {name: p.dtype for name, p in profile.items()} == {
        "x": "float",
        "q": "bfloat16",
        "b": "bfloat16",
        "h": "float16",
        "d": "double",
        "e": "float",
    }
    expected = Histogram.of(short.astype(np.float64))
    assert [profile[name].histogram == expected for name in ("q", "b", "h", "d", "e")] == [True] * 5


def test_tensors_of_operators_outside_the_standard_are_profiled() -> None:
    model = model_of(
        """<ir_version: 8, opset_import: ["": 13, "com.microsoft": 1]>
        g (float[N] x) => (float[N] y) { k = com.microsoft.Gelu(x)  y = Neg(k) }"""
    )
    profile = calibrate(model, [sample(x=np.array([1.0, 3.0], np.float32))], ID)
    assert profile["k"].dtype == "float"
    assert profile["k"].maximum == -profile["y"].minimum


def test_tensors_that_are_graph_outputs_are_profiled_once() -> None:
    model = model_of(
        """<ir_version: 8, opset_import: ["": 13]>
        g (float[N] x) => (float[N] y, float[N] z) { y = Neg(x)  z = Neg(y) }"""
    )
    assert list(calibrate(model, [sample(x=np.ones(3, np.float32))], ID)) == ["x", "y", "z"]


def test_an_empty_tensor_counts_nothing() -> None:
    model = model_of(
        '<ir_version: 8, opset_import: ["": 13]> g (float[2, K] x) => (float[2, K] y) { y = Neg(x) }'
    )
    found = calibrate(model, [sample(x=np.zeros((2, 0), np.float32))], ID)["y"]
    assert (found.count, found.minimum, found.maximum, found.histogram) == (0, 0.0, 0.0, Histogram.empty())


def wide_net() -> ir.Model:
    """Feature maps of 32 and 64 channels, which onnxruntime keeps in blocks; exact for whole numbers."""
    proto = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["": 13]>
        net (float[N, 3, 16, 16] x) => (float[N, 10] scores) {
            c = Conv <pads = [1, 1, 1, 1]> (x, w1)
            r = Relu (c)
            d = Conv (r, w2)
            s = Add (d, d)
            u = Relu (s)
            k = Transpose <perm = [0, 2, 3, 1]> (u)
            p = MaxPool <kernel_shape = [14, 14]> (u)
            f = Flatten (p)
            scores = Gemm (f, w3)
        }"""
    )
    rng = np.random.default_rng(0)
    for name, shape in {"w1": (32, 3, 3, 3), "w2": (64, 32, 3, 3), "w3": (64, 10)}.items():
        weight = rng.integers(-2, 3, shape).astype(np.float32)
        proto.graph.initializer.append(onnx.numpy_helper.from_array(weight, name))
    return ir.from_proto(onnx.shape_inference.infer_shapes(proto))


def whole_numbers(number: int = 3) -> list[Sample]:
    rng = np.random.default_rng(0)
    shape = (1, 3, 16, 16)
    return [Sample(f"{i}", {"x": rng.integers(-3, 4, shape).astype(np.float32)}) for i in range(number)]


def test_optimisations_do_not_change_what_is_exact(
    monkeypatch: pytest.MonkeyPatch, by_element: Change
) -> None:
    """All sums are whole numbers below 2**24, so that no order of addition can round."""
    optimised = calibrate(wide_net(), whole_numbers(), ID)
    assert by_element(optimised).tensors == run_instrumented(wide_net(), whole_numbers())
    unoptimised(monkeypatch)
    assert calibrate(wide_net(), whole_numbers(), ID) == optimised


def test_blocked_feature_maps_are_read_as_they_are() -> None:
    copy, observed = with_outputs(wide_net(), observations(wide_net()))
    with session_module.optimised(copy, [o.source for o in observed if o.source]) as graph:
        reordered = {name for name, found in graph.sources.items() if name != found}
        if not any(node.domain == "com.microsoft.nchwc" for node in graph.model.graph):
            pytest.skip("this processor has no blocked convolutions")
        assert reordered == {"c", "r", "d", "s", "u", "p"}
        session = session_module.session_for(graph, ["u"])
        assert [output.name for output in session.get_outputs()] == [graph.sources["u"]]


def test_some_tensors_can_be_chosen() -> None:
    profile = calibrate(wide_net(), whole_numbers(), ID, RunSettings(channels="off", tensors=["k", "c"]))
    assert list(profile) == ["c", "k"]
    assert profile["k"] == calibrate(wide_net(), whole_numbers(), ID)["k"]


@pytest.mark.parametrize("names", [{"tensors": ["scorse"]}, {"channels": {"scorse": 1}}])
def test_an_unknown_tensor_is_refused(names: dict[str, Any]) -> None:
    text = refusal(ConfigError, wide_net(), whole_numbers(), **names)
    assert text.startswith("tensor 'scorse': is not a floating-point activation of the model;")
    assert text.endswith("Did you mean 'scores'?")


# ---------------------------------------------------------------------------- threads


@pytest.mark.slow
def test_the_first_sample_in_order_that_fails_is_named() -> None:
    wrong = np.ones((1, 5), np.float32)
    samples = [sample(x=np.ones((50_000, 4), np.float32))]
    samples += [Sample("b", {"x": wrong}), Sample("c", {"x": wrong})]
    for _ in range(5):
        text = refusal(DataError, model_of(LOG), samples, threads=3)
        assert text.startswith("sample b:")


# ---------------------------------------------------------------------------------- order, shards, batching


SUMS = """<ir_version: 8, opset_import: ["": 13]>
    sums (float[N, 4099] x) => (float[N, 1] s) { y = Mul(x, x)  s = ReduceSum(y, axes) }"""


@cache
def summing() -> ir.Model:
    """Its kernel sums in another order when there is one row: the last bits are others."""
    proto = onnx.parser.parse_model(SUMS)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.array([1]), "axes"))
    return ir.from_proto(onnx.shape_inference.infer_shapes(proto))


ROWS = np.random.default_rng(0).standard_normal((24, 4099)).astype(np.float32)


def split(rows: np.ndarray, cuts: Sequence[int]) -> list[Sample]:
    return [Sample(f"{i}", {"x": part}) for i, part in enumerate(np.split(rows, sorted(set(cuts))))]


@settings(deadline=None, max_examples=20)
@given(st.lists(st.integers(1, 23), max_size=8), st.integers(1, 3))
def test_row_by_row_the_batches_do_not_show(cuts: list[int], threads: int) -> None:
    by_row = calibrate(
        summing(), split(ROWS, cuts), ID, RunSettings(channels="off", by_row=True, threads=threads)
    )
    alone = calibrate(summing(), split(ROWS, range(1, 24)), ID)
    assert dumps(by_row) == dumps(alone)


def test_a_row_with_nan_is_named() -> None:
    x = np.ones((3, 4), np.float32)
    x[1, 2] = np.nan
    first = calibrate(model_of(LOG), [sample(x=x)], ID, RunSettings(by_row=True, channels="off")).non_finite
    assert first is not None
    assert first.sample == "a.npz[1]"


NUMBERS = st.lists(st.floats(width=32) | st.just(0.0), max_size=12).map(lambda v: np.array(v, np.float32))


@given(st.lists(NUMBERS, max_size=6), st.randoms())
def test_an_accumulator_gives_what_merging_gives(arrays: list[np.ndarray], random: Any) -> None:
    once, shuffled = TensorObserver("float"), TensorObserver("float")
    merged = []
    for array in arrays:
        once.add(array, array.shape)
        one = TensorObserver("float")
        one.add(array, array.shape)
        merged.append(one.profile())
    for array in random.sample(arrays, len(arrays)):
        shuffled.add(array, array.shape)
    if arrays:
        assert once.profile() == shuffled.profile() == reduce(TensorProfile.merged, merged)
        finite = np.concatenate(arrays)
        assert once.profile().histogram == Histogram.of(finite[np.isfinite(finite)])


def test_a_profile_of_an_accumulator_does_not_change_later() -> None:
    accumulator = TensorObserver("float")
    accumulator.add(np.array([1.0, 2.0], np.float32), (2,))
    early = accumulator.profile()
    accumulator.add(np.array([1.0, 2.0], np.float32), (2,))
    assert early.histogram.total == early.count == 2


def test_a_dimension_of_minus_1_is_free() -> None:
    model = conv_net()
    value = model.graph.inputs[0]
    value.shape = ir.Shape([-1, *list(value.shape or ())[1:]])
    (spec,) = input_specs(model)
    assert spec.shape is not None
    assert spec.shape[0] is None


def test_batching_does_not_change_the_data() -> None:
    specs = input_specs(conv_net())
    rows = np.random.default_rng(0).random((6, 1, 8, 8), np.float32)
    whole_batch = data_id({"x": rows}, specs)
    apart = reduce(DataId.merged, [data_id({"x": rows[i : i + 2]}, specs) for i in (4, 0, 2)])
    assert whole_batch == apart
    assert whole_batch.samples == 6


def test_other_data_have_another_digest() -> None:
    specs = (InputSpec("x", np.dtype(np.float32), ("N", 2)),)
    a = np.array([[1, 2], [3, 4]], np.float32)
    others = [a + 1, a.astype(np.float64), a.reshape(1, 4), a[:1], a.view(np.int32), a.reshape(2, 2, 1)]
    digests = {data_id({"x": array}, specs).digest for array in (a, *others)}
    assert len(digests) == 7
    assert data_id({"x": a[::-1]}, specs).digest == data_id({"x": a}, specs).digest


def test_which_row_goes_with_which_is_part_of_the_data() -> None:
    specs = tuple(InputSpec(name, np.dtype(np.float32), ("N", 1)) for name in "ab")
    column = np.array([[1], [2]], np.float32)
    assert data_id({"a": column, "b": column}, specs) != data_id({"a": column, "b": column[::-1]}, specs)
    assert data_id({"a": column, "b": column}, specs) == data_id({"b": column, "a": column}, specs)


@pytest.mark.parametrize(
    ("shapes", "samples"),
    [
        ((("N", 2), ("N", 2)), 3),
        (((None, 2), (None, 2)), 3),
        ((("N", 2), ("M", 2)), 1),
        (((3, 2), (3, 2)), 1),
        ((("N", 2), None), 1),
        ((("N", 2), ()), 1),
    ],
)
def test_only_a_shared_free_leading_dimension_is_a_batch(shapes: tuple[Any, Any], samples: int) -> None:
    specs = tuple(
        InputSpec(name, np.dtype(np.float32), shape) for name, shape in zip("ab", shapes, strict=True)
    )
    feed = {s.name: np.zeros((3, 2) if s.shape != () else (), np.float32) for s in specs}
    assert data_id(feed, specs).samples == samples


def test_strings_are_digested_by_their_text() -> None:
    specs = (InputSpec("x", np.dtype(object), ("N",)),)
    wide, narrow = np.array(["qprof", "a"]), np.array(["qprof", "a"], object)
    assert data_id({"x": wide}, specs) == data_id({"x": narrow}, specs)
    assert data_id({"x": wide}, specs) != data_id({"x": np.array(["qprof", "b"])}, specs)


def test_the_layout_in_memory_is_not_part_of_the_data() -> None:
    specs = (InputSpec("x", np.dtype(np.float32), ("N", 3)),)
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert data_id({"x": array}, specs) == data_id({"x": np.asfortranarray(array)}, specs)


def test_samples_of_a_folder_are_counted_by_rows(tmp_path: Path) -> None:
    for number in range(2):
        np.savez(tmp_path / f"{number}.npz", x=np.random.default_rng(number).random((3, 1, 8, 8), np.float32))
    seen: list[tuple[int, int | None]] = []
    samples = open_samples(str(tmp_path), input_specs(conv_net()))
    profile = calibrate(conv_net(), samples, ID, progress=lambda done, total: seen.append((done, total)))
    assert profile.data.samples == 6
    assert seen == [(1, 2), (2, 2)]


# ----------------------------------------------------------------------------------------- models on disk


def test_large_models_are_not_written_down_optimised(monkeypatch: pytest.MonkeyPatch) -> None:
    small = calibrate(conv_net(), images(2), ID)
    files: list[set[str]] = []
    write = session_module.ir.save
    monkeypatch.setattr(session_module, "LARGE_BYTES", 0)
    monkeypatch.setattr(
        session_module.ir,
        "save",
        lambda *a, **k: files.append({p.name for p in a[1].parent.iterdir()}) or write(*a, **k),
    )
    assert calibrate(conv_net(), images(2), ID) == small
    assert files == [set()]


def test_lost_weights_are_refused(tmp_path: Path) -> None:
    ir.save(conv_net(), tmp_path / "net.onnx", external_data="net.bin", size_threshold_bytes=0)
    model = ir.load(tmp_path / "net.onnx")
    (tmp_path / "net.bin").unlink()
    with pytest.raises(ModelError, match=r"model 'net': its weights cannot be .* check that its files"):
        calibrate(model, images(1), ID)


# ----------------------------------------------------------------------------------------------- refusals


def refusal(error: type[Exception], model: ir.Model, samples: Any, **settings: Any) -> str:
    with pytest.raises(error) as caught:
        calibrate(model, samples, ID, RunSettings(**{"channels": "off", **settings}))
    return str(caught.value)


def test_no_samples_are_refused() -> None:
    assert refusal(DataError, conv_net(), []) == "samples: there are no samples; give at least one"


def test_batches_without_rows_are_no_samples() -> None:
    model = model_of(
        '<ir_version: 8, opset_import: ["": 13]> g (float[N, 2] x) => (float[N, 2] y) { y = Neg(x) }'
    )
    assert "there are no samples" in refusal(DataError, model, [sample(x=np.zeros((0, 2), np.float32))])


def test_a_sample_that_the_model_fails_on_is_named() -> None:
    model = model_of(
        """<ir_version: 8, opset_import: ["": 13]>
        g (float[N, M] x, float[K, L] w) => (float[N, L] y) { [dot] y = MatMul(x, w) }"""
    )
    feed = {"x": np.ones((1, 2), np.float32), "w": np.ones((3, 4), np.float32)}
    text = refusal(DataError, model, [Sample("odd.npz", feed)])
    assert text.startswith("sample odd.npz: the model fails on it: ")
    assert "dot" in text


def test_a_hand_made_sample_without_an_input_is_named() -> None:
    assert "sample a.npz" in refusal(DataError, conv_net(), [sample(y=np.ones(3, np.float32))])


def test_a_limit_takes_the_first_samples() -> None:
    found = calibrate(conv_net(), images(), ID, RunSettings(channels="off", limit=2))
    assert dumps(found) == dumps(calibrate(conv_net(), images()[:2], ID))


def test_a_negative_number_of_threads_is_refused() -> None:
    assert refusal(ConfigError, conv_net(), images(1), threads=-1) == "threads: -1 is below 0; give 0 or more"


# ------------------------------------------------------------------------------------------------- channels


def channel_net() -> ir.Model:
    """Feature maps that onnxruntime keeps in blocks, and products behind changes of shape and order."""
    proto = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["": 13]>
        net (float[N, 3, 16, 16] x) => (float[N, 10] scores, float[N, 256, 8] z) {
            c = Conv <pads = [1, 1, 1, 1]> (x, w1)
            r = Relu (c)
            d = Conv (r, w2)
            u = Relu (d)
            p = GlobalMaxPool (u)
            f = Flatten (p)
            scores = Gemm (f, w3)
            t = Transpose <perm = [0, 2, 3, 1]> (r)
            h = Reshape (t, three)
            z = MatMul (h, w4)
        }"""
    )
    rng = np.random.default_rng(0)
    shapes = {"w1": (32, 3, 3, 3), "w2": (64, 32, 3, 3), "w3": (64, 10), "w4": (32, 8)}
    for name, shape in shapes.items():
        weight = rng.integers(-2, 3, shape).astype(np.float32)
        proto.graph.initializer.append(onnx.numpy_helper.from_array(weight, name))
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.array([0, 256, 32]), "three"))
    return ir.from_proto(onnx.shape_inference.infer_shapes(proto))


AXES = {"x": 1, "r": 1, "f": 1, "h": -1}


def run_directly(model: ir.Model, samples: Sequence[Sample], name: str) -> list[np.ndarray]:
    copy = model.clone()
    values = [*copy.graph.inputs, *(v for node in copy.graph for v in node.outputs)]
    copy.graph.outputs[:] = [v for v in values if v.name == name]
    session = ort.InferenceSession(ir.to_proto(copy).SerializeToString(), providers=["CPUExecutionProvider"])
    return [session.run(None, dict(s.arrays))[0] for s in samples]


def test_channels_are_those_of_the_tensor_in_whatever_order_it_is_read() -> None:
    """All values are whole numbers, so that optimisations cannot change them."""
    model, samples = channel_net(), whole_numbers()
    profile = calibrate(model, samples, ID, RunSettings(channels=AXES))
    for name, axis in AXES.items():
        direct = TensorObserver("float", axis=axis, channels=profile[name].shape[axis])
        for array in run_directly(model, samples, name):
            direct.add(array, profile[name].shape)
        assert profile[name] == direct.profile()
        assert profile[name].channels.axis == axis
    assert {name for name in profile if profile[name].channels is not None} == {*AXES}


def test_channels_change_nothing_else() -> None:
    with_channels = calibrate(channel_net(), whole_numbers(), ID, RunSettings(channels=AXES))
    without = calibrate(channel_net(), whole_numbers(), ID)
    assert {name: replace(p, channels=None) for name, p in with_channels.items()} == without.tensors


def test_channels_of_unknown_number_are_passed_over() -> None:
    assert calibrate(conv_net(), images(2), ID, RunSettings(channels={"x": 2, "c": 7}))["x"].channels is None


@pytest.mark.parametrize("threads", [1, 3])
def test_threads_do_not_change_a_channel(threads: int) -> None:
    settings = RunSettings(threads=threads, channels=AXES)
    found = calibrate(channel_net(), whole_numbers(), ID, settings)
    assert dumps(found) == dumps(calibrate(channel_net(), whole_numbers(), ID, RunSettings(channels=AXES)))


def test_a_batch_gives_the_channels_of_its_samples(by_element: Change) -> None:
    apart = whole_numbers()
    together = [Sample("all", {"x": np.concatenate([s.arrays["x"] for s in apart])})]
    found = [
        calibrate(channel_net(), samples, ID, RunSettings(channels=AXES)) for samples in (apart, together)
    ]
    assert dumps(by_element(found[0])) == dumps(by_element(found[1]))


def test_an_array_with_other_channels_than_declared_is_refused() -> None:
    model = channel_net()
    next(v for node in model.graph for v in node.outputs if v.name == "h").shape = ir.Shape([None, 256, 16])
    text = refusal(DataError, model, whole_numbers(1), channels={"h": -1})
    assert "tensor 'h' (unnamed Reshape node) has shape (1, 256, 32), but the model declares" in text
