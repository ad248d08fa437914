"""How far outputs are from float, in the unit that decides."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import combinations
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from qprof_onnx.profiles.base.conversion import OutputKind
from qprof_onnx.quantizer.evaluation.compare import Agreement
from qprof_onnx.quantizer.evaluation.output_shift import (
    WORST_COLUMN,
    Measure,
    OutputShift,
    output_shifts,
)
from qprof_onnx.quantizer.noise.class_axes import NO_CLASSES, ClassAxis
from qprof_onnx.quantizer.noise.output_limits import NoiseLimits

RNG = np.random.default_rng(5)


def shift(floats: Any, quantized: Any, kind: OutputKind, classes: ClassAxis = NO_CLASSES) -> OutputShift:
    """Return how far an output is from float, on samples that lie along the first axis of two arrays."""
    graph = cast("Any", None)
    limits = NoiseLimits(graph, cast("Any", {}), {"y": kind}, None, (), classes={"y": classes})
    (found,) = output_shifts(
        [{"y": np.asarray(f, np.float32)} for f in floats],
        [{"y": np.asarray(q, np.float32)} for q in quantized],
        limits,
    )
    return found


def test_of_probabilities_the_moved_share_counts() -> None:
    found = shift([[[0.5, 0.5]], [[1.0, 0.0]]], [[[0.6, 0.4]], [[1.0, 0.0]]], "decision")
    assert found.measure is Measure.MOVED
    assert found.value == pytest.approx(0.1)


def test_log_probabilities_count_by_what_they_are_the_logarithm_of() -> None:
    p, q = RNG.dirichlet(np.ones(5), (2, 4, 3))
    expected = np.abs(p - q).sum() / p.sum()
    assert shift(np.log(p), np.log(q), "decision").value == pytest.approx(expected, rel=1e-4)


def test_an_error_of_an_improbable_class_does_not_count() -> None:
    p = np.array([[[0.7, 0.3 - 1e-9, 1e-9]]])
    q = np.log(p) + np.array([0.0, 0.0, 5.0])
    assert shift(np.log(p), q, "decision").value < 1e-6


def test_rows_of_an_assignment_that_go_to_nobody_are_not_normalised() -> None:
    p = np.array([[[0.9, 1e-9, 1e-9], [1e-9, 0.8, 1e-9], [1e-9, 1e-9, 1e-9]]])
    noise = np.where(p < 1e-6, RNG.normal(0.0, 2.0, p.shape), 0.0)
    assert shift(np.log(p), np.log(p) + np.minimum(noise, 0.0), "decision").value < 1e-6


def test_an_assignment_may_have_a_row_and_a_column_for_what_is_left() -> None:
    p = np.full((1, 1, 12, 12), 1e-9)
    p[..., np.arange(8), np.arange(8)] = 0.9
    p[..., 11, 8:11] = p[..., 8:11, 11] = 0.8
    found = shift(np.log(p), np.log(p) - 0.01, "decision")
    assert found.measure is Measure.MOVED
    assert found.value == pytest.approx(0.01, rel=0.01)


def test_logits_count_by_their_softmax() -> None:
    logits = RNG.normal(size=(2, 3, 4))
    classes = ClassAxis(-1, True)
    assert shift(logits, logits + 3.0, "decision", classes).value == pytest.approx(0.0, abs=1e-6)
    assert shift(logits, -logits, "decision", classes).value > 0.1


def test_numbers_that_are_no_answers_count_by_the_error_of_their_columns() -> None:
    x = RNG.normal(size=(64, 3)) * [1.0, 1e3, 1e5]
    found = shift([x], [x + x.std(axis=0) * RNG.choice([-1.0, 1.0], x.shape) * [0.01, 0.0199, 0.3]], "values")
    assert found.measure is Measure.COLUMNS
    assert (found.typical, found.worst) == (pytest.approx(0.0199, rel=1e-3), pytest.approx(0.3, rel=1e-3))
    assert found.value == pytest.approx(found.worst / WORST_COLUMN)
    assert "typical error 2.0 %, worst column 30 %" in found.text


def test_boxes_beside_scores_do_not_count() -> None:
    boxes, scores = RNG.uniform(0.0, 300.0, (2, 4, 10)), RNG.uniform(0.0, 1.0, (2, 3, 10))
    floats = np.concatenate([boxes, scores], axis=1)[:, None]
    moved = np.concatenate([boxes + 5.0, scores], axis=1)[:, None]
    floats, moved = np.swapaxes(floats, 2, 3), np.swapaxes(moved, 2, 3)
    found = shift(floats, moved, "detections")
    assert found.measure is Measure.MOVED
    assert found.value == 0.0


def test_of_a_single_probability_both_answers_count() -> None:
    assert shift([[[0.001]]], [[[0.002]]], "decision").value == pytest.approx(0.002)


def test_a_sample_in_which_nothing_is_found_counts_as_one_with_one_answer() -> None:
    assert shift(np.zeros((2, 1, 50)), np.full((2, 1, 50), 1e-3), "decision").value == pytest.approx(0.05)


def test_of_embeddings_the_cosines_between_rows_count() -> None:
    rows = RNG.normal(size=(8, 1, 16))
    same = shift(rows, 2.0 * rows, "embedding")
    assert same.measure is Measure.COSINES
    assert same.value == pytest.approx(0.0, abs=1e-6)
    assert shift(rows, rows + RNG.normal(size=rows.shape), "embedding").value > 0.4


def test_few_rows_of_an_embedding_count_by_their_noise() -> None:
    rows = RNG.normal(size=(2, 1, 16))
    assert shift(rows, rows, "embedding").measure is Measure.NOISE


def test_what_is_not_finite_is_infinitely_far_off() -> None:
    assert shift([[[0.5, 0.5]]], [[[math.nan, 0.5]]], "decision").value == math.inf


def test_a_state_beside_other_outputs_is_not_compared() -> None:
    limits = NoiseLimits(cast("Any", None), cast("Any", {}), {"y": "values", "h": "state"}, None, ())
    sample = {"y": np.ones((1, 2), np.float32), "h": np.ones((1, 2), np.float32)}
    assert [one.output for one in output_shifts([sample], [sample], limits)] == ["y"]


def limits_of(kind: OutputKind, **others: Any) -> NoiseLimits:
    return NoiseLimits(cast("Any", None), cast("Any", {}), {"y": kind}, None, (), **others)


def test_small_columns_count_as_large_ones_do() -> None:
    x = RNG.normal(size=(64, 2)) * [1e5, 1.0]
    noisy = x + [0.0, 0.5] * RNG.choice([-1.0, 1.0], x.shape)
    (found,) = output_shifts([{"y": x}], [{"y": noisy}], limits_of("values"))
    assert found.sqnr > 90.0
    assert found.excess > 4.0


def test_where_the_model_makes_magnitudes_an_error_is_relative_to_each_value() -> None:
    x = 10.0 ** RNG.uniform(-3.0, 2.0, (400, 3))
    step = 0.2 * RNG.choice([-1.0, 1.0], x.shape)
    (relative,) = output_shifts(
        [{"y": x}], [{"y": x * (1.0 + step)}], limits_of("values", relative=frozenset("y")), {}
    )
    assert relative.typical == pytest.approx(0.2 / math.sqrt(2.0), rel=0.1)  # half lies below the median
    (absolute,) = output_shifts([{"y": x}], [{"y": x + 0.02}], limits_of("values"))
    (found,) = output_shifts([{"y": x}], [{"y": x + 0.02}], limits_of("values", relative=frozenset("y")))
    assert absolute.excess < 0.1
    assert found.excess > 1.0


def test_a_column_that_never_varies_counts_for_nothing_where_it_is_0() -> None:
    x = np.concatenate([RNG.normal(size=(32, 1)), np.zeros((32, 1))], axis=1)
    (found,) = output_shifts([{"y": x}], [{"y": x + 0.01}], limits_of("values"))
    assert found.columns == 1
    assert found.worst == pytest.approx(0.01 / x[:, 0].std(), rel=1e-6)


def test_the_tolerance_of_the_user_is_the_limit() -> None:
    x = RNG.normal(size=(64, 1))
    x -= x.mean()  # decibels count the mean of an output too
    (found,) = output_shifts([{"y": x}], [{"y": x + 0.03 * x.std()}], limits_of("values", tolerance=0.05))
    assert found.excess == pytest.approx(0.6)
    assert found.text == "output 'y': typical error 3.0 % (limit 5.0 %), 30.5 dB"


def test_padding_does_not_hide_what_moves() -> None:
    lengths = RNG.integers(3, 6, (40, 1))
    letters = np.where(np.arange(20)[None] < lengths, 1 + RNG.integers(0, 20, (40, 20)), 0)
    p = RNG.dirichlet(np.ones(4), (40, 20))
    moved = np.roll(p, 1, axis=2)
    certain = np.array([1.0, 0.0, 0.0, 0.0])
    p, moved = (np.where(letters[..., None] > 0, values, certain) for values in (p, moved))
    limits = limits_of("decision", classes={"y": ClassAxis(-1, True)})
    (diluted,) = output_shifts([{"y": p}], [{"y": moved}], limits, [{}])
    (found,) = output_shifts([{"y": p}], [{"y": moved}], limits, [{"x": letters}])
    assert found.value == pytest.approx(np.abs(p - moved).sum() / (letters > 0).sum(), rel=0.2)
    assert diluted.value == pytest.approx(found.value, rel=0.1)  # rows that are equal say the same
    assert found.answers is not None
    assert found.answers.total == pytest.approx(int((letters > 0).sum()), abs=10)


def test_a_sequence_is_right_when_all_its_answers_are() -> None:
    p = np.tile(np.array([0.9, 0.1]), (10, 6, 1))
    p[:, ::2] = p[:, ::2, ::-1]
    p[0] = p[0, :, ::-1]  # so that no position is the same in all sequences
    q = p.copy()
    q[3, 2] = q[3, 2, ::-1]
    limits = limits_of("decision", classes={"y": ClassAxis(-1, True)})
    (found,) = output_shifts([{"y": p}], [{"y": q}], limits)
    assert found.answers is not None
    assert found.sequences is not None
    assert (found.answers.same, found.answers.total) == (59, 60)
    assert (found.sequences.same, found.sequences.total) == (9, 10)


def test_positions_that_are_frames_of_an_input_are_answers_each_and_those_of_tokens_are_one() -> None:
    p = np.tile(np.array([0.9, 0.1]), (10, 6, 1))
    p[:, ::2] = p[:, ::2, ::-1]
    p[0] = p[0, :, ::-1]
    limits = limits_of("decision", classes={"y": ClassAxis(-1, True)})
    frames, slots = RNG.normal(size=(10, 6, 4)), RNG.normal(size=(10, 7, 4))
    for given, whole in ((frames, False), (RNG.permutation(60).reshape(10, 6), True), (slots, True)):
        (found,) = output_shifts([{"y": p}], [{"y": p}], limits, [{"x": given}])
        assert found.answers is not None
        assert found.answers.total == 60
        assert (found.sequences is not None) == whole


def answered(kind: OutputKind, classes: ClassAxis, given: Any, *, time_first: bool = False) -> OutputShift:
    """Return how far answers of ten sequences are off, one of which has another answer at one of 6 places."""
    p = np.tile(np.array([0.9, 0.1]), (10, 6, 1))
    p[:, ::2] = p[:, ::2, ::-1]
    p[0] = p[0, :, ::-1]
    q = p.copy()
    q[3, 2] = q[3, 2, ::-1]
    samples = [
        {"y": array[at : at + 1].swapaxes(0, 1) if time_first else array[at : at + 1]}
        for array in (p, q)
        for at in range(10)
    ]
    limits = limits_of(kind, classes={"y": classes}, maps=frozenset({"y"}))
    (found,) = output_shifts(samples[:10], samples[10:], limits, [{"x": given}] * 10)
    return found


TOKENS, FRAMES = np.arange(1, 7)[None] ** 2, np.ones((1, 6, 4), np.float32)


def test_a_measured_figure_tells_whole_sequences_too() -> None:
    found = answered("decision", ClassAxis(-1, True), TOKENS)
    assert found.measured.endswith(", 59 of 60 answers the same, 9 of 10 sequences the same")


def test_whole_sequences_of_frames_are_told_and_not_judged() -> None:
    found = answered("decision", ClassAxis(-1, True), FRAMES)
    assert found.sequences is None
    assert not found.changes
    assert found.measured.endswith("the same, 9 of 10 sequences as a whole (judged by frame)")


def test_the_largest_of_values_at_each_place_is_told_in_case_it_is_an_answer() -> None:
    found = answered("values", ClassAxis(-1), TOKENS)
    assert (found.answers, found.changes) == (None, [])
    assert found.measured.endswith(
        "59 of 60 positions and 9 of 10 sequences have the same largest values "
        "(--set output_kind=y=decision judges these)"
    )


def test_positions_that_come_before_the_samples_are_one_sequence() -> None:
    found = answered("decision", ClassAxis(-1, True), np.ones((1, 3, 8, 8), np.float32), time_first=True)
    assert found.sequences is not None
    assert (found.sequences.same, found.sequences.total) == (9, 10)


def test_one_sequence_that_changes_is_chance_and_two_of_forty_are_not() -> None:
    found = answered("decision", ClassAxis(-1, True), TOKENS)
    two = Agreement("top-1", 38, 40, 0.95)
    assert (found.changes, replace(found, sequences=two).changes) == ([], [two])


def test_an_output_that_is_empty_in_both_models_is_not_off() -> None:
    nothing = np.zeros((0, 4), np.float32)
    (found,) = output_shifts([{"y": nothing}], [{"y": nothing}], limits_of("detections"))
    assert found.excess == 0.0
    assert found.text.startswith("output 'y': it is empty in both models on these samples")


def test_what_is_drawn_at_random_or_has_a_length_of_its_own_has_no_figure() -> None:
    x = RNG.normal(size=(1, 50))
    drawn = limits_of("signal", incomparable={"y": "it is drawn at random"})
    graph = cast("Any", SimpleNamespace(shape=lambda name: (1, None)))
    longer = NoiseLimits(graph, cast("Any", {}), {"y": "signal"}, None, ())
    for quantized, limits in ((-x, drawn), (x[:, :40], longer)):
        (found,) = output_shifts([{"y": x}], [{"y": quantized}], limits)
        assert found.measure is Measure.NONE
        assert found.excess == 0.0
        assert "cannot be compared sample by sample" in found.text


def test_the_share_of_answers_that_change_is_told_as_it_is_and_chance_with_the_limit() -> None:
    x, classes = np.arange(80), limits_of("decision", indices={"y": "s"})
    changed = np.where(x < 1, 5, x)
    (found,) = output_shifts([{"y": x}], [{"y": changed}], classes)
    assert found.figures == "1.2 % of the answers change (limit 5.9 %)"
    assert found.excess == 0.0


def test_of_an_index_the_answers_that_change_count() -> None:
    x = np.arange(100)[:, None] % 7
    changed = x.copy()
    changed[:20] += 1
    (found,) = output_shifts([{"y": x}], [{"y": changed}], limits_of("decision", indices={"y": "s"}))
    assert found.measure is Measure.ANSWERS
    assert found.value == pytest.approx(0.19)
    assert found.excess > 1.0


@pytest.mark.parametrize(("limit", "said"), [(30.0, "30"), (24.5, "24.5")])
def test_a_limit_of_the_user_is_one_of_decibels_whatever_the_output_is(limit: float, said: str) -> None:
    x = RNG.dirichlet(np.ones(4), 50)
    limits = NoiseLimits(cast("Any", None), cast("Any", {}), {"y": "decision"}, limit, ())
    (found,) = output_shifts([{"y": x}], [{"y": 1.1 * x}], limits)
    assert found.measure is Measure.NOISE
    assert found.text == f"output 'y': 20.0 dB (limit {said})"


def test_a_vector_of_many_alike_columns_bears_what_an_embedding_does() -> None:
    x = RNG.normal(size=(40, 96))
    noisy = x + 0.05 * RNG.normal(size=x.shape)
    (vector,) = output_shifts([{"y": x}], [{"y": noisy}], limits_of("values"))
    (numbers,) = output_shifts([{"y": x[:, :8]}], [{"y": noisy[:, :8]}], limits_of("values"))
    decades = 10.0 ** np.linspace(-2.0, 2.0, 96)
    (unlike,) = output_shifts([{"y": x * decades}], [{"y": noisy * decades}], limits_of("values"))
    assert vector.excess < 1.0 < min(numbers.excess, unlike.excess)


def test_positions_whose_number_a_model_leaves_free_are_no_columns() -> None:
    """Pitch for each frame: a frame that is another octave is one error among many, and no column."""
    rng = np.random.default_rng(0)
    exact = [{"y": rng.uniform(100.0, 400.0, (1, 200))} for _ in range(8)]
    noisy = [{"y": one["y"] * rng.normal(1.0, 0.002, (1, 200))} for one in exact]
    noisy[3]["y"][0, 7] *= 2.0
    (fixed,) = output_shifts(exact, noisy, limits_of("values"))
    (free,) = output_shifts(exact, noisy, limits_of("values", free_axes={"y": frozenset({1})}))
    assert (fixed.columns, free.columns) == (200, 1)
    assert free.excess < fixed.excess


@pytest.mark.parametrize("rows", [3, 4, 5])
def test_four_and_five_rows_have_the_error_of_their_halves(rows: int) -> None:
    rng = np.random.default_rng(3)
    floats = rng.normal(size=(rows, 3)) * [1.0, 30.0, 900.0]
    quantized = floats + rng.normal(size=floats.shape)

    def error(part: Any) -> float:
        f, q = floats[list(part)], quantized[list(part)]
        return float(np.sqrt(np.mean((q - f) ** 2)) / f.std())

    every = set(range(rows))
    means = [(error(one) + error(every.difference(one))) / 2.0 for one in combinations(every, rows // 2)]
    (found,) = output_shifts(
        [{"y": one[None]} for one in floats], [{"y": one[None]} for one in quantized], limits_of("values")
    )
    assert found.value == pytest.approx(np.median(means) if rows > 3 else error(every), rel=1e-9)
