"""Records of measured noise, pooled over samples."""

from __future__ import annotations

from qprof_onnx.profiles.records.profile import (
    SampleNoise,
    TensorNoise,
    changed_shapes,
    mean_square,
    pooled_noise,
)


def test_pooled_figures_are_sums_over_the_samples_in_which_most_was_measured() -> None:
    samples = [
        SampleNoise("1", {"x": TensorNoise(2.0, 0.5, None)}),
        SampleNoise("2", {"x": TensorNoise(3.0, 0.25, None)}),
        SampleNoise("3", {"x": TensorNoise(9.0, None, None)}, ("x",)),
    ]
    assert pooled_noise(samples) == {"x": TensorNoise(5.0, 0.75, None)}
    assert changed_shapes(samples) == {"x"}


def test_a_mean_square_has_few_digits_and_none_stands_for_what_is_not_finite() -> None:
    assert mean_square(1.0, 3) == 0.33333
    assert mean_square(float("inf"), 3) is None
    assert mean_square(0.0, 0) is None
