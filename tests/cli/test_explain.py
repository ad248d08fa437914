"""`qprof explain`: on a real plan, as text and as JSON, and what it says when it cannot."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from qprof_onnx.cli.main import main
from qprof_onnx.profiles.runner.settings import RunSettings
from qprof_onnx.quantizer.pipeline.profiling import dump_profile
from qprof_onnx.quantizer.pipeline.quantization import quantize

DIGITS = Path(__file__).parents[2] / "examples" / "digits"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("explain")
    dump_profile(DIGITS / "model.onnx", DIGITS / "calibration", folder / "p.yaml", RunSettings(limit=20))
    quantize(DIGITS / "model.onnx", folder / "p.yaml", folder / "q.onnx", save_plan_path=folder / "plan.yaml")
    return folder


def explain(folder: Path, *arguments: str, code: int = 0) -> str:
    result = CliRunner().invoke(main, ["explain", str(folder / "plan.yaml"), *arguments])
    assert result.exit_code == code, result.output
    return result.output


def test_the_plan_alone_tells_the_group(folder: Path) -> None:
    lines = explain(folder, "block.pool.out").splitlines()
    assert lines[0].startswith("tensor 'block.pool.out': uint8, scale ")
    assert "tied by block.relu2, block.pool;" in lines[1]
    assert any(line.split()[:1] == ["block.relu2.out"] and " yes " in line for line in lines)


def test_model_and_profile_add_the_nodes_and_the_noise(folder: Path) -> None:
    more = ["--model", str(DIGITS / "model.onnx"), "--profile", str(folder / "p.yaml")]
    found = json.loads(explain(folder, "block.pool.out", *more, "--json"))
    assert [n["operator"] for n in found["neighbours"] if n["makes"]] == ["MaxPool"]
    assert 30.0 < found["sqnr_db"] < 60.0
    before_the_clip = next(m for m in found["members"] if m["name"] == "block.add.out")
    assert before_the_clip["sqnr_db"] is None


def test_a_weight_has_no_group(folder: Path) -> None:
    assert "no other tensor" in explain(folder, "block.conv1.weight")


def test_an_unknown_tensor_is_an_error_with_the_nearest_name(folder: Path) -> None:
    assert "Did you mean 'block.pool.out'?" in explain(folder, "block.poll.out", code=2)


def test_a_profile_without_its_model_is_refused(folder: Path) -> None:
    said = explain(folder, "block.pool.out", "--profile", str(folder / "p.yaml"), code=2)
    assert "give the model too" in said
