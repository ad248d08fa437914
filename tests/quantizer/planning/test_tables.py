"""A model that is mostly a table is stored in 8 bits, unless it is to stay float."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
import qprof_onnx as qprof
from onnx import numpy_helper, parser
from qprof_onnx.quantizer.plan.plan import Kind

VECTORS = "e = Gather (t, i) p = Mul (e, m) y = ReduceSum <keepdims = 0> (p, axis)"


def quantized(
    folder: Path, nodes: str, shapes: dict[str, tuple[int, ...]], **settings: object
) -> qprof.QuantizeResult:
    """Return the result of quantizing word vectors, which are looked up and summed, with default settings."""
    rng = np.random.default_rng(2)
    model = parser.parse_model(
        f"""<ir_version: 8, opset_import: ["": 17]> g (int64[n, k] i, float[n, k, 1] m) => (float[n, o] y)
        <int64[1] axis = {{1}}> {{ {nodes} }}"""
    )
    for name, shape in shapes.items():
        array = (rng.normal(size=shape) / np.sqrt(shape[0])).astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    onnx.save(model, folder / "m.onnx")
    rows = shapes["t"][0]
    samples = [
        {"i": rng.integers(0, rows, (4, 96)), "m": rng.random((4, 96, 1)).astype(np.float32)}
        for _ in range(8)
    ]
    facts = qprof.profile(folder / "m.onnx", samples)
    settings = {"target": "onnxruntime-x86", **settings}
    return qprof.quantize(folder / "m.onnx", facts, folder / "q.onnx", **settings)  # type: ignore[arg-type]


def test_a_model_that_is_mostly_a_table_is_stored_in_8_bits(tmp_path: Path) -> None:
    result = quantized(tmp_path, VECTORS, {"t": (4000, 128)})
    assert result.plan.nodes["Gather_e"].kind is Kind.WEIGHT_ONLY
    assert result.float_bytes > 3.5 * result.quantized_bytes


@pytest.mark.parametrize("settings", [{"keep_float": ("Gather",)}])
def test_a_table_that_is_to_stay_float_does(tmp_path: Path, settings: dict[str, object]) -> None:
    result = quantized(tmp_path, VECTORS, {"t": (4000, 128)}, **settings)
    assert result.plan.nodes["Gather_e"].kind is Kind.FLOAT
