"""A step that only improves a result and fails by a fault of qprof is left out, and the result says so."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
import qprof_onnx as qprof
from qprof_onnx.profiles.base.improvement import STRICT, improved
from qprof_onnx.quantizer.planning import plan_model
from qprof_onnx.quantizer.targets import cost_table, target

from ...cli.running import qprof as invoked

QUANTIZER = "qprof_onnx.quantizer"
DIGITS = Path(__file__).parents[3] / "examples" / "digits"

BROKEN: dict[str, Any] = {"calibrator": "percentile:90", "min_output_sqnr": 0.0, "equalization": "off"}
"""Settings with which the model loses 15 dB."""


def fails(*_: object, **__: object) -> Any:
    """A fault, whose message is another in each run."""
    raise KeyError(str(object()))


def raising(error: BaseException) -> Callable[[], Any]:
    """Return a step that ends with an error."""

    def step() -> Any:
        raise error

    return step


@pytest.fixture
def lenient(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """As users have it; the function breaks what has a name."""
    monkeypatch.delenv(STRICT)
    monkeypatch.setattr(target, "costs_of", cost_table.costs_of)
    return lambda name: monkeypatch.setattr(f"{QUANTIZER}.{name}", fails)


ADJUSTMENTS = "all adjustments of the model"
FIRST_PLAN = "noise budget (outputs may be noisier than their limits) and predicted times"
PLANNING = {
    "planning.plan_model.find_biases": ADJUSTMENTS,
    "planning.facts.measured_gains": FIRST_PLAN,
}


@pytest.mark.parametrize(("place", "step"), PLANNING.items())
def test_a_plan_is_made_without_what_fails(
    place: str, step: str, lenient: Any, profile: qprof.Profile, tmp_path: Path
) -> None:
    path = DIGITS / "model.onnx"
    lenient(place)
    out = tmp_path / "q.onnx"
    result = qprof.quantize(path, profile, out, save_plan=tmp_path / "p.yaml")
    said = [
        note
        for note in map(str, result.findings)
        if note.startswith(f"{step}: left out after an internal error")
    ]
    assert len(said) == 1
    assert "(KeyError in quantizer/" in said[0]
    assert "please report" in said[0]
    assert "0x" not in said[0]
    assert said[0] in map(str, qprof.load_plan(tmp_path / "p.yaml").findings)
    ort.InferenceSession(out, providers=["CPUExecutionProvider"])


def test_adjustments_that_break_a_rule_of_the_plan_are_left_out_together(
    lenient: Any, path: Path, profile: qprof.Profile, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked = []

    def verified(plan: qprof.QuantPlan, *others: Any) -> None:
        checked.append(plan)
        if len(checked) == 1:
            raise qprof.PlanError("plan: breaks a rule")

    monkeypatch.setattr(plan_model, "verify_plan", verified)
    result = qprof.quantize(path, profile)
    assert any(
        note.startswith("all adjustments of the model: left out") for note in map(str, result.findings)
    )
    assert not result.plan.adjustments.biases


def test_a_fault_of_rounding_that_was_asked_for_is_the_end(
    lenient: Any, path: Path, profile: qprof.Profile
) -> None:
    lenient("planning.plan_model.find_roundings")
    with pytest.raises(KeyError):
        qprof.quantize(path, profile, data=DIGITS / "calibration", rounding="gptq")


@pytest.mark.parametrize("min_speedup", [None, 0.001])
def test_a_check_of_speed_is_left_out_but_never_its_gate(
    min_speedup: float | None, lenient: Any, path: Path, profile: qprof.Profile
) -> None:
    lenient("plugins.tune.speed_check.check_speed")
    speed = qprof.SpeedCheckOptions(min_speedup=min_speedup)
    if min_speedup is not None:
        with pytest.raises(KeyError):
            qprof.quantize(path, profile, speed=speed)
        return
    result = qprof.quantize(path, profile, speed=speed)
    said = [note for note in map(str, result.findings) if note.startswith("check of speed")]
    assert len(said) == 1
    assert said[0] in map(str, result.plan.findings)


def test_a_fault_in_measuring_noise_leaves_a_plan_without_it(
    lenient: Any, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("qprof_onnx.quantizer.noise.kept_samples._measured", {})
    found = qprof.profile(path, DIGITS / "calibration")
    lenient("noise.kept_samples.measure_noise")
    result = qprof.quantize(path, found)
    notes = [
        note for note in map(str, result.findings) if note.startswith("measurement of how noise travels")
    ]
    assert len(notes) == 1
    assert result.composition.uses_integers


def test_a_model_is_judged_without_fixes_that_fail(lenient: Any, path: Path) -> None:
    lenient("api.from_samples._tried_fixes")
    asked = {
        **BROKEN,
        "target": "onnxruntime-x86",
        "cost_model": "off",
    }  # so that it is quantized on any target
    result = qprof.quantize(path, data=DIGITS / "calibration", latency=False, **asked)
    assert any(note.startswith("search for fixes: left out") for note in map(str, result.findings))
    assert result.verdict is not None


def test_a_report_lacks_a_section_that_fails_and_says_so(
    lenient: Any, profile: qprof.Profile, tmp_path: Path
) -> None:
    path = DIGITS / "model.onnx"
    result = qprof.quantize(path, profile)
    lenient("plugins.report.assemble.tensor_records")
    report = qprof.report(path, result, profile=profile)
    assert [note for note in map(str, report.findings) if note.startswith("report: tensors: left out")]
    report.save(tmp_path / "report.html")
    assert "report: tensors: left out" in (tmp_path / "report.html").read_text()


def test_a_command_says_what_was_left_out(
    lenient: Any, path: Path, profile: qprof.Profile, tmp_path: Path
) -> None:
    profile.save(tmp_path / "p.yaml")
    lenient("planning.plan_model.find_biases")
    words = ["quantize", str(path), "--profile", str(tmp_path / "p.yaml"), "-o", str(tmp_path / "q.onnx")]
    done = invoked(*words)
    assert done.exit_code == 0
    assert f"warning: {ADJUSTMENTS}: left out after an internal error" in done.stderr
    assert "Traceback" not in done.stderr
    traced = invoked("--debug", *words)
    assert traced.exit_code == 0
    assert "Traceback" in traced.stderr


def test_a_fault_in_reading_or_writing_ends_the_command(
    lenient: Any, path: Path, profile: qprof.Profile, tmp_path: Path
) -> None:
    profile.save(tmp_path / "p.yaml")
    lenient("search.closed_loop.lower")  # whose model is taken where it was run
    lenient("api.from_profile.lower")
    words = ["quantize", str(path), "--profile", str(tmp_path / "p.yaml"), "-o", str(tmp_path / "q.onnx")]
    done = invoked(*words)
    assert done.exit_code == 70
    assert not (tmp_path / "q.onnx").exists()


@pytest.mark.parametrize(
    "error",
    [qprof.ConfigError("min_sqnr: no"), OSError(28, "no space"), MemoryError(), KeyboardInterrupt()],
    ids=lambda error: type(error).__name__,
)
def test_what_is_no_fault_of_qprof_is_never_left_out(
    error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(STRICT)
    with pytest.raises(type(error)):
        improved("a step", raising(error), None)


def test_an_interruption_that_became_another_error_is_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(STRICT)
    error = ImportError("numpy")
    error.__context__ = KeyboardInterrupt()
    with pytest.raises(ImportError):
        improved("a step", raising(error), None)


def test_in_tests_nothing_is_left_out() -> None:
    with pytest.raises(ZeroDivisionError):
        improved("a step", raising(ZeroDivisionError()), None)


def test_a_step_that_fails_returns_what_stands_without_it_and_one_finding(
    monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    monkeypatch.delenv(STRICT)
    made, left_out = improved("a step", raising(ZeroDivisionError()), "without it")
    assert made == "without it"
    assert [one.subject for one in left_out] == ["a step"]
    assert [record.levelno for record in caplog.records] == [logging.ERROR]
    assert improved("a step", lambda: "made", "without it") == ("made", ())


def test_a_tuning_goes_on_without_a_candidate_that_fails(
    lenient: Any, profile: qprof.Profile, caplog: Any
) -> None:
    first: dict[int, Any] = {}

    def same_bits(outputs: Any, indices: Any) -> list[float]:  # which no plan has
        pairs = zip(indices, outputs, strict=True)
        return [100.0 * np.array_equal(first.setdefault(i, out["logits"]), out["logits"]) for i, out in pairs]

    lenient("plugins.tune.trial.screen_model")
    found = qprof.tune(
        DIGITS / "model.onnx", profile, DIGITS / "heldout", metric=same_bits, budget=8.0, objective="size"
    )
    assert not found.target_met
    assert any(record.getMessage().startswith("candidate 'default': left out") for record in caplog.records)
