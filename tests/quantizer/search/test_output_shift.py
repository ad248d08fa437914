"""How far outputs are from float, in the unit that decides."""

from __future__ import annotations

import math
from typing import Any, cast

import numpy as np
import pytest
from qprof_onnx.quantizer.evaluation.compare import NO_CLASSES, ClassAxis
from qprof_onnx.quantizer.noise.output_limits import NoiseLimits
from qprof_onnx.quantizer.search.output_shift import Measure, OutputShift, output_shifts
from qprof_onnx.quantizer.targets.config import OutputKind

RNG = np.random.default_rng(5)


def shift(floats: Any, quantized: Any, kind: OutputKind, classes: ClassAxis = NO_CLASSES) -> OutputShift:
    """Return how far an output is from float, on samples that lie along the first axis of two arrays."""
    graph = cast("Any", None)
    limits = NoiseLimits(graph, cast("Any", {}), {"y": kind}, 20.0, ())
    (found,) = output_shifts(
        [{"y": np.asarray(f, np.float32)} for f in floats],
        [{"y": np.asarray(q, np.float32)} for q in quantized],
        limits,
        {"y": classes},
    )
    return found


def test_outputs_that_are_equal_have_not_moved() -> None:
    p = RNG.dirichlet(np.ones(4), (3, 2))
    assert shift(p, p, "decision").value == 0.0


def test_of_probabilities_the_moved_share_counts() -> None:
    found = shift([[[0.5, 0.5]], [[1.0, 0.0]]], [[[0.6, 0.4]], [[1.0, 0.0]]], "decision")
    assert found.measure is Measure.MOVED
    assert found.value == pytest.approx(0.1)


def test_log_probabilities_count_by_what_they_are_the_logarithm_of() -> None:
    p, q = RNG.dirichlet(np.ones(5), (2, 4, 3))
    expected = np.abs(p - q).sum() / p.sum()
    assert shift(np.log(p), np.log(q), "values").value == pytest.approx(expected, rel=1e-4)


def test_an_error_of_an_improbable_class_does_not_count() -> None:
    p = np.array([[[0.7, 0.3 - 1e-9, 1e-9]]])
    q = np.log(p) + np.array([0.0, 0.0, 5.0])
    assert shift(np.log(p), q, "values").value < 1e-6


def test_rows_of_an_assignment_that_go_to_nobody_are_not_normalised() -> None:
    p = np.array([[[0.9, 1e-9, 1e-9], [1e-9, 0.8, 1e-9], [1e-9, 1e-9, 1e-9]]])
    noise = np.where(p < 1e-6, RNG.normal(0.0, 2.0, p.shape), 0.0)
    assert shift(np.log(p), np.log(p) + np.minimum(noise, 0.0), "values").value < 1e-6


def test_an_assignment_may_have_a_row_and_a_column_for_what_is_left() -> None:
    p = np.full((1, 1, 12, 12), 1e-9)
    p[..., np.arange(8), np.arange(8)] = 0.9
    p[..., 11, 8:11] = p[..., 8:11, 11] = 0.8
    found = shift(np.log(p), np.log(p) - 0.01, "values")
    assert found.measure is Measure.MOVED
    assert found.value == pytest.approx(0.01, rel=0.01)


def test_logits_count_by_their_softmax() -> None:
    logits = RNG.normal(size=(2, 3, 4))
    classes = ClassAxis(-1, True)
    assert shift(logits, logits + 3.0, "values", classes).value == pytest.approx(0.0, abs=1e-6)
    assert shift(logits, -logits, "values", classes).value > 0.1


def test_numbers_that_are_no_answers_count_by_their_noise() -> None:
    found = shift([[[3.0, 4.0]]], [[[3.0, 4.5]]], "values")
    assert found.measure is Measure.NOISE
    assert found.value == pytest.approx(0.1)
    assert found.limit == pytest.approx(math.sqrt(2.0 * 0.01))


def test_boxes_beside_scores_do_not_count() -> None:
    boxes, scores = RNG.uniform(0.0, 300.0, (2, 4, 10)), RNG.uniform(0.0, 1.0, (2, 3, 10))
    floats = np.concatenate([boxes, scores], axis=1)[:, None]
    moved = np.concatenate([boxes + 5.0, scores], axis=1)[:, None]
    floats, moved = np.swapaxes(floats, 2, 3), np.swapaxes(moved, 2, 3)
    found = shift(floats, moved, "detections")
    assert found.measure is Measure.MOVED
    assert found.value == 0.0


def test_of_a_single_probability_both_answers_count() -> None:
    assert shift([[[0.001]]], [[[0.002]]], "decision").value == pytest.approx(0.002)


def test_a_sample_in_which_nothing_is_found_counts_as_one_with_one_answer() -> None:
    assert shift(np.zeros((2, 1, 50)), np.full((2, 1, 50), 1e-3), "decision").value == pytest.approx(0.05)


def test_of_embeddings_the_cosines_between_rows_count() -> None:
    rows = RNG.normal(size=(8, 1, 16))
    same = shift(rows, 2.0 * rows, "embedding")
    assert same.measure is Measure.COSINES
    assert same.value == pytest.approx(0.0, abs=1e-6)
    assert shift(rows, rows + RNG.normal(size=rows.shape), "embedding").value > 0.4


def test_few_rows_of_an_embedding_count_by_their_noise() -> None:
    rows = RNG.normal(size=(2, 1, 16))
    assert shift(rows, rows, "embedding").measure is Measure.NOISE


def test_what_is_not_finite_is_infinitely_far_off() -> None:
    assert shift([[[0.5, 0.5]]], [[[math.nan, 0.5]]], "decision").value == math.inf


def test_a_state_beside_other_outputs_is_not_compared() -> None:
    limits = NoiseLimits(cast("Any", None), cast("Any", {}), {"y": "values", "h": "state"}, 20.0, ())
    sample = {"y": np.ones((1, 2), np.float32), "h": np.ones((1, 2), np.float32)}
    assert [one.output for one in output_shifts([sample], [sample], limits, {})] == ["y"]
