"""Metrics that need no truth: agreement and correlation of both models' outputs."""

import numpy as np
import pytest
from qprof_onnx.quantizer.noise.class_axes import NO_CLASSES, ClassAxis
from qprof_onnx.quantizer.plugins.tune.relative_metrics import (
    agreement_metric,
    are_answers,
    correlation_metric,
)

from ...evaluation.running import rows, scored

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
