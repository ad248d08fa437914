import numpy as np
from qprof_onnx.quantizer.evaluation.accuracy import RowCounts, accuracy_of
from qprof_onnx.quantizer.evaluation.gates import failures_of
from qprof_onnx.quantizer.evaluation.options import Gate


def test_accuracy_and_drop_are_percent() -> None:
    found = accuracy_of("y", RowCounts(rows=200, both=180, only_float=8, only_quantized=2))
    assert (found.float_percent, found.quantized_percent, found.drop) == (94.0, 91.0, 3.0)
    assert found.drop_low < 3.0 < found.drop_high


def test_labels_are_those_from_the_first_row_of_a_sample() -> None:
    labels = np.array([1, 2, 3, 4])
    counts = RowCounts().added(labels, np.array([1, 2]), np.array([1, 0]), 0)
    counts = counts.added(labels, np.array([0, 0]), np.array([3, 0]), 2)
    assert counts == RowCounts(rows=4, both=1, only_float=1, only_quantized=1)


def test_another_number_of_answers_counts_as_wrong() -> None:
    assert RowCounts().added(np.array([1, 1]), np.array([1, 1]), np.array([1]), 0) == RowCounts(2, 0, 2, 0)


def test_a_float_model_that_has_nothing_right_shows_nothing() -> None:
    found = accuracy_of("y", RowCounts(rows=5000))
    assert (found.drop, found.drop_low, found.drop_high) == (0.0, -100.0, 100.0)
    (failure,) = failures_of(Gate(max_accuracy_drop=1.0), (), found, None, 1)
    assert "the float model has nothing right" in failure.reason
