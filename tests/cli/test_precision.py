"""--as and --set: settings in one word, and lines of a configuration file on the command line."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import Result
from qprof_onnx.quantizer.plan.store import load_plan

from .running import qprof

MODEL = Path(__file__).parents[2] / "examples" / "digits" / "model.onnx"


def quantize(folder: Path, *words: str) -> Result:
    """Run qprof quantize on the digits, with the plan beside the model."""
    files = ["-o", str(folder / "q.onnx"), "--save-plan", str(folder / "plan.yaml")]
    return qprof("quantize", str(MODEL), *files, *words)


@pytest.mark.parametrize(
    ("words", "mode", "weight_type"),
    [
        (["--as", "int8-dynamic"], "dynamic", "int8"),
        (["--as", "weight-only-8"], "weight-only", "int8"),
        (["--as", "weight-only-4"], "weight-only", "int4"),
    ],
)
def test_a_word_stands_for_settings(tmp_path: Path, words: list[str], mode: str, weight_type: str) -> None:
    result = quantize(tmp_path, *words)
    assert result.exit_code == 0, result.output
    config = load_plan(tmp_path / "plan.yaml").config
    assert (config.mode, config.weight_type) == (mode, weight_type)


def test_mixed_stands_for_a_size(tmp_path: Path) -> None:
    result = quantize(tmp_path, "--as", "mixed", "--max-size", "90kB")
    assert result.exit_code == 0, result.output
    config = load_plan(tmp_path / "plan.yaml").config
    assert (config.mode, config.fit_size) == ("weight-only", "90kB")


def test_set_takes_a_line_of_a_configuration_file(tmp_path: Path) -> None:
    lines = ["calibrator=kl", "settings.keep_float=[head]", "runtime.operators.Gemm=[float]"]
    words = [word for line in lines for word in ("--set", line)]
    assert quantize(tmp_path, "--as", "weight-only-8", *words).exit_code == 0
    config = load_plan(tmp_path / "plan.yaml").config
    assert (config.calibrator, config.keep_float) == ("kl", ("head",))


def test_an_option_overrules_a_line(tmp_path: Path) -> None:
    words = ["--as", "weight-only-8", "--set", "calibrator=kl", "--calibrator", "minmax"]
    assert quantize(tmp_path, *words).exit_code == 0
    assert load_plan(tmp_path / "plan.yaml").config.calibrator == "minmax"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--as", "int4"], ", mixed. Did you mean 'weight-only-4'?"),
        (
            ["--as", "mixed"],
            "--as mixed: needs the size of the model; give --max-size, as",
        ),
        (
            ["--as", "int8", "--set", "mode=dynamic"],
            "error: --as int8: means mode static, but mode dynamic was given",
        ),
        (["--set", "calibratr=kl"], "error: --set: unknown key 'calibratr'; 'qprof schema config' lists"),
        (["--set", "budgett=1"], "lists the keys. Did you mean 'budget'?"),
        (["--set", "runtime.operatrs=3"], "lists the keys. Did you mean 'runtime.operators'?"),
        (["--imgsz", "320"], "error: No such option '--imgsz'. In qprof: --preprocess yolo:SIZE"),
        (["--device", "cpu"], "In qprof: --target NAME"),
        (["--max-size", "10%"], "write it like 3000000, 500kB or 1.5MB, not in percent; see"),
        (["--half"], "In qprof: --set float_type=float16"),
        (["--model", "m.onnx"], "error: No such option '--model'; see"),
        (["--set", "runtime.operators.Gemm=[int3]"], "'int3' is not one of"),
        (["--set", "calibrator"], "error: --set calibrator: is not a key and a value; write it as"),
        (["--set", "keep_float=[a"], "error: --set keep_float: "),
    ],
)
def test_what_is_not_known_is_refused_in_one_line(tmp_path: Path, words: list[str], message: str) -> None:
    result = quantize(tmp_path, *words)
    assert result.exit_code == 2
    assert message in result.stderr
    assert result.stderr.count("\n") == 1
    assert not list(tmp_path.iterdir())
