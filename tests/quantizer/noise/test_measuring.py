"""Noise as it is measured, against the same arithmetic in numpy; what cannot be measured."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import onnx_ir as ir
import pytest
from onnx import numpy_helper, parser
from qprof_onnx.profiles.records.profile import INJECTED, SampleNoise
from qprof_onnx.profiles.runner.calibrate import calibrate
from qprof_onnx.profiles.runner.settings import RunSettings
from qprof_onnx.profiles.samples.values import Sample
from qprof_onnx.quantizer.model.identity import model_id
from qprof_onnx.quantizer.noise import measure as measuring
from qprof_onnx.quantizer.noise.measure import (
    INFINITE_NOISE,
    expected_bytes,
    measure_noise,
    measured_tensors,
    rounded_copy,
    unmeasurable,
)
from qprof_onnx.quantizer.noise.propagation import MAX_CORRECTION, measured_gains
from qprof_onnx.quantizer.operators.graph import index
from qprof_onnx.quantizer.prepare.prepare import prepare

RNG = np.random.default_rng(13)
W, V = (RNG.normal(size=shape).astype(np.float32) for shape in ((6, 8), (8, 3)))
X = RNG.normal(size=(5, 6)).astype(np.float32)
HEAD = '<ir_version: 9, opset_import: ["" : 17]>\n'
NET = """net (float[n, 6] x) => (float[n, 3] y) {
    h = MatMul(x, w)
    r = Relu(h)
    y = MatMul(r, v)
}"""


def prepared(text: str, **weights: np.ndarray) -> ir.Model:  # type: ignore[type-arg]
    proto = parser.parse_model(HEAD + text)
    proto.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in weights.items())
    return prepare(ir.from_proto(proto)).model


def measured(
    model: ir.Model, names: Collection[str], threads: int = 1, **arrays: object
) -> tuple[SampleNoise, ...]:
    samples = [(name, Sample(name, {name[0]: np.asarray(array)})) for name, array in arrays.items()]
    return measure_noise(model, names, samples, threads)


def power(values: np.ndarray) -> float:  # type: ignore[type-arg]
    return float(np.square(values.astype(np.float64)).mean())


def rounded(values: np.ndarray, reference: np.ndarray) -> np.ndarray:  # type: ignore[type-arg]
    step = np.float32(np.sqrt(12.0 * INJECTED * power(reference)))
    result: np.ndarray = np.rint(values / step) * step  # type: ignore[type-arg]
    return result


def int8(weight: np.ndarray) -> np.ndarray:  # type: ignore[type-arg]
    scale = np.maximum(weight.max(axis=0) / np.float32(127.0), -weight.min(axis=0) / np.float32(128.0))
    result: np.ndarray = np.rint(weight / scale) * scale  # type: ignore[type-arg]
    return result


def test_signal_and_noise_are_those_of_the_same_arithmetic_in_numpy() -> None:
    (found,) = measured(prepared(NET, w=W, v=V), ["x", "h", "y"], x=X)
    h, y = X @ W, np.maximum(X @ W, 0) @ V
    noisy_h = rounded(X, X) @ W
    noisy_y = np.maximum(rounded(noisy_h, h), 0) @ V
    weights_h = X @ int8(W)
    weights_y = np.maximum(weights_h, 0) @ int8(V)
    assert list(found.tensors) == ["x", "h", "y"]  # r is none of the names, and is not rounded
    # A value that lies between two steps may be rounded to the other one in the last bit of float32.
    for name, values, noisy, of_weights in (("h", h, noisy_h, weights_h), ("y", y, noisy_y, weights_y)):
        noise = found.tensors[name]
        assert noise.signal == pytest.approx(power(values), rel=1e-4)
        assert noise.activation_noise == pytest.approx(power(noisy - values), rel=0.02)
        assert noise.weight_noise == pytest.approx(power(of_weights - values), rel=0.02)
    assert (found.tensors["x"].activation_noise, found.tensors["x"].weight_noise) == (0.0, 0.0)
    assert found.tensors["x"].injected == pytest.approx(INJECTED * power(X), rel=1e-4)


def test_threads_and_neighbours_do_not_change_a_figure() -> None:
    model, names = prepared(NET, w=W, v=V), ["x", "h", "y"]
    arrays = {f"x{number}": X + number for number in range(5)}
    together = measured(model, names, threads=3, **arrays)
    alone = [measured(model, names, **{name: array})[0] for name, array in arrays.items()]
    assert together == tuple(sorted(alone, key=lambda sample: sample.digest))


def test_what_a_softmax_makes_zero_of_counts_neither_as_signal_nor_as_noise() -> None:
    model = prepared(
        "net (float[n, 6] x) => (float[n, 6] y) { m = Add(x, mask) y = Softmax <axis = -1> (m) }",
        mask=np.array([0, 0, 0, 0, 0, -1e4], np.float32),
    )
    (found,) = measured(model, ["x", "m", "y"], x=X)
    assert found.tensors["m"].signal == pytest.approx(power(np.where(np.arange(6) < 5, X, 0)), rel=1e-4)
    noise, signal = found.tensors["y"].activation_noise, found.tensors["y"].signal
    assert noise is not None
    assert signal is not None
    assert 1e-6 < noise / signal < 1e-2


def test_a_divisor_that_an_earlier_rounding_made_zero_is_measured() -> None:
    model = prepared("net (float[n, 6] x) => (float[n, 6] y) { a = Abs(x) m = Pow(a, e) y = Div(x, m) }",
                     e=np.float32(0.98))  # fmt: skip
    x = X.copy()
    x[0, 0] = 1e-4  # below half a step: what Abs returns is rounded to 0, and so is its power
    (found,) = measured(model, ["x", "a", "m", "y"], x=x)
    assert found.tensors["y"].activation_noise


def test_rounded_values_in_another_order_are_not_rounded_again() -> None:
    model = prepared("net (float[2, 3] x) => (float[3, 2] y) { t = Transpose (x)\n y = Relu (t) }")
    copy, _ = rounded_copy(model, measured_tensors(model, {"x", "t", "y"}), "r:")
    rounding = [node.name for node in copy.graph if node.op_type == "Round"]
    assert rounding == ["r:1:x", "r:1:y"]


def test_infinite_values_pass_and_are_not_measured() -> None:
    model = prepared("net (float[n, 6] x) => (float[n, 6] y) { m = Neg(x) y = Clip(m, low, high) }",
                     low=np.float32(-1), high=np.float32(1))  # fmt: skip
    x = X.copy()
    x[0, 0] = -np.inf
    (found,) = measured(model, ["x", "m", "y"], x=x)
    assert "x" not in found.tensors or found.tensors["x"].signal is None
    assert found.tensors["y"].activation_noise == 0.0  # x and m were not rounded


COUNTS = """net (float[6] x) => (float[m, 1] y, float[6] z) {
    large = Greater(x, level)
    places = NonZero(large)
    moved = Transpose(places)
    y = Cast <to = 1> (moved)
    h = Mul(x, level)
    z = Add(h, x)
}"""


def test_a_shape_that_noise_changes_is_noted_and_the_rest_is_measured() -> None:
    model = prepared(COUNTS, level=np.float32(1.0))
    x = np.array([1.0001, 0.9999, 5.0, -3.0, 0.2, 4.0], np.float32)
    (found,) = measured(model, ["x", "y", "z"], x=x)
    assert found.changed_shapes == ("y",)
    assert found.tensors["y"].activation_noise is None
    assert found.tensors["y"].weight_noise == 0.0
    assert found.tensors["z"].activation_noise is not None
    (found,) = measured(model, ["x", "y", "z"], x=np.array([9, 8, 7, -6, -5, -4], np.float32))
    assert found.changed_shapes == ()
    assert found.tensors["y"].activation_noise == 0.0


def test_where_a_copy_fails_on_a_sample_the_others_are_measured() -> None:
    model = prepared(COUNTS.replace("z = Add(h, x)", "s = Reshape(y, three) z = Sum(h, s)")
                     .replace("float[6] z", "float[k, l] z"), level=np.float32(1.0),
                     three=np.array([3, 1], np.int64))  # fmt: skip
    (found,) = measured(model, ["x", "y", "h"], x=np.array([1.0001, 0.9999, 5, -3, 0.2, 4], np.float32))
    assert found.tensors["h"].activation_noise is None
    assert found.tensors["h"].weight_noise == 0.0
    assert found.changed_shapes == ("y",)


def test_subgraphs_are_run_as_they_are() -> None:
    body = (
        "then () => (float[n, k] a) { a = MatMul(h, v) }",
        "orelse () => (float[n, k] b) { b = MatMul(h, u) }",
    )
    model = prepared(
        f"net (float[n, 6] x) => (float[n, 3] y) {{ h = MatMul(x, w) s = ReduceSum <keepdims = 0> (h) "
        f"c = Greater(s, zero) y = If (c) <then_branch = {body[0]}, else_branch = {body[1]}> }}",
        w=W, v=V, u=V, zero=np.float32(0),
    )  # fmt: skip
    (found,) = measured(model, ["x", "h", "y"], x=X)
    noisy = rounded(rounded(X, X) @ W, X @ W) @ V
    assert found.tensors["y"].activation_noise == pytest.approx(power(noisy - X @ W @ V), rel=0.02)


def test_random_numbers_and_large_models_are_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    random = prepared("net (float[n, 6] x) => (float[n, 6] y) { r = RandomNormalLike(x) y = Add(x, r) }")
    assert "RandomNormalLike" in unmeasurable(random)
    assert measured(random, ["x", "y"], x=X) == ()
    model = prepared(NET, w=W, v=V)
    assert unmeasurable(model) == ""
    monkeypatch.setattr(measuring, "MAX_WEIGHT_BYTES", 4 * W.size)
    assert "weights" in unmeasurable(model)


def test_the_model_stays_as_it_is_and_memory_is_foreseen() -> None:
    model = prepared(NET, w=W, v=V)
    before = ir.to_proto(model).SerializeToString(deterministic=True)
    measured(model, ["x", "h", "y"], x=X)
    assert ir.to_proto(model).SerializeToString(deterministic=True) == before
    sizes = {"x": 6 << 20, "h": 8 << 20, "y": 3 << 20}
    assert (24 << 20) < expected_bytes(model, sizes) < (100 << 20)


def test_noise_a_thousand_times_the_signal_is_measured_whole() -> None:
    model = prepared(
        "net (float[n, 6] x) => (float[n, 6] y) { c = Sub(x, one) q = Mul(c, c) p = Mul(q, q) y = Neg(p) }",
        one=np.float32(1.0),
    )
    x = 1 + 1e-4 * X  # less than a step from 1, which is no multiple of the step
    (found,) = measured(model, ["x", "c", "q", "p", "y"], x=x)
    noisy = value = rounded(x, x) - 1
    exact = x - np.float32(1)
    for name in ("q", "p", "y"):
        noisy = np.negative(value) if name == "y" else np.square(rounded(value, exact))
        exact = np.negative(exact) if name == "y" else np.square(exact)
        value = noisy if name != "p" else rounded(noisy, exact)
        assert power(noisy - exact) > 1e6 * power(exact)
        assert found.tensors[name].activation_noise == pytest.approx(power(noisy - exact), rel=1e-3, abs=0)


def test_a_float_size_that_a_range_counts_to_is_not_rounded() -> None:
    model = prepared(
        "net (float[n, 6] x) => (float[n, 6] y) { s = Shape <start = 0, end = 1> (x) c = Cast <to = 1> (s) "
        "d = Squeeze(c) f = Mul(d, one) r = Range(zero, f, one) g = Unsqueeze(r, axis) y = Add(x, g) }",
        one=np.float32(1.0), zero=np.float32(0.0), axis=np.array([1], np.int64),
    )  # fmt: skip
    (found,) = measured(model, ["x", "c", "d", "f", "r", "g", "y"], x=np.tile(X, (9, 1)))
    assert not {"c", "d", "f"} & set(found.tensors)
    assert found.tensors["y"].activation_noise
    assert found.changed_shapes == ()


def test_what_is_nan_in_a_copy_counts_as_infinite_noise() -> None:
    steps = np.array([[63.4, 63.4, -126.6, 127.0]], np.float32).T / np.float32(127.0)
    w = np.concatenate([steps, np.abs(steps)], axis=1)  # the first column, rounded, has a sum below 0
    arrays = {
        "some": np.array([[1, 1, 1, 0], [1, 1, 0.2, 0]], np.float32),
        "none": np.array([[1, 1, 0.2, 0], [1, 1, 0.1, 0]], np.float32),
    }
    text = "net (float[n, 4] x) => (float[n, 3] y) { h = MatMul(x, w)  r = Sqrt(h)  y = MatMul(r, v) }"
    model = prepared(text, w=w, v=V[:2])
    noises = measure_noise(
        model, ["x", "h", "r", "y"], [(name, Sample(name, {"x": array})) for name, array in arrays.items()]
    )
    for noise in noises:
        for name in ("r", "y"):
            tensor = noise.tensors[name]
            assert tensor.signal is not None
            assert tensor.weight_noise is not None
            is_infinite = tensor.weight_noise >= 0.999 * INFINITE_NOISE * tensor.signal
            assert is_infinite == (noise.digest == "some")
    identity = model_id(model, "net.onnx")
    profile = calibrate(
        model, [Sample(n, {"x": a}) for n, a in arrays.items()], identity, RunSettings(channels="off")
    )
    gains = measured_gains(index(model), profile, 17, noises)
    assert gains.weight_corrections["r"] == MAX_CORRECTION
    assert gains.weight_corrections["y"] < 100.0  # the root has it, not what follows
    assert gains.weight_corrections["h"] < 100.0
