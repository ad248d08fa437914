"""Words of other tools are answered with those of qprof."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path
from typing import get_args

import click
import pytest
import qprof_onnx as qprof
from click.testing import CliRunner
from qprof_onnx.cli.main import COMMANDS, main
from qprof_onnx.profiles.base.errors import ConfigError, nearest
from qprof_onnx.quantizer.api.options import PRECISION_NAMES, precision_named
from qprof_onnx.quantizer.evaluation.metrics.table import KINDS
from qprof_onnx.quantizer.numerics.calibrators import CALIBRATORS
from qprof_onnx.quantizer.numerics.schemas import SCHEMAS
from qprof_onnx.quantizer.plugins.other_words.words import ANSWERS, OPTIONS, WORDS
from qprof_onnx.quantizer.targets.config import QuantConfig, RestType, WeightType
from qprof_onnx.quantizer.targets.forms import FORMS
from qprof_onnx.quantizer.targets.loading import load_recipe, parsed_lines
from qprof_onnx.quantizer.targets.packaged import target_names

TYPES = (*get_args(WeightType), "uint16", "int16")
REST_TYPES = get_args(RestType)


@pytest.mark.parametrize(
    ("word", "known", "meant"),
    [
        ("entropy", CALIBRATORS, "kl"),
        ("MinMax", CALIBRATORS, "minmax"),
        ("QUInt8", TYPES, "uint8"),
        ("s8", TYPES, "int8"),
        ("half", REST_TYPES, "float16"),
        ("bf16", REST_TYPES, "float16"),
        ("FP32", REST_TYPES, "float32"),
        ("fp8", PRECISION_NAMES, "float8"),
        ("fp8_e4m3", TYPES, "float8e4m3fn"),
        ("E5M2", TYPES, "float8e5m2"),
        ("int4", PRECISION_NAMES, "weight-only-4"),
        ("fp4", PRECISION_NAMES, "weight-only-nvfp4"),
        ("mxfp4", PRECISION_NAMES, "weight-only-mxfp4"),
        ("QDQ", FORMS, "qdq"),
        ("per_channel", ("per-tensor", "per-channel"), "per-channel"),
        ("ort", target_names(), "onnxruntime-x86"),
        ("trt", target_names(), "tensorrt"),
        ("awq", PRECISION_NAMES, "weight-only-4"),
        ("awq", ("nearest", "gptq", "gptaq"), "gptq"),
        ("W8A8", PRECISION_NAMES, "int8"),
        ("calibrate", COMMANDS, "dump-profile"),
    ],
)
def test_a_word_of_another_tool_is_answered_with_that_of_qprof(
    word: str, known: list[str], meant: str
) -> None:
    assert nearest(word, known) == f" Did you mean '{meant}'?"


def test_every_answer_to_a_word_is_one_that_qprof_knows() -> None:
    metrics = [kind.name for kind in KINDS]
    known = {*CALIBRATORS, *TYPES, *SCHEMAS, *PRECISION_NAMES, *target_names(), *FORMS, *COMMANDS, *metrics}
    known |= {"nearest", "gptq", "gptaq", "top-1", *REST_TYPES}
    assert {word for words in WORDS.values() for word in words} <= known


def test_every_answer_to_an_option_is_an_option_or_a_setting() -> None:
    command = main.get_command(click.Context(main), "quantize")
    options = {option for one in command.params for option in one.opts}
    settings = {field.name for field in fields(QuantConfig)}
    meant = {name for name, _ in OPTIONS.values()}
    assert {name for name in meant if name.startswith("--")} <= options
    assert {name for name in meant if not name.startswith("--")} <= settings
    assert not set(OPTIONS) & set(ANSWERS)
    assert not {*OPTIONS, *ANSWERS} & {name.replace("_", "") for name in settings}


def test_every_value_of_an_answer_is_one_that_the_setting_takes() -> None:
    for name, value in OPTIONS.values():
        if value and not name.startswith("--"):
            load_recipe("onnx", {name: (value,) if name == "keep_float" else value})


@pytest.mark.parametrize("word", ["per_channel", "extra_options", "subset_size", "SmoothQuantAlpha"])
def test_an_option_or_key_of_another_tool_is_answered(word: str) -> None:
    found = CliRunner().invoke(main, ["quantize", "m.onnx", f"--{word.replace('_', '-')}", "1"])
    assert found.exit_code == 2
    assert re.search(rf"No such option '--{word.replace('_', '-')}': \S+ ", found.stderr)
    with pytest.raises(ConfigError) as error:
        parsed_lines([f"{word}=1"])
    assert "known keys are" not in str(error.value)


@pytest.mark.parametrize(
    ("key", "answer"),
    [
        ("per_channel", "write below settings, granularity: per-channel"),
        ("subset_size", "that is the option --limit VALUE"),
        ("op_types_to_quantize", "all that the target has kernels for is quantized"),
    ],
)
def test_a_key_of_another_tool_in_a_file_is_answered(key: str, answer: str, tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(f"{key}: true\n")
    with pytest.raises(ConfigError, match=rf"unknown key '{key}'; {answer}"):
        load_recipe(tmp_path / "c.yaml")


@pytest.mark.parametrize("word", ["QuantType.QInt8", "CalibrationMethod.Entropy", "QuantFormat.QDQ"])
def test_a_member_of_an_enumeration_is_answered_by_its_name(word: str) -> None:
    assert nearest(word, [*TYPES, *CALIBRATORS, *FORMS])


@pytest.mark.parametrize("word", ["fp16", "half", "float16", "bf16"])
def test_a_type_of_what_stays_float_is_answered_with_its_option(word: str) -> None:
    with pytest.raises(qprof.ConfigError, match="give --float-type float16, with or without --as"):
        precision_named(word, None, "--as")


def test_a_keyword_of_another_tool_is_answered_with_that_of_qprof() -> None:
    with pytest.raises(qprof.ConfigError, match="Did you mean granularity='per-channel'"):
        qprof.quantize("m.onnx", "p.yaml", per_channel=True)  # type: ignore[call-overload]


@pytest.mark.parametrize("word", ["min_score", "min_accuracy"])
def test_a_limit_as_a_keyword_is_answered_with_the_gate_that_it_is_of(word: str) -> None:
    with pytest.raises(
        qprof.ConfigError, match=rf"no keyword '{word}'.* Write gate=Gate\(min_score=LIMIT\)\."
    ):
        qprof.evaluate("m.onnx", "q.onnx", "data", **{word: 99.0})


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--imgsz", "320"], ["write --preprocess yolo:320"]),
        (["--imgsz=320", "--calib-data", "d"], ["write --preprocess yolo:320", "write --data VALUE"]),
        (
            ["--weight-schema", "symmetric", "--per-channel"],
            ["weight_schema=symmetric", "per-channel"],
        ),
    ],
)
def test_all_words_that_are_no_options_are_answered_at_once(words: list[str], told: list[str]) -> None:
    found = CliRunner().invoke(main, ["quantize", "m.onnx", *words])
    assert found.exit_code == 2
    assert all(one in found.stderr for one in told)


def test_a_name_that_the_package_has_not_is_answered_with_the_nearest() -> None:
    with pytest.raises(AttributeError, match="Did you mean 'quantize'"):
        _ = qprof.quantise  # type: ignore[attr-defined]
