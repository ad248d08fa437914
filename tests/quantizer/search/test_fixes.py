"""What to try, and which fix is applied."""

from __future__ import annotations

import math

import pytest
from qprof_onnx.quantizer.search.candidates import RankedNode
from qprof_onnx.quantizer.search.grades import Grade
from qprof_onnx.quantizer.search.proposals import (
    Fix,
    QualityGap,
    best_fix,
    proposals,
    sqnr_without_noise,
    stricter_limit,
)

GAP = QualityGap(sqnr=12.0, needed=18.0, calibrator="mse", usual_calibrator="mse", limit=15.0)
RANKING = [RankedNode(("a",), 0.9, 5.0), RankedNode(("b",), 0.05, 1.0), RankedNode(("c",), 0.05, 1.0)]


def measured(sqnr: float, grade: Grade, predicted: float = 1.0, **settings: str) -> Fix:
    return Fix(settings, sqnr=sqnr, is_measured=True, grade=grade, predicted=predicted)


def test_the_sqnr_without_a_part_of_the_noise_follows_from_the_rest() -> None:
    assert sqnr_without_noise(12.0, 1.0, 0.9) == pytest.approx(22.0)
    assert sqnr_without_noise(12.0, 1.0, 1.0) is None
    assert sqnr_without_noise(12.0, 1.0, 0.0) is None


def test_a_fix_is_told_by_the_flags_of_the_command() -> None:
    fix = Fix({"min_tensor_sqnr": 15.0, "keep_float": ("a", "b")})
    assert fix.options == ("--set", "min_tensor_sqnr=15", "--keep-float", "a", "--keep-float", "b")


def test_the_node_that_adds_most_noise_is_tried_with_what_it_brings() -> None:
    (worst,) = [fix for fix in proposals(GAP, RANKING) if fix.settings.get("keep_float") == ("a",)]
    assert worst.sqnr == pytest.approx(22.0)
    assert worst.options == ("--keep-float", "a")
    assert worst.brings == "22.0 dB (estimated)"


def test_a_node_that_brings_little_is_not_tried() -> None:
    flat = [RankedNode((name,), 1.0, 1.0) for name in "abcdefghijklmnopqrstuvwxyz"]
    assert not [fix for fix in proposals(GAP, flat) if "keep_float" in fix.settings]


def test_as_many_nodes_as_reach_what_is_needed_are_tried_together() -> None:
    even = [RankedNode((name,), 1.0, 1.0) for name in "abcdef"]
    kept = [fix for fix in proposals(GAP, even) if "keep_float" in fix.settings]
    assert ("a", "b", "c", "d", "e") in [fix.settings["keep_float"] for fix in kept]


def test_the_noise_limit_is_raised_by_what_is_lacking() -> None:
    assert {"min_output_sqnr": 22.0} in [fix.settings for fix in proposals(GAP, ())]


def test_another_calibrator_than_the_targets_own_is_undone_first() -> None:
    gap = QualityGap(12.0, 18.0, "kl", "mse", 15.0)
    assert proposals(gap, RANKING)[0].options == ("--calibrator", "mse")


def test_the_best_grade_is_applied_and_of_these_the_fastest() -> None:
    slow = measured(25.0, "good", 1.5, calibrator="slow")
    fast = measured(19.0, "good", 1.1, calibrator="fast")
    fair = measured(15.0, "fair", 1.0, calibrator="fair")
    assert best_fix([slow, fair, fast], "poor", 8.0) is fast


def test_what_was_not_measured_or_does_not_better_the_model_is_not_applied() -> None:
    estimated = Fix({"keep_float": ("a",)}, sqnr=30.0)
    worse = measured(7.0, "poor", calibrator="worse")
    assert best_fix([estimated, worse], "poor", 8.0) is None


def test_a_gain_within_the_same_grade_counts() -> None:
    found = measured(11.0, "poor", calibrator="x")
    assert best_fix([found], "poor", 8.0) is found
    assert best_fix([found], "poor", 10.8) is None
    assert best_fix([found], "poor", None) is found


def test_an_estimate_without_end_is_not_made() -> None:
    assert [fix.settings for fix in proposals(GAP, [RankedNode(("a",), math.inf, 1.0)])] == [
        {"min_output_sqnr": 22.0}
    ]


def test_16_bits_are_tried_where_the_target_has_them() -> None:
    gap = QualityGap(12.0, 18.0, "mse", "mse", 15.0, frozenset("a"))
    options = [fix.options for fix in proposals(gap, RANKING)]
    assert ("--keep-16bit", "a") in options
    assert ("--keep-16bit", "a") not in [fix.options for fix in proposals(GAP, RANKING)]


def test_a_limit_that_did_not_reach_is_raised_further() -> None:
    first = Fix({"min_output_sqnr": 22.0}, sqnr=13.0, is_measured=True, grade="fair")
    second = stricter_limit(GAP, [first])
    assert second is not None
    assert second.settings == {"min_output_sqnr": 32.0}
    assert stricter_limit(GAP, [Fix({"min_output_sqnr": 22.0}, sqnr=18.5, is_measured=True)]) is None
    assert stricter_limit(GAP, [Fix({"min_output_sqnr": 22.0}, sqnr=18.0)]) is None


def test_what_a_fix_brings_is_in_the_unit_of_the_metric() -> None:
    assert Fix(sqnr=20.0, is_measured=True, drop=1.5, drop_unit="dB").brings == "20.0 dB, -1.50 dB (measured)"
    assert Fix(sqnr=20.0, is_measured=True, drop=1.5).brings == "20.0 dB, -1.50 points (measured)"
