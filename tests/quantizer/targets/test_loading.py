"""Targets and settings: what a configuration file may say, and how options overrule it."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest
import yaml
from qprof_onnx.profiles.base.errors import ConfigError
from qprof_onnx.quantizer.operators.functions import CHAIN
from qprof_onnx.quantizer.operators.table import RULES
from qprof_onnx.quantizer.targets import loading
from qprof_onnx.quantizer.targets.config import QuantConfig
from qprof_onnx.quantizer.targets.loading import goes_with, load_recipe, parsed_lines, weight_only_settings
from qprof_onnx.quantizer.targets.packaged import packaged_text, target_names
from qprof_onnx.quantizer.targets.target import Verified


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    return path


@pytest.mark.parametrize("name", target_names())
def test_every_packaged_target_loads_under_its_own_name(name: str) -> None:
    recipe = load_recipe(name)
    assert recipe.target.name == recipe.config.target == name
    assert recipe.target.operators


@pytest.mark.parametrize("name", target_names())
def test_every_packaged_target_says_what_of_dynamic_and_weight_only_it_takes(name: str) -> None:
    file = yaml.safe_load(packaged_text(name))
    base = yaml.safe_load(packaged_text(file["base"]))["runtime"] if "base" in file else {}
    runtime = {**base, **file["runtime"]}
    assert {"dynamic", "weight_only"} <= runtime.keys(), "say them, [] and {} for none"
    target = load_recipe(name).target
    assert set(target.slower_dynamic) <= set(target.dynamic)
    assert all(times > 1.0 for times in target.slower_dynamic.values())


def test_no_source_means_the_default_target() -> None:
    assert load_recipe().target.name == QuantConfig().target


def test_options_overrule_the_file() -> None:
    assert load_recipe("onnxruntime-x86", {"granularity": "per-tensor"}).config.granularity == "per-tensor"


def test_an_option_that_was_not_given_leaves_the_file_alone() -> None:
    assert load_recipe("glow", {"granularity": None}) == load_recipe("glow")


def test_a_file_without_runtime_inherits_the_packaged_target(tmp_path: Path) -> None:
    path = write(tmp_path, "target: glow\nsettings: {calibrator: kl, keep_float: [Softmax]}\n")
    recipe = load_recipe(path)
    assert recipe.target == load_recipe("glow").target
    assert recipe.config.calibrator == "kl"
    assert recipe.config.keep_float == ("Softmax",)
    assert recipe.config.activation_type == "int8"


def test_a_file_with_runtime_is_a_target_of_its_own(tmp_path: Path) -> None:
    path = write(tmp_path, "target: mine\nruntime: {operators: {Conv: [quantized]}}\n")
    assert dict(load_recipe(path).target.operators) == {"Conv": ("quantized",)}


@pytest.mark.parametrize("name", target_names())
def test_every_packaged_target_says_how_its_facts_are_known(name: str) -> None:
    verified = load_recipe(name).target.verified
    assert verified is not None
    assert verified.title == {"run": "run", "rule": "not run"}[verified.how]
    assert verified.runtime
    assert date.fromisoformat(verified.date) <= date.today()  # a day of the calendar
    words = " ".join(load_recipe(name).target.sources).lower()
    assert "by this project" not in words, "the field says it"


def test_a_packaged_target_that_does_not_say_how_its_facts_are_known_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(loading, "packaged_text", lambda name, where: f"target: {name}\nruntime: {{}}\n")
    with pytest.raises(ConfigError, match=r"configs/unheard-of\.yaml: verified is missing; say how"):
        load_recipe("unheard-of")


def test_a_target_of_the_user_may_leave_out_how_its_facts_are_known(tmp_path: Path) -> None:
    runtime = "runtime: {operators: {Conv: [quantized]}}\n"
    assert load_recipe(write(tmp_path, f"target: mine\n{runtime}")).target.verified is None
    # Facts of its own were not verified for the base.
    assert load_recipe(write(tmp_path, f"target: mine\nbase: openvino\n{runtime}")).target.verified is None
    said = "verified: {how: run, runtime: chip 3, date: 2026-11-22}\n"
    assert load_recipe(write(tmp_path, f"target: mine\n{said}{runtime}")).target.verified == Verified(
        "run", "chip 3", "2026-11-22"
    )


def test_settings_alone_keep_what_is_known_of_the_target(tmp_path: Path) -> None:
    path = write(tmp_path, "base: qnn\nsettings: {calibrator: kl}\n")
    assert load_recipe(path).target.verified == load_recipe("qnn").target.verified


def test_a_symmetric_schema_alone_chooses_the_signed_type() -> None:
    assert load_recipe("openvino", {"schema": "symmetric"}).config.activation_type == "int8"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[1, 2]", "a configuration is a mapping"),
        ("target: {", "not YAML"),
        ("settings: {}\nruntime: {}", "'target' must be the name"),
        ("target: glow\nsetings: {}", "unknown key 'setings'; did you mean 'settings'?"),
        (
            "target: glow\nsettings: {shema: symmetric}",
            "settings: unknown key 'shema'; did you mean 'schema'?",
        ),
        ("target: glow\nsettings: {schema: symetric}", "schema 'symetric' is not one of"),
        ("target: glow\nsettings: {min_tensor_sqnr: high}", "min_tensor_sqnr must be a number"),
        ("target: glow\nsettings: {keep_float: Conv}", "keep_float must be a list of names"),
        ("target: glow\nsettings: {calibrator: 3}", "settings: calibrator must be text, not 3"),
        ("target: gloww", "no such target. Did you mean 'glow'?"),
        (
            "target: mine\nruntime: {operators: {Conv: [quantised]}}",
            "runtime: operator 'Conv': 'quantised' is not one of quantized, float; did you mean 'quantized'?",
        ),
        (
            "target: mine\nruntime: {lookup_tables: {Tanh: sigmoit}}",
            "runtime: lookup_table 'Tanh': 'sigmoit' is not one of runtime, sigmoid, portable",
        ),
        (
            "target: mine\nruntime: {lookup_tables: {Gelu: sigmoid}}",
            "runtime: lookup_table 'Gelu': 'sigmoid' is not one of runtime, portable",
        ),
        (
            "target: mine\nruntime: {weight_only_activations: floats}",
            "weight_only_activations 'floats' is not one of int8, float; did you",
        ),
        ("target: glow\nsettings: {weight_schema: asymmetric, granularity: per-channel}", "are symmetric"),
        ("target: glow\nsettings: {calibrator: msee}", "settings: calibrator 'msee' is not one of minmax"),
        ("target: glow\nsettings: {calibrator: percentile:2}", "'2' is not a number from 50 to 100"),
        ("target: glow\nsettings: {block_size: -1}", "settings: block_size must be a whole number"),
        (
            "target: glow\nsettings: {min_tensor_sqnr: .nan}",
            "settings: min_tensor_sqnr must be finite, not nan",
        ),
        ("target: glow\ncalibrator: mse", "'calibrator' belongs under 'settings:'"),
        ("target: glow\nforms: [qdq]", "'forms' belongs under 'runtime:'"),
        ("target: mine\nruntime: {name: x}", "runtime: unknown key 'name'"),
        ("target: mine\nruntime: {opsets: [13]}", "runtime: opsets must be a list of 2 whole numbers"),
        ("target: mine\nruntime: {static_shapes: maybe}", "static_shapes must be true or false, not 'maybe'"),
        ("target: mine\nruntime: {operators: [Conv]}", "operators must be a mapping, not a list"),
    ],
)
def test_a_wrong_file_is_refused_with_the_place_and_the_mend(
    tmp_path: Path, text: str, sentence: str
) -> None:
    path = write(tmp_path, text)
    with pytest.raises(ConfigError) as error:
        load_recipe(path)
    assert sentence in str(error.value)


def test_an_unknown_target_lists_those_there_are() -> None:
    with pytest.raises(ConfigError, match="Did you mean 'onnxruntime-x86'"):
        load_recipe("onnxruntime-x68")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"absent\.yaml: cannot be read"):
        load_recipe(tmp_path / "absent.yaml")


def test_a_symmetric_schema_is_refused_for_unsigned_activations() -> None:
    with pytest.raises(ConfigError, match="needs a signed activation_type"):
        load_recipe("glow", {"schema": "symmetric", "activation_type": "uint8"})


def test_a_target_with_a_base_takes_what_it_does_not_say_itself(tmp_path: Path) -> None:
    path = write(
        tmp_path, "target: mine\nbase: glow\nruntime: {forms: [qdq]}\nsettings: {granularity: per-channel}\n"
    )
    recipe, base = load_recipe(path), load_recipe("glow")
    assert recipe.target.forms == ("qdq",)
    assert recipe.target.operators == base.target.operators
    assert (recipe.config.activation_type, recipe.config.granularity) == ("int8", "per-channel")


@pytest.mark.parametrize(
    ("target", "options", "sentence"),
    [
        ("openvino", {"form": "qoperator"}, "its operators are onnxruntime's own); use form qdq or"),
        ("openvino", {"form": "qdg"}, "form 'qdg' is not one of qdq, qoperator"),
        ("tensorrt", {"schema": "asymmetric"}, "tensorrt accepts only zero point 0"),
        (
            "tensorrt",
            {"activation_type": "uint8"},
            "activation_type uint8: tensorrt has no kernel of it; use int8",
        ),
    ],
)
def test_a_setting_that_the_runtime_lacks_is_refused(
    target: str, options: dict[str, object], sentence: str
) -> None:
    with pytest.raises(ConfigError) as error:
        load_recipe(target, options)
    assert sentence in str(error.value)


def test_a_tolerance_and_a_limit_of_decibels_exclude_each_other() -> None:
    with pytest.raises(ConfigError, match="each decides how far outputs may be"):
        load_recipe(None, {"tolerance": 0.01, "min_output_sqnr": 30.0})


def test_off_is_a_word_in_a_file_and_not_false(tmp_path: Path) -> None:
    recipe = load_recipe(write(tmp_path, "target: glow\nsettings: {equalization: off}\n"))
    assert recipe.config.equalization == "off"


@pytest.mark.parametrize(
    ("options", "name", "value"),
    [
        ({"schema": "symmetric"}, "activation_type", "int8"),
        ({"mode": "weight-only", "weight_type": "int4"}, "block_size", 32),
        ({"mode": "weight-only", "weight_type": "int4"}, "weight_schema", "asymmetric"),
        ({"mode": "weight-only", "weight_type": "int4", "block_size": 64}, "block_size", 64),
    ],
)
def test_settings_that_follow_from_others_are_filled_in(
    options: dict[str, object], name: str, value: object
) -> None:
    assert getattr(load_recipe("openvino", options).config, name) == value


@pytest.mark.parametrize("name", target_names())
def test_a_target_keeps_its_promises(name: str) -> None:
    target = load_recipe(name).target
    assert target.sources
    assert target.description
    known = {op for _, op in RULES}
    tables = set(target.lookup_tables) - {"*", CHAIN}
    assert set(target.operators) | tables | set(target.implementations) <= known
    assert all(RULES["", op].unary for op in tables)
    assert set(target.operators).isdisjoint(target.lookup_tables)
    assert set(target.implementations) <= {*target.operators, *target.dynamic}
    if "qoperator" in target.forms:  # target onnx has those of the standard alone, see test_onnx.py
        assert "com.microsoft" in target.domains or name == "onnx"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("settings: [a]", "settings must be a mapping, not a list"),
        ("settings: 3", "settings must be .*not 3"),
        ("sources: 3", "sources must be a list of names, not 3"),
        ("target: m\nverified: 3", "verified must be a mapping, not 3"),
        ("target: m\nruntime: {}\nverified: {how: rum}", "verified: how 'rum' is not one of run, rule"),
        ("target: m\nruntime: {}\nverified: {who: me}", "verified: unknown key 'who'"),
        ("target: m\nruntime: {}\nverified: {how: run, date: x}", "verified: key 'runtime' is missing"),
        (
            "target: m\nruntime: {}\nverified: {how: run, runtime: chip 3, date: 22.11.2026}",
            r"verified: date '22\.11\.2026' is not a date; write it as 2026-11-22",
        ),
        ("settings:\n  min_sqnr: 1", "unknown key 'min_sqnr'; did you mean 'min_tensor_sqnr'"),
        ("settings:\n  min_output_sqnr: 1e20", r"min_output_sqnr 1e\+20 is not a number of decibels; give 0"),
        ("settings:\n  min_tensor_sqnr: -1", "min_tensor_sqnr -1 is not a number of decibels; give 0"),
        ("base: nowhere", "mine.yaml: target 'nowhere': no such target"),
        ("settings:\n  calibrator: " + "x" * 100_000, "calibrator 'xxx"),
        ("settings:\n  mode: \"\\x1b[31m\"", r"mode '\\x1b\[31m' is not one of"),
    ],
)  # fmt: skip
def test_a_configuration_that_another_reader_would_take_is_refused(
    tmp_path: Path, text: str, message: str
) -> None:
    with pytest.raises(ConfigError, match=message) as refusal:
        load_recipe(write(tmp_path, text))
    assert str(refusal.value).count("; ") >= 1
    assert len(str(refusal.value)) <= 1200


def test_unsigned_weights_need_an_asymmetric_schema_in_every_mode() -> None:
    with pytest.raises(ConfigError, match="weight_type 'uint8' needs weight_schema asymmetric"):
        load_recipe(None, {"weight_type": "uint8"})


UNSIGNED = {"weight_type": "uint8", "weight_schema": "asymmetric", "granularity": "per-tensor"}


@pytest.mark.parametrize(
    ("target", "given", "settings"),
    [
        ("onnxruntime-x86", {}, {"mode": "weight-only"}),
        ("onnxruntime-x86", {"weight_type": "int7"}, {"mode": "weight-only"}),
        ("onnxruntime-x86", {"mode": "weight-only", "weight_type": "int4"}, {"weight_type": "int8"}),
        ("reads uint8", {}, {"mode": "weight-only", **UNSIGNED}),
        ("reads uint8", UNSIGNED, {"mode": "weight-only"}),
        ("reads uint8", {"granularity": "per-channel"}, None),
        ("reads uint8", {"weight_type": "int8"}, None),
        *((target, {}, None) for target in ("glow", "migraphx", "qnn", "tensorrt")),
    ],
)
def test_weights_of_8_bits_beside_float_activations_are_those_that_the_target_reads(
    tmp_path: Path, target: str, given: dict[str, object], settings: dict[str, str] | None
) -> None:
    file = "target: mine\nbase: onnxruntime-x86\nruntime: {weight_only: {MatMul: [uint8, int4]}}\n"
    recipe = load_recipe(write(tmp_path, file) if target == "reads uint8" else target, given)
    found = weight_only_settings(recipe)
    assert found == settings
    assert found is None or goes_with(recipe, found)


def test_lines_of_a_list_add_up_and_a_percentage_is_a_number() -> None:
    lines = ["output_kind=a=values", "output_kind=[b=state, c=values]", "tolerance=1.5%"]
    assert parsed_lines(lines) == (
        {"output_kind": ["a=values", "b=state", "c=values"], "tolerance": 0.015},
        {},
    )
