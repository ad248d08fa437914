from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from qprof_onnx.profiles.base.errors import ConfigError, DataError, ModelError
from qprof_onnx.quantizer.evaluation.accuracy import paired_interval
from qprof_onnx.quantizer.evaluation.outputs import NO_CLASSES, ClassAxis
from qprof_onnx.quantizer.model.files import load_model
from qprof_onnx.quantizer.runtime.sessions import open_session
from qprof_onnx.quantizer.scoring.scored_models import decibels_of, score_model, screen_model
from qprof_onnx.quantizer.scoring.scores import (
    accuracy_metric,
    agreement_metric,
    are_answers,
    correlation_metric,
    drop_interval,
    noise_share,
    score_outputs,
    student95,
    user_metric,
)
from qprof_onnx.quantizer.scoring.tuning_data import TuningData, halves, outputs_of, read_samples

DIGITS = Path(__file__).parents[3] / "examples" / "digits"
HELDOUT = str(DIGITS / "heldout")
LABELS = DIGITS / "heldout" / "labels.txt"
CLASSES = ClassAxis(-1, True)


@given(st.integers(0, 40), st.integers(0, 40), st.integers(0, 200))
def test_the_interval_of_whole_rows_is_that_of_two_proportions(only_float, only_quantized, same) -> None:
    differences = np.array([1.0] * only_float + [-1.0] * only_quantized + [0.0] * same)
    low, high = paired_interval(only_float, only_quantized, differences.size)
    # 1e-9: two ways to add the same float64 numbers
    assert drop_interval(differences) == pytest.approx((100 * low, 100 * high), abs=1e-9)


@pytest.mark.parametrize(
    ("freedom", "quantile"), [(1, 12.706), (2, 4.303), (3, 3.182), (7, 2.365), (30, 2.042)]
)
def test_students_quantile_is_that_of_the_tables(freedom, quantile) -> None:
    # 2 %: the expansion is cut off; it is worst at 3 degrees
    assert student95(freedom) == pytest.approx(quantile, rel=0.02)


def test_scores_that_differ_little_have_a_narrow_interval_even_when_they_are_few() -> None:
    low, high = drop_interval(np.array([0.010, 0.012, 0.011, 0.013]))
    assert 0.9 < low < 1.15 < high < 1.4
    assert drop_interval(np.array([0.01])) == (-100.0, 100.0)


def rows(*best: int) -> dict[str, np.ndarray]:
    return {"y": np.eye(4, dtype=np.float32)[list(best)]}


def test_accuracy_is_scored_with_the_labels_of_the_samples_chosen() -> None:
    metric = accuracy_metric("y", np.array([0, 1, 2, 3]), [0, 2], CLASSES)
    result = score_outputs(metric, [1], [rows(2, 3)], [rows(2, 0)])
    assert (result.float_percent, result.quantized_percent, result.drop, result.rows) == (
        100.0,
        50.0,
        50.0,
        2,
    )


def test_agreement_counts_the_answers_that_changed_in_each_row() -> None:
    floats = {"y": np.eye(3, dtype=np.float32)[[[0, 1], [2, 2]]]}
    quantized = {"y": np.eye(3, dtype=np.float32)[[[0, 2], [2, 2]]]}
    result = score_outputs(agreement_metric({"y": CLASSES}), [0], [floats], [quantized])
    assert (result.rows, result.drop) == (2, 25.0)


def test_an_output_of_another_shape_agrees_in_nothing() -> None:
    assert score_outputs(agreement_metric({"y": CLASSES}), [0], [rows(0, 1)], [rows(0)]).drop == 100.0


def test_noise_is_the_share_of_the_worst_group_of_channels() -> None:
    boxes_and_scores = np.array([[[600.0, 500.0, 1.0, 1.0]]], np.float32)
    off = boxes_and_scores - np.array([0.0, 0.0, 0.1, 0.1], np.float32)
    metric = correlation_metric({"y": NO_CLASSES})
    result = score_outputs(metric, [0], [{"y": boxes_and_scores}], [{"y": off}])
    # half the noise of the scores alone: 0.01 of 1; over all elements it would be 3e-8
    assert result.drop == pytest.approx(0.5, rel=1e-4)  # 0.1 is no float32
    assert score_outputs(metric, [0], [{"y": off[0]}], [{"y": off[0]}]).drop == 0.0


def test_a_sample_without_signal_in_a_group_does_not_ruin_the_score() -> None:
    metric = correlation_metric({"y": NO_CLASSES})
    floats = [{"y": np.array([[[600.0, score]]], np.float32)} for score in (0.001, 1.0)]
    off = [{"y": values["y"] + np.array([0.0, 0.01], np.float32)} for values in floats]
    assert score_outputs(metric, [0, 1], floats, off).drop < 0.02


def test_an_output_that_is_not_finite_has_no_correlation() -> None:
    metric, broken = correlation_metric({"y": NO_CLASSES}), {"y": np.full((1, 4), np.nan, np.float32)}
    assert score_outputs(metric, [0, 1], [rows(0), rows(1)], [rows(0), broken]).drop == 100.0


def test_outputs_without_classes_have_no_answers() -> None:
    axes = {"y": CLASSES, "length": NO_CLASSES}
    assert are_answers(rows(0), axes)
    assert are_answers({"length": np.zeros(3, np.int64)}, axes)
    assert not are_answers({"y": np.zeros((2, 1), np.float32), "length": np.zeros(3, np.int64)}, axes)
    assert not are_answers({**rows(0), "boxes": rows(0)["y"]}, {**axes, "boxes": NO_CLASSES})


def test_a_metric_of_ones_own_gets_outputs_and_indices() -> None:
    calls = []

    def metric(outputs, indices):
        calls.append((len(outputs), list(indices)))
        return [80.0 if outputs[0]["y"][0, 0] else 60.0 for _ in indices]

    result = score_outputs(user_metric(metric, "m:f"), [4, 7], [rows(0), rows(0)], [rows(1), rows(1)])
    assert (result.float_percent, result.drop) == (80.0, pytest.approx(20.0))  # a mean of float64
    assert calls == [(2, [4, 7]), (2, [4, 7])]


@pytest.mark.parametrize("scores", [[1.0], [101.0, 0.0], [float("nan"), 0.0]])
def test_a_metric_that_returns_something_else_is_refused(scores) -> None:
    metric = user_metric(lambda outputs, indices: scores, "m:f")
    with pytest.raises(DataError, match=r"--metric m:f: returned .* return one score for each sample"):
        metric([0, 1], [rows(0), rows(0)], [rows(0), rows(0)])


def test_a_metric_that_returns_no_numbers_is_refused() -> None:
    metric = user_metric(lambda outputs, indices: ["good"], "m:f")
    with pytest.raises(DataError, match="--metric m:f: returned no numbers"):
        metric([0], [rows(0)], [rows(0)])


def test_a_metric_that_fails_is_an_error_of_the_data_and_no_traceback(tmp_path, monkeypatch) -> None:
    (tmp_path / "broken_metric.py").write_text("def score(outputs, indices):\n    return 1 / 0\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match=r"--metric broken_metric:score: .*ZeroDivisionError"):
        read(metric="broken_metric:score")
    with pytest.raises(ConfigError, match="as module:function"):
        read(metric="score")


def read(**options):
    model = str(DIGITS / "model.onnx")
    return read_samples(open_session(model, model), load_model(model), TuningData(HELDOUT, **options))


def test_halves_share_no_sample_and_lose_none() -> None:
    whole = read()
    first, second = halves(whole, 5)
    assert sorted([*first.indices, *second.indices]) == list(whole.indices)
    assert [s.name for s in first.samples] == [whole.samples[i].name for i in first.indices]
    assert all({a // 2, b // 2} == {a // 2} for a, b in zip(first.indices, second.indices, strict=True))
    assert halves(whole, 5)[0].indices == first.indices
    assert any(halves(whole, seed)[0].indices != first.indices for seed in range(4))


def test_labels_that_do_not_fit_are_refused(tmp_path) -> None:
    (tmp_path / "l.txt").write_text("1\n2\n")
    with pytest.raises(DataError, match="2 labels, but the samples have 400 rows"):
        read(labels=tmp_path / "l.txt")
    with pytest.raises(ModelError, match=r"output 'logit': the model has none .*logits"):
        read(labels=LABELS, output="logit")
    with pytest.raises(ConfigError, match="exclude each other"):
        read(labels=LABELS, metric="m:f")


def test_functions_of_python_are_known_by_their_code() -> None:
    first, second = (read(metric=eval(f"lambda outputs, indices: [{v}] * len(indices)")) for v in (80, 90))
    assert first.metric_digest != second.metric_digest
    again = read(metric=eval("lambda outputs, indices: [80] * len(indices)"))
    assert again.metric_digest == first.metric_digest


def test_noise_is_found_beside_large_values_and_in_integers() -> None:
    floats = [{"y": np.array([[600.0, 1.0]], np.float32)}]
    off = [{"y": np.array([[600.0, 1.1]], np.float32)}]
    axes = {"y": NO_CLASSES}
    assert noise_share(floats, off, axes) == pytest.approx(0.01, rel=1e-4)  # 0.1 is no float32
    classes = [{"y": np.array([1, 2, 3, 4])}], [{"y": np.array([1, 2, 3, 5])}]
    assert noise_share(*classes, axes) == 0.25
    assert noise_share(floats, floats, axes) == 0.0


@pytest.mark.parametrize(("noise", "sqnr"), [(0.0, None), (0.01, 20.0), (float("inf"), -300.0)])
def test_noise_in_decibels_is_a_number_that_a_file_can_hold(noise, sqnr) -> None:
    assert decibels_of(noise) == sqnr


def test_samples_that_run_side_by_side_have_the_same_outputs() -> None:
    model, samples = str(DIGITS / "model.onnx"), read().samples
    session = open_session(model, model)
    one, three = (outputs_of(session, samples, model, count) for count in (1, 3))
    assert all(np.array_equal(a["logits"], b["logits"]) for a, b in zip(one, three, strict=True))


def test_the_first_samples_decide_where_they_leave_no_doubt() -> None:
    model, samples, calls = DIGITS / "model.onnx", read(), []

    def metric(indices, floats, quantized):
        calls.append(len(indices))
        lost = np.linspace(0.5, 1.0, len(indices))
        return np.stack([np.ones(len(indices)), lost], axis=1)

    many = samples.subset(list(range(len(samples.samples))) * 4)
    screened = screen_model(model, replace(many, metric=metric), {"logits": CLASSES}, 0.5)
    assert (calls, screened.score.samples, screened.sqnr) == ([11], 11, None)
    assert screen_model(model, many, {"logits": CLASSES}, 0.5).score == score_model(model, many, 1)
