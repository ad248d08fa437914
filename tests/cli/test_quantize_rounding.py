"""`qprof quantize --rounding gptq`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from qprof_onnx.cli.main import main
from qprof_onnx.quantizer.plan.store import load_plan

DIGITS = Path(__file__).parents[2] / "examples" / "digits"
MODEL, DATA = DIGITS / "model.onnx", DIGITS / "calibration"


def invoke(command: str, *arguments: str | Path) -> Result:
    return CliRunner().invoke(main, [command, str(MODEL), *map(str, arguments)], prog_name="qprof")


def test_codes_are_chosen_with_samples_and_the_plan_gives_the_same_model(
    profile: Path, tmp_path: Path
) -> None:
    first, second, plan = tmp_path / "a.onnx", tmp_path / "b.onnx", tmp_path / "plan.yaml"
    asked = ["--rounding", "gptq", "--data", DATA, "--limit", "4", "--save-plan", plan]
    result = invoke("quantize", "--profile", profile, "-o", first, *asked, "--verbose")
    assert result.exit_code == 0, result.stderr
    assert load_plan(plan).adjustments.roundings
    assert invoke("quantize", "--plan", plan, "-o", second).exit_code == 0
    assert first.read_bytes() == second.read_bytes()


def test_with_samples_the_estimate_is_held_against_the_outputs(profile: Path, tmp_path: Path) -> None:
    asked = ["--target", "onnxruntime-x86", "--rounding", "gptq", "--data", DATA, "--limit", "4", "--json"]
    result = invoke("quantize", "--profile", profile, "-o", tmp_path / "a.onnx", *asked)
    (check,) = json.loads(result.stdout)["estimates"]
    assert check["output"] == "logits"
    assert check["measured"] >= check["low"]
    without = invoke("quantize", "--profile", profile, "-o", tmp_path / "b.onnx", "--json")
    assert json.loads(without.stdout)["estimates"] == []


def test_it_goes_with_modes_that_need_no_profile(tmp_path: Path) -> None:
    out, plan = tmp_path / "q.onnx", tmp_path / "plan.yaml"
    asked = ["--as", "weight-only-8", "--rounding", "gptq", "--data", DATA, "--save-plan", plan]
    result = invoke("quantize", "-o", out, *asked)
    assert result.exit_code == 0, result.stderr
    assert load_plan(plan).adjustments.roundings


def test_the_speed_is_checked_on_the_same_samples(profile: Path, tmp_path: Path) -> None:
    asked = ["--rounding", "gptq", "--check-speed", "--data", DATA, "--limit", "1", "--verbose"]
    result = invoke("quantize", "--profile", profile, "-o", tmp_path / "q.onnx", *asked)
    assert result.exit_code == 0, result.stderr
    assert "as fast as float" in result.stdout


def test_no_samples_are_asked_for(profile: Path, tmp_path: Path) -> None:
    result = invoke("quantize", "--profile", profile, "-o", tmp_path / "q.onnx", "--rounding", "gptq")
    assert result.exit_code == 2
    assert "rounding gptq: needs samples, as for calibration; give them with --data DIR" in result.stderr
    assert not (tmp_path / "q.onnx").exists()


@pytest.mark.parametrize("command", ["sensitivity", "tune"])
def test_other_commands_take_the_plan(profile: Path, tmp_path: Path, command: str) -> None:
    asked = ["--profile", profile, "--data", DATA, "--rounding", "gptq", "--limit", "4"]
    result = invoke(command, *asked, *(["-o", tmp_path / "q.onnx"] if command == "tune" else []))
    assert result.exit_code == 2
    assert "rounding gptq: needs samples, which 'qprof quantize --data' takes" in result.stderr
