"""`qprof quantize --check-speed`."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator
from qprof_onnx.cli.schemas import schema_of

from .running import qprof

DIGITS = Path(__file__).parents[2] / "examples" / "digits"
MODEL, DATA = DIGITS / "model.onnx", DIGITS / "calibration"


quantize = partial(qprof, "quantize", MODEL)


def test_a_speed_that_cannot_be_reached_is_a_failed_gate(profile: Path, tmp_path: Path) -> None:
    out = tmp_path / "q.onnx"
    asked = ["--check-speed", "--data", DATA, "--limit", "1", "--set", "min_speedup=1000", "--json"]
    result = quantize("--profile", profile, "-o", out, *asked)
    assert result.exit_code == 1
    (failure,) = json.loads(result.stdout)["judged"]["evaluation"]["failures"]
    assert (failure["demand"], failure["result"]) == ("min_speedup", "failed")
    assert failure["measured"] < 1000.0
    assert out.exists()


def test_the_speed_on_samples_of_the_profile_has_a_gate_too(profile: Path, tmp_path: Path) -> None:
    asked = ["--check-speed", "--set", "min_speedup=1000", "--json"]
    result = quantize("--profile", profile, "-o", tmp_path / "q.onnx", *asked)
    assert (result.exit_code, result.stderr) == (1, "")
    found = json.loads(result.stdout)
    Draft202012Validator(schema_of("quantization")).validate(found)
    assert found["speed"]["after"]["speedup"] < 1000.0
    assert (found["speed"]["min_speedup"], found["passed"]) == (1000.0, False)


def test_the_latencies_are_told(profile: Path, tmp_path: Path) -> None:
    asked = ["--check-speed", "--data", DATA, "--limit", "1"]
    result = quantize("--profile", profile, "-o", tmp_path / "q.onnx", *asked)
    assert result.exit_code == 0
    (line,) = [line for line in result.stdout.splitlines() if line.startswith("speed ")]
    assert "times as fast" in line or "as fast as float" in line
    assert "1 thread)" in line


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (["--set", "min_speedup=2"], "--set min_speedup is for --data or --check-speed"),
        (["--set", "threads=2"], "--set threads is for --data or --check-speed"),
        (["--data", "x", "--plan", str(MODEL)], "--plan: has its own settings and takes no --data"),
        (["--check-speed", "--data", "x", "--plan", str(MODEL)], "--plan: has its own settings"),
    ],
)
def test_options_that_do_not_go_together_are_refused(
    profile: Path, tmp_path: Path, asked: list[str], message: str
) -> None:
    result = quantize("--profile", profile, "-o", tmp_path / "q.onnx", *asked)
    assert result.exit_code == 2
    assert message in result.stderr
