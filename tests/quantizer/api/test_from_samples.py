"""`quantize(model, data=...)`: a verdict from samples alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import qprof_onnx as qprof

DIGITS = Path(__file__).parents[3] / "examples" / "digits"
MODEL = DIGITS / "model.onnx"


def test_arrays_and_labels_lead_to_a_model_with_a_verdict(tmp_path: Path) -> None:
    images = [np.load(file)["image"] for file in sorted(DIGITS.glob("heldout/*.npz"))]
    labels = np.loadtxt(DIGITS / "heldout" / "labels.txt", dtype=int)
    result = qprof.quantize(MODEL, data=images, labels=labels, latency=False)
    assert result.verdict is not None
    assert result.verdict.grade == "good"
    assert result.verdict.accuracy is not None
    assert (result.verdict.accuracy.rows, result.verdict.held_out.rows) == (200, 200)
    assert result.model_path is None
    assert result.judged is not None
    assert result.judged.profile == ""
    assert "* verdict: good: accuracy 100.00 -> 100.00 % of " in result.to_markdown()
    result.save(tmp_path / "q.onnx")


def test_a_file_is_written_with_its_profile_and_plan_beside_it(tmp_path: Path) -> None:
    out = tmp_path / "q.onnx"
    for reused in (False, True):
        result = qprof.quantize(MODEL, None, out, data=DIGITS / "calibration", latency=False)
        assert result.judged is not None
        assert (result.judged.profile, result.judged.profile_reused) == (
            str(tmp_path / "q.profile.yaml"),
            reused,
        )
    assert qprof.load_plan(tmp_path / "q.plan.yaml") == result.plan


def test_a_limit_that_is_not_met_is_in_the_result() -> None:
    gate = qprof.Gate(min_sqnr=90.0)
    result = qprof.quantize(MODEL, data=DIGITS / "calibration", latency=False, gate=gate)
    assert not result.passed


def test_what_judges_goes_with_samples_and_no_profile() -> None:
    with pytest.raises(qprof.ConfigError, match="labels: is for data without a profile"):
        qprof.quantize(MODEL, mode="weight-only", labels=[1])
