import numpy as np
import pytest
from qprof_onnx.quantizer.evaluation.accuracy import accuracy_of, chance_of
from qprof_onnx.quantizer.evaluation.gates import failures_of
from qprof_onnx.quantizer.evaluation.metrics.classification import labelled_rows
from qprof_onnx.quantizer.evaluation.options import Gate
from qprof_onnx.quantizer.noise.class_axes import ClassAxis

from .running import both_right, rows


def test_accuracy_and_drop_are_percent() -> None:
    right = np.repeat([[True, True], [True, False], [False, True], [False, False]], [180, 8, 2, 10], axis=0)
    found = accuracy_of("y", right[:, 0], right[:, 1])
    assert (found.rows, found.only_float, found.only_quantized) == (200, 8, 2)
    assert (found.float_percent, found.quantized_percent, found.drop) == (94.0, 91.0, 3.0)
    assert found.drop_low < 3.0 < found.drop_high


def test_another_number_of_answers_counts_as_wrong() -> None:
    true, axis = np.array([1, 1]), ClassAxis(-1, True)
    assert labelled_rows(rows(1, 0)["y"], axis, true, "y").right.tolist() == [True, False]
    for other in (rows(1), rows(1, 1, 1)):
        assert labelled_rows(other["y"], axis, true, "y").right.tolist() == [False, False]


def test_a_float_model_that_has_nothing_right_shows_nothing() -> None:
    found = accuracy_of("y", *both_right(0, 5000))
    assert (found.drop, found.drop_low, found.drop_high) == (0.0, -100.0, 100.0)
    (failure,) = failures_of(Gate(max_drop=1.0), (), found, None, 1)
    assert "the float model has nothing right" in failure.reason


def test_shuffled_labels_of_uneven_classes_are_right_by_chance() -> None:
    said = np.repeat([0, 1, 2], [60, 30, 10])
    shuffled = np.random.default_rng(0).permutation(said)
    assert chance_of(shuffled, said, 1 / 3) == pytest.approx(0.46)
    assert chance_of(said, said, 1 / 3) == 1 / 3


def test_rows_of_one_class_do_not_look_shuffled() -> None:
    assert chance_of(np.zeros(50, np.int64), np.zeros(50, np.int64), 0.1) == 0.1
