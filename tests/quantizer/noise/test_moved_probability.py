"""How much probability is expected to move, held against what moves in onnxruntime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import onnxruntime as ort
import pytest
import qprof_onnx as qprof
from qprof_onnx.quantizer.noise.moved_probability import moved_texts

CLASSES = 12


@pytest.fixture(scope="module")
def samples() -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(11)
    return [{"x": rng.normal(size=(16, 24)).astype(np.float32)} for _ in range(24)]


def model_ending_in(last: str, path: Path) -> Path:
    """Write a network of two products whose logits are between sure and unsure; return its file."""
    rng = np.random.default_rng(3)
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 18]> g (float[n, 24] x) => (float[n, 12] y) '
        f"{{ a = MatMul(x, w)  b = Relu(a)  c = MatMul(b, v)  y = {last}(c) }}"
    )
    weights = {"w": rng.normal(size=(24, 32)) / 4.0, "v": rng.normal(size=(32, CLASSES)) / 2.0}
    for name, array in weights.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(array.astype(np.float32), name))
    onnx.save(model, path)
    return path


@pytest.mark.usefixtures("exact_int8_kernels")
@pytest.mark.parametrize("last", ["Softmax", "LogSoftmax", "Sigmoid"])
def test_what_is_expected_to_move_is_what_moves(
    last: str, samples: list[dict[str, np.ndarray]], tmp_path: Path
) -> None:
    path = model_ending_in(last, tmp_path / "m.onnx")
    result = qprof.quantize(path, qprof.profile(path, samples), tmp_path / "q.onnx", keep_float=[last])
    both = [ort.InferenceSession(str(file)) for file in (path, tmp_path / "q.onnx")]
    p, q = (np.concatenate([session.run(None, sample)[0] for sample in samples]) for session in both)
    p, q = (np.exp(p), np.exp(q)) if last == "LogSoftmax" else (p, q)
    moved = np.abs(p - q).sum() / p.sum()
    assert 0.0 < moved / 2.0 < result.plan.origin.moves["y"] < moved * 2.0


def test_it_is_kept_in_the_plan(samples: list[dict[str, np.ndarray]], tmp_path: Path) -> None:
    path = model_ending_in("Softmax", tmp_path / "m.onnx")
    qprof.quantize(path, qprof.profile(path, samples), save_plan=tmp_path / "p.yaml")
    moves = qprof.load_plan(tmp_path / "p.yaml").origin.moves
    assert 0.0 < moves["y"] < 0.047


def test_what_moves_too_much_is_said_with_what_to_do() -> None:
    (text,) = moved_texts({"y": 0.08, "z": 0.01})
    assert text.startswith(
        "output 'y': 8 % of the probability is expected to move, more than 4.7: with samples"
    )


def test_outputs_without_probabilities_have_none(
    samples: list[dict[str, np.ndarray]], tmp_path: Path
) -> None:
    path = model_ending_in("Relu", tmp_path / "m.onnx")
    assert qprof.quantize(path, qprof.profile(path, samples)).plan.origin.moves == {}
