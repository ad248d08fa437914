"""`qprof import-plan`: what another tool chose becomes a plan that `quantize` applies."""

from __future__ import annotations

from pathlib import Path

import pytest
from qprof_onnx.cli.main import main

DATA = Path(__file__).parents[1] / "quantizer" / "exchange" / "quantized_models" / "data"


def test_a_model_of_another_tool_is_lowered_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan, model = tmp_path / "plan.yaml", tmp_path / "again.onnx"
    source, original = str(DATA / "nncf.onnx"), str(DATA / "float.onnx")
    assert main(["import-plan", source, "--float", original, "-o", str(plan)]) == 0
    printed = capsys.readouterr()
    assert "12 nodes: 7 quantized, 4 pass-through, 1 float" in printed.out
    assert "1 float: float in nncf.onnx" in printed.out
    assert "note: nncf.onnx: 12 nodes are those of the float model" in printed.err
    assert f"qprof quantize {original} --plan {plan}" in printed.err
    assert main(["quantize", original, "--plan", str(plan), "-o", str(model)]) == 0
    assert model.exists()


def test_a_float_model_as_source_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    original = str(DATA / "float.onnx")
    assert main(["import-plan", original, "--float", original, "-o", str(tmp_path / "plan.yaml")]) == 2
    assert "has no quantized tensor that can be read; give" in capsys.readouterr().err
