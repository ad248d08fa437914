"""Labels that do not belong to a model."""

from __future__ import annotations

from dataclasses import replace

import pytest
from qprof_onnx.quantizer.evaluation.accuracy import accuracy_of
from qprof_onnx.quantizer.evaluation.gates import failures_of, truth_doubts
from qprof_onnx.quantizer.evaluation.metrics.intervals import is_near_chance
from qprof_onnx.quantizer.evaluation.metrics.score import Score
from qprof_onnx.quantizer.evaluation.options import Gate

from .running import both_right


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


def test_a_float_model_near_chance_is_remarked_and_fails_a_gate_on_accuracy() -> None:
    found = accuracy_of("y", *both_right(27, 100), chance=25.0)
    (remark,) = map(str, truth_doubts(found))
    assert remark == (
        "the float model is right on only 27 % of 100 rows (chance 25 %): are labels in the model's order, "
        "and preprocessing as in training?"
    )
    (failure,) = failures_of(Gate(max_drop=5.0), (), found, None, 1)
    assert remark in failure.reason


def test_a_float_model_that_is_right_on_less_than_half_is_remarked() -> None:
    found = accuracy_of("y", *both_right(450, 1000), chance=10.0)
    assert not found.is_at_chance
    assert truth_doubts(found)
    assert not truth_doubts(accuracy_of("y", *both_right(60, 100), 10.0))


def test_a_mean_precision_of_a_third_is_usual() -> None:
    score = Score(10, 10, 33.0, 33.0, 0.0, -1.0, 1.0)
    assert not truth_doubts(score)
    assert truth_doubts(score, counts_rows=True)
    assert truth_doubts(replace(score, float_score=7.0))
