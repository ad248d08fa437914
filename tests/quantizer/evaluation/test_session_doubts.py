"""Session options in a model's file, or beside it, that make int8 slow are told."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
import qprof_onnx as qprof
from onnx import parser
from qprof_onnx.profiles.base.findings import Code
from qprof_onnx.quantizer.evaluation.doubts import session_doubts
from qprof_onnx.quantizer.prepare.prepare import ModelFile

DIGITS = Path(__file__).parents[3] / "examples" / "digits"


def model_in(folder: Path, config: object = None, genai: object = None) -> ModelFile:
    proto = parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g (float[1] x) => (float[1] y) { y = Abs (x) }'
    )
    if config is not None:
        text = config if isinstance(config, str) else json.dumps(config)
        proto.metadata_props.add(key="ort_config", value=text)
    if genai is not None:
        text = genai if isinstance(genai, str) else json.dumps(genai)
        (folder / "genai_config.json").write_text(text, encoding="utf-8")
    onnx.save(proto, folder / "m.onnx")
    return ModelFile(folder / "m.onnx")


def options(**more: object) -> dict[str, object]:
    return {"session_options": {"log_id": "m", **more}}


@pytest.mark.parametrize("level", [0, 1, 2, "ORT_ENABLE_EXTENDED"])
def test_a_level_below_all_in_the_metadata_is_told(tmp_path: Path, level: object) -> None:
    (found,) = session_doubts(model_in(tmp_path, options(graph_optimization_level=level)))
    assert (found.code, found.subject) == (Code.SLOW_SESSION, "graph_optimization_level")
    assert found.text.startswith(
        f"metadata 'ort_config' sets graph_optimization_level to {level}, with which"
    )


def test_options_of_each_part_of_a_genai_config_are_told_once(tmp_path: Path) -> None:
    slow = options(**{"session.x64quantprecision": "1"})
    config = {"model": {"decoder": slow, "stages": [slow, options(intra_op_num_threads=2)]}}
    (found,) = session_doubts(model_in(tmp_path, genai=config))
    assert found.subject == "session.x64quantprecision"
    assert found.sentence.startswith("genai_config.json sets session.x64quantprecision to 1, with which int8")


@pytest.mark.parametrize(
    "text",
    ["", "{", "[1]", '{"session_options": 3}', json.dumps(options(graph_optimization_level=99))],
)
def test_options_that_are_none_or_do_no_harm_say_nothing(tmp_path: Path, text: str) -> None:
    assert session_doubts(model_in(tmp_path, text, genai=text)) == ()


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
