"""Labels that do not belong to a model."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from qprof_onnx.quantizer.evaluation.gates import failures_of, truth_doubts
from qprof_onnx.quantizer.evaluation.metrics.classification import chance_of, labelled_rows
from qprof_onnx.quantizer.evaluation.metrics.intervals import is_near_chance
from qprof_onnx.quantizer.evaluation.metrics.metric import mean_of
from qprof_onnx.quantizer.evaluation.metrics.score import Score, score_of
from qprof_onnx.quantizer.evaluation.metrics.table import named_metric
from qprof_onnx.quantizer.evaluation.options import Gate
from qprof_onnx.quantizer.noise.class_axes import ClassAxis

from .running import rows


@pytest.mark.parametrize(
    ("right", "rows", "chance", "near"),
    [
        (27, 100, 0.25, True),
        (5, 100, 0.25, True),
        (40, 100, 0.25, False),
        (4, 4, 0.5, False),
        (3, 4, 0.5, True),
        (0, 50, 0.0, True),
        (1, 50, 0.0, False),
    ],
)
def test_near_chance_is_what_wilsons_interval_cannot_tell_from_it(
    right: int, rows: int, chance: float, near: bool
) -> None:
    assert is_near_chance(right, rows, chance) == near


def counted(right: int, rows: int, classes: int) -> Score:
    """Return the accuracy of a model with so many rows right of balanced classes that it mixes up evenly."""
    true = np.arange(rows) % classes
    hit = np.arange(rows) < right
    said = np.where(hit, true, (true + 1) % classes)
    kept = [(hit, said, true)]
    figures, kind = mean_of(100.0 * hit), named_metric("top-1").kind
    return score_of(kind, 1, figures, figures, guessed=chance_of(kept, 1.0 / classes))


def test_a_float_model_near_chance_is_remarked_and_fails_a_gate_on_accuracy() -> None:
    found = counted(27, 100, 4)
    (remark,) = map(str, truth_doubts(found))
    assert remark == (
        "the float model scores 27 % with the truth of its 100 rows, 25 % by chance: are these enough "
        "rows, and do labels, their order and numbers, and --preprocess belong to this model?"
    )
    (failure,) = failures_of(Gate(max_drop=5.0), (), found, None, 1)
    assert remark in failure.reason


def test_a_float_model_that_has_nothing_right_shows_nothing() -> None:
    found = counted(0, 5000, 10)
    assert (found.drop, found.drop_low, found.drop_high) == (0.0, -math.inf, math.inf)
    (failure,) = failures_of(Gate(max_drop=1.0), (), found, None, 1)
    assert "the float model gets nothing right" in failure.reason


def test_a_float_model_that_is_right_on_less_than_half_is_remarked() -> None:
    found = counted(450, 1000, 10)
    assert not found.is_at_chance
    assert truth_doubts(found)
    assert not truth_doubts(counted(60, 100, 10))


def test_a_mean_precision_of_a_third_is_usual() -> None:
    score = Score(10, 10, 33.0, 33.0, 0.0, -1.0, 1.0)
    assert not truth_doubts(score)
    assert truth_doubts(replace(score, float_score=7.0))


def test_another_number_of_answers_counts_as_wrong() -> None:
    true, axis = np.array([1, 1]), ClassAxis(-1, True)
    assert labelled_rows(rows(1, 0)["y"], axis, true, "y")[0].tolist() == [True, False]
    for other in (rows(1), rows(1, 1, 1)):
        assert labelled_rows(other["y"], axis, true, "y")[0].tolist() == [False, False]


def test_shuffled_labels_of_uneven_classes_are_right_by_chance() -> None:
    said = np.repeat([0, 1, 2], [60, 30, 10])
    shuffled = np.random.default_rng(0).permutation(said)
    assert chance_of([(said == shuffled, said, shuffled)], 1 / 3) == (pytest.approx(46.0), True)
    assert chance_of([(said >= 0, said, said)], 1 / 3) == (pytest.approx(100 / 3), False)


def test_rows_of_one_class_do_not_look_shuffled() -> None:
    same = np.zeros(50, np.int64)
    assert chance_of([(same == 0, same, same)], 0.1) == (10.0, False)
