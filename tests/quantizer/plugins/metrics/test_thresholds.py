"""Which threshold stands for one of the float model."""

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from qprof_onnx.quantizer.plugins.metrics.boxes import Boxes
from qprof_onnx.quantizer.plugins.metrics.detection import answers
from qprof_onnx.quantizer.plugins.metrics.thresholds import Answers, equivalent_threshold, moved_thresholds

UNITS = 200


def detector(seed: int = 0) -> Answers:
    """Return three boxes for each of the pictures, the higher their score the more often right."""
    rng = np.random.default_rng(seed)
    scores = rng.uniform(0.05, 1.0, 3 * UNITS)
    right = rng.random(3 * UNITS) < scores
    unit = np.repeat(np.arange(UNITS), 3)
    return Answers(unit, scores, right, np.bincount(unit, right, UNITS))


@given(st.floats(0.3, 3.0), st.sampled_from([0.25, 0.5, 0.7]))
def test_the_threshold_follows_any_rising_change_of_the_scores(power: float, threshold: float) -> None:
    floats = detector()
    quantized = replace(floats, scores=floats.scores**power)
    there = equivalent_threshold(floats, quantized, threshold)
    assert quantized.counts(there).tolist() == floats.counts(threshold).tolist()


def test_a_threshold_stays_if_nothing_moved() -> None:
    floats = detector()
    assert equivalent_threshold(floats, floats, 0.25) == 0.25
    assert not list(moved_thresholds(floats, floats, (0.25, 0.5)))


def test_lower_scores_are_told_with_the_threshold_that_gives_the_f1_back() -> None:
    floats = detector()
    quantized = replace(floats, scores=np.maximum(floats.scores - 0.2, 0.0))
    (found,) = moved_thresholds(floats, quantized, (0.5,))
    assert "use threshold 0.301 instead of 0.5 (F1 77.5 % instead of 65.6 %" in found.sentence


def test_noise_and_answers_that_are_lost_are_no_reason_for_another_threshold() -> None:
    floats = detector()
    noise = np.random.default_rng(1).normal(0.0, 0.02, floats.scores.size)
    assert not list(moved_thresholds(floats, replace(floats, scores=floats.scores + noise), (0.25, 0.5)))
    lost = floats.right & (np.random.default_rng(0).random(floats.scores.size) < 0.12)
    assert not list(moved_thresholds(floats, replace(floats, right=floats.right & ~lost), (0.5,)))


def test_equal_scores_of_integers_pass_together_or_not_at_all() -> None:
    floats = detector()
    quantized = replace(floats, scores=np.round(floats.scores * 8) / 8)
    there = equivalent_threshold(floats, quantized, 0.3)
    assert there not in quantized.scores
    wanted = floats.counts(0.3)[0]
    steps = [abs(quantized.counts(step / 8)[0] - wanted) for step in range(9)]
    assert abs(quantized.counts(there)[0] - wanted) == min(steps)


def test_boxes_of_classes_that_the_truth_never_has_are_not_false() -> None:
    corners = np.array([[0.0, 0.0, 10.0, 10.0], [20.0, 20.0, 30.0, 30.0]])
    true = Boxes(corners[:1], np.array([3]), np.ones(1), np.zeros(1, bool))
    found = Boxes(corners, np.array([3, 7]), np.array([0.9, 0.8]), np.zeros(2, bool))
    assert answers([(true, found)]).counts(0.5).tolist() == [1.0, 1.0, 1.0]
