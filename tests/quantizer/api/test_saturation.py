"""What a person hears where this processor's int8 kernels saturate, and the default target is for others."""

from __future__ import annotations

from pathlib import Path

import pytest
import qprof_onnx as qprof
from click.testing import CliRunner
from qprof_onnx.cli.main import main
from qprof_onnx.profiles.base.findings import Code, Finding
from qprof_onnx.quantizer.evaluation import evaluate as evaluation
from qprof_onnx.quantizer.targets import machine

DIGITS = Path(__file__).parents[3] / "examples" / "digits"
ALARM = "int8 kernels saturate here: this processor is "


@pytest.fixture(autouse=True)
def _saturating(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "int8_kernels_saturate", lambda: True)


def test_the_verdict_says_what_is_wrong_and_what_to_type(path: Path) -> None:
    result = qprof.quantize(path, data=DIGITS / "calibration", latency=False)
    assert result.verdict is not None
    alarm = next(one.text for one in result.verdict.findings if one.code is Code.SATURATING_KERNELS)
    assert alarm.startswith(ALARM)
    assert "lower than on target onnxruntime-x86; --target auto quantizes for this processor" in alarm
    assert not any("trust the measurement" in remark for remark in map(str, result.verdict.findings))


def test_weights_of_seven_bits_are_tried_where_they_are_better(path: Path) -> None:
    result = qprof.quantize(path, data=DIGITS / "calibration", latency=False)
    assert result.verdict is not None
    before = result.verdict.sqnr
    assert before is not None
    for fix in result.verdict.fixes:  # there is none where the kernels are exact
        assert fix.options == ("--set", "weight_type=int7")
        assert (fix.sqnr or 0.0) > before


@pytest.mark.slow
def test_a_machine_does_not_change_the_bytes_of_the_default_target(
    path: Path, profile: qprof.Profile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for saturates in (True, False):
        monkeypatch.setattr(machine, "int8_kernels_saturate", lambda saturates=saturates: saturates)
        qprof.quantize(path, profile, tmp_path / f"{saturates}.onnx")
        qprof.quantize(path, None, tmp_path / f"data-{saturates}.onnx", data=DIGITS / "calibration")
    for name in ("", "data-"):
        first, second = (tmp_path / f"{name}{saturates}.onnx" for saturates in (True, False))
        assert first.read_bytes() == second.read_bytes()


@pytest.mark.parametrize("settings", [{"weight_type": "int7"}, {"target": "onnxruntime-x86-avx2"}])
def test_weights_of_seven_bits_raise_no_alarm(path: Path, settings: dict[str, str]) -> None:
    result = qprof.quantize(path, data=DIGITS / "calibration", latency=False, **settings)  # type: ignore[arg-type]
    assert result.verdict is not None
    assert not result.verdict.against
    found = qprof.evaluate(path, result, DIGITS / "heldout", latency=False)
    assert not any(ALARM in remark for remark in map(str, found.findings))


def test_weights_that_compute_in_float_raise_no_alarm(path: Path) -> None:
    result = qprof.quantize(path, data=DIGITS / "calibration", latency=False, mode="weight-only")
    assert result.verdict is not None
    assert not any(ALARM in alarm for alarm in map(str, result.verdict.findings))


def test_an_evaluation_remarks_it_of_a_model_with_weights_of_eight_bits(
    path: Path, profile: qprof.Profile, tmp_path: Path
) -> None:
    qprof.quantize(path, profile, tmp_path / "q.onnx")
    words = [
        "evaluate",
        str(path),
        str(tmp_path / "q.onnx"),
        "--data",
        str(DIGITS / "heldout"),
        "--no-latency",
    ]
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 0
    assert ALARM in done.stdout


def test_a_tuning_tries_weights_of_seven_bits(
    path: Path, profile: qprof.Profile, caplog: pytest.LogCaptureFixture
) -> None:
    first: dict[int, bytes] = {}

    def same_bits(outputs, indices) -> list[float]:  # type: ignore[no-untyped-def] # which no plan has
        pairs = zip(indices, outputs, strict=True)
        return [
            100.0 * (first.setdefault(i, out["logits"].tobytes()) == out["logits"].tobytes())
            for i, out in pairs
        ]

    found = qprof.tune(path, profile, DIGITS / "heldout", metric=same_bits, budget=8.0, objective="size")
    assert any(ALARM in record.getMessage() for record in caplog.records)
    assert any(trial.candidate.base.name == "weight_type int7" for trial in found.trials)


@pytest.mark.slow
def test_an_evaluation_blames_no_estimate_for_what_kernels_lose(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "output 'y': the estimate was too good; trust the measurement"
    blamed = Finding(Code.ESTIMATE_TOO_GOOD, text)
    monkeypatch.setattr(evaluation, "too_good", lambda checks: (blamed,))
    found = qprof.evaluate(path, qprof.quantize(path, data=DIGITS / "calibration"), DIGITS / "heldout")
    assert ALARM in found.findings[0].text
    assert blamed not in found.findings
