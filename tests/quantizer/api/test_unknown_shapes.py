"""Types and ranks that inference does not have come from onnxruntime and from the samples."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser
from qprof_onnx import profile, quantize
from qprof_onnx.profiles.base.findings import Code

SCALES = 10.0 ** np.linspace(-1.5, 1.5, 16)
CONVOLUTIONS = "c = Conv (p, w, b) r = Relu (c) d = Conv (r, v) y = Relu (d)"
PRODUCTS = "c = MatMul (p, w) r = Relu (c) d = MatMul (r, v) y = Relu (d)"
MODELS: Mapping[str, tuple[str, str, str]] = {
    "GroupNormalization": (
        "float[n, 8, 4, 4] x",
        "p = GroupNormalization <num_groups = 2> (x, one, one)",
        "",
    ),
    "MeanVarianceNormalization": ("float[n, 8, 4, 4] x", "p = MeanVarianceNormalization (x)", ""),
    "Compress": ("float[n, 8, 5, 4] x", "p = Compress <axis = 2> (x, some)", ""),
    "Scaler": ("float[n, 8] x", "p = ai.onnx.ml.Scaler <offset = [0.0], scale = [2.0]> (x)", "MatMul"),
    "Reshape": ("float[n, 2, 4] x, int64[k] s", "p = Reshape (x, s)", "MatMul"),
}


def model_of(name: str) -> onnx.ModelProto:
    inputs, first, product = MODELS[name]
    rng = np.random.default_rng(0)
    text = f"""<ir_version: 10, opset_import: ["": 21, "ai.onnx.ml": 1]>
        net ({inputs}) => (float[] y) {{ {first} {PRODUCTS if product else CONVOLUTIONS} }}"""
    model = parser.parse_model(text)
    size = (8, 16) if product else (16, 8, 1, 1)
    along = SCALES if product else SCALES.reshape(-1, 1, 1, 1)
    weights = {"w": rng.normal(size=size) * along, "b": SCALES, "one": np.ones(8)}
    weights["v"] = rng.normal(size=(16, 4) if product else (4, 16, 1, 1))
    for key, array in weights.items():
        model.graph.initializer.append(numpy_helper.from_array(array.astype(np.float32), key))
    model.graph.initializer.append(numpy_helper.from_array(np.arange(5) < 4, "some"))
    return model


def sample(name: str, seed: int) -> dict[str, np.ndarray[Any, Any]]:
    dims = MODELS[name][0].partition("[")[2].partition("]")[0].split(", ")
    sizes = [int(dim) if dim.isdigit() else 2 for dim in dims]
    arrays: dict[str, Any] = {"x": np.random.default_rng(seed).normal(size=sizes).astype(np.float32)}
    return arrays | ({"s": np.array([2, 8])} if name == "Reshape" else {})


@pytest.mark.parametrize("name", MODELS)
def test_a_model_behind_an_unknown_rank_is_int8_with_equalized_channels(tmp_path: Path, name: str) -> None:
    model = model_of(name)
    measured = profile(model, [sample(name, seed) for seed in range(12)])
    assert measured["r"].channels is not None
    result = quantize(model, measured, tmp_path / "q.onnx", cost_model="off", save_plan=tmp_path / "p.yaml")
    assert result.composition.int8_products == 2
    assert Code.NO_CHANNELS not in [finding.code for finding in result.findings]
    assert "r" in result.plan.adjustments.equalization


@pytest.mark.parametrize("name", MODELS)
def test_its_plan_is_applied_without_the_profile(tmp_path: Path, name: str) -> None:
    model = model_of(name)
    measured = profile(model, [sample(name, seed) for seed in range(12)])
    first = quantize(model, measured, tmp_path / "q.onnx", cost_model="off", save_plan=tmp_path / "p.yaml")
    quantize(model, output=tmp_path / "again.onnx", plan=tmp_path / "p.yaml")
    assert first.plan.adjustments.shapes.keys() <= {"p"}
    assert (tmp_path / "again.onnx").read_bytes() == (tmp_path / "q.onnx").read_bytes()
