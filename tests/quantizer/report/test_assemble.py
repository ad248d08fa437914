"""What a report says, from estimates and from results."""

from __future__ import annotations

import math
import shlex
from dataclasses import replace
from pathlib import Path

import pytest
from qprof_onnx.profiles.base.errors import ConfigError
from qprof_onnx.profiles.records.store import load_profile
from qprof_onnx.quantizer.api.from_profile import write_quantized
from qprof_onnx.quantizer.evaluation.evaluate import evaluate
from qprof_onnx.quantizer.evaluation.options import EvaluationOptions, Gate
from qprof_onnx.quantizer.plan.store import load_plan
from qprof_onnx.quantizer.report.content import OutputQuality, Report, WhatIf, is_unsure, reached_sqnr
from qprof_onnx.quantizer.report.report import evaluation_report, report
from qprof_onnx.quantizer.report.suggestions import FileNames, command, tried_changes
from qprof_onnx.quantizer.search.grades import OutputGrade
from qprof_onnx.quantizer.search.proposals import Fix
from qprof_onnx.quantizer.search.verdict import Composition, HeldOut, Verdict
from qprof_onnx.quantizer.targets.loading import load_recipe

from .conftest import DIGITS

MODEL = DIGITS / "model.onnx"


def test_the_estimate_of_the_worst_output_is_that_of_the_plan(estimated: Report, files: Path) -> None:
    origin = load_plan(files / "plan.yaml").origin
    worst = estimated.noise[0]
    assert worst.sqnr == pytest.approx(origin.estimated_sqnr[worst.output], abs=0.01)
    assert estimated.outputs[0].estimated == origin.estimated_sqnr[worst.output]


def test_the_shares_of_the_noise_add_up(estimated: Report) -> None:
    for budget in estimated.noise:
        assert sum(part.share for part in budget.parts) == pytest.approx(1.0)
        assert [part.share for part in budget.parts] == sorted((p.share for p in budget.parts), reverse=True)


def test_histograms_are_joined_without_losing_a_count(estimated: Report, files: Path) -> None:
    profile = load_profile(files / "profile.yaml")
    assert estimated.tensors
    for tensor in estimated.tensors:
        assert tensor.histogram is not None
        assert len(tensor.histogram.counts) <= 128
        if tensor.name in profile and not tensor.is_equalized:
            assert sum(tensor.histogram.counts) == tensor.count


def test_a_quantized_tensor_has_what_every_calibrator_chooses(estimated: Report) -> None:
    quantized = [tensor for tensor in estimated.tensors if tensor.parameters is not None]
    assert quantized
    for tensor in quantized:
        assert [choice.name for choice in tensor.calibrators] == ["minmax", "percentile", "kl", "mse"]
        assert all(choice.low <= 0.0 <= choice.high for choice in tensor.calibrators)


def test_every_node_has_a_time_in_float_and_as_planned(estimated: Report) -> None:
    assert estimated.speed is not None
    assert estimated.speed.how == "predicted"
    total = sum(node.float_us or 0.0 for node in estimated.nodes)
    assert total == pytest.approx(1e3 * estimated.speed.float_ms)


def test_nodes_that_stay_float_are_in_one_group_each(estimated: Report) -> None:
    named = [name for group in estimated.float_groups for name in group.nodes]
    assert sorted(named) == sorted(node.name for node in estimated.nodes if node.code)


def test_a_change_brings_what_quantizing_with_its_command_brings(estimated: Report, tmp_path: Path) -> None:
    change = next(change for change in estimated.what_ifs if change.nodes)
    words = shlex.split(change.command)
    kept = [words[at + 1] for at, word in enumerate(words) if word == "--keep-float"]
    assert tuple(kept) == change.nodes
    recipe = load_recipe(overrides={"keep_float": kept})
    profile = words[words.index("--profile") + 1]
    result = write_quantized(MODEL, profile, tmp_path / "out.onnx", recipe=recipe)
    estimates = result.plan.origin.estimated_sqnr
    assert change.sqnr == pytest.approx(estimates[change.output], abs=0.5)


def test_the_nodes_of_a_change_are_in_the_order_of_the_noise_budget(estimated: Report) -> None:
    order = [part.node for part in estimated.noise[0].parts]
    kept = [change.nodes for change in estimated.what_ifs if "--keep-float" in change.options]
    assert kept
    assert all(list(nodes) == order[: len(nodes)] for nodes in kept)


def test_each_change_is_made_in_a_file_of_its_own(estimated: Report) -> None:
    words = [shlex.split(change.command) for change in estimated.what_ifs]
    outputs = [command[command.index("-o") + 1] for command in words]
    assert outputs == [f"model.try{number}.int8.onnx" for number in range(1, len(words) + 1)]


def test_a_command_repeats_what_had_the_model_judged_but_for_its_files(files: Path) -> None:
    plan = load_plan(files / "plan.yaml")
    given = "m.onnx --data=d --preprocess imagenet -o a/o.onnx --report r --fix auto --json --calibrator kl"
    names = FileNames("m.onnx", "p.yaml", "a/o.onnx", tuple(given.split()))
    expected = "qprof quantize m.onnx --data=d --preprocess imagenet -o a/o.try3.onnx --calibrator mse"
    assert command(plan, names, ["--calibrator", "mse"], 3) == expected


def test_a_command_gives_a_setting_by_its_flag(files: Path) -> None:
    plan = load_plan(files / "plan.yaml")
    plan = replace(plan, config=replace(plan.config, min_tensor_sqnr=12.0))
    words = command(plan, FileNames("m.onnx", "p.yaml", "o.onnx"), [], 1).split()
    assert "--min-sqnr" not in words  # the gate of outputs
    assert "min_tensor_sqnr=12" in words


def test_the_gain_of_an_estimate_is_not_added_to_a_measurement() -> None:
    change = WhatIf("more", "", "y", sqnr=60.8, gained=3.3, speedup=None, added_us=None, added_bytes=None)
    measured = OutputQuality("y", estimated=57.5, low=49.5, high=67.5, measured=45.0)
    assert reached_sqnr(change, [measured]) is None
    assert is_unsure(change, [measured])
    assert reached_sqnr(change, [replace(measured, measured=None)]) == 60.8
    assert reached_sqnr(replace(change, sqnr=48.3), [measured]) == 48.3
    assert not is_unsure(replace(change, is_measured=True), [measured])


def test_fixes_that_cost_quality_are_left_out_and_settings_are_named_in_words() -> None:
    fixes = (Fix({"min_output_sqnr": 58.1}, sqnr=30.0), Fix({"calibrator": "kl"}, sqnr=19.0))
    output = OutputGrade("y", "a decision", 20.0, 30.0, None, "poor")
    verdict = Verdict(
        "poor",
        (output,),
        (),
        None,
        "",
        None,
        HeldOut(1, 1, 2, False, "d"),
        2,
        1,
        None,
        None,
        Composition(1.0, 1, ()),
        fixes=fixes,
    )
    assert [change.title for change in tried_changes(verdict)] == ["Limit of 58.1 dB for outputs"]


def test_what_was_measured_stands_beside_the_estimates(whole: Report) -> None:
    assert whole.outputs[0].measured is not None
    both = [r for r in whole.tensor_noise if r.estimated is not None and r.measured is not None]
    assert both
    assert all(math.isfinite(r.estimated or 0.0) for r in both)


def test_a_gate_that_fails_is_told_beside_the_grade(whole: Report) -> None:
    assert [(gate.name, gate.passed) for gate in whole.gates] == [("--min-sqnr", True), ("--max-size", False)]
    assert whole.verdict.level == "failed"
    assert whole.verdict.grade in ("good", "fair", "poor")
    assert not whole.passed


def test_newer_profiles_are_held_against_that_of_the_plan(whole: Report) -> None:
    assert len(whole.drift) == 2
    assert all(night.passed for night in whole.drift)
    assert {t.distance for night in whole.drift for t in night.tensors} == {0.0}


def test_samples_without_a_model_are_refused(files: Path) -> None:
    with pytest.raises(ConfigError, match="samples alone cannot be measured"):
        report(MODEL, files / "plan.yaml", files / "profile.yaml", data=str(DIGITS / "heldout"))


def test_layers_are_not_timed_without_samples(files: Path) -> None:
    with pytest.raises(ConfigError, match="layers are timed on samples"):
        report(MODEL, files / "plan.yaml", files / "profile.yaml", measure_layers=True)


def test_layers_are_timed_by_onnxruntime_alone(files: Path) -> None:
    quantized, data = files / "model.int8.onnx", str(DIGITS / "heldout")
    with pytest.raises(ConfigError, match="onnxruntime on the CPU alone"):
        report(
            MODEL,
            files / "plan.yaml",
            files / "profile.yaml",
            quantized=quantized,
            data=data,
            measure_layers=True,
            runtime="openvino",
        )


def test_gates_without_a_measurement_are_refused(files: Path) -> None:
    with pytest.raises(ConfigError, match="a gate needs something measured"):
        report(MODEL, files / "plan.yaml", files / "profile.yaml", gate=Gate(min_sqnr=10.0))


def test_an_evaluation_finds_plan_and_profile_beside_the_model(files: Path) -> None:
    how = EvaluationOptions(limit=4, latency=None)
    quantized = files / "model.int8.onnx"
    result = evaluate(MODEL, quantized, str(DIGITS / "heldout"), measuring=how)
    found, remarks = evaluation_report(result, MODEL, quantized)
    assert found.tensors
    assert len(remarks) == 2
    assert all("by its digest" in remark for remark in map(str, remarks))
