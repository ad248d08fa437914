"""A Relu or Clip that onnxruntime leaves out before floats of few bits is told."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest
import qprof_onnx as qprof
from qprof_onnx.profiles.base.findings import Code

DIGITS = Path(__file__).parents[3] / "examples" / "digits"


@pytest.mark.parametrize("float_type", ["float16", "float32"])
def test_a_relu_that_onnxruntime_drops_before_float8_is_told_with_the_way_out(
    float_type: str, tmp_path: Path
) -> None:
    images = [{"image": np.load(file)["image"]} for file in sorted(DIGITS.glob("calibration/*.npz"))[:8]]
    out = tmp_path / "q.onnx"
    profile = qprof.profile(DIGITS / "model.onnx", images)
    settings = {"target": "tensorrt", "float_type": float_type}
    made = qprof.quantize(DIGITS / "model.onnx", profile, out, config="float8", **settings)
    (told,) = (found for found in made.findings if found.code is Code.CLIP_LEFT_OUT)
    assert "Relu or Clip before floats of few bits" in told.text
    found = qprof.evaluate(DIGITS / "model.onnx", out, images, latency=None)
    assert told in found.findings

    def decibels(how: ort.SessionOptions) -> float:
        session = ort.InferenceSession(str(out), how)
        values = np.concatenate([session.run(None, image)[0] for image in images])
        exact = ort.InferenceSession(str(DIGITS / "model.onnx"))
        floats = np.concatenate([exact.run(None, image)[0] for image in images])
        return float(10.0 * np.log10(np.square(floats).sum() / np.square(floats - values).sum()))

    session_options = ort.SessionOptions()
    session_options.log_severity_level = 4
    assert decibels(session_options) < 10.0
    names = told.remedy.split(" to ")[1].split(" there")[0]
    session_options.add_session_config_entry("optimization.disable_specified_optimizers", names)
    assert decibels(session_options) > 20.0
