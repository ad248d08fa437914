"""Fixes that are proposed, and which of two models is the better one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import pytest
from qprof_onnx.profiles.base.findings import Code
from qprof_onnx.quantizer.evaluation.compare import Agreement
from qprof_onnx.quantizer.evaluation.grades import Decision
from qprof_onnx.quantizer.evaluation.latency import Latency
from qprof_onnx.quantizer.evaluation.metrics.score import Score
from qprof_onnx.quantizer.evaluation.output_shift import Grade, Measure, OutputShift
from qprof_onnx.quantizer.search.attribution import AttributedNode, Attribution, OutputNoise
from qprof_onnx.quantizer.search.fixes import (
    fix_order,
    in_place_of_poor,
    is_better,
    proposed_fixes,
)
from qprof_onnx.quantizer.search.verdict import Composition, Fix, HeldOut, Verdict, with_fixes
from qprof_onnx.quantizer.targets.loading import load_recipe


def attribution(noise: dict[str, float]) -> Attribution:
    """Return one of nodes with some noise, of a model with 12 dB."""

    def noises(sqnr: float) -> dict[str, OutputNoise]:
        return {"y": OutputNoise(10.0 ** (-sqnr / 10.0), 10.0 ** (-sqnr / 10.0))}

    nodes = [
        AttributedNode((name,), {"y": OutputNoise(own, own)}, is_run=True) for name, own in noise.items()
    ]
    return Attribution(noises(12.0), tuple(nodes), "8 samples")


NOISE = {"a": 0.9, "b": 0.05, "c": 0.05}


def verdict(sqnr: float, grade: Grade, size: int = 25, predicted: float | None = 2.0) -> Verdict:
    """Return one on a model of 100 bytes in float, with an output that needs 18 dB."""
    output = OutputShift("y", Measure.NOISE, 10.0 ** ((18.0 - sqnr) / 20.0), 1.0, sqnr, grade=grade)
    held_out = HeldOut(40, 40, 160, seen=False, source="d")
    parts = Composition(1.0, 1)
    decision = Decision(grade, "outputs", grade)
    return Verdict(
        grade,
        decision,
        (output,),
        "",
        None,
        held_out,
        100,
        size,
        None,
        predicted,
        parts,
        printed=predicted,
    )


def proposed(found: Verdict, target: str = "onnxruntime-x86", **settings: Any) -> list[dict[str, object]]:
    return [dict(fix.settings) for fix in proposed_fixes(found, load_recipe(target, settings))]


def test_a_fix_is_told_by_the_flags_of_the_command() -> None:
    fix = Fix({"min_tensor_sqnr": 15.0, "keep_float": ("a", "b")})
    assert fix.options == ("--set", "min_tensor_sqnr=15", "--keep-float", "a", "--keep-float", "b")


def test_a_fair_model_is_planned_for_the_noise_that_its_worst_output_may_have() -> None:
    assert {"min_output_sqnr": 19.0} in proposed(verdict(12.0, "fair"))  # it needs 18 dB
    assert {"min_output_sqnr": 19.0} not in proposed(verdict(12.0, "fair"), min_output_sqnr=18.0)


def test_the_targets_own_calibrator_is_tried_in_place_of_another_one() -> None:
    usual = load_recipe("onnxruntime-x86").config.calibrator
    assert proposed(verdict(12.0, "fair"), calibrator="kl")[0] == {"calibrator": usual}
    assert {"calibrator": usual} not in proposed(verdict(12.0, "fair"), calibrator=usual)


def test_the_targets_own_settings_are_tried_where_others_make_a_good_model_that_is_not_faster() -> None:
    config = load_recipe("onnxruntime-x86").config
    own = {"calibrator": config.calibrator, "schema": config.schema}
    given = {"calibrator": "kl", "schema": "symmetric-uint8"}
    weights = Composition(0.0, 1, weight_only=1, why_float="int8 arithmetic would be too noisy")
    stuck = replace(verdict(40.0, "good", predicted=1.0), composition=weights)
    assert proposed(stuck, **given) == [own]
    assert not proposed(stuck)
    assert not proposed(verdict(40.0, "good"), **given)
    assert is_better(verdict(20.0, "good"), stuck)
    assert not is_better(replace(stuck, outputs=verdict(30.0, "good").outputs), stuck)


def test_weights_of_few_bits_have_smaller_blocks_and_more_bits_and_then_are_rounded_with_samples() -> None:
    few = proposed(verdict(12.0, "fair"), mode="weight-only", weight_type="int4", block_size=128)
    assert few[0] == {"block_size": 32}
    assert few[1]["weight_type"] in ("int8", "uint8")
    assert few[2:] == [{"rounding": "gptq"}]
    assert not proposed(verdict(12.0, "fair"), mode="weight-only", weight_type="int8")


@pytest.mark.parametrize(
    ("found", "is_so"),
    [
        (verdict(20.0, "good"), True),
        (verdict(17.0, "fair"), False),
        (verdict(30.0, "poor"), False),
        (verdict(30.0, "good", size=101), False),
        (verdict(20.0, "good", predicted=1.1), True),
        (verdict(17.0, "good", size=95, predicted=1.0), True),
    ],
)
def test_a_better_model_has_a_better_grade_and_gains_over_float(found: Verdict, is_so: bool) -> None:
    assert is_better(found, verdict(12.0, "fair")) is is_so
    assert is_better(scored(found, 1.5, "outputs"), scored(verdict(12.0, "fair"), 1.5, "outputs")) is is_so


def test_a_good_model_that_is_slower_than_float_is_improved_by_none_that_is_slower_too() -> None:
    slow, even = (Latency(1.0, 1.0, x, x - 0.02, x + 0.02, 9, 9, 1, 1) for x in (0.9, 1.0))
    small, larger = (replace(verdict(sqnr, "good", predicted=None), latency=slow) for sqnr in (20.0, 30.0))
    assert not is_better(larger, small)
    assert is_better(replace(larger, latency=even), small)
    unclear = replace(larger, latency=Latency(1.0, 1.0, 0.9, 0.7, 1.2, 9, 9, 1, 1))
    assert not is_better(unclear, small)
    assert is_better(replace(unclear, predicted=1.5), small)


def test_no_fix_is_slower_than_float_or_hides_what_is_lost() -> None:
    times = {x: Latency(1.0, 1.0, x, x - 0.02, x + 0.02, 9, 9, 1, 1) for x in (0.52, 1.25, 2.5)}
    busy = Latency(1.0, 1.0, 0.73, 0.5, 1.2, 9, 9, 1, 1)
    weights = Composition(0.0, 1, weight_only=1)
    none = replace(verdict(20.0, "none", predicted=None), composition=Composition(0.0, 0))
    assert not is_better(replace(none, grade="good"), verdict(12.0, "fair"))
    fair = replace(verdict(12.0, "fair"), latency=times[2.5])
    for latency in (times[0.52], busy):
        slow = replace(verdict(30.0, "good", predicted=None), latency=latency, composition=weights)
        assert not is_better(slow, fair)
        assert not is_better(slow, none)
    slower = replace(verdict(30.0, "good"), latency=times[1.25])
    assert is_better(slower, fair)
    assert Fix().with_figures(slower, fair).brings.endswith("(measured); 2.50 times as fast without it")
    assert Fix().with_figures(fair, slower).brings.endswith("(measured)")


def test_a_larger_model_has_the_quantized_weights_alone_as_a_fix() -> None:
    larger = verdict(40.0, "good", size=400)
    (weights,) = proposed(larger)
    assert weights["mode"] == "weight-only"
    assert is_better(verdict(20.0, "good", size=75), larger)
    assert not is_better(verdict(60.0, "good", size=101), larger)


def test_weights_alone_that_are_slower_than_float_have_int8_as_a_fix_or_say_that_none_is_better() -> None:
    slow, parts = Latency(1.0, 1.0, 0.8, 0.78, 0.82, 9, 9, 1, 1), Composition(None, 1, weight_only=1)
    small = replace(verdict(20.0, "good", predicted=None), latency=slow, composition=parts)
    few = {"mode": "weight-only", "weight_type": "int2"}
    fixes = list(proposed_fixes(small, load_recipe("onnxruntime-x86", few)))
    assert [fix.options for fix in fixes] == [("--as", "weight-only-8"), ("--as", "int8")]
    assert not proposed(replace(small, latency=None), **few)
    assert with_fixes(small, (), fixes).findings == ()
    tried = (verdict(20.0, "fair"), verdict(20.0, "fair"))
    assert with_fixes(small, (), (), tried).findings[0].text == "2 other plans were tried: none is better"
    assert not with_fixes(replace(small, latency=None), (), (), tried).findings
    poor, good = replace(small, grade="poor"), replace(small, grade="good")
    assert with_fixes(poor, (), (), (good,)).findings[0].text.endswith("none is better and as fast as float")


def test_int8_that_is_slower_than_float_is_planned_for_time_and_has_only_its_weights_quantized() -> None:
    even, slow = (Latency(1.0, 1.0, x, x - 0.02, x + 0.02, 9, 9, 1, 1) for x in (1.0, 0.8))
    slower = replace(verdict(40.0, "good"), latency=slow)
    in_time, weights = proposed(slower, cost_model="off")
    assert in_time == {"cost_model": "auto"}
    assert weights["mode"] == "weight-only"
    assert [one["mode"] for one in proposed(slower)] == ["weight-only"]
    assert not proposed(replace(slower, latency=even), cost_model="off")
    poor = replace(verdict(4.0, "poor"), latency=slow)  # its fix is written: no clock decides the bytes
    assert proposed(poor, cost_model="off") == proposed(replace(poor, latency=even), cost_model="off")
    assert is_better(replace(slower, latency=even), slower)


def scored(found: Verdict, drop: float, by: Literal["score", "outputs"]) -> Verdict:
    """Return a verdict by a score with a drop, or by the output beside it."""
    score = Score(40, 40, 90.0, 90.0 - drop, drop, drop - 0.1, drop + 0.1)
    return replace(found, score=score, decision=replace(found.decision, by=by))


def test_of_fixes_of_a_grade_the_fastest_is_the_best() -> None:
    fair, slow, fast = (
        Fix({"calibrator": name}, sqnr=sqnr, grade=grade, predicted=predicted)
        for name, sqnr, grade, predicted in (
            ("fair", 15.0, "fair", 0.5),
            ("slow", 25.0, "good", 0.9),
            ("fast", 19.0, "good", 0.6),
        )
    )
    assert sorted([fair, slow, fast], key=fix_order) == [fast, slow, fair]


@pytest.mark.parametrize(
    ("grade", "asked", "fix", "is_applied"),
    [
        ("poor", {}, {}, True),
        ("fair", {}, {}, False),
        ("poor", {}, {"grade": "fair"}, False),
        ("poor", {}, {"predicted": 0.9}, True),  # 0.5 before
        ("poor", {}, {"bytes": 40}, False),  # 25 before
        ("poor", {"calibrator": "kl"}, {"settings": {"calibrator": "mse"}}, False),
        ("poor", {}, {"settings": {"rounding": "gptq"}}, True),
        ("poor", {"min_output_sqnr": 12.0}, {}, False),
        ("poor", {"cost_model": "off"}, {}, False),
    ],
)
def test_a_poor_model_gives_way_to_a_good_one_of_nearly_its_size_that_is_what_was_asked_for(
    grade: Grade, asked: dict[str, Any], fix: dict[str, Any], *, is_applied: bool
) -> None:
    given: dict[str, Any] = {
        "settings": {"mode": "weight-only"},
        "grade": "good",
        "predicted": 0.6,
        "bytes": 30,
    }
    tried = Fix(**{**given, **fix})
    found = in_place_of_poor(verdict(4.0, grade), load_recipe("onnxruntime-x86", asked), (tried,))
    assert (found is tried) == is_applied


def test_quantized_weights_alone_are_tried_of_a_model_that_is_not_good_if_its_target_reads_them() -> None:
    (weights,) = proposed(verdict(4.0, "poor"))
    assert weights["mode"] == "weight-only"
    assert proposed(verdict(12.0, "fair"))[-1] == weights
    assert not proposed(verdict(20.0, "good"))
    assert not proposed(verdict(4.0, "poor"), "glow")


def test_the_cause_is_the_worst_node() -> None:
    (found,) = attribution(NOISE).cause
    assert (found.code, found.subject) == (Code.MAIN_CAUSE, "a")
    assert found.text == "a adds 90 % of the noise, run on 8 samples"
    assert attribution({"a": 0.0}).cause == ()
    (none,) = attribution({f"{n}{'x' * 99}": 1.0 for n in "abcde"}).cause
    assert (none.text, none.subject) == ("no single layer adds 25 % of the noise, run on 8 samples", "")
    (long,) = attribution({f"a{'x' * 99}": 1.0}).cause
    assert long.text.startswith(f"a{'x' * 38} ... {'x' * 21} adds 100 %")
    estimated = attribution(NOISE)
    of_group = tuple(replace(one, is_run=False) for one in estimated.nodes)
    assert replace(estimated, nodes=of_group).cause[0].subject == ""


def test_where_nothing_that_was_tried_is_better_the_float_model_is_to_be_kept() -> None:
    (found,) = with_fixes(verdict(5.0, "poor"), (), (), [verdict(5.0, "poor")] * 3).findings
    assert found.text == "keep the float model: 3 other plans were tried: none is better"


def test_a_detector_without_a_better_plan_is_to_be_scored() -> None:
    poor = verdict(5.0, "poor")
    boxes = replace(poor, outputs=tuple(replace(one, kind="detections") for one in poor.outputs))
    (found,) = with_fixes(boxes, (), (), [boxes] * 3).findings
    assert boxes.score_to_try == "--metric map50, also without labels"
    assert found.remedy == "a score may decide: --metric map50, also without labels"


@pytest.mark.parametrize(
    ("kind", "advice"),
    [
        ("a decision", "--labels FILE"),
        ("an embedding", "--labels FILE --metric recall@1"),
        ("values", "--labels FILE --metric mae"),
        ("a state", ""),
    ],
)
def test_a_fair_model_without_a_fix_is_to_be_scored_by_a_metric_of_its_kind(kind: str, advice: str) -> None:
    fair = verdict(16.0, "fair")
    of_kind = replace(fair, outputs=(replace(fair.outputs[0], kind=kind),))
    (found,) = with_fixes(of_kind, (), (), [fair]).findings
    assert found.remedy == (f"a score may decide: {advice}" if advice else "")
    (found,) = with_fixes(scored(of_kind, 0.5, "outputs"), (), (), [fair]).findings
    assert found.remedy == ""


def test_values_that_look_like_scores_of_classes_are_not_to_be_scored_by_their_error() -> None:
    fair = verdict(16.0, "fair")
    logits = replace(
        fair.outputs[0], kind="values", aside="96.8 % of the positions have the same largest values"
    )
    assert replace(fair, outputs=(logits,)).score_to_try == "--labels FILE"


def test_texts_are_to_be_scored_by_characters_and_each_limit_follows_its_figure() -> None:
    fair = verdict(19.0, "fair")
    answers, few = (Agreement("top-1", same, total, same / total) for same, total in ((988, 1000), (98, 100)))
    sequences = Agreement("equal", 7, 12, 7 / 12)
    read = replace(verdict(19.0, "fair").outputs[0], answers=answers, sequences=sequences, kind="a decision")
    assert read.alike == (
        "98.8 % of the answers the same (limit 99.5 %), 7 of 12 sequences the same (limit 99.5 %)"
    )
    assert replace(read, answers=few).alike == (
        "98 of 100 answers the same, 7 of 12 sequences the same (limit 99.5 %)"
    )
    (found,) = with_fixes(replace(fair, outputs=(read,)), (), (), [fair]).findings
    assert found.remedy == "a score may decide: --labels FILE --metric cer"


def test_where_nothing_was_tried_the_reason_is_told() -> None:
    (found,) = with_fixes(verdict(5.0, "poor"), (), (), left="there was no time").findings
    assert found.text == "no other settings were tried: there was no time"


@pytest.mark.parametrize(
    ("low", "high", "said"),
    [(0.3, 0.6, "slower than float, "), (1.2, 2.4, "faster than float, "), (0.7, 1.4, "")],
)
def test_a_fix_whose_speed_is_unclear_tells_its_side(low: float, high: float, said: str) -> None:
    busy = Latency(1.0, 1.0, low + 0.1, low, high, 9, 9, 1, 1)
    fix = Fix().with_figures(replace(verdict(20.0, "good", predicted=None), latency=busy))
    assert fix.brings == f"good, 2.0 dB, {said}25 B (measured)"


def test_a_speed_that_nobody_timed_is_not_told_as_measured() -> None:
    kept = Composition(0.0, 0, weight_only=1, runs_in_float=True)
    untimed = replace(verdict(20.0, "good", predicted=None), composition=kept)
    assert untimed.has_floats_speed
    assert Fix().with_figures(untimed).brings == "good, 2.0 dB, 25 B (measured)"


def test_the_figures_of_a_fix_are_in_the_unit_of_the_metric() -> None:
    fix = Fix(grade="fair", figure="20.0 dB", speed="that of float", drop=1.5, drop_unit="dB")
    assert fix.brings == "fair, 20.0 dB, -1.50 dB, that of float (measured)"
    assert Fix(grade="good", drop=1.5).brings == "good, -1.50 points (measured)"
    worse = scored(verdict(30.0, "good"), 0.32, "outputs")
    assert worse.score is not None
    worse = replace(worse, score=replace(worse.score, higher_is_better=False))
    assert ", +0.32 points," in Fix().with_figures(worse).brings
