"""Models in which nothing can be quantized pass every command and mode, and no step is left out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper, parser

from ..cli.running import qprof

MODELS = {
    "Identity": "(float[1, 3] x) => (float[1, 3] y) { y = Identity (x) }",
    "no nodes": "(float[n, 3] x) => (float[n, 3] x) { }",
    "a weight as an output": "(float[n, 3] x) => (float[2, 3] t) { }",
    "sums": "(float[n, 3] x) => (float[n, 3] y) { a = Add (x, x) y = Add (a, x) }",
    "a small table": "(int64[n] x) => (float[n, 3] y) { y = Gather (t, x) }",
    "a constant beside": "(float[n, 3] x) => (float[2] y, float[n, 3] z) "
    "{ y = Constant <value = float[2] {1.0, 2.0}> () z = Relu (x) }",
    "a constant alone": "(float[n, 3] x) => (float[2] y) { y = Constant <value = float[2] {1.0, 2.0}> () }",
    "integers": "(int64[n, 3] x) => (int64[n, 3] y) { y = Add (x, x) }",
    "sizes": "(float[n, 3] x) => (int64[2] y) { y = Shape (x) }",
    "a truth value": "(bool x) => (bool y) { y = Not (x) }",
}
MODES = ("int8", "int8-dynamic", "weight-only-8", "weight-only-4", "mixed --max-size 100kB")


def run(*words: str) -> str:
    """Run a command of qprof that ends without error; return all that it printed."""
    result = qprof(*words)
    assert result.exit_code == 0, result.output
    assert "internal error" not in result.output
    return result.output


@pytest.fixture(params=MODELS)
def folder(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with a model, samples and a profile; commands run in it."""
    model = parser.parse_model(f'<ir_version: 9, opset_import: ["": 17]> g {MODELS[request.param]}')
    read = {name for node in model.graph.node for name in node.input}
    if "t" in read | {value.name for value in model.graph.output}:
        table = np.arange(6, dtype=np.float32).reshape(2, 3)
        model.graph.initializer.append(numpy_helper.from_array(table, "t"))
    onnx.save(model, tmp_path / "m.onnx")
    (tmp_path / "data").mkdir()
    rng, tensor = np.random.default_rng(1), model.graph.input[0].type.tensor_type
    dtype = helper.tensor_dtype_to_np_dtype(tensor.elem_type)
    shape = [dim.dim_value or 2 for dim in tensor.shape.dim]
    for number in range(6):
        values = rng.normal(size=shape) if dtype == np.float32 else rng.integers(0, 2, shape)
        np.savez(tmp_path / "data" / f"{number}.npz", x=np.asarray(values, dtype))
    monkeypatch.chdir(tmp_path)
    run("dump-profile", "m.onnx", "--data", "data", "-o", "p.yaml")
    return tmp_path


@pytest.mark.slow
def test_a_model_with_nothing_to_quantize_passes_every_mode(folder: Path) -> None:
    for mode in MODES:
        for source in ([], ["--profile", "p.yaml"]):
            if source or mode != "int8":
                run("quantize", "m.onnx", "--as", *mode.split(), *source, "-o", "q.onnx")
    run("quantize", "m.onnx", "--data", "data", "--no-latency", "-o", "q.onnx")
    run(
        "quantize",
        "m.onnx",
        "--set",
        "mode=auto",
        "--profile",
        "p.yaml",
        "--set",
        "cost_model=off",
        "-o",
        "q.onnx",
    )
    run("evaluate", "m.onnx", "q.onnx", "--data", "data", "--no-latency")


def test_a_model_with_nothing_to_compare_is_compared_or_refused(folder: Path) -> None:
    run("quantize", "m.onnx", "--as", "int8-dynamic", "-o", "q.onnx")
    result = qprof("compare-layers", "m.onnx", "q.onnx", "--data", "data")
    assert result.exit_code in (0, 2), result.output
