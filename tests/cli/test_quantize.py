"""`qprof quantize`."""

from __future__ import annotations

import json
import re
from functools import partial
from pathlib import Path

import onnx
import pytest

from .running import qprof

DIGITS = Path(__file__).parents[2] / "examples" / "digits"
MODEL = DIGITS / "model.onnx"


quantize = partial(qprof, "quantize", MODEL)


def operators(path: Path) -> list[str]:
    """Return the operator types of a model."""
    return [node.op_type for node in onnx.load(path).graph.node]


def test_a_valid_model_is_written_and_the_summary_told(profile: Path, tmp_path: Path) -> None:
    out = tmp_path / "q.onnx"
    result = quantize("--profile", profile, "-o", out)
    assert (result.exit_code, result.stderr) == (0, "")
    onnx.checker.check_model(onnx.load(out), full_check=True)
    lines = result.stdout.splitlines()
    assert lines[0] == f"written   {out}"
    assert lines[1].startswith("size      237.7 kB -> ")
    assert "% of the arithmetic" in lines[-1]


def test_the_summary_as_json_has_the_same_numbers(profile: Path, tmp_path: Path) -> None:
    out = tmp_path / "q.onnx"
    summary = json.loads(quantize("--profile", profile, "-o", out, "--json", "--keep-float", "Gemm").stdout)
    assert summary["model"] == str(out)
    assert summary["quantized_bytes"] == out.stat().st_size
    assert summary["nodes"]["float"] == 1
    assert [(group["code"], group["nodes"]) for group in summary["floats"]] == [("by-request", 1)]


def test_why_a_node_stays_float_is_told(profile: Path, tmp_path: Path) -> None:
    result = quantize("--profile", profile, "-o", tmp_path / "q.onnx", "--keep-float", "Gemm", "--verbose")
    lines = result.stdout.splitlines()
    assert any(line.endswith(", 1 float") for line in lines if line.startswith("nodes "))
    assert "why float 1  kept float by request ('Gemm')" in lines


def test_options_overrule_a_configuration_file(profile: Path, tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(
        "target: onnxruntime-x86\nsettings:\n  keep_float: [Gemm]\n  calibrator: mse\n"
    )
    plan = tmp_path / "plan.yaml"
    result = quantize(
        "--profile", profile, "-o", tmp_path / "q.onnx", "--config", tmp_path / "c.yaml",
        "--calibrator", "percentile", "--save-plan", plan, "--json",
    )  # fmt: skip
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout)["nodes"]["float"] == 1
    assert "calibrator: percentile" in plan.read_text()


@pytest.mark.parametrize(
    ("option", "value", "nearest"),
    [
        ("--schema", "symetric", "symmetric"),
        ("--calibrator", "minmaxx", "minmax"),
        ("--target", "onnxruntime-x68", "onnxruntime-x86"),
        ("--form", "qdg", "qdq"),
        ("--set", "granularity=per-chanel", "per-channel"),
        ("--set", "runtime.lookup_tables.Tanh=portabel", "portable"),
        ("--set", "activation_type=int9", "int8"),
        ("--set", "weight_type=uint9", "uint8"),
        ("--keep-float", "head.flaten", "head.flatten"),
    ],
)
def test_an_unknown_name_is_an_error_that_suggests_the_nearest(
    profile: Path, tmp_path: Path, option: str, value: str, nearest: str
) -> None:
    result = quantize("--profile", profile, "-o", tmp_path / "q.onnx", option, value)
    assert result.exit_code == 2
    assert result.stderr.startswith("error: ")
    assert value.rpartition("=")[2] in result.stderr
    assert f"id you mean '{nearest}'?" in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_help_lists_the_names_that_the_library_knows() -> None:
    text = qprof("quantize", "--help-all").output
    words = " ".join(text.split())
    assert "[asymmetric|symmetric|symmetric-uint8|symmetric-power2]" in words
    assert "minmax" in words
    assert "glow" in words


def test_help_is_one_screen_and_names_the_help_with_all_options() -> None:
    text = qprof("quantize", "--help").output
    options = re.findall(r"^  (?:-\w, )?(--[\w-]+)", text, re.MULTILINE)
    assert 10 <= len(options) - 2 <= 15
    assert len(text.splitlines()) <= 42
    assert text.endswith("more options: qprof quantize --help-all\n")


def test_a_missing_profile_says_how_to_make_one(tmp_path: Path) -> None:
    result = quantize("-o", tmp_path / "q.onnx")
    assert result.exit_code == 2
    assert "give --data DIR, which profiles, quantizes and evaluates" in result.stderr
    assert "or --profile FILE, which qprof dump-profile makes" in result.stderr


def test_a_plan_and_settings_exclude_each_other(profile: Path, tmp_path: Path) -> None:
    plan = tmp_path / "plan.yaml"
    quantize("--profile", profile, "-o", tmp_path / "q.onnx", "--save-plan", plan)
    result = quantize("--plan", plan, "-o", tmp_path / "r.onnx", "--schema", "symmetric-uint8")
    assert result.exit_code == 2
    assert "--plan: has its own settings" in result.stderr
    assert not (tmp_path / "r.onnx").exists()


def test_a_target_and_a_configuration_file_exclude_each_other(profile: Path, tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("target: glow\n")
    result = quantize(
        "--profile", profile, "-o", tmp_path / "q.onnx", "--target", "glow", "--config", tmp_path / "c.yaml"
    )
    assert result.exit_code == 2
    assert "--target and --config: they exclude each other" in result.stderr


def test_of_ranges_alone_the_quality_is_said_to_be_unknown(profile: Path, tmp_path: Path) -> None:
    """A calibration cache of TensorRT has a threshold for each tensor, and nothing else."""
    cache = tmp_path / "digits.cache"
    words = ["export", profile, "--model", MODEL, "--format", "tensorrt-cache", "-o", cache]
    exported = qprof(*words)
    assert exported.exit_code == 0, exported.output
    result = quantize("--profile", cache, "-o", tmp_path / "q.onnx")
    assert result.exit_code == 0, result.output
    line = next(line for line in result.stdout.splitlines() if line.startswith("quality"))
    assert line == (
        "quality   not known: the profile has ranges only, and no samples; measure with qprof evaluate"
    )
