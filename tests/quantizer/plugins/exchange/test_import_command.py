"""`qprof import`: what another tool chose becomes a plan that `quantize` applies, its ranges a profile."""

from __future__ import annotations

from pathlib import Path

from ....cli.running import qprof

DATA = Path(__file__).parent / "quantized_models" / "data"


def test_a_model_of_another_tool_is_lowered_again(tmp_path: Path) -> None:
    plan, model, original = tmp_path / "plan.yaml", tmp_path / "again.onnx", DATA / "float.onnx"
    result = qprof("import", DATA / "nncf.onnx", "--model", original, "-o", plan)
    assert result.exit_code == 0, result.output
    assert "12 nodes: 7 quantized, 4 pass-through, 1 float" in result.stdout
    assert "1 float: float in nncf.onnx" in result.stdout
    assert "note: nncf.onnx: 12 nodes are those of the float model" in result.stderr
    assert qprof("quantize", original, "--plan", plan, "-o", model).exit_code == 0
    assert model.exists()


def test_a_float_model_as_source_is_an_error(tmp_path: Path) -> None:
    original = DATA / "float.onnx"
    result = qprof("import", original, "--model", original, "-o", tmp_path / "plan.yaml")
    assert result.exit_code == 2
    assert "has no quantized tensor; give" in result.stderr


def test_an_option_of_a_plan_is_refused_for_ranges_and_the_other_way_round(tmp_path: Path) -> None:
    ranges, original = tmp_path / "model.cache", DATA / "float.onnx"
    ranges.write_text("TRT-8601-EntropyCalibration2\nx: 3c000000\n", encoding="utf-8")
    ends = ("--model", original, "-o", tmp_path / "out.yaml")
    of_ranges = qprof("import", ranges, "--form", "qdq", *ends)
    of_parameters = qprof("import", DATA / "nncf.onnx", "--chosen-ranges", *ends)
    assert (of_ranges.exit_code, of_parameters.exit_code) == (2, 2)
    assert "contains ranges" in of_ranges.stderr
    assert "contains none" in of_parameters.stderr
    assert not (tmp_path / "out.yaml").exists()
