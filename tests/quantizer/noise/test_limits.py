"""How much noise outputs and steps can bear, and who may overrule it."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from qprof_onnx.profiles.base.errors import ConfigError
from qprof_onnx.profiles.records.profile import OutputMeaning
from qprof_onnx.quantizer.noise.output_kinds import output_meanings
from qprof_onnx.quantizer.noise.output_limits import NoiseLimits, meanings_in_plan, noise_limits
from qprof_onnx.quantizer.targets.config import QuantConfig

from .test_output_kinds import BATCH, PICTURE, SAME, WORDS, Net, net

RESIDUAL = f"c = Conv <{SAME}> (x, w3_3_3_3) y = Add (c, x)"


def limits(found: Net, **settings: object) -> NoiseLimits:
    return noise_limits(found.graph, found.profile, QuantConfig(**settings))  # type: ignore[arg-type]


def decibels(share: float) -> float:
    return -10.0 * math.log10(share)


def test_a_decision_keeps_15_db_of_its_power() -> None:
    found = limits(net("m = MatMul (x, w32_10) y = Softmax (m)", ("x", BATCH)))
    assert decibels(found.allowed("m")) == pytest.approx(15.0)


def test_values_keep_20_db_over_what_varies() -> None:
    body = "m = MatMul (x, w32_10) h = Tanh (m) t = Exp (h) y = MatMul (t, w10_10)"
    found = limits(net(body, ("x", BATCH)))
    offset = limits(net("m = MatMul (x, w32_10) y = Exp (m)", ("x", BATCH), scale=0.01))
    assert decibels(found.allowed("y")) == pytest.approx(20.0, abs=2.0)
    assert decibels(offset.allowed("y")) > 45.0  # all values are near 1: what varies is little


def test_a_limit_that_is_given_overrules_all_kinds() -> None:
    found = limits(net(RESIDUAL, ("x", PICTURE)), min_output_sqnr=25.0, output_kind=("y=signal",))
    assert decibels(found.allowed("y")) == pytest.approx(25.0)


def test_no_limit_is_no_limit() -> None:
    assert limits(net(RESIDUAL, ("x", PICTURE)), min_output_sqnr=0.0).allowed("y") == math.inf


def test_a_kind_that_is_given_overrules_the_one_that_was_told() -> None:
    found = limits(net("y = MatMul (x, w32_10)", ("x", BATCH)), output_kind=("y=signal",))
    assert [*map(str, found.findings())] == ["output 'y': signal (set by the user)"]


def test_kinds_are_those_that_a_profile_keeps_and_a_plan_keeps_them_too() -> None:
    body = "y = MatMul (x, w32_10) m = MatMul (x, w32_4) z = Softmax (m)"
    found = net(body, ("x", BATCH), outputs="y z")
    told = output_meanings(found.graph, found.profile)
    kept = {**told, "y": OutputMeaning("embedding", "by the profile")}
    old, new = limits(found), limits(replace(found, profile=replace(found.profile, outputs=kept)))
    assert [dict(one.kinds) for one in (old, new)] == [
        {"y": "decision", "z": "decision"},  # a profile that keeps none, as an older one: told anew
        {"y": "embedding", "z": "decision"},
    ]
    assert meanings_in_plan(new.findings()) == kept
    settings = limits(replace(found, profile=new.profile), output_kind=("y=values",))
    assert settings.kinds["y"] == "values"


def test_a_kind_for_what_is_no_output_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(ConfigError, match="output_kind 'z': the model has no such output; it has y"):
        limits(net("y = MatMul (x, w32_10)", ("x", BATCH)), output_kind=("z=signal",))


def test_scores_bear_more_than_the_boxes_beside_them() -> None:
    body = "b = MatMul (x, w32_4) m = MatMul (x, w32_2) s = Sigmoid (m) y = Concat <axis = 2> (b, s)"
    found = limits(net(body, ("x", WORDS)))
    assert decibels(found.allowed("s")) == pytest.approx(15.0)
    assert decibels(found.allowed("b")) == pytest.approx(20.0, abs=1.0)


def test_a_state_beside_other_outputs_is_not_judged() -> None:
    body = "h = Add (x, s) z = Tanh (h) y = MatMul (z, w32_4)"
    found = limits(net(body, ("x", BATCH), ("s", BATCH), outputs="y z"))
    assert found.allowed("z") == math.inf


def test_a_tolerance_is_planned_for_and_held_to() -> None:
    found = limits(net("y = MatMul (x, w32_10)", ("x", BATCH)), tolerance=0.01)
    assert decibels(found.allowed("y")) == pytest.approx(40.0, abs=1.5)
    assert found.error("y") == 0.01
    assert limits(net("y = MatMul (x, w32_10)", ("x", BATCH))).error("y") == 0.02


def test_values_of_maps_and_sequences_may_be_off_by_more_than_numbers_unless_a_tolerance_is_given() -> None:
    body = f"y = Conv <{SAME}> (x, w21_3_3_3)"
    assert limits(net(body, ("x", PICTURE))).error("y") == 0.1
    assert limits(net(body, ("x", PICTURE)), tolerance=0.01).error("y") == 0.01
    assert limits(net("y = MatMul (x, w32_10)", ("x", (1, 20, 32)))).error("y") == 0.1


@pytest.mark.parametrize(
    ("body", "relative"),
    [
        ("m = MatMul (x, w32_10) y = Exp (m)", True),
        ("m = MatMul (x, w32_10) e = Exp (m) y = Sub (e, w1_10)", True),
        ("m = MatMul (x, w32_10) e = Softplus (m) y = Mul (e, w1_10)", True),
        ("m = MatMul (x, w32_10) n = MatMul (x, w32_10) y = Div (m, n)", True),
        ("m = MatMul (x, w32_10) y = Pow (w1_10, m)", True),
        ("m = MatMul (x, w32_10) y = Div (m, w1_10)", False),
        ("m = MatMul (x, w32_10) y = Pow (m, a2)", False),
        ("m = MatMul (x, w32_10) e = Exp (m) y = MatMul (e, w10_10)", False),
    ],
)
def test_errors_are_relative_behind_what_makes_magnitudes(body: str, relative: bool) -> None:
    assert ("y" in limits(net(body, ("x", BATCH))).relative) == relative
