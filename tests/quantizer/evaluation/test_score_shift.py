"""By how much scores moved, and which threshold stands for one of the float model."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from qprof_onnx.quantizer.evaluation.evaluate import evaluate
from qprof_onnx.quantizer.evaluation.metrics.score_shift import (
    Answers,
    Rows,
    confidences,
    equivalent_threshold,
    score_shift,
    shift_of_rows,
)
from qprof_onnx.quantizer.evaluation.options import EvaluationOptions
from qprof_onnx.quantizer.plugins.metrics.boxes import Boxes
from qprof_onnx.quantizer.plugins.metrics.detection import answers

from ...cli.conftest import DIGITS

UNITS = 200


def detector(seed: int = 0) -> Answers:
    """Return three answers for each of the units, the higher their score the more often right."""
    rng = np.random.default_rng(seed)
    scores = rng.uniform(0.05, 1.0, 3 * UNITS)
    right = rng.random(3 * UNITS) < scores
    unit = np.repeat(np.arange(UNITS), 3)
    item = np.where(right, np.arange(3 * UNITS), -1)
    return Answers(unit, scores, item, right, np.bincount(unit, right, UNITS))


@given(st.floats(0.3, 3.0), st.sampled_from([0.25, 0.5, 0.7]))
def test_the_threshold_follows_any_rising_change_of_the_scores(power: float, threshold: float) -> None:
    floats = detector()
    quantized = replace(floats, scores=floats.scores**power)
    there = equivalent_threshold(floats, quantized, threshold)
    assert quantized.counts(there) == floats.counts(threshold)


@given(st.integers(0, 50))
def test_a_threshold_stays_where_nothing_moved(seed: int) -> None:
    floats = detector(seed)
    found = score_shift("boxes", floats, floats, (0.25, 0.5))
    assert found is not None
    assert (found.mean, found.spread) == (0.0, 0.0)
    assert [one.quantized_threshold for one in found.thresholds] == [0.25, 0.5]
    assert not list(found.advice)
    assert found.text.endswith("threshold 0.25 and 0.5 can stay")


def test_lower_scores_are_told_with_the_threshold_that_gives_the_f1_back() -> None:
    floats = detector()
    quantized = replace(floats, scores=np.maximum(floats.scores - 0.2, 0.0))
    found = score_shift("boxes", floats, quantized, (0.5,))
    assert found is not None
    assert found.low <= found.mean <= found.high < -0.15
    (one,) = found.thresholds
    assert one.quantized_threshold == pytest.approx(0.3, abs=0.005)
    assert one.unchanged_f1 < one.f1 - 5.0
    assert one.quantized_f1 == pytest.approx(one.f1, abs=1.5)  # of thresholds chosen on the other half
    (sentence,) = found.advice
    assert "use threshold 0.301 instead of 0.5 (F1 77.5 % instead of 65.6 %" in sentence


def test_a_threshold_at_which_f1_falls_cannot_stay() -> None:
    rng = np.random.default_rng(0)
    unit, right = np.arange(400), rng.random(400) < 0.9
    scores = np.where(right, rng.uniform(0.6, 1.0, 400), rng.uniform(0.3, 0.7, 400))
    lost = right & (rng.random(400) < 0.12)  # these answers become wrong ones, as sure as before
    floats = Answers(unit, scores, unit, right, np.ones(400))
    found = score_shift(
        "rows", floats, replace(floats, item=np.where(lost, -1, unit), right=right & ~lost), (0.5,)
    )
    assert found is not None
    assert "can stay" not in found.text
    assert "at threshold 0.5 precision is 80.6 % (float: 94.1 %)" in found.text


def test_noise_without_a_shift_is_no_reason_for_another_threshold() -> None:
    floats = detector()
    noise = np.random.default_rng(1).normal(0.0, 0.02, floats.scores.size)
    found = score_shift("boxes", floats, replace(floats, scores=floats.scores + noise), (0.25, 0.5))
    assert found is not None
    assert found.low < 0.0 < found.high
    assert not list(found.advice)


def test_equal_scores_of_integers_pass_together_or_not_at_all() -> None:
    floats = detector()
    quantized = replace(floats, scores=np.round(floats.scores * 8) / 8)
    there = equivalent_threshold(floats, quantized, 0.3)
    assert there not in quantized.scores
    wanted = floats.counts(0.3)[0]
    steps = [abs(quantized.counts(step / 8)[0] - wanted) for step in range(9)]
    assert abs(quantized.counts(there)[0] - wanted) == min(steps)


def test_without_an_answer_of_both_models_nothing_is_said() -> None:
    floats = detector()
    quantized = replace(floats, item=np.full_like(floats.item, -1))
    assert score_shift("boxes", floats, quantized, (0.25,)) is None


def test_the_confidence_of_logits_is_their_softmax_and_of_probabilities_themselves() -> None:
    logits = np.array([[0.0, np.log(3.0)], [-2.0, 2.0]], np.float32)
    exponents = np.exp(np.float64(logits))
    wanted = (exponents / exponents.sum(axis=1, keepdims=True)).max(axis=1)
    found = confidences(logits, 1)
    assert found.of_logits == pytest.approx(wanted, rel=1e-12)
    assert not found.in_unit
    found = confidences(np.array([[0.2, 0.9, 0.7]]), 1)
    assert found.in_unit
    assert found.of_probabilities == pytest.approx([0.9])


def rows_of(values: list[list[float]], right: bool = True) -> Rows:
    array = np.array(values)
    return Rows(np.full(len(array), right), array.argmax(1), confidences(array, 1))


def test_rows_are_compared_where_both_models_say_the_same_class() -> None:
    floats = rows_of([[0.1, 0.9], [0.2, 0.8], [0.6, 0.4]])
    quantized = rows_of([[0.2, 0.8], [0.3, 0.7], [0.1, 0.9]])
    found = shift_of_rows([floats], [quantized])
    assert found is not None
    assert (found.pairs, found.mean) == (2, pytest.approx(-0.1))
    assert shift_of_rows([floats], [replace(quantized, scores=None)]) is None


def test_one_meaning_holds_for_both_models_and_all_samples() -> None:
    """Rows of logits that are from 0 to 1 by chance, in one model or sample, are logits as the others."""
    rng = np.random.default_rng(2)
    logits = rng.normal(0.5, 0.3, (300, 2))
    moved = logits + rng.normal(0.0, 0.02, logits.shape)
    by_row, at_once = (
        shift_of_rows(*([rows_of(part.tolist()) for part in parts] for parts in pair))
        for pair in (
            (np.split(logits, 300), np.split(moved, 300)),
            ([logits], [moved]),
        )
    )
    assert by_row is not None
    assert by_row == at_once
    softmax = [np.exp(values) / np.exp(values).sum(1, keepdims=True) for values in (logits, moved)]
    same = logits.argmax(1) == moved.argmax(1)
    differences = (softmax[1].max(1) - softmax[0].max(1))[same]
    assert by_row.spread == pytest.approx(differences.std(), rel=0.05)  # of scores above the threshold alone
    # Probabilities of a quantized model that are a step above 1 stay probabilities.
    floats, above = (
        [rows_of([[0.0, 1.0]]), rows_of([[0.1, 0.9]])],
        [rows_of([[0.0, 1.004]]), rows_of([[0.1, 0.9]])],
    )
    found = shift_of_rows(floats, above)
    assert found is not None
    assert found.mean == pytest.approx(0.002)


@pytest.mark.parametrize("metric", [None, "top-1"])
def test_an_evaluation_with_labels_of_classes_tells_the_shift(metric: str | None) -> None:
    model, data = DIGITS / "model.onnx", DIGITS / "heldout"
    how = EvaluationOptions(latency=None, metric=metric)
    found = evaluate(model, model, data, labels=data / "labels.txt", measuring=how)
    assert found.score_shift is not None
    assert (found.score_shift.pairs, found.score_shift.mean) == (399, 0.0)  # one is below both thresholds
    assert found.score_shift.thresholds[0].precision > 99.0


def test_boxes_of_classes_that_the_truth_never_has_are_not_false() -> None:
    corners = np.array([[0.0, 0.0, 10.0, 10.0], [20.0, 20.0, 30.0, 30.0]])
    true = Boxes(corners[:1], np.array([3]), np.ones(1), np.zeros(1, bool))
    found = Boxes(corners, np.array([3, 7]), np.array([0.9, 0.8]), np.zeros(2, bool))
    assert answers([(true, found)]).counts(0.5) == (1.0, 1.0, 1.0)
