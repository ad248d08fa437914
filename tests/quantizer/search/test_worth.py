"""A model that is not good and gains nothing is not written."""

from __future__ import annotations

from dataclasses import replace

import pytest
from qprof_onnx.quantizer.evaluation.grades import Grade
from qprof_onnx.quantizer.evaluation.latency import Latency
from qprof_onnx.quantizer.search.verdict import Composition, Verdict, verdict_of
from qprof_onnx.quantizer.search.worth import (
    gains_nothing,
    is_in_vain,
    takes_its_place,
    why_in_vain,
)

from .judged import HELD_OUT, evaluation


def verdict(grade: Grade, size: int, predicted: float | None, latency: Latency | None = None) -> Verdict:
    """Return the verdict on a model of 100 bytes that has `size` when it is quantized."""
    made = verdict_of(evaluation(), Composition(1.0, 3), HELD_OUT, predicted=predicted, printed=predicted)
    decision = replace(made.decision, grade=grade)
    return replace(made, grade=grade, decision=decision, quantized_bytes=size, latency=latency)


@pytest.mark.parametrize("grade", ["fair", "poor"])
def test_a_model_that_is_not_good_and_gains_nothing_is_not_written(grade: Grade) -> None:
    vain = verdict(grade, 93, 1.05)
    assert is_in_vain(vain)
    assert why_in_vain(vain).startswith(f"int8 is {grade}, output 'y': ")
    assert why_in_vain(vain).endswith(
        "gains next to nothing (1.08 times smaller, 1.05 times as fast, predicted)"
    )


def test_of_a_model_in_which_nothing_is_quantized_no_noise_is_told() -> None:
    nothing = replace(verdict("none", 100, 1.0), composition=Composition(0.0, 0))
    assert is_in_vain(nothing)
    assert why_in_vain(nothing).startswith("every plan that quantizes more was too")


def test_a_model_that_times_alone_keep_in_float_has_that_reason_as_by_its_profile() -> None:
    slow = replace(verdict("none", 100, 1.0), composition=Composition(0.0, 0, why_float="int8 is slow"))
    assert why_in_vain(slow) in slow.composition.text


def test_a_model_that_is_good_or_of_which_nobody_can_tell_is_written() -> None:
    assert not is_in_vain(verdict("good", 93, 1.05))
    assert not is_in_vain(verdict("none", 93, 1.05))


@pytest.mark.parametrize(("size", "predicted"), [(60, 1.0), (99, 1.5), (99, None)])
def test_a_model_that_gains_something_or_whose_speed_is_not_known_is_written(
    size: int, predicted: float | None
) -> None:
    assert not is_in_vain(verdict("poor", size, predicted))


def test_what_was_measured_counts_more_than_what_was_predicted() -> None:
    slow = Latency(1.0, 1.0, 1.02, 1.0, 1.04, 25, 50, 2, 1)
    assert gains_nothing(verdict("good", 95, 2.0, slow))
    assert is_in_vain(verdict("fair", 95, 2.0, slow))
    assert "1.02 times as fast)" in why_in_vain(verdict("fair", 95, 2.0, slow))


def test_a_good_file_in_which_nothing_is_quantized_is_told_as_that() -> None:
    half = verdict_of(evaluation(quantized_bytes=50), Composition(0.0, 0), HELD_OUT)
    assert half.sentence.startswith("fair: nothing in it is quantized; output 'y'")


def test_a_model_that_is_good_and_hardly_smaller_is_not_written_for_nothing() -> None:
    quantized = evaluation(quantized_bytes=97)
    vain = verdict_of(quantized, Composition(0.5, 3), HELD_OUT, predicted=1.02, printed=1.02)
    why = "fair: the model is hardly smaller and hardly faster than float; output 'y'"
    assert vain.sentence.startswith(why)
    assert is_in_vain(vain)
    assert why_in_vain(vain) == (
        "int8 gains next to nothing (1.03 times smaller, 1.02 times as fast, predicted)"
    )
    faster = verdict_of(quantized, Composition(0.5, 3), HELD_OUT, predicted=1.5)
    assert not is_in_vain(faster)


def test_a_model_that_is_the_float_one_has_no_grade() -> None:
    same = verdict_of(evaluation(sqnr=300.0), Composition(0.0, 0), HELD_OUT, predicted=1.0)
    assert same.sentence == "none: nothing is quantized; use the float model"


def test_quantized_weights_are_taken_where_they_are_better_and_smaller() -> None:
    first = verdict("poor", 93, 1.05)
    assert takes_its_place(verdict("good", 30, 1.0), first)
    assert not takes_its_place(verdict("poor", 30, 1.0), first)
    assert not takes_its_place(verdict("good", 95, 1.0), first)
    slower = Latency(1.0, 1.5, 0.65, 0.64, 0.66, 25, 50, 2, 1)
    assert not takes_its_place(verdict("good", 30, 1.0, slower), first)
    nothing = replace(verdict("none", 100, 1.0), composition=Composition(0.0, 0))
    assert not takes_its_place(verdict("fair", 30, 1.0), nothing)
    assert takes_its_place(verdict("good", 30, 1.0), nothing)


def test_outputs_that_cannot_be_graded_speak_against_no_quantized_weights() -> None:
    nothing = replace(verdict("none", 100, 1.0), composition=Composition(0.0, 0))
    assert takes_its_place(verdict("none", 30, 1.0), nothing)
    assert not takes_its_place(verdict("none", 95, 1.0), nothing)
