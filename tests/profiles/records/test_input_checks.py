"""What is told of the inputs: statistics from histograms, and hints where they should be alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import reduce
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import pytest
from hypothesis import given
from hypothesis import strategies as st
from qprof_onnx.profiles.instrumentation.input_facts import countable
from qprof_onnx.profiles.observers.tensor_observer import TensorObserver
from qprof_onnx.profiles.records.data_checks import check_input, mean_and_deviation, whole_numbers
from qprof_onnx.profiles.records.profile import (
    InputProfile,
    ModelId,
    Profile,
    Sizes,
    TensorProfile,
    merged_sizes,
    sizes_of,
)
from qprof_onnx.profiles.runner.calibrate import calibrate
from qprof_onnx.profiles.runner.settings import RunSettings
from qprof_onnx.profiles.samples.samples import Sample

RNG = np.random.default_rng(0)
Array = np.ndarray[Any, np.dtype[Any]]


def tensor_of(values: Any, dtype: str = "float") -> TensorProfile:
    observer = TensorObserver(dtype)
    observer.add(countable(np.asarray(values)), None)
    return observer.profile()


VALUES = st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=50)


@given(VALUES)
def test_mean_and_deviation_are_exact_to_a_thousandth_of_the_range(values: list[float]) -> None:
    array = np.array(values, np.float32).astype(np.float64)
    found, width = mean_and_deviation(tensor_of(array.astype(np.float32))), float(np.ptp(array))
    assert found == pytest.approx((array.mean(), array.std()), abs=1e-3 * width + 1e-12)


@given(st.lists(st.integers(0, 255), min_size=1, max_size=50))
def test_those_of_whole_numbers_are_exact(values: list[int]) -> None:
    for dtype, given_type in (("float", np.float32), ("uint8", np.uint8), ("int64", np.int64)):
        tensor = tensor_of(np.array(values, given_type), dtype)
        assert whole_numbers(tensor)
        assert mean_and_deviation(tensor) == pytest.approx((np.mean(values), np.std(values)), abs=1e-9)


def test_halves_are_no_whole_numbers() -> None:
    assert not whole_numbers(tensor_of(np.array([0.5, 1.0, 255.0], np.float32)))


def test_the_sentence_of_an_input() -> None:
    image = InputProfile(tensor_of(np.array([0.0, 1.0], np.float32)), ((1, 8), (3, 3)))
    assert check_input("x", image).sentence == (
        "input 'x': float 1-8x3, range 0 to 1, mean 0.5, standard deviation 0.5"
    )
    assert check_input("m", InputProfile(tensor_of([1, 1], "int64"), ())).sentence == (
        "input 'm': int64 scalar, always 1"
    )
    assert (
        check_input("t", InputProfile(tensor_of(np.zeros(0), "string"), None)).sentence
        == "input 't': string ?"
    )


@given(st.lists(st.lists(st.integers(0, 99), max_size=3), min_size=1, max_size=4))
def test_sizes_merge_in_any_order_and_are_read_as_they_are_written(shapes: list[list[int]]) -> None:
    sizes: list[Sizes | None] = [sizes_of(tuple(shape)) for shape in shapes]
    found = reduce(merged_sizes, sizes)
    assert found == reduce(merged_sizes, sizes[::-1])


# ------------------------------------------------------------------------------------------------------ hints

PIXELS = RNG.integers(0, 256, (12, 1, 3, 16, 16)).astype(np.float32)
CONV = "y = Conv (x, w)"


def hinted(samples: Array, body: str, shape: str = "N, 3, H, W", **more: Any) -> Profile:
    """Return the profile of a net on samples: arrays of one input."""
    proto = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["": 13]> n (float[{shape}] x) => (float[M, C, A, B] y) {{ {body} }}'
    )
    weights = {"w": np.ones((4, 3, 3, 3)), "scale": np.full((1,), 255.0), "mean": np.full((1, 3, 1, 1), 0.5)}
    weights["small"] = weights["w"] / 2000.0
    for name, weight in weights.items():
        if name in body:
            proto.graph.initializer.append(onnx.numpy_helper.from_array(weight.astype(np.float32), name))
    for name in ("gain", "bias", "m", "v"):
        if name in body:
            proto.graph.initializer.append(onnx.numpy_helper.from_array(np.ones(3, np.float32), name))
    model = ir.from_proto(onnx.shape_inference.infer_shapes(proto))
    named = [Sample(f"{i}.png", {"x": array}) for i, array in enumerate(samples)]
    return calibrate(model, named, ModelId("s", "w", 13), RunSettings(channels="off", **more))


def codes(profile: Profile) -> list[str]:
    return [hint.code for hint in profile.findings]


@pytest.mark.parametrize("array", [PIXELS, PIXELS * np.float32(0.99), np.round(PIXELS / 3)], ids=str)
def test_pixels_that_were_not_scaled_are_noticed(array: Array) -> None:
    (hint,) = [hint for hint in hinted(array, CONV).findings if hint.code == "pixels"]
    assert hint.text == (
        "input 'x' looks like pixels 0..255, and the model does not begin by scaling it; did you forget to "
        "normalise?"
    )


@pytest.mark.parametrize(
    "body",
    [
        "a = Div (x, scale) y = Conv (a, w)",
        "a = Sub (x, mean) b = Mul (a, scale) y = Conv (b, w)",
        "a = BatchNormalization (x, gain, bias, m, v) y = Conv (a, w)",
        "a = Identity (x) b = Div (a, scale) y = Conv (b, w)",
    ],
)
def test_nothing_is_said_where_the_model_scales_its_input(body: str) -> None:
    assert "pixels" not in codes(hinted(PIXELS, body))


@pytest.mark.parametrize("first", ["a = Identity (x)", "a = Concat <axis = 0> (x, x)"])
def test_nothing_is_said_if_the_first_weights_are_small_enough_for_pixels(first: str) -> None:
    assert "pixels" not in codes(hinted(PIXELS, f"{first} y = Conv (a, small)"))


def test_a_model_that_scales_only_one_of_its_uses_does_not_count() -> None:
    body = "a = Div (x, scale) b = Conv (x, w) c = Conv (a, w) y = Add (b, c)"
    assert "pixels" in codes(hinted(PIXELS, body))


SCALED: dict[str, Callable[[], Array]] = {
    "zero to one": lambda: PIXELS / 255.0,
    "with the mean taken out": lambda: (PIXELS - 118.0) / 58.0,
    "pixels from -128": lambda: PIXELS - 128.0,
    "a binary image": lambda: np.round(PIXELS / 255.0),
    "more than pixels": lambda: PIXELS * 4.0,
}


@pytest.mark.parametrize("array", SCALED.values(), ids=SCALED)
def test_nothing_is_said_of_what_is_scaled(array: Callable[[], Array]) -> None:
    assert "pixels" not in codes(hinted(array().astype(np.float32), CONV))


def test_nothing_is_said_of_what_is_no_image() -> None:
    audio = RNG.integers(0, 256, (12, 1, 3, 400)).astype(np.float32)
    assert codes(hinted(audio, "y = Neg (x)", "N, 3, T")) == []


def test_channels_that_come_last_are_noticed_where_all_sizes_are_free() -> None:
    images = np.moveaxis(PIXELS / 255.0, 2, -1).astype(np.float32)
    moved = "y = Transpose <perm = [0, 3, 1, 2]> (x)"
    assert "channels-last" in codes(hinted(images, "y = Neg (x)", "N, C, H, W"))
    assert "channels-last" not in codes(hinted(images, "y = Neg (x)", "N, H, W, 3"))
    assert "channels-last" not in codes(hinted(images, moved, "N, C, H, W"))
    assert "channels-last" not in codes(hinted(PIXELS / np.float32(255.0), "y = Neg (x)", "N, C, H, W"))


def test_a_constant_input_is_noticed() -> None:
    assert "constant-input" in codes(hinted(np.full((9, 1, 3, 8, 8), 0.5, np.float32), CONV))
    assert "constant-input" not in codes(hinted(PIXELS / np.float32(255.0), CONV))


def test_a_scalar_that_is_constant_is_not() -> None:
    assert "constant-input" not in codes(hinted(np.full((9, 1), 0.5, np.float32), "y = Neg (x)", "N"))


@pytest.mark.parametrize("length", [0, 3])
def test_a_state_that_is_zero_or_empty_in_all_samples_is_noticed(length: int) -> None:
    text = "g (float[1, 4] x, float[1, S, 4] past) => (float[1, T, 4] present)"
    body = "row = Unsqueeze (x, axis) present = Concat <axis = 1> (past, row)"
    model = ir.from_proto(
        onnx.parser.parse_model(
            f'<ir_version: 8, opset_import: ["": 17]> {text} <int64[1] axis = {{1}}> {{ {body} }}'
        )
    )
    rng = np.random.default_rng(0)

    def hints(past: Array) -> list[str]:
        rows = (rng.normal(size=(1, 4)).astype(np.float32) for _ in range(9))
        samples = [Sample(str(i), {"x": row, "past": past}) for i, row in enumerate(rows)]
        profile = calibrate(model, samples, ModelId("s", "w", 17))
        return [hint.text for hint in profile.findings if hint.code == "zero-state"]

    (found,) = hints(np.zeros((1, length, 4), np.float32))
    assert found.startswith("input 'past': zero or empty in all samples")
    assert "'state: {OUTPUT: past}'" in found
    assert hints(np.ones((1, 3, 4), np.float32)) == []


@pytest.mark.parametrize("by_row", [False, True])
def test_equal_samples_are_noticed(by_row: bool) -> None:
    equal = np.repeat(PIXELS[:1] / np.float32(255.0), 9, axis=0)
    one = hinted(equal[:1], CONV).data.digest
    kept = replace(hinted(equal, CONV, by_row=by_row), check_samples=(one,), keep_samples=1)
    found = [hint.text for hint in kept.findings]
    assert found == ["all 9 samples are equal; give samples that differ, as real data do"]


def test_one_batch_is_not_taken_for_equal_samples() -> None:
    assert codes(hinted(np.moveaxis(PIXELS, 1, 0) / np.float32(255.0), CONV)) == []


def test_few_samples_are_noticed() -> None:
    assert [hint.text for hint in hinted(PIXELS[:1] / np.float32(255.0), CONV).findings] == [
        "1 sample is few: ranges from so few samples are unreliable; give at least 32"
    ]
    assert "few-samples" not in codes(hinted(PIXELS[:8] / np.float32(255.0), CONV))
