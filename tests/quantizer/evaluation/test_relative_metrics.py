import numpy as np
import pytest
from qprof_onnx.profiles.base.errors import ModelError
from qprof_onnx.quantizer.evaluation.metrics.relative import (
    agreement_metric,
    are_answers,
    correlation_metric,
    noise_share,
)
from qprof_onnx.quantizer.evaluation.metrics.truth import Place
from qprof_onnx.quantizer.noise.class_axes import NO_CLASSES, ClassAxis

from .running import opened, rows, scored

CLASSES = ClassAxis(-1, True)


def test_agreement_counts_the_answers_that_changed_in_each_row() -> None:
    floats = {"y": np.eye(3, dtype=np.float32)[[[0, 1], [2, 2]]]}
    quantized = {"y": np.eye(3, dtype=np.float32)[[[0, 2], [2, 2]]]}
    result = scored(agreement_metric({"y": CLASSES}), [floats], [quantized])
    assert (result.rows, result.drop) == (2, 25.0)


def test_an_output_of_another_length_agrees_in_its_common_part_alone() -> None:
    assert scored(agreement_metric({"y": CLASSES}), [rows(0, 1)], [rows(0)]).drop == 50.0


def test_noise_is_the_share_of_the_worst_group_of_channels() -> None:
    boxes_and_scores = np.array([[[600.0, 500.0, 1.0, 1.0]]], np.float32)
    off = boxes_and_scores - np.array([0.0, 0.0, 0.1, 0.1], np.float32)
    metric = correlation_metric({"y": NO_CLASSES})
    result = scored(metric, [{"y": boxes_and_scores}], [{"y": off}])
    # half the noise of the scores alone: 0.01 of 1; over all elements it would be 3e-8
    assert result.drop == pytest.approx(0.5, rel=1e-4)  # 0.1 is no float32
    assert scored(metric, [{"y": off[0]}], [{"y": off[0]}]).drop == 0.0


def test_a_sample_without_signal_in_a_group_does_not_ruin_the_score() -> None:
    metric = correlation_metric({"y": NO_CLASSES})
    floats = [{"y": np.array([[[600.0, score]]], np.float32)} for score in (0.001, 1.0)]
    off = [{"y": values["y"] + np.array([0.0, 0.01], np.float32)} for values in floats]
    assert scored(metric, floats, off).drop < 0.02


def test_an_output_that_is_not_finite_has_no_correlation() -> None:
    metric, broken = correlation_metric({"y": NO_CLASSES}), {"y": np.full((1, 4), np.nan, np.float32)}
    assert scored(metric, [rows(0), rows(1)], [rows(0), broken]).drop == 100.0


def test_outputs_without_classes_have_no_answers() -> None:
    axes = {"y": CLASSES, "length": NO_CLASSES}
    assert are_answers(rows(0), axes)
    assert are_answers({"length": np.zeros(3, np.int64)}, axes)
    assert not are_answers({"y": np.zeros((2, 1), np.float32), "length": np.zeros(3, np.int64)}, axes)
    assert not are_answers({**rows(0), "boxes": rows(0)["y"]}, {**axes, "boxes": NO_CLASSES})


def test_noise_is_found_beside_large_values_and_in_integers() -> None:
    floats = [{"y": np.array([[600.0, 1.0]], np.float32)}]
    off = [{"y": np.array([[600.0, 1.1]], np.float32)}]
    axes = {"y": NO_CLASSES}
    assert noise_share(floats, off, axes) == pytest.approx(0.01, rel=1e-4)  # 0.1 is no float32
    classes = [{"y": np.array([1, 2, 3, 4])}], [{"y": np.array([1, 2, 3, 5])}]
    assert noise_share(*classes, axes) == 0.25
    assert noise_share(floats, floats, axes) == 0.0


def test_cosine_scores_the_first_output_of_float_vectors() -> None:
    ids, vectors = np.array([[3, 4]]), np.array([[1.0, 0.0]], np.float32)
    metric = opened("cosine", {"tokens": ids, "embedding": vectors})
    assert metric.reads == "embedding"
    truth, _ = metric.truth(Place(0, "a"), {"tokens": ids, "embedding": vectors})
    assert metric.scored(truth, {"tokens": ids, "embedding": vectors[:, ::-1]}).tolist() == [0.0]


@pytest.mark.parametrize("values", [np.array([[3, 4]]), np.array([[2.5]], np.float32)])
def test_cosine_refuses_an_output_without_directions(values: np.ndarray) -> None:
    with pytest.raises(ModelError, match="no directions to compare by cosine"):
        opened("cosine", {"y": values})
