import math

import numpy as np
from qprof_onnx.quantizer.evaluation.compare import SampleDifference
from qprof_onnx.quantizer.plugins.report.worst_samples import (
    MAX_WORST_SAMPLES,
    most_different,
    sample_difference,
)

ONES = np.ones((1, 4), np.float32)


def test_a_sample_is_known_by_the_output_that_differs_most() -> None:
    outputs = [("near", ONES, ONES * 0.99), ("far", ONES, ONES * 0.9), ("same", ONES, ONES)]
    found = sample_difference("a.npz", outputs, {})
    assert found is not None
    assert (found.sample, found.output, round(found.sqnr, 3)) == ("a.npz", "far", 20.0)


def test_a_value_that_is_not_finite_in_one_model_is_the_largest_difference() -> None:
    broken = ONES.copy()
    broken[0, 1] = np.nan
    found = sample_difference("a.npz", [("y", ONES, broken)], {})
    assert found == SampleDifference("a.npz", "y", -math.inf)


def test_equal_outputs_and_integers_make_no_difference() -> None:
    numbers = np.ones((1, 4), np.int64)
    assert sample_difference("a.npz", [("y", ONES, ONES), ("n", numbers, numbers + 1)], {}) is None


def test_the_worst_samples_are_kept_whatever_their_number() -> None:
    found: tuple[SampleDifference, ...] = ()
    for number in (7, 3, 9, 1, 8, 2, 6, 4):
        found = most_different(found, SampleDifference(f"{number}.npz", "y", float(number)))
    assert [one.sample for one in found] == [f"{number}.npz" for number in (1, 2, 3, 4, 6)][
        :MAX_WORST_SAMPLES
    ]


def test_samples_whose_answers_changed_come_before_those_that_differ_more() -> None:
    found: tuple[SampleDifference, ...] = ()
    for name, sqnr, changed in (("far", 1.0, 0.0), ("one", 30.0, 0.1), ("all", 40.0, 1.0)):
        found = most_different(found, SampleDifference(name, "y", sqnr, changed))
    assert [one.sample for one in found] == ["all", "one", "far"]


def test_the_output_whose_answers_changed_is_told_before_one_that_differs_more() -> None:
    outputs = [("classes", ONES, ONES * 0.99), ("embedding", ONES, ONES * 0.5)]
    found = sample_difference("a.npz", outputs, {"classes": 0.5})
    assert found is not None
    assert (found.output, found.changed) == ("classes", 0.5)
