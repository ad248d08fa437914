"""The verdict of `evaluate`: that of `quantize` on the same pair, and one for models of other tools."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import qprof_onnx as qprof
from onnx import numpy_helper
from qprof_onnx.profiles.base.findings import Code

DIGITS = Path(__file__).parents[3] / "examples" / "digits"
MODEL = DIGITS / "model.onnx"
HELD_OUT, LABELS = DIGITS / "heldout", DIGITS / "heldout" / "labels.txt"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "judge"),
    [
        ({}, {}),
        ({"calibrator": "kl", "cost_model": "off"}, {"labels": LABELS}),
        ({"calibrator": "kl", "cost_model": "off", "output_kind": ("logits=values",)}, {}),
        ({"mode": "weight-only", "weight_type": "int4"}, {"labels": LABELS}),
    ],
)
def test_the_same_pair_has_the_same_verdict_in_both_commands(
    settings: dict[str, Any], judge: dict[str, Any], tmp_path: Path
) -> None:
    out = tmp_path / "q.onnx"
    samples = {"data": DIGITS / "calibration", "holdout_data": HELD_OUT, "latency": False, "budget": 0.0}
    made = qprof.quantize(MODEL, None, out, target="onnxruntime-x86", **settings, **samples, **judge)
    assert made.verdict is not None
    found = qprof.evaluate(MODEL, out, HELD_OUT, latency=False, **judge)
    assert found.plan == str(tmp_path / "q.qprof" / "plan.yaml")
    assert found.verdict.grade == made.verdict.grade
    assert found.verdict.decision == made.verdict.decision
    assert found.verdict.outputs == made.verdict.outputs
    assert found.verdict.sentence == made.verdict.sentence.replace("held-out ", "")


def rounded(bits: int, folder: Path) -> Path:
    """Return a file of the float model with weights of some bits, as another tool would write it."""
    model = onnx.load(MODEL)
    for weight in model.graph.initializer:
        values = numpy_helper.to_array(weight)
        if values.ndim > 1:
            step = np.abs(values).max() / (2 ** (bits - 1) - 1)
            kept = (np.round(values / step) * step).astype(np.float32)
            weight.CopyFrom(numpy_helper.from_array(kept, weight.name))
    file = folder / f"{bits}.onnx"
    onnx.save(model, file)
    return file


@pytest.mark.parametrize("samples", [4, 12])
@pytest.mark.parametrize("bits", [2, 3])
def test_a_damaged_model_is_never_called_good_on_few_labelled_samples(
    bits: int, samples: int, tmp_path: Path
) -> None:
    images = np.concatenate([np.load(file)["image"] for file in sorted(HELD_OUT.glob("*.npz"))])
    labels = np.loadtxt(LABELS, dtype=int)
    rows = np.random.default_rng(bits + samples).choice(len(images), samples, replace=False)
    few = [images[row : row + 1] for row in rows]
    found = qprof.evaluate(MODEL, rounded(bits, tmp_path), few, labels=labels[rows], latency=False)
    assert found.verdict.grade in ("fair", "poor")


def test_a_model_of_another_tool_is_judged_by_what_its_outputs_look_like(tmp_path: Path) -> None:
    found = qprof.evaluate(MODEL, rounded(7, tmp_path), HELD_OUT, latency=False)
    assert (found.plan, found.profile) == ("", "")
    (output,) = found.verdict.outputs
    assert output.kind == "a decision"
    assert "probability error " in output.text
    assert "(limit 4.7 %)" in output.text
    assert output.grade == "good"


@pytest.mark.parametrize(("bits", "tries"), [(7, []), (3, ["--labels FILE: a score may decide"])])
def test_without_labels_a_model_that_is_not_good_is_to_be_scored(
    bits: int, tries: list[str], tmp_path: Path
) -> None:
    found = qprof.evaluate(MODEL, rounded(bits, tmp_path), HELD_OUT, latency=False)
    assert [text for name, text in found.presentation().facts if name == "try"] == tries


def test_samples_of_the_profile_are_said_to_flatter(tmp_path: Path) -> None:
    out = tmp_path / "q.onnx"
    profile = qprof.profile(MODEL, HELD_OUT, tmp_path / "p.yaml")
    qprof.quantize(MODEL, profile, out)
    found = qprof.evaluate(MODEL, out, HELD_OUT, latency=False)
    assert any(one.code is Code.SEEN_SAMPLES for one in found.verdict.findings)


def test_a_model_that_is_no_quantized_form_of_the_other_gets_a_doubt_and_no_error(tmp_path: Path) -> None:
    out = tmp_path / "q.onnx"
    qprof.quantize(MODEL, qprof.profile(MODEL, DIGITS / "calibration"), out, target="onnxruntime-x86")
    swapped = qprof.evaluate(out, MODEL, HELD_OUT, latency=False)
    assert {one.code for one in swapped.doubts} >= {Code.SWAPPED_MODELS}
    assert "look swapped" in swapped.verdict.sentence  # which says it once
    assert Code.SWAPPED_MODELS not in {one.code for one in swapped.presentation().findings}


def test_labels_of_which_the_float_model_has_none_right_are_refused() -> None:
    labels = (np.loadtxt(LABELS, dtype=int) + 1) % 10
    with pytest.raises(qprof.DataError, match="labels: the float model gets nothing right"):
        qprof.evaluate(MODEL, MODEL, HELD_OUT, labels=labels, latency=False)


def test_few_labels_of_which_the_float_model_has_none_right_end_without_a_verdict() -> None:
    """It was "fair: accuracy 0.00 -> 0.00 % of 5 held-out rows", with exit code 0."""
    images = np.load(sorted(HELD_OUT.glob("*.npz"))[0])["image"][:5]
    labels = (np.loadtxt(LABELS, dtype=int)[:5] + 1) % 10
    found = qprof.evaluate(MODEL, MODEL, [{"image": images}], labels=labels, latency=False)
    assert (found.verdict.grade, found.passed) == ("none", False)
    assert found.verdict.sentence.startswith("none: the float model gets nothing right")


def test_kinds_that_samples_decide_are_the_same_without_a_profile(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> net (float[1, 3, 24, 24] x) => (float[1, 3, 24, 24] y)'
        "{ p = Conv <pads = [1, 1, 1, 1]> (x, w) y = Sigmoid (p) }"
    )
    weights = rng.normal(0.0, 0.1, (3, 3, 3, 3)).astype(np.float32)  # so small that no probability is sure
    model.graph.initializer.append(numpy_helper.from_array(weights, "w"))
    file, out = tmp_path / "net.onnx", tmp_path / "q.onnx"
    onnx.save(model, file)
    data = [{"x": one[None]} for one in rng.normal(size=(16, 3, 24, 24)).astype(np.float32)]
    made = qprof.quantize(file, data=data, output=out, mode="weight-only", weight_type="int8", latency=False)
    assert made.verdict is not None
    found = qprof.evaluate(file, out, data, latency=False)
    assert [one.kind for one in (*made.verdict.outputs, *found.verdict.outputs)] == ["a signal", "a signal"]


def test_an_output_that_is_always_zero_has_no_verdict(tmp_path: Path) -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> net (float[1, 8] x) => (float[1, 4] y)'
        "<float zero = {0.0}> { p = MatMul (x, w) y = Mul (p, zero) }"
    )
    rng = np.random.default_rng(0)
    model.graph.initializer.append(numpy_helper.from_array(rng.normal(size=(8, 4)).astype(np.float32), "w"))
    file, out = tmp_path / "net.onnx", tmp_path / "q.onnx"
    onnx.save(model, file)
    data = [{"x": row[None]} for row in rng.normal(size=(16, 8)).astype(np.float32)]
    made = qprof.quantize(file, data=data, output=out, latency=False)
    assert made.verdict is not None
    found = qprof.evaluate(file, out, data, latency=False)
    for verdict in (made.verdict, found.verdict):
        assert verdict.grade == "none"
        assert "output 'y' is 0 everywhere, in every sample" in verdict.sentence
