"""Estimated SQNR of small networks and of an example against what is measured."""

from __future__ import annotations

from dataclasses import replace

import pytest
from qprof_onnx.quantizer.noise.estimate_check import Estimate, too_good

from .estimated_networks import CASES, LSTM_LEVELS, Case, estimates, estimates_of_digits


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_no_estimate_is_more_than_3_db_too_good(case: Case) -> None:
    exact = replace(case, settings={"weight_type": "int8", **case.settings})
    (check,) = estimates(exact)
    assert not check.is_too_good, check.text


def test_the_examples_estimate_is_kept() -> None:
    (check,) = estimates_of_digits()
    assert abs(check.estimated - check.measured) < 3.0, check.text  # 38.7 and 39.0 dB


def test_lstms_whose_inputs_span_decades_are_not_within_the_default_budget() -> None:
    (check,) = estimates(LSTM_LEVELS)
    assert check.measured < 18.0  # what the budget asks of every output by default
    assert check.estimated < 18.0


def test_an_estimate_is_too_good_where_less_was_measured_than_its_band_holds() -> None:
    band = {"estimated": 20.0, "low": 14.0, "high": 32.0, "from_noise": True}
    checks = [Estimate("a", **band, measured=14.1), Estimate("b", **band, measured=13.9)]
    assert [check.is_too_good for check in checks] == [False, True]
    (text,) = map(str, too_good(checks))
    assert text.startswith("output 'b': measured 13.9 dB, estimated 20.0 (14 to 32): the measurement counts")
