"""What a verdict says, and does not."""

from __future__ import annotations

from qprof_onnx.quantizer.evaluation.accuracy import accuracy_of
from qprof_onnx.quantizer.evaluation.gates import truth_doubts
from qprof_onnx.quantizer.search.verdict import Composition, HeldOut, verdict_of

from ..evaluation.running import both_right
from .judged import HELD_OUT, LIMITS, evaluation

HALF = Composition(0.5, 4)


def test_near_chance_there_is_no_verdict() -> None:
    accuracy = accuracy_of("y", *both_right(27, 100), chance=25.0)
    findings = truth_doubts(accuracy, None, counts_rows=False)
    found = verdict_of(evaluation(accuracy=accuracy, findings=findings), LIMITS, HALF, HELD_OUT)
    assert found.grade == "none"
    assert found.sentence.startswith("none: the float model is right on only 27 %")


def test_a_good_model_that_was_judged_on_few_samples_is_good_so_far() -> None:
    few = HeldOut(samples=1, rows=1, of_samples=4, seen=False, source="data")
    found = verdict_of(evaluation(), LIMITS, HALF, few)
    assert found.sentence.startswith("good so far: judged on 1 sample only; output 'y': signal-to-noise 30.0")
    (few_samples,) = map(str, found.findings)
    assert few_samples == "few samples: 1 held-out sample of 4; more make the verdict surer"
    assert verdict_of(evaluation(), LIMITS, HALF, HELD_OUT).sentence.startswith("good: output 'y'")
