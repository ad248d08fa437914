"""Float models whose weights are in files of their own, and where the outputs of commands may be."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest
from qprof_onnx.quantizer.model import saving

from .running import qprof

INT4 = ["--as", "weight-only-4"]


def saved(folder: Path, seed: int = 0, name: str = "m.onnx", location: str = "m.onnx.data") -> Path:
    proto = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]>\n'
        "net (float[64, 64] x) => (float[64, 64] y) { h = MatMul(x, w)  y = Add(h, b) }"
    )
    rng = np.random.default_rng(seed)
    for initialiser, shape in (("w", (64, 64)), ("b", (64, 64))):
        array = rng.standard_normal(shape).astype(np.float32)
        proto.graph.initializer.append(onnx.numpy_helper.from_array(array, initialiser))
    folder.mkdir(exist_ok=True)
    onnx.save_model(proto, folder / name, save_as_external_data=True, location=location, size_threshold=0)
    return folder / name


def test_weights_are_those_of_the_given_folder_and_not_of_the_current_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved(tmp_path / "a")
    saved(tmp_path / "b", seed=1)
    for folder in ("a", "b"):
        monkeypatch.chdir(tmp_path / folder)
        done = qprof("quantize", "../a/m.onnx", *INT4, "-o", "out.onnx")
        assert done.exit_code == 0, done.output
    assert (tmp_path / "a/out.onnx").read_bytes() == (tmp_path / "b/out.onnx").read_bytes()


def test_an_output_never_takes_the_name_of_the_float_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(saving, "MIN_EXTERNAL_MODEL_BYTES", 1000)
    saved(tmp_path, name="float.onnx")  # its weights are in m.onnx.data
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    done = qprof("quantize", "float.onnx", "--as", "int8-dynamic", "-o", "m.onnx")
    assert done.exit_code == 0, done.output
    after = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    assert after.items() >= before.items()
    written = after.keys() - before.keys() - {"m.onnx"}
    assert [re.fullmatch(r"m\.onnx\.[0-9a-f]{16}\.data", name) is not None for name in written] == [True]


@pytest.mark.parametrize(
    "options", [["--as", "weight-only-8"], INT4, ["--as", "int8-dynamic"]], ids=["int8", "int4", "dynamic"]
)
def test_a_model_that_the_onnx_checker_refuses_may_have_its_weights_outside(
    options: list[str], tmp_path: Path
) -> None:
    proto = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]>\n'
        "net (int64[N] x) => (float[N, 100] y) {"
        " e = Gather(table, x)  n = SimplifiedLayerNormalization <axis = -1> (e, scale)  y = MatMul(n, w) }"
    )
    rng = np.random.default_rng(0)
    for initialiser, shape in (("table", (100, 64)), ("scale", (64,)), ("w", (64, 100))):
        array = rng.standard_normal(shape).astype(np.float32)
        proto.graph.initializer.append(onnx.numpy_helper.from_array(array, initialiser))
    inside, outside = tmp_path / "inside.onnx", tmp_path / "outside.onnx"
    onnx.save_model(proto, inside)
    onnx.save_model(proto, outside, save_as_external_data=True, location="w.data", size_threshold=0)
    for path in (inside, outside):
        done = qprof("quantize", str(path), *options, "-o", f"{path}.int.onnx")
        assert done.exit_code == 0, done.output
    made = [onnx.load_model(f"{path}.int.onnx").graph for path in (inside, outside)]
    assert made[0].node == made[1].node
    assert {t.name: t for t in made[0].initializer} == {t.name: t for t in made[1].initializer}
