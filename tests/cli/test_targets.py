"""`qprof targets`: what is known of runtimes and operators, printed from the one place where it stands."""

from __future__ import annotations

import json

import pytest
from qprof_onnx.quantizer.operators.functions import CHAIN
from qprof_onnx.quantizer.operators.table import RULES
from qprof_onnx.quantizer.targets.packaged import target_names

from .running import printed, qprof


def test_every_rule_is_listed() -> None:
    rows = json.loads(printed("targets", "onnxruntime-x86", "--json"))["operators"]
    assert {row["operator"] for row in rows} == {*(op_type for _, op_type in RULES), CHAIN}


@pytest.mark.parametrize(
    ("target", "line"),
    [
        ("onnxruntime-x86", "look-up table, written as sigmoid"),
        ("glow", "look-up table, written as portable"),
    ],
)
def test_the_target_decides_what_becomes_of_an_operator(target: str, line: str) -> None:
    rows = json.loads(printed("targets", target, "--json"))["operators"]
    assert next(row["target"] for row in rows if row["operator"] == "Tanh") == line


def test_the_reference_prints_as_a_table() -> None:
    lines = printed("targets", "onnxruntime-x86").splitlines()
    assert lines[0].split()[:2] == ["operator", "output"]
    assert any(line.startswith("Conv ") and "quantized, returns quantized" in line for line in lines)


def test_a_name_that_is_no_target_is_answered_with_the_nearest() -> None:
    result = qprof("targets", "glo")
    assert result.exit_code == 2
    assert "Did you mean 'glow'?" in result.output


def test_every_target_is_listed() -> None:
    assert [line.split()[0] for line in printed("targets").splitlines()[1:]] == list(target_names())


def test_the_sources_of_a_target_are_told_in_json() -> None:
    assert all(record["target"]["sources"] for record in json.loads(printed("targets", "--json"))["targets"])
