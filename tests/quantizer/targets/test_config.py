"""One definition of a setting: its words are those of the registries, and every reader takes it so."""

from __future__ import annotations

from dataclasses import fields
from typing import get_args

import pytest
from qprof_onnx.profiles.base.errors import MalformedError
from qprof_onnx.quantizer.numerics.affine import TYPES
from qprof_onnx.quantizer.numerics.calibrators import CALIBRATORS
from qprof_onnx.quantizer.numerics.schemas import SCHEMAS
from qprof_onnx.quantizer.targets.config import (
    ActivationType,
    QuantConfig,
    WeightType,
    config_from_mapping,
    settings,
)
from qprof_onnx.quantizer.targets.forms import FORMS


def test_the_words_of_settings_are_the_names_of_the_tables() -> None:
    tables = {"schema": SCHEMAS, "weight_schema": SCHEMAS, "form": FORMS, "calibrator": CALIBRATORS}
    assert {name: settings()[name].words for name in tables} == {n: tuple(t) for n, t in tables.items()}


def test_every_calibrator_and_form_is_described() -> None:
    assert all(name in settings()["calibrator"].description for name in CALIBRATORS)
    assert all(name in settings()["form"].description for name in FORMS)


def test_the_integer_types_of_settings_are_quantized_types() -> None:
    assert {*get_args(ActivationType), *get_args(WeightType)} <= set(TYPES)


def test_every_field_is_a_setting_with_a_description_and_an_option_or_a_line_of_set() -> None:
    assert list(settings()) == [field.name for field in fields(QuantConfig)]
    assert all(setting.description.endswith(".") for setting in settings().values())
    assert settings()["schema"].given("symmetric") == ("--schema", "symmetric")
    assert settings()["block_size"].given(64) == ("--set", "block_size=64")
    assert settings()["keep_float"].given(("a", "b")) == ("--keep-float", "a", "--keep-float", "b")
    assert settings()["output_kind"].given(("a=signal",)) == ("--set", 'output_kind=["a=signal"]')
    assert settings()["output_kind"].given(()) == ()


def test_every_default_is_one_of_the_words() -> None:
    config = QuantConfig()
    assert all(getattr(config, s.name) in s.words for s in settings().values() if s.words)
    assert config.form in FORMS


def test_an_empty_mapping_gives_the_defaults() -> None:
    assert config_from_mapping({}) == QuantConfig()


def test_settings_can_be_read_back_from_their_own_values() -> None:
    config = QuantConfig(keep_float=("Conv",), min_tensor_sqnr=20.0, calibrator="percentile:99.5")
    assert config_from_mapping({f.name: getattr(config, f.name) for f in fields(QuantConfig)}) == config


@pytest.mark.parametrize(
    ("mapping", "sentence"),
    [
        ([], "config must be a mapping, not a list"),
        ({"min_tensor_sqnr": True}, "config: min_tensor_sqnr must be a number, not True"),
        ({"block_size": 8}, "config: block_size 8 must be 0 or a power of two from 16"),
        ({"keep_float": ["Conv", 3]}, "config: keep_float must be text, not 3"),
        ({"mode": None}, "config: mode must be one of static, dynamic, weight-only, auto, not empty"),
    ],
)
def test_what_is_malformed_is_named(mapping: object, sentence: str) -> None:
    with pytest.raises(MalformedError) as error:
        config_from_mapping(mapping, "config")
    assert sentence in str(error.value)
