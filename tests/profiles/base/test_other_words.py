"""Words of other tools are answered with those of qprof."""

from __future__ import annotations

from dataclasses import fields
from typing import get_args

import click
import pytest
import qprof_onnx as qprof
from qprof_onnx.cli.main import COMMANDS, main
from qprof_onnx.profiles.base.errors import nearest
from qprof_onnx.profiles.base.other_words import OPTIONS, WORDS
from qprof_onnx.quantizer.api.options import PRECISION_NAMES, precision_named
from qprof_onnx.quantizer.evaluation.metrics.table import KINDS
from qprof_onnx.quantizer.numerics.calibrators import CALIBRATORS
from qprof_onnx.quantizer.numerics.schemas import SCHEMAS
from qprof_onnx.quantizer.targets.config import QuantConfig, RestType, WeightType
from qprof_onnx.quantizer.targets.forms import FORMS
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
    known = {option[2:].replace("-", "_") for one in command.params for option in one.opts}
    known |= {field.name for field in fields(QuantConfig)}
    assert {name for name, _ in OPTIONS.values()} - known <= {"max_drop"}
    assert not set(OPTIONS) & known


@pytest.mark.parametrize("word", ["fp16", "half", "float16", "bf16"])
def test_a_type_of_what_stays_float_is_answered_with_its_option(word: str) -> None:
    with pytest.raises(qprof.ConfigError, match="give --float-type float16, with or without --as"):
        precision_named(word, None, "--as")


def test_a_keyword_of_another_tool_is_answered_with_that_of_qprof() -> None:
    with pytest.raises(qprof.ConfigError, match="Did you mean granularity='per-channel'"):
        qprof.quantize("m.onnx", "p.yaml", per_channel=True)  # type: ignore[call-overload]


def test_a_name_that_the_package_has_not_is_answered_with_the_nearest() -> None:
    with pytest.raises(AttributeError, match="Did you mean 'quantize'"):
        _ = qprof.quantise  # type: ignore[attr-defined]
