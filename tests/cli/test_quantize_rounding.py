"""`qprof quantize --set rounding=gptq`."""

from __future__ import annotations

from pathlib import Path

from click.testing import Result
from qprof_onnx.quantizer.plan.store import load_plan

from .running import qprof

DIGITS = Path(__file__).parents[2] / "examples" / "digits"
MODEL, DATA = DIGITS / "model.onnx", DIGITS / "calibration"


def invoke(command: str, *arguments: str | Path) -> Result:
    return qprof(command, str(MODEL), *arguments)


def test_codes_are_chosen_with_samples_and_the_plan_gives_the_same_model(
    profile: Path, tmp_path: Path
) -> None:
    first, second, plan = tmp_path / "a.onnx", tmp_path / "b.onnx", tmp_path / "plan.yaml"
    asked = ["--set", "rounding=gptq", "--data", DATA, "--limit", "4", "--save-plan", plan]
    result = invoke("quantize", "--profile", profile, "-o", first, *asked, "--verbose")
    assert result.exit_code == 0, result.stderr
    assert load_plan(plan).adjustments.roundings
    assert invoke("quantize", "--plan", plan, "-o", second).exit_code == 0
    assert first.read_bytes() == second.read_bytes()


def test_it_goes_with_modes_that_need_no_profile(tmp_path: Path) -> None:
    out, plan = tmp_path / "q.onnx", tmp_path / "plan.yaml"
    asked = ["--as", "weight-only-8", "--set", "rounding=gptq", "--data", DATA, "--save-plan", plan]
    result = invoke("quantize", "-o", out, *asked)
    assert result.exit_code == 0, result.stderr
    assert load_plan(plan).adjustments.roundings


def test_the_speed_is_checked_on_the_same_samples(profile: Path, tmp_path: Path) -> None:
    asked = ["--set", "rounding=gptq", "--check-speed", "--data", DATA, "--limit", "1", "--verbose"]
    result = invoke("quantize", "--profile", profile, "-o", tmp_path / "q.onnx", *asked)
    assert result.exit_code == 0, result.stderr
    assert "as fast as float" in result.stdout


def test_no_samples_are_asked_for(profile: Path, tmp_path: Path) -> None:
    result = invoke("quantize", "--profile", profile, "-o", tmp_path / "q.onnx", "--set", "rounding=gptq")
    assert result.exit_code == 2
    assert "rounding gptq: needs samples, as for calibration; give them with --data DIR" in result.stderr
    assert not (tmp_path / "q.onnx").exists()


def test_tune_takes_no_rounding_that_needs_samples(profile: Path, tmp_path: Path) -> None:
    asked = ["--profile", profile, "--data", DATA, "--set", "rounding=gptq", "--limit", "4"]
    result = invoke("tune", *asked, "-o", tmp_path / "q.onnx")
    assert result.exit_code == 2
    assert "rounding gptq: needs samples, which 'qprof quantize --data' takes" in result.stderr
