"""Estimated SQNR of small networks and of an example against what is measured."""

from __future__ import annotations

from dataclasses import replace

import pytest

from .estimated_networks import CASES, LSTM_LEVELS, Case, estimates, estimates_of_digits


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_no_estimate_is_more_than_3_db_too_good(case: Case) -> None:
    exact = replace(case, settings={"weight_type": "int8", **case.settings})
    (check,) = estimates(exact)
    assert check.measured >= check.estimate.low, check


def test_the_examples_estimate_is_kept() -> None:
    (check,) = estimates_of_digits()
    assert abs(check.estimate.estimated - check.measured) < 3.0, check  # 38.7 and 39.0 dB


def test_lstms_whose_inputs_span_decades_are_not_within_the_default_budget() -> None:
    (check,) = estimates(LSTM_LEVELS)
    assert check.measured < 18.0  # what the budget asks of every output by default
    assert check.estimate.estimated < 18.0
