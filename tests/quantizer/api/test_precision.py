"""What becomes of a model in one word, and several models of one profile."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
import qprof_onnx as qprof
from qprof_onnx.cli.commands.quantize import summary_text
from qprof_onnx.profiles.base.errors import ConfigError
from qprof_onnx.profiles.base.findings import Code
from qprof_onnx.quantizer.api.options import MIXED

DIGITS = Path(__file__).parents[3] / "examples" / "digits"
MODEL = DIGITS / "model.onnx"


@pytest.fixture(scope="module")
def samples() -> list[dict[str, np.ndarray]]:
    return [dict(np.load(file)) for file in sorted((DIGITS / "calibration").glob("*.npz"))[:4]]


@pytest.mark.parametrize(
    ("keywords", "settings"),
    [
        ({"config": "int8-dynamic"}, {"mode": "dynamic"}),
        ({"config": "weight-only-8"}, {"mode": "weight-only"}),
        (
            {"config": "weight-only-4", "block_size": 64},
            {"mode": "weight-only", "weight_type": "int4", "block_size": 64},
        ),
        ({"config": "mixed", "fit_size": "90kB"}, {"mode": "weight-only", "fit_size": "90kB"}),
        ({"config": qprof.QuantConfig(mode="dynamic", target="onnx")}, {"mode": "dynamic", "target": "onnx"}),
    ],
)
def test_a_configuration_gives_the_plan_that_its_settings_give(
    keywords: dict[str, Any], settings: dict[str, Any]
) -> None:
    assert qprof.quantize(MODEL, **keywords).plan == qprof.quantize(MODEL, **settings).plan


def test_the_word_float8_gives_the_plan_that_its_settings_give(samples: list[dict[str, np.ndarray]]) -> None:
    word, settings = "float8", {"activation_type": "float8e4m3fn", "weight_type": "float8e4m3fn"}
    profile = qprof.profile(MODEL, samples)
    by_word = qprof.quantize(MODEL, profile, config=word, target="onnx").plan
    assert by_word == qprof.quantize(MODEL, profile, target="onnx", **settings).plan


def test_samples_may_stand_where_a_profile_does(samples: list[dict[str, np.ndarray]]) -> None:
    result = qprof.quantize(MODEL, samples, config="int8", latency=False)
    assert result.verdict is not None
    assert result.plan.config.mode == "static"
    assert qprof.quantize(MODEL, str(DIGITS / "calibration"), latency=False).verdict is not None


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"config": "weight-only"}, "config weight-only: is not known; .* Did you mean 'weight-only-8'"),
        ({"config": MIXED}, r"config mixed: needs the size .*; give fit_size='900MB'"),
        ({"config": 4}, r"config: is 4; give "),
        ({"config": "int8-dynamic", "mode": "static"}, "means mode dynamic, but mode static was given"),
        (
            {"config": qprof.QuantConfig(target="glow"), "target": "tensorrt"},
            "target: glow is in the configuration",
        ),
    ],
)
def test_a_configuration_that_cannot_be_is_refused_in_a_sentence(
    keywords: dict[str, object], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        qprof.quantize(MODEL, **keywords)  # type: ignore[call-overload]


def test_a_float8_model_in_which_nothing_takes_float8_says_so(tmp_path: Path) -> None:
    """Convolutions of 2 channels are too few for TensorRT's kernels of float8."""
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> '
        "g (float[1,2,6,6] x) => (float[1,2,6,6] y) { y = Conv (x, w) }"
    )
    weight = np.ones((2, 2, 1, 1), np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    onnx.save(model, tmp_path / "m.onnx")
    profile = qprof.profile(tmp_path / "m.onnx", [{"x": np.ones((1, 2, 6, 6), np.float32)}])
    result = qprof.quantize(tmp_path / "m.onnx", profile, config="float8", target="tensorrt")
    (told,) = (found for found in result.findings if found.code is Code.NOTHING_QUANTIZED)
    assert (
        told.text == "nothing is quantized: no node takes float8e4m3fn; --verbose prints the reason for each"
    )
    assert f"doubt: {told.text}" in summary_text(result, verbose=False)
