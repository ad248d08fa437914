"""Good, fair or poor."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from qprof_onnx.quantizer.evaluation.compare import Agreement, Difference, OutputResult
from qprof_onnx.quantizer.evaluation.grades import (
    Decision,
    decision_of,
    drop_grade,
    output_grades,
)
from qprof_onnx.quantizer.evaluation.metrics.score import Score
from qprof_onnx.quantizer.evaluation.output_shift import Grade, Measure, OutputShift
from qprof_onnx.quantizer.noise.output_limits import NoiseLimits

from ..networks import network


def score(drop: float, low: float, high: float) -> Score:
    return Score(100, 100, 99.0, 99.0 - drop, drop, low, high)


def output(grade: Grade, sqnr: float = 20.0) -> OutputShift:
    """Return a graded output, of which 20 dB are needed."""
    return OutputShift("y", Measure.NOISE, 10.0 ** (1.0 - sqnr / 20.0), 1.0, sqnr, grade=grade)


def answers(ratio: float, total: int = 1000) -> Agreement:
    return Agreement("top-1", round(ratio * total), total, ratio)


@pytest.mark.parametrize(
    ("same", "total", "grade"),
    [(997, 1000, "good"), (985, 1000, "fair"), (800, 1000, "none"), (50, 50, "none")],
)
def test_a_model_that_returns_tokens_alone_is_graded_by_how_many_are_the_same(
    same: int, total: int, grade: Grade
) -> None:
    result = OutputResult("t", "int64", None, Agreement("equal", same, total, same / total), 3)
    net = network("y = Relu (x)", {})
    (found,) = output_grades([result], NoiseLimits(net.graph, net.profile, {}, None, ()), ())
    assert found.grade == grade
    share = f"{100 * same / total:.1f} % of the elements the same"
    assert found.text == f"output 't': {share}, of another length on 3 samples"


@pytest.mark.parametrize(
    ("drop", "grade"),
    [
        (score(0.1, -0.5, 0.7), "good"),
        (score(0.4, -0.3, 1.2), "good"),
        (score(1.1, 0.2, 1.9), "fair"),
        (score(0.0, -1.4, 2.1), "none"),
        (score(1.5, 0.6, 2.4), "fair"),
        (score(5.0, 3.0, 7.0), "poor"),
        (score(3.0, 0.1, 5.9), "none"),
    ],
)
def test_a_drop_is_judged_where_its_interval_is_narrow_or_it_is_surely_there(
    drop: Score, grade: Grade
) -> None:
    assert drop_grade(drop) == grade


def test_a_score_decides_where_it_is_known() -> None:
    assert decision_of([output("poor")], score(0.1, -0.5, 0.7)) == Decision("good", "score", "poor")
    assert decision_of([output("poor")], score(0.4, -0.3, 1.2)) == Decision("good", "score", "poor", True)
    assert decision_of([output("good")], score(5.0, 3.0, 7.0)) == Decision("poor", "score", "good")


@pytest.mark.parametrize(("grade", "by"), [("poor", "outputs"), ("fair", "outputs"), ("good", "score")])
def test_a_score_says_nothing_of_an_output_that_it_does_not_read(grade: Grade, by: str) -> None:
    other = replace(output(grade), output="embedding")
    found = decision_of([other, output("poor")], score(0.1, -0.5, 0.7), "y")
    assert (found.grade, found.by) == (grade, by)
    said = f"output 'embedding' is {grade}, and the score does not read it"
    assert found.overruled == (said if by == "outputs" else "")


def test_a_poor_score_decides_though_another_output_is_fair() -> None:
    other = replace(output("fair"), output="embedding")
    assert decision_of([other, output("good")], score(5.0, 3.0, 7.0), "y").by == "score"


def test_a_poor_output_with_more_noise_than_signal_is_destroyed() -> None:
    net = network("y = Relu (x)", {})
    limits = NoiseLimits(net.graph, net.profile, {"y": "embedding"}, None, ())
    result = OutputResult("y", "float32", None, None, 0)
    of_noise, of_little = (OutputShift("y", Measure.COSINES, 1.4, 0.4, sqnr) for sqnr in (-3.2, 6.0))
    assert output_grades([result], limits, [of_noise])[0].is_destroyed
    assert not output_grades([result], limits, [of_little])[0].is_destroyed


def test_the_worst_output_decides_where_samples_are_few() -> None:
    few = score(0.0, -3.0, 3.0)
    assert decision_of([output("good"), output("fair")], few) == Decision("fair", "outputs", "fair")
    assert decision_of([output("good")], few) == Decision("good", "outputs", "good")


def test_the_worst_output_decides_where_the_scored_one_has_no_grade_and_samples_are_few() -> None:
    few = score(0.0, -3.0, 3.0)
    assert decision_of([output("good")], few, "label") == Decision("good", "outputs", "good")


def test_a_large_drop_on_few_rows_is_fair_at_best() -> None:
    assert decision_of([output("good")], score(4.0, -1.0, 9.0)) == Decision("fair", "score", "good")
    assert decision_of([output("poor")], score(4.0, -1.0, 9.0)) == Decision("poor", "outputs", "poor")


def test_an_output_that_is_little_off_is_no_more_than_fair_and_no_less_where_a_score_shows_no_loss() -> None:
    near, far = output("poor", 9.0), output("poor", 7.0)
    assert decision_of([near], score(0.1, -9.0, 9.0)) == Decision("fair", "outputs", "poor")
    assert decision_of([far, near], score(0.1, -9.0, 9.0)) == Decision("poor", "outputs", "poor")
    for drop in (score(1.2, -9.0, 9.0), score(0.3, 0.1, 3.0), score(0.0, -math.inf, math.inf)):
        assert decision_of([near], drop) == Decision("poor", "outputs", "poor")


@pytest.mark.parametrize("drop", [score(0.0, -0.4, 0.4), score(0.4, -0.3, 1.2), score(-2.0, -3.0, -1.0)])
def test_no_score_makes_up_for_an_output_that_is_destroyed(drop: Score) -> None:
    destroyed = output("poor", -3.0)
    found = decision_of([output("good"), destroyed], drop)
    assert (found.grade, found.by) == ("poor", "outputs")
    assert found.overruled == "output 'y' is useless, regardless of the score"


def test_a_model_without_float_outputs_and_labels_has_no_grade() -> None:
    assert decision_of([], None) == Decision("none", "", "none")


def in_unit(**changes: Any) -> OutputShift:
    """Return the grade of an output of 40 dB that has an error of 1 % of the 2 that it may have."""
    result = OutputResult("y", "float32", Difference(40.0, 1.0, 0), None, 0)
    shift = replace(OutputShift("y", Measure.COLUMNS, 0.01, 0.02, 40.0, typical=0.01, worst=0.03), **changes)
    net = network("y = Relu (x)", {})
    (found,) = output_grades(
        [result], NoiseLimits(net.graph, net.profile, {"y": "values"}, None, ()), [shift]
    )
    return found


@pytest.mark.parametrize(
    ("value", "grade"), [(0.02, "good"), (0.021, "fair"), (0.04, "fair"), (0.041, "poor")]
)
def test_an_output_is_graded_by_the_figure_that_its_plan_is_held_to(value: float, grade: Grade) -> None:
    found = in_unit(value=value)
    assert found.grade == grade
    assert found.needed == pytest.approx(40.0 + 20.0 * math.log10(value / 0.02))


@pytest.mark.parametrize(("value", "destroyed"), [(0.19, False), (0.2, True), (math.inf, True)])
def test_an_output_that_is_ten_times_its_limit_off_is_destroyed(value: float, destroyed: bool) -> None:
    assert in_unit(value=value).is_destroyed is destroyed


def test_a_fault_is_poor_whatever_the_figure() -> None:
    found = in_unit(fault="3 of 100 values are not finite", answers=answers(1.0))
    assert found.grade == "poor"
    fault = "3 of 100 values are not finite"
    assert found.text == f"output 'y': {fault}"


def test_what_cannot_be_compared_has_no_grade() -> None:
    found = in_unit(measure=Measure.NONE, value=0.0, sqnr=None, incomparable="it is drawn at random")
    assert (found.grade, found.sqnr) == ("none", None)


@pytest.mark.parametrize(
    ("same", "total", "grade"),
    [(199, 200, "good"), (198, 200, "fair"), (19, 20, "good"), (800, 1000, "fair")],
)
def test_an_output_is_not_good_while_answers_change(same: int, total: int, grade: Grade) -> None:
    assert in_unit(answers=Agreement("top-1", same, total, same / total)).grade == grade


@pytest.mark.parametrize(("same", "grade"), [(40, "good"), (39, "good"), (38, "fair")])
def test_an_output_is_not_good_while_whole_sequences_change(same: int, grade: Grade) -> None:
    sequences = Agreement("top-1", same, 40, same / 40)
    found = in_unit(answers=answers(0.997), sequences=sequences)
    assert found.grade == grade
    changed = f", {same} of 40 sequences the same" if same < 40 else ""
    assert f"99.7 % of the answers the same{changed}" in found.text


def test_answers_that_are_the_same_show_that_noise_does_not_matter() -> None:
    found = in_unit(value=0.5, answers=answers(0.997))
    assert (found.grade, found.is_destroyed) == ("good", False)
    assert in_unit(value=0.5, sqnr=-1.0, answers=answers(0.997)).grade == "poor"
