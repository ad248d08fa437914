"""`report`, and verdicts that show themselves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import qprof_onnx as qprof
from qprof_onnx.quantizer.plugins.layers import layers

DIGITS = Path(__file__).parents[3] / "examples" / "digits"
MODEL = DIGITS / "model.onnx"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("poor")


@pytest.fixture(scope="module")
def poor(folder: Path) -> qprof.QuantizeResult:
    """A model that loses much."""
    return qprof.quantize(
        MODEL,
        None,
        folder / "q.onnx",
        data=DIGITS / "heldout",
        calibrator="percentile:90",
        min_output_sqnr=0.0,
        equalization="off",
        latency=False,
    )


def test_the_report_of_a_result_takes_the_profile_that_was_kept(
    folder: Path, poor: qprof.QuantizeResult
) -> None:
    found = qprof.report(MODEL, poor)
    assert poor.verdict is not None
    assert found.verdict.level == poor.verdict.grade
    assert found.tensors
    found.save(folder / "report")
    assert {file.name for file in (folder / "report").iterdir()} == {
        "report.html",
        "report.md",
        "junit.xml",
        "report.json",
    }


def test_a_report_measures_on_samples(path: Path, profile: Any, result: Any, heldout: Any) -> None:
    gate = qprof.Gate(min_sqnr=99.0)
    found = qprof.report(path, result, heldout, profile=profile, gate=gate, latency=False, limit=1)
    assert [output.measured is not None for output in found.outputs] == [True]
    assert not found.passed
    assert not qprof.report(path, result, profile=profile).gates


def test_a_report_of_a_file_takes_plan_and_profile_that_lie_beside_it(
    folder: Path, poor: qprof.QuantizeResult, caplog: pytest.LogCaptureFixture
) -> None:
    found = qprof.report(MODEL, folder / "q.onnx", DIGITS / "heldout", latency=False, limit=4)
    assert found.tensors
    assert all(output.measured is not None for output in found.outputs)
    assert not any("no estimates" in str(finding) for finding in found.findings)


def test_a_file_that_lies_alone_is_measured_or_refused(
    folder: Path, poor: qprof.QuantizeResult, tmp_path: Path
) -> None:
    alone, own = tmp_path / "q.onnx", folder / "q.qprof"
    alone.write_bytes((folder / "q.onnx").read_bytes())
    found = qprof.report(MODEL, alone, DIGITS / "heldout", latency=False, limit=4)
    assert any("no plan and no profile of q.onnx was found" in str(one) for one in found.findings)
    assert not found.tensors
    with pytest.raises(qprof.ConfigError, match=r"no plan and no profile .* profile=, or data="):
        qprof.report(MODEL, alone)
    assert qprof.report(MODEL, alone, plan=own / "plan.yaml", profile=own / "profile.yaml").tensors


@pytest.mark.slow
def test_a_result_brings_the_profile_that_it_was_made_from(folder: Path, poor: qprof.QuantizeResult) -> None:
    recorded = qprof.load_profile(folder / "q.qprof" / "profile.yaml")
    result = qprof.quantize(MODEL, recorded, options=qprof.QuantizeOptions(check_outputs="off"))
    found = qprof.report(MODEL, result, DIGITS / "heldout", latency=False, limit=4)
    assert found.tensors
    assert "expected dB" in found.to_markdown()


def test_layers_are_compared_on_some_of_many_samples(
    folder: Path, poor: qprof.QuantizeResult, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits, layers_of = [], layers.layers_of

    def compared(*files: Any, measuring: Any, **others: Any) -> Any:
        limits.append(measuring.limit)
        return layers_of(*files, measuring=measuring, **others)

    monkeypatch.setattr(layers, "layers_of", compared)
    images = [np.load(file)["image"][:1] for file in sorted(DIGITS.glob("heldout/*.npz"))]
    qprof.report(MODEL, folder / "q.onnx", images, latency=False)
    assert limits == [32]


def test_a_verdict_shows_what_to_try_as_keywords(poor: qprof.QuantizeResult) -> None:
    assert poor.verdict is not None
    text = poor.verdict.to_markdown()
    assert text.startswith("## ")
    assert "* size: " in text
    assert "| calibrator='mse' |" in text
    assert "<b>" in poor.verdict._repr_html_()
    assert "\n" not in repr(poor.verdict)


def test_labels_that_the_float_model_is_hardly_ever_right_by_leave_nothing_to_judge(
    folder: Path, poor: qprof.QuantizeResult, labels: Any
) -> None:
    wrong = np.where(np.arange(len(labels)) % 10 == 0, labels, (labels + 1) % 10)
    found = qprof.evaluate(MODEL, poor, DIGITS / "heldout", labels=wrong, latency=False)
    assert found.verdict.sentence.startswith("none: the float model scores 10 % with")
    assert not found.passed


def test_truth_that_is_no_classes_is_read_by_its_metric(labels: Any, tmp_path: Path) -> None:
    np.save(tmp_path / "truth.npy", np.zeros((len(labels), 10)))
    found = qprof.quantize(
        MODEL,
        data=DIGITS / "calibration",
        holdout_data=DIGITS / "heldout",
        metric="rmse",
        labels=tmp_path / "truth.npy",
        latency=False,
        budget=0.0,
    )
    assert found.verdict is not None
    assert found.verdict.score is not None
    assert found.verdict.score.unit == ""
