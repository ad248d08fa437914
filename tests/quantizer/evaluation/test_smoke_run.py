"""A written model is run once before it counts as written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnxruntime as ort
import pytest
from qprof_onnx.profiles.base.errors import ModelError
from qprof_onnx.quantizer.api.from_profile import write_quantized
from qprof_onnx.quantizer.api.profiling import profile_model
from qprof_onnx.quantizer.evaluation import written_model
from qprof_onnx.quantizer.evaluation.written_model import NOT_RUN, smoke_run
from qprof_onnx.quantizer.targets.loading import load_recipe

ANY = "net (float[N, C, H, W] x) => (float[M, K] y) { y = Flatten(x) }"
ROWS_OF_96 = "net (float[N, T] x) => (float[M, 96] y) <int64[2] s = {-1, 96}> { y = Reshape(x, s) }"
PICTURES = """net (float[N, 3, H, W] x) => (float[M, 3, 24, 24] y)
<int64[4] s = {-1, 3, 24, 24}> { y = Reshape(x, s) }"""
LOOKUP = "net (int64[N] i) => (float[N] y) <float[2] w = {5, 6}> { y = Gather(w, i) }"
DEEP = f"net (float[{', '.join('1' * 70)}] x) => (float[1] y) <int64[1] s = {{1}}> {{ y = Reshape(x, s) }}"
TEXTS = "net (string[N] x) => (string[N] y) { y = Identity(x) }"


def session(text: str) -> ort.InferenceSession:
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]>\n{text}')
    options = ort.SessionOptions()
    options.log_severity_level = 4
    return ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def tried(text: str, original: str | None = None, **elements: float) -> str | None:
    return smoke_run(session(text), lambda: session(original or text), "int8.onnx", elements)


@pytest.mark.parametrize("text", [ANY, LOOKUP])
def test_inputs_are_made_up_for_free_dimensions_and_indices(text: str) -> None:
    assert tried(text) is None


@pytest.mark.parametrize(("text", "elements"), [(ROWS_OF_96, 96), (PICTURES, 3 * 24 * 24)])
def test_a_profile_tells_the_size_of_free_dimensions(text: str, elements: int) -> None:
    assert tried(text) == NOT_RUN
    assert tried(text, x=elements) is None


@pytest.mark.parametrize("text", [TEXTS, DEEP])
def test_what_cannot_be_made_up_is_told(text: str) -> None:
    assert tried(text) == NOT_RUN


def test_a_model_that_fails_where_the_float_one_runs_is_an_error_with_advice() -> None:
    with pytest.raises(
        ModelError, match=r"int8.onnx: .*runs the float model and not this one: .*--keep-float"
    ):
        tried(ROWS_OF_96, original=ROWS_OF_96.replace("96", "8"))


def test_a_model_that_does_not_run_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "net (float[N, 4] x) => (float[N, 4] y) { h = Neg(x)  y = Relu(h) }"
    onnx.save(
        onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]>\n{text}'), tmp_path / "m.onnx"
    )
    (tmp_path / "data").mkdir()
    np.savez(tmp_path / "data" / "0.npz", x=np.ones((1, 4), np.float32))
    profile_model(tmp_path / "m.onnx", tmp_path / "data", tmp_path / "p.yaml")

    def fails(*_: Any) -> None:
        raise ModelError("it does not run")

    monkeypatch.setattr(written_model, "smoke_run", fails)
    with pytest.raises(ModelError, match="it does not run"):
        write_quantized(tmp_path / "m.onnx", tmp_path / "p.yaml", tmp_path / "q.onnx")
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["data", "m.onnx", "p.samples.npz", "p.yaml"]


def test_a_large_model_is_loaded_and_not_run_and_the_result_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "net (float[N, 4] x) => (float[N, 4] y) { h = Neg(x)  y = Relu(h) }"
    onnx.save(
        onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]>\n{text}'), tmp_path / "m.onnx"
    )

    def fails(*_: Any) -> None:
        raise ModelError("it was run")

    monkeypatch.setattr(written_model, "smoke_run", fails)
    monkeypatch.setattr(written_model, "MAX_RUN_BYTES", 100)
    recipe = load_recipe(None, {"mode": "weight-only"})
    result = write_quantized(tmp_path / "m.onnx", None, tmp_path / "q.onnx", recipe=recipe)
    assert any("it was loaded and not run" in note for note in map(str, result.findings))
