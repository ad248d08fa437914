"""What a verdict says, and does not."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from qprof_onnx.profiles.base.conversion import OutputKind
from qprof_onnx.profiles.base.findings import Code, Finding
from qprof_onnx.quantizer.evaluation.compare import Agreement, OutputResult
from qprof_onnx.quantizer.evaluation.gates import truth_doubts
from qprof_onnx.quantizer.evaluation.metrics.score import Score
from qprof_onnx.quantizer.search.verdict import Composition, HeldOut, Verdict, verdict_of, with_fixes

from .judged import HELD_OUT, evaluation, evaluation_of

HALF = Composition(0.5, 4)


def test_near_chance_there_is_no_verdict() -> None:
    score = Score(1, 100, 27.0, 27.0, 0.0, -math.inf, math.inf, chance=25.0, is_at_chance=True)
    found = verdict_of(evaluation(score=score, findings=truth_doubts(score)), HALF, HELD_OUT)
    assert found.grade == "none"
    assert found.sentence.startswith("none: the float model scores 27 % with the truth of its 100 rows")


def test_a_good_model_that_was_judged_on_few_samples_is_good_so_far() -> None:
    few = HeldOut(samples=1, rows=1, of_samples=4, seen=False, source="data")
    found = verdict_of(evaluation(), HALF, few)
    assert found.sentence.startswith("good so far: judged on 1 sample only; output 'y': 30.0 dB")
    (few_samples,) = map(str, found.findings)
    assert few_samples == "few samples: 1 held-out sample of 4; more samples make the verdict more certain"
    assert verdict_of(evaluation(), HALF, HELD_OUT).sentence.startswith("good: output 'y'")


@pytest.mark.parametrize("code", [Code.PIXELS, Code.CHANNELS_LAST, Code.ZERO_STATE])
def test_a_model_can_be_deployed_if_its_samples_only_look_unusual(code: Code) -> None:
    good = verdict_of(evaluation(), HALF, HELD_OUT)
    assert replace(good, findings=(Finding(code, "image"),)).is_deployable


@pytest.mark.parametrize("code", [Code.NON_FINITE, Code.CONSTANT_INPUT, Code.EQUAL_SAMPLES])
def test_a_model_is_not_to_be_deployed_beside_a_warning_about_its_samples(code: Code) -> None:
    good = verdict_of(evaluation(), HALF, HELD_OUT)
    assert good.is_deployable
    assert not replace(good, findings=(Finding(code, "image"),)).is_deployable
    assert not verdict_of(evaluation(), HALF, replace(HELD_OUT, seen=True)).is_deployable


def test_a_good_model_that_was_judged_on_the_one_sample_of_its_profile_is_good_so_far() -> None:
    own = HeldOut(samples=1, rows=64, of_samples=1, seen=True, source="data")
    found = verdict_of(evaluation(), HALF, own)
    assert found.sentence.startswith("good so far: judged on the profile's own sample only; output 'y'")
    every = verdict_of(evaluation(), HALF, replace(own, samples=9))
    assert every.sentence.startswith("good so far: judged on the profile's own samples only; output 'y'")


@pytest.mark.parametrize("rows", [50, 1000])
def test_of_integers_that_are_all_the_same_a_verdict_says_that_nothing_is_quantized(rows: int) -> None:
    label = OutputResult("label", "int64", None, Agreement("equal", rows, rows, 1.0), 0)
    found = verdict_of(evaluation_of(label), Composition(None, 0), HELD_OUT)
    assert found.sentence == "none: nothing is quantized; use the float model"


@pytest.mark.parametrize(
    ("score", "remedy"),
    [
        (Score(50, 50, 90.0, 90.0, 0.0, -7.0, 7.0, spread=0.0, added=100.0), "about 137 rows would be"),
        (Score(1, 1, 90.0, 90.0, 0.0, -math.inf, math.inf), "give more samples"),
    ],
)
def test_a_score_of_too_few_rows_is_named_with_the_rows_that_suffice(score: Score, remedy: str) -> None:
    label = OutputResult("label", "int64", None, Agreement("equal", 50, 50, 1.0), 0)
    found = verdict_of(evaluation_of(label, score=score, metric_title="top-1"), HALF, HELD_OUT)
    assert found.sentence.startswith("none: top-1 90.00 % float, 90.00 % quantized")
    assert f"is not conclusive; {remedy}" in found.sentence


def test_of_samples_that_are_just_given_nothing_is_said_of_a_profile() -> None:
    given = HeldOut(samples=4, rows=4, of_samples=4, seen=False, source="", are_held_out=False)
    (few,) = map(str, given.findings)
    assert (given.text, few) == ("4 samples", "few samples; more samples make the verdict more certain")


@pytest.mark.parametrize(
    ("kind", "sqnr", "label"),
    [
        ("detections", 13.0, "cause"),
        ("detections", 30.0, "note"),
        ("values", 13.0, "note"),
    ],
)
def test_of_a_detector_that_is_not_good_by_its_output_moved_scores_are_the_cause(
    kind: OutputKind, sqnr: float, label: str
) -> None:
    moved = Finding(Code.SCORES_MOVED, "scores are 0.04 lower: use threshold 0.478 instead of 0.5")
    found = verdict_of(evaluation(sqnr, kind=kind, findings=(moved,)), HALF, HELD_OUT)
    noise = Finding(Code.MAIN_CAUSE, "/conv adds 7 % of the noise")
    labels = [one.label for one in found.findings if one.sentence == moved.sentence]
    assert labels == [label]
    assert (noise in with_fixes(found, (noise,), ()).findings) == (label != "cause")


def of_score(drop: float, low: float, high: float, sqnr: float, samples: int = 10) -> Verdict:
    """Return the verdict on a score, and on an output of which 20 dB are wanted."""
    score = Score(samples, samples, 90.0, 90.0 - drop, drop, low, high)
    judged = evaluation(sqnr, score=score, metric="map50", metric_title="mAP")
    held_out = HeldOut(samples, samples, 4 * samples, seen=False, source="data")
    return verdict_of(judged, HALF, held_out)


def test_a_score_that_rises_is_shown_to_rise_also_if_lower_is_better() -> None:
    score = Score(10, 10, 2.0, 2.2, 10.0, 8.0, 12.0, "", "% of float's", higher_is_better=False)
    found = verdict_of(
        evaluation(30.0, score=score, metric="perplexity", metric_title="perplexity"), HALF, HELD_OUT
    )
    assert "(+10.00 % of float's, +8.00 to +12.00)" in found.sentence


@pytest.mark.parametrize(
    ("found", "grade", "why"),
    [
        (of_score(0.0, -0.4, 0.4, 30.0), "good", ""),
        (of_score(0.0, -9.0, 9.0, 30.0), "good", ""),
        (of_score(0.0, -0.4, 0.4, 10.0), "good", "the score decides"),
        (of_score(0.4, -0.3, 1.15, 13.0), "good so far", "the score decides"),
        (
            of_score(0.4, -2.0, 3.1, 13.0),
            "fair",
            "the output decides: the score of 10 samples is not conclusive",
        ),
        (
            of_score(0.4, -2.0, 3.1, 7.0),
            "poor",
            "the output decides: the score of 10 samples is not conclusive",
        ),
        (of_score(5.0, 1.0, 9.0, 30.0), "poor", "the score decides"),
        (of_score(5.0, -1.0, 11.0, 30.0), "fair", "the score decides"),
        (
            of_score(0.0, -0.4, 0.4, -1.0),
            "poor",
            "output 'y' is useless, regardless of the score",
        ),
    ],
)
def test_a_verdict_says_what_decides_where_score_and_output_say_different_things(
    found: Verdict, grade: str, why: str
) -> None:
    assert found.sentence.startswith(f"{grade}: mAP 90.00 % float")
    assert found.why == why
    assert found.sentence.endswith(f"; {why}" if why else "(on 10 held-out samples)")
