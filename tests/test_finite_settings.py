"""A record of settings refuses a float that is not finite, wherever it is made."""

import math
from dataclasses import fields

import pytest
from qprof_onnx.profiles.base.errors import ConfigError
from qprof_onnx.profiles.base.options import types_of
from qprof_onnx.profiles.runner.settings import RunSettings
from qprof_onnx.quantizer.api.options import QuantizeOptions
from qprof_onnx.quantizer.evaluation.gates import check_gate
from qprof_onnx.quantizer.evaluation.options import Gate, LatencySettings, SpeedCheckOptions
from qprof_onnx.quantizer.plugins.card.options import Slack
from qprof_onnx.quantizer.plugins.drift.limits import DriftLimits
from qprof_onnx.quantizer.plugins.tune.tune_options import QualityTarget
from qprof_onnx.quantizer.targets.config import QuantConfig
from qprof_onnx.quantizer.targets.loading import load_recipe

CHECKED = {
    Gate: lambda **given: check_gate(Gate(**given), labels=True, latency=True),
    Slack: Slack,
    DriftLimits: DriftLimits,
    QuantizeOptions: QuantizeOptions,
    LatencySettings: LatencySettings,
    QualityTarget: QualityTarget,
    QuantConfig: lambda **given: load_recipe(None, given),
    RunSettings: lambda **given: RunSettings(**given).checked(),
    SpeedCheckOptions: lambda **given: SpeedCheckOptions("data", **given),
}
"""How the settings in each record are checked."""
FLOATS = [
    (record, field.name)
    for record in CHECKED
    for field in fields(record)
    if getattr(hint := types_of(record)[field.name], "__origin__", hint) in (float, float | None)
]


def test_a_number_of_another_type_is_refused_by_name() -> None:
    for record, check in CHECKED.items():
        for name, hint in types_of(record).items():
            kind = getattr(hint, "__origin__", hint)
            if kind in (int, int | None, float, float | None):
                with pytest.raises(ConfigError, match=rf"{name}\b.*(give a |must be a )"):
                    check(**{name: "x"})


def test_a_setting_that_is_not_finite_is_refused_by_name() -> None:
    for record, name in FLOATS:
        for value in (math.nan, math.inf, -math.inf):
            with pytest.raises(ConfigError, match=rf"{name}\b.* (is not|must be) finite"):
                CHECKED[record](**{name: value})


@pytest.mark.parametrize("value", [-1.0, 301.0])
@pytest.mark.parametrize("name", ["min_tensor_sqnr", "min_output_sqnr"])
def test_a_limit_that_no_float_can_have_is_refused(name, value) -> None:
    with pytest.raises(ConfigError, match=rf"{name} {value:g} is not a number of decibels; give 0"):
        load_recipe(None, {name: value})
