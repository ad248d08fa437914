"""Findings: the table of codes, and what is made of a list of them."""

import json
import re
from pathlib import Path

import pytest
from qprof_onnx.profiles.base.conversion import read_record
from qprof_onnx.profiles.base.errors import MalformedError
from qprof_onnx.profiles.base.findings import Code, Finding, Severity, gravest_first, table
from qprof_onnx.profiles.base.json_values import to_jsonable

ROOT = Path(__file__).parents[3]
FEW = Finding(Code.FEW_SAMPLES, "3 samples are few", "", {"samples": 3}, "give at least 32")


def test_the_table_has_each_code_once_with_a_meaning() -> None:
    entries = [entry for severity in table().values() for entry in severity["codes"].items()]
    assert sorted(code for code, _ in entries) == sorted(Code)
    assert all(meaning.endswith(".") and "|" not in meaning for _, meaning in entries)


def test_each_code_of_the_table_is_found_somewhere() -> None:
    sources = [p for room in ("profiles", "quantizer", "cli") for p in (ROOT / room).rglob("*.py")]
    text = "".join(path.read_text("utf-8") for path in sources)
    assert {code.name for code in Code} - {*re.findall(r"\bCode\.(\w+)", text)} == set()


def test_a_code_decides_how_grave_its_finding_is() -> None:
    assert FEW.severity is Severity.NOTE
    assert Finding(Code.PIXELS, "input 'x' looks like pixels").severity is Severity.WARNING


def test_a_finding_is_read_from_the_json_that_it_was_written_as() -> None:
    written = json.loads(json.dumps(to_jsonable(FEW)))
    assert written == {
        "code": "few-samples",
        "severity": "note",
        "sentence": "3 samples are few",
        "subject": "",
        "figures": {"samples": 3},
        "remedy": "give at least 32",
    }
    del written["severity"]  # it follows from the code
    assert read_record(written, Finding) == FEW


def test_a_code_that_is_not_in_the_table_is_refused() -> None:
    with pytest.raises(MalformedError, match="code 'few-sample' is not one of"):
        read_record({"code": "few-sample", "sentence": "3 samples are few"}, Finding)


def test_a_line_has_severity_sentence_and_remedy() -> None:
    assert FEW.line == "note: 3 samples are few; give at least 32"
    assert str(Finding(Code.FEW_SAMPLES, "3 samples are few")) == "3 samples are few"


def test_findings_are_listed_once_and_the_gravest_first() -> None:
    pixels = Finding(Code.PIXELS, "input 'x' looks like pixels", "x")
    last = Finding(Code.READING_ASSUMED, "each row is a sample")
    assert gravest_first([last, FEW, pixels, FEW]) == (pixels, last, FEW)
    assert len({FEW, Finding(Code.FEW_SAMPLES, "3 samples are few", "", {"samples": 3}, FEW.remedy)}) == 1
