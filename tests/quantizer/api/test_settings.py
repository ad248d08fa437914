"""The keywords are the fields of the records behind them, with the words that these may have."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
import qprof_onnx as qprof
from qprof_onnx.profiles.base.options import options_of
from qprof_onnx.profiles.runner import settings as run
from qprof_onnx.quantizer.api import keywords
from qprof_onnx.quantizer.api.keywords import (
    DiffKeywords,
    EvaluateKeywords,
    QuantizeKeywords,
    RunOptions,
    SampleKeywords,
    SensitivityKeywords,
    TuneKeywords,
)
from qprof_onnx.quantizer.api.options import DriftLimits, QuantizeOptions
from qprof_onnx.quantizer.api.setting_keywords import Settings
from qprof_onnx.quantizer.evaluation.options import EvaluationOptions
from qprof_onnx.quantizer.numerics.calibrators import parse_calibrator
from qprof_onnx.quantizer.search.options import OBJECTIVES, QualityTarget

from . import setting_keywords

ROOT = Path(__file__).parents[3]
SETTINGS = get_type_hints(Settings)


def names(kind: type) -> set[str]:
    return {field.name for field in fields(kind)}


def keys(options: Any) -> set[str]:
    return set(options.__optional_keys__)


def test_the_keywords_of_settings_are_printed_from_the_record() -> None:
    written = (ROOT / "quantizer/api/setting_keywords.py").read_text(encoding="utf-8")
    assert written == setting_keywords.module(), "print it anew, see CONTRIBUTING.md"


def test_the_keywords_of_functions_are_the_fields_of_their_records() -> None:
    assert keys(RunOptions) == names(qprof.RunSettings)
    assert names(DriftLimits) | {"allow_different"} == keys(DiffKeywords) - set(SETTINGS)
    assert keys(QuantizeKeywords) - set(SETTINGS) == names(QuantizeOptions)


def test_the_keywords_of_an_evaluation_and_a_tuning_are_in_their_records() -> None:
    samples, tuning = keys(SampleKeywords), keys(TuneKeywords)
    own = keys(EvaluateKeywords) - samples
    assert own == names(EvaluationOptions) - {"metric", "limit"}
    assert names(QualityTarget) - {"max_drop"} <= tuning


@pytest.mark.parametrize("options", [QuantizeKeywords, SensitivityKeywords, DiffKeywords, TuneKeywords])
def test_every_function_that_plans_takes_all_settings(options: Any) -> None:
    assert set(SETTINGS) <= keys(options)


def test_the_usual_parameters_of_calibrators_are_allowed() -> None:
    assert all(parse_calibrator(word) for word in get_args(SETTINGS["calibrator"]))


def test_the_words_of_a_run_and_of_a_tuning_are_those_that_they_may_be() -> None:
    hints = get_type_hints(RunOptions)
    assert get_args(get_args(hints["tensors"])[0]) == run.TENSORS
    assert get_args(get_args(hints["channels"])[0]) == run.CHANNELS
    assert get_args(hints["non_finite"]) == run.NON_FINITE
    objective = TuneKeywords.__annotations__["objective"].__forward_arg__
    assert get_args(eval(objective, vars(keywords))) == tuple(OBJECTIVES)


def test_every_option_is_described() -> None:
    """In its field, for help and pages, or in the docstring of the record where no command takes it."""
    for record in (QuantizeOptions, EvaluationOptions, DriftLimits, qprof.RunSettings, qprof.Gate):
        described = {name for name, known in options_of(record).items() if known.description}
        assert not [name for name in names(record) - described if name not in (record.__doc__ or "")]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('q.quantize("m.onnx", "p.yaml", calibrator="msee")', "No overload variant"),
        ('q.quantize("m.onnx", "p.yaml", calibratr="mse")', 'Unexpected keyword argument "calibratr"'),
        ('q.quantize("m.onnx", "p.yaml", block_size="32")', "No overload variant"),
        ('q.profile("m.onnx", [], channels="on")', 'Argument "channels"'),
        ("q.evaluate(3, 4, [])", 'Argument 1 to "evaluate"'),
        ('q.tune("m.onnx", "p.yaml", [], objective="speed")', 'Argument "objective"'),
        ('reveal_type(q.quantize("m.onnx").model)', 'Revealed type is "onnx_ir._core.Model"'),
    ],
)
def test_a_type_checker_finds_what_is_wrong(line: str, said: str, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(f"import qprof_onnx as q\n{line}\n", encoding="utf-8")
    result = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file", ROOT / "pyproject.toml", script],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert said in result.stdout
