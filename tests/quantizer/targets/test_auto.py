"""The default target: that of this machine's processor, in Python, in a file and on the command line."""

from __future__ import annotations

from pathlib import Path

import pytest
from qprof_onnx.profiles.base.errors import ConfigError
from qprof_onnx.quantizer.plan.store import load_plan
from qprof_onnx.quantizer.targets import loading, machine
from qprof_onnx.quantizer.targets.loading import default_target, load_recipe
from qprof_onnx.quantizer.targets.machine import Processor

from ...cli.running import qprof as invoked

DIGITS = Path(__file__).parents[3] / "examples" / "digits" / "model.onnx"
VNNI = Processor("x86_64", "", ("avx2", "avx512f", "avx512_vnni"))
AVX2 = Processor("AMD64", "", ("avx2",))
ARM = Processor("aarch64", "", ("asimddp",))
RISCV = Processor("riscv64", "", ())


def on(monkeypatch: pytest.MonkeyPatch, here: Processor) -> None:
    monkeypatch.setattr(loading, "processor", lambda: here)


@pytest.mark.parametrize(
    ("here", "target"),
    [
        (VNNI, "onnxruntime-x86"),
        (AVX2, "onnxruntime-x86"),
        (ARM, "onnxruntime-arm"),
        (RISCV, "onnxruntime-x86"),
    ],
    ids=["x86 with VNNI", "x86 without VNNI", "Arm", "a processor of no target"],
)
@pytest.mark.parametrize("source", [None, "auto"])
def test_the_default_target_is_that_of_the_processor(
    here: Processor, target: str, source: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    on(monkeypatch, here)
    assert default_target() == target
    assert load_recipe(source).config.target == target


def test_a_file_may_say_auto(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on(monkeypatch, ARM)
    path = tmp_path / "q.yaml"
    path.write_text("target: auto\nsettings: {calibrator: kl}\n")
    recipe = load_recipe(path)
    assert (recipe.config.target, recipe.config.calibrator) == ("onnxruntime-arm", "kl")


def test_a_base_is_never_auto(tmp_path: Path) -> None:
    path = tmp_path / "q.yaml"
    path.write_text("target: mine\nbase: auto\nruntime: {}\n")
    with pytest.raises(ConfigError, match="target 'auto': no such target"):
        load_recipe(path)


@pytest.mark.parametrize("here", [VNNI, AVX2], ids=["with VNNI", "without VNNI"])
def test_no_processor_of_x86_is_told_anything_about_itself(
    here: Processor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on(monkeypatch, here)
    out, plan = tmp_path / "q.onnx", tmp_path / "plan.yaml"
    options = ["--as", "int8-dynamic", "-o", str(out), "--save-plan", str(plan)]
    result = invoked("quantize", str(DIGITS), *options)
    assert result.exit_code == 0, result.output
    assert not any(word in result.output for word in ("this processor", "VNNI", "avx"))
    assert load_plan(plan).config.target == "onnxruntime-x86"


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
