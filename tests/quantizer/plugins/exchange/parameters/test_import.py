"""A file of parameters and the float model make a plan, and the plan a model."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import numpy_helper, parser
from qprof_onnx.quantizer.lowering.lower import lower
from qprof_onnx.quantizer.model.saving import save_model
from qprof_onnx.quantizer.plan.plan import Kind
from qprof_onnx.quantizer.plugins.exchange.importing import plan_of_file
from qprof_onnx.quantizer.prepare.prepare import open_prepared
from qprof_onnx.quantizer.targets.loading import load_recipe

DATA = Path(__file__).parent / "data"

NORMALISED = """
    <ir_version: 8, opset_import: ["": 17]>
    agraph (float[1,2,4,4] x) => (float[1,2,4,4] y)
    <float[2,2,1,1] w = {1, 2, 3, 4}, float[2] s = {2, 2}, float[2] b = {0, 1}, float[2] m = {0, 0},
     float[2] v = {1, 1}>
    { c = Conv<kernel_shape=[1,1]>(x, w)  y = BatchNormalization(c, s, b, m, v) }
"""


@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_every_node_of_the_model_is_quantized_with_the_parameters_of_the_file(version: str) -> None:
    plan = plan_of_file(DATA / f"default-{version}.encodings", DATA / "model.onnx", load_recipe())
    kinds = {name: entry.kind for name, entry in plan.nodes.items()}
    assert kinds == {
        "conv": Kind.QUANTIZED,
        "relu": Kind.PASS_THROUGH,
        "flatten": Kind.PASS_THROUGH,
        "gemm": Kind.QUANTIZED,
    }
    truth = json.loads((DATA / "aimet-qdq.json").read_text())[f"default-{version}"]
    assert all(
        plan.tensors[name].scale.tolist() == truth[name]["scale"] for name in ("x", "r", "f", "cw", "gw")
    )


def test_the_model_computes_what_aimet_computes(tmp_path: Path) -> None:
    """As the rounded values of AIMET's parameters say; sums and biases of 32 bits differ by little."""
    plan = plan_of_file(DATA / "default-1.0.encodings", DATA / "model.onnx", load_recipe())
    save_model(lower(open_prepared(DATA / "model.onnx").model, plan).model, tmp_path / "q.onnx")
    truth = json.loads((DATA / "aimet-qdq.json").read_text())["default-1.0"]
    samples = np.random.default_rng(3).normal(size=(50, 1, 2, 4, 4)).astype(np.float32)
    weights = {t.name: numpy_helper.to_array(t) for t in onnx.load(DATA / "model.onnx").graph.initializer}

    def rounded(name: str, values: np.ndarray, low: int, high: int, axis: int | None = None) -> np.ndarray:
        shape = [-1 if i == axis else 1 for i in range(values.ndim)] if axis is not None else []
        scale = np.array(truth[name]["scale"], np.float32).reshape(shape)
        point = np.array(truth[name]["zero_point"]).reshape(shape)
        return (np.clip(np.rint(values / scale) + point, low, high) - point) * scale

    options = ort.SessionOptions()  # AIMET's weights may saturate where a processor has no VNNI
    options.add_session_config_entry("session.disable_quant_qdq", "1")
    session = ort.InferenceSession(tmp_path / "q.onnx", options)
    step, equal = truth["y_qdq"]["scale"][0], []
    for x in samples:
        c = np.einsum(
            "oi,nihw->nohw", rounded("cw", weights["cw"], -128, 127, 0)[:, :, 0, 0], rounded("x", x, 0, 255)
        )
        r = rounded("r", np.maximum(c + weights["cb"][:, None, None], 0), 0, 255)
        y = r.reshape(1, -1) @ rounded("gw", weights["gw"], -128, 127, 1) + weights["gb"]
        found = session.run(None, {"x": x})[0]
        equal.append(np.rint(rounded("y_qdq", y, 0, 255) / step) == np.rint(found / step))
    assert np.mean(equal) > 0.98  # of 150; a rounding tie of r moves an output now and then


def overrides(folder: Path, weight: dict[str, object]) -> Path:
    """Write QNN's file of the model with a BatchNormalization."""
    activation = {"bitwidth": 8, "dtype": "int", "is_symmetric": "False", "scale": 0.1, "offset": -128}
    file = {
        "activation_encodings": {"x": [activation], "y": [activation]},
        "param_encodings": {"w": [{**activation, "is_symmetric": "True", **weight}]},
    }
    (folder / "overrides.json").write_text(json.dumps(file))
    return folder / "overrides.json"


def test_parameters_of_a_weight_that_preparation_changes_are_left_out(tmp_path: Path) -> None:
    model = tmp_path / "bn.onnx"
    onnx.save(parser.parse_model(NORMALISED), model)
    kept = plan_of_file(overrides(tmp_path, {"scale": 8.0 / 127}), model, load_recipe())
    assert "w" in kept.tensors  # the largest value after the folding is 8
    plan = plan_of_file(overrides(tmp_path, {"scale": 0.25}), model, load_recipe())
    assert "w" not in plan.tensors
    assert any("1 constants that preparation changed, such as 'w'" in str(note) for note in plan.findings)
