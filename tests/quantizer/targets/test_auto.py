"""Target auto in Python, in a configuration file and on the command line."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
import qprof_onnx as qprof
from click.testing import CliRunner
from qprof_onnx.cli.main import main
from qprof_onnx.profiles.base.errors import ConfigError
from qprof_onnx.quantizer.plan.store import load_plan
from qprof_onnx.quantizer.targets import loading, machine
from qprof_onnx.quantizer.targets.loading import load_recipe
from qprof_onnx.quantizer.targets.machine import Processor

DIGITS = Path(__file__).parents[3] / "examples" / "digits" / "model.onnx"
ARM = Processor("aarch64", "", ("asimddp",))


@pytest.fixture
def arm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "processor", lambda: ARM)
    monkeypatch.setattr(loading, "default_doubt", machine.default_doubt)  # which other tests do not hear


def test_auto_is_the_target_of_this_machine_and_noted(arm: None, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "qprof_onnx"):
        recipe = load_recipe("auto", {"calibrator": "kl"})
    assert (recipe.config.target, recipe.target.name) == ("onnxruntime-arm", "onnxruntime-arm")
    assert (recipe.config.activation_type, recipe.config.calibrator) == ("int8", "kl")
    assert recipe == load_recipe("onnxruntime-arm", {"calibrator": "kl"})
    assert caplog.messages == [recipe.chosen]
    assert recipe.chosen.startswith("target is onnxruntime-arm: this processor is 64-bit Arm (asimddp)")


def test_a_file_may_say_auto(arm: None, tmp_path: Path) -> None:
    path = tmp_path / "q.yaml"
    path.write_text("target: auto\nsettings: {calibrator: kl}\n")
    recipe = load_recipe(path)
    assert (recipe.config.target, recipe.config.calibrator) == ("onnxruntime-arm", "kl")
    assert recipe.chosen


def test_a_base_is_never_auto(tmp_path: Path) -> None:
    path = tmp_path / "q.yaml"
    path.write_text("target: mine\nbase: auto\nruntime: {}\n")
    with pytest.raises(ConfigError, match="target 'auto': no such target"):
        load_recipe(path)


def test_a_default_that_is_not_this_machines_is_noted(arm: None, caplog: pytest.LogCaptureFixture) -> None:
    assert load_recipe().config.target == "onnxruntime-x86"
    assert len(caplog.messages) == 1
    assert "--target auto takes onnxruntime-arm" in caplog.text
    load_recipe("onnxruntime-x86")
    assert len(caplog.messages) == 1


def test_the_plan_has_the_targets_name_and_why(arm: None) -> None:
    plan = qprof.quantize(DIGITS, target="auto", mode="dynamic").plan
    assert plan.config.target == "onnxruntime-arm"
    assert any(note.startswith("target is onnxruntime-arm: ") for note in map(str, plan.findings))


def test_the_command_line_says_which_target_auto_is(arm: None, tmp_path: Path) -> None:
    out, plan = tmp_path / "q.onnx", tmp_path / "plan.yaml"
    options = ["--as", "int8-dynamic", "--target", "auto", "-o", str(out), "--save-plan", str(plan)]
    result = CliRunner().invoke(main, ["quantize", str(DIGITS), *options, "--json"])
    assert result.exit_code == 0, result.output
    assert "note: target is onnxruntime-arm: this processor is 64-bit Arm" in result.stderr
    assert "target is onnxruntime-arm: this processor is" in result.stdout
    assert load_plan(plan).config.target == "onnxruntime-arm"


def test_a_machine_of_no_target_ends_with_the_choices(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(loading, "processor", lambda: Processor("riscv64", "", ()))
    options = ["--as", "int8-dynamic", "--target", "auto", "-o", str(tmp_path / "q.onnx")]
    result = CliRunner().invoke(main, ["quantize", str(DIGITS), *options])
    assert result.exit_code == 2
    assert "target 'auto': no target is for this processor (riscv64); choose one of glow" in result.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--data", "missing"], "missing: no such folder or file"),
        (["--as", "int8-dynamic", "--calibrator", "wrong"], "options: calibrator 'wrong' is not one of"),
        (["--as", "int8-dynamic", "--keep-float", "wrong"], "keep_float 'wrong': no node of the model"),
        ([], "mode static needs a profile or samples"),
    ],
)
def test_an_error_in_what_was_asked_stands_without_a_note_on_the_target(
    arm: None, tmp_path: Path, options: list[str], message: str
) -> None:
    asked = ["quantize", str(DIGITS), "-o", str(tmp_path / "q.onnx"), *options]
    result = CliRunner().invoke(main, asked)
    assert result.exit_code == 2
    assert message in result.stderr
    assert result.stderr.startswith("error: ")


def test_a_default_that_is_not_this_machines_is_told_before_the_result(arm: None, tmp_path: Path) -> None:
    asked = ["quantize", str(DIGITS), "--as", "int8-dynamic", "-o", str(tmp_path / "q.onnx")]
    result = CliRunner().invoke(main, asked)
    assert result.exit_code == 0
    assert result.output.startswith("note: target is onnxruntime-x86, the default")


@pytest.mark.parametrize(
    ("target", "advice"),
    [
        ("onnxruntime-x86", "measure with qprof evaluate"),
        ("openvino", "measure with qprof evaluate --runtime openvino"),
        ("tensorrt", "measure on the target with qprof evaluate --provider tensorrt"),
        ("glow", "measure in the runtime of the target"),
    ],
)
def test_the_advice_on_speed_is_of_what_runs_the_target(target: str, advice: str) -> None:
    assert machine.how_to_time(target) == advice
