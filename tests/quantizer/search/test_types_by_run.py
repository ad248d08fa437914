"""Types of weights that estimates chose among are judged by a run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
import qprof_onnx as qprof
from onnx import numpy_helper, parser

GRAPH = """<ir_version: 8, opset_import: ["": 17]> g (float[N, 32] x) => (float[N, 16] y) {
  a = MatMul (x, w1)  b = Tanh (a)  c = MatMul (b, w2)  d = Softmax (c)  y = MatMul (d, w3) }"""
SHAPES = {"w1": (32, 64), "w2": (64, 64), "w3": (64, 16)}


def network(path: Path, seed: int) -> Path:
    model = parser.parse_model(GRAPH)
    rng = np.random.default_rng(seed)
    for name, shape in SHAPES.items():
        array = (rng.standard_normal(shape) / 4.0).astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    onnx.save(model, path)
    return path


def samples(seed: int) -> list[dict[str, np.ndarray]]:
    """Return inputs of which a few elements are far from the others."""
    rng = np.random.default_rng(seed)
    return [{"x": (rng.standard_t(2.5, (8, 32))).astype(np.float32)} for _ in range(16)]


@pytest.mark.parametrize("seed", range(3))
def test_a_size_is_kept_by_the_formats_that_a_run_prefers(seed: int, tmp_path: Path) -> None:
    path, profile, out = network(tmp_path / "net.onnx", seed), tmp_path / "p.yaml", tmp_path / "q.onnx"
    qprof.profile(path, samples(seed)).save(profile)
    for size in (12_000, 14_000):
        qprof.quantize(path, profile, output=out, config="mixed", fit_size=f"{size}B", target="onnx")
        assert out.stat().st_size <= size
