"""Estimated SQNR against what is measured: quick cases of the benchmark."""

from __future__ import annotations

import importlib
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
from qprof_onnx.quantizer.noise.estimate_check import check_estimates, expected_sqnr, too_good

from ..int8_kernels import WEIGHT_TYPE

FOLDER = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def estimates() -> ModuleType:
    sys.path.insert(0, str(FOLDER))
    try:
        return importlib.import_module("stages.estimates")
    finally:
        sys.path.remove(str(FOLDER))


@pytest.mark.parametrize(
    "name",
    [
        "Conv",
        "MatMul",
        "MatMul levels dynamic",
        "MatMul weight-only",
        "attention",
        "LUT Sigmoid",
        "LSTM levels by step",
        "GRU weight-only",
        "residual, depthwise, 2 blocks",
    ],
)
def test_no_estimate_is_more_than_3_db_too_good(estimates: ModuleType, name: str) -> None:
    (case,) = (case for case in estimates.CASES if case.name == name)
    exact = replace(case, settings={"weight_type": WEIGHT_TYPE, **case.settings})
    (check,) = estimates.run(exact)
    assert not check.too_good, check.text


@pytest.mark.usefixtures("exact_int8_kernels")
def test_the_examples_estimate_is_kept(estimates: ModuleType) -> None:
    (check,) = estimates.digits()
    assert abs(check.estimated - check.measured) < 3.0, check.text  # 38.7 and 39.0 dB


def test_lstms_whose_inputs_span_decades_are_not_within_the_default_budget(estimates: ModuleType) -> None:
    (case,) = (case for case in estimates.CASES if case.name == "LSTM levels by step")
    (check,) = estimates.run(case)
    assert check.measured < 18.0  # what the budget asks of every output by default
    assert check.estimated < 18.0


def test_an_estimate_is_too_good_where_less_was_measured_than_its_band_holds() -> None:
    expected = expected_sqnr({"a": 20.0, "b": 20.0, "c": 20.0}, {"a": (14.0, 32.0), "b": (14.0, 32.0)})
    checks = check_estimates(expected, {"a": 14.1, "b": 13.9})
    assert [check.too_good for check in checks] == [False, True]
    (text,) = map(str, too_good(checks))
    assert text.startswith("output 'b': measured 13.9 dB, estimated 20.0 (14 to 32): the measurement counts")
