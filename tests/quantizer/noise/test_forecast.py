"""Estimated SQNR of small networks and of an example against what is measured."""

from __future__ import annotations

from dataclasses import replace

import pytest
from qprof_onnx.quantizer.noise.estimate_check import check_estimates, expected_sqnr, too_good

from .estimated_networks import CASES, LSTM_LEVELS, Case, estimates, estimates_of_digits


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_no_estimate_is_more_than_3_db_too_good(case: Case) -> None:
    exact = replace(case, settings={"weight_type": "int8", **case.settings})
    (check,) = estimates(exact)
    assert not check.too_good, check.text


def test_the_examples_estimate_is_kept() -> None:
    (check,) = estimates_of_digits()
    assert abs(check.estimated - check.measured) < 3.0, check.text  # 38.7 and 39.0 dB


def test_lstms_whose_inputs_span_decades_are_not_within_the_default_budget() -> None:
    (check,) = estimates(LSTM_LEVELS)
    assert check.measured < 18.0  # what the budget asks of every output by default
    assert check.estimated < 18.0


def test_an_estimate_is_too_good_where_less_was_measured_than_its_band_holds() -> None:
    expected = expected_sqnr({"a": 20.0, "b": 20.0, "c": 20.0}, {"a": (14.0, 32.0), "b": (14.0, 32.0)})
    checks = check_estimates(expected, {"a": 14.1, "b": 13.9})
    assert [check.too_good for check in checks] == [False, True]
    (text,) = map(str, too_good(checks))
    assert text.startswith("output 'b': measured 13.9 dB, estimated 20.0 (14 to 32): the measurement counts")
