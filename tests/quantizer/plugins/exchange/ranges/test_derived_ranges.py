"""Thresholds are cut to what operators can yield; tensors that a file lacks get the range that follows."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
import qprof_onnx as qprof
from onnx import parser

HEAD = "TRT-8601-EntropyCalibration2\n"
ONE, TWO = "3c010204", "3c810204"  # 1 / 127 and 2 / 127 in float32


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """x, its Relu r, the pool p of it, s = Sigmoid(p), its shape changed to f, and c = Concat(f, f)."""
    text = (
        "r = Relu(x) p = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(r) s = Sigmoid(p) "
        "f = Flatten(s) c = Concat<axis = 1>(f, f) y = MatMul(c, w)"
    )
    proto = parser.parse_model(
        '<ir_version: 9, opset_import: ["": 17]> g (float[1,1,4,4] x) => (float[1,2] y) '
        f"<float[8,2] w = {{{','.join(['0.5'] * 16)}}}> {{ {text} }}"
    )
    onnx.save(proto, tmp_path / "m.onnx")
    return tmp_path / "m.onnx"


def ranges(model: Path, text: str, name: str = "m.cache") -> dict[str, tuple[float, float]]:
    file = model.with_name(name)
    file.write_text(text)
    found = qprof.import_profile(file, model)
    return {
        name: (round(tensor.minimum, 6), round(tensor.maximum, 6)) for name, tensor in found.tensors.items()
    }


def test_a_threshold_is_cut_to_what_its_operator_can_yield(
    model: Path, caplog: pytest.LogCaptureFixture
) -> None:
    found = ranges(model, f"{HEAD}x: {ONE}\nr: {ONE}\ns: {TWO}\ny: {ONE}\n")
    assert {name: found[name] for name in ("x", "r", "s", "y")} == {
        "x": (-1.0, 1.0),
        "r": (0.0, 1.0),
        "s": (0.0, 1.0),
        "y": (-1.0, 1.0),
    }
    assert (
        "the ranges of 2 of 4 tensors are cut to the possible results of their operators: 'r', 's'"
        in caplog.text
    )


def test_ranges_with_two_ends_are_taken_as_they_are(model: Path) -> None:
    assert ranges(model, '{"x": [-1.0, 1.0], "r": [-1.0, 1.0]}', "m.json")["r"] == (-1.0, 1.0)


def test_tensors_that_a_file_lacks_have_the_range_that_follows(
    model: Path, caplog: pytest.LogCaptureFixture
) -> None:
    found = ranges(model, f"{HEAD}x: {ONE}\ns: {ONE}\n")
    assert found == {"x": (-1.0, 1.0), "r": (0.0, 1.0), "p": (0.0, 1.0)} | dict.fromkeys("sfc", (0.0, 1.0))
    assert "4 tensors without an entry have the range that follows from the model" in caplog.text


def test_nothing_follows_for_the_result_of_a_product(model: Path) -> None:
    assert "y" not in ranges(model, f"{HEAD}x: {ONE}\n")
