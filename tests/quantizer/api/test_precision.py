"""What becomes of a model in one word: the records in Python, and several models of one profile."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest
import qprof_onnx as qprof
from qprof_onnx.cli.commands.quantize import summary_text
from qprof_onnx.profiles.base.errors import ConfigError
from qprof_onnx.profiles.base.findings import Code
from qprof_onnx.quantizer.api.options import MIXED, PRECISION_NAMES, Precision
from qprof_onnx.quantizer.targets.config import BLOCK_FORMATS

DIGITS = Path(__file__).parents[3] / "examples" / "digits"
MODEL = DIGITS / "model.onnx"


@pytest.fixture(scope="module")
def samples() -> list[dict[str, np.ndarray]]:
    return [dict(np.load(file)) for file in sorted((DIGITS / "calibration").glob("*.npz"))[:4]]


@pytest.mark.parametrize(
    ("precision", "settings"),
    [
        (qprof.Int8Dynamic(), {"mode": "dynamic"}),
        (qprof.WeightOnly(bits=8), {"mode": "weight-only"}),
        (
            qprof.WeightOnly(bits=4, block_size=64),
            {"mode": "weight-only", "weight_type": "int4", "block_size": 64},
        ),
        (qprof.Mixed(max_size="90kB"), {"mode": "weight-only", "fit_size": "90kB"}),
    ],
)
def test_a_record_gives_the_plan_that_its_settings_give(
    precision: Precision, settings: dict[str, object]
) -> None:
    by_record = qprof.quantize(MODEL, config=precision).plan
    assert by_record == qprof.quantize(MODEL, **settings).plan  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("precision", "settings"),
    [
        (
            qprof.Float8(target="onnx"),
            {"target": "onnx", "activation_type": "float8e4m3fn", "weight_type": "float8e4m3fn"},
        ),
        (
            qprof.Float8(type="float8e5m2", mixed=True, target="onnx"),
            {"target": "onnx", "second_type": "float8e5m2"},
        ),
    ],
)
def test_a_record_of_float8_gives_the_plan_that_its_settings_give(
    precision: Precision, settings: dict[str, object], samples: list[dict[str, np.ndarray]]
) -> None:
    profile = qprof.profile(MODEL, samples)
    by_record = qprof.quantize(MODEL, profile, config=precision).plan
    assert by_record == qprof.quantize(MODEL, profile, **settings).plan  # type: ignore[arg-type]


def test_samples_may_stand_where_a_profile_does(samples: list[dict[str, np.ndarray]]) -> None:
    result = qprof.quantize(MODEL, samples, config="int8", latency=False)
    assert result.verdict is not None
    assert result.plan.config.mode == "static"
    assert qprof.quantize(MODEL, str(DIGITS / "calibration"), latency=False).verdict is not None


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"config": "weight-only"}, "config weight-only: is not known; .* Did you mean 'weight-only-8'"),
        ({"config": MIXED}, r"config mixed: needs the size .*; give Mixed\(max_size=...\)"),
        ({"config": 4}, r"config: is 4; give an Int8"),
        ({"config": qprof.Int8Dynamic(), "mode": "static"}, "means mode dynamic, and mode static was given"),
        (
            {"config": qprof.Int8(target="glow"), "target": "tensorrt"},
            "target: glow stands in the configuration",
        ),
    ],
)
def test_a_configuration_that_cannot_be_is_refused_in_a_sentence(
    keywords: dict[str, object], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        qprof.quantize(MODEL, **keywords)  # type: ignore[call-overload]


def test_weights_have_four_or_eight_bits() -> None:
    with pytest.raises(ConfigError, match="bits 3 is none of 2, 4 and 8"):
        qprof.WeightOnly(bits=3)  # type: ignore[arg-type]


def test_the_words_of_python_are_those_of_the_command_line() -> None:
    assert (
        *("int8", "float8", "int8-float8", "int8-dynamic", "weight-only-8", "weight-only-4"),
        *("weight-only-2", "weight-only-float8"),
        *(f"weight-only-{name}" for name in BLOCK_FORMATS),
        "mixed",
    ) == PRECISION_NAMES


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
    assert told.text == "nothing is quantized: no node takes float8e4m3fn; --verbose says why of each"
    assert f"doubt: {told.text}" in summary_text(result, (), verbose=False)
