"""`quantize(model, data=...)`: a verdict from samples alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import qprof_onnx as qprof
from qprof_onnx.profiles.base.errors import ModelError
from qprof_onnx.profiles.base.findings import Code, Finding
from qprof_onnx.quantizer.api import from_samples
from qprof_onnx.quantizer.prepare.prepare import ModelFile
from qprof_onnx.quantizer.search.attribution import AttributedNode, Attribution, OutputNoise
from qprof_onnx.quantizer.search.verdict import NOTHING_TO_QUANTIZE
from qprof_onnx.quantizer.targets import cost_table, target
from qprof_onnx.quantizer.targets.loading import with_settings

DIGITS = Path(__file__).parents[3] / "examples" / "digits"
MODEL = DIGITS / "model.onnx"


def test_arrays_and_labels_lead_to_a_model_with_a_verdict(tmp_path: Path) -> None:
    images = [np.load(file)["image"] for file in sorted(DIGITS.glob("heldout/*.npz"))]
    labels = np.loadtxt(DIGITS / "heldout" / "labels.txt", dtype=int)
    result = qprof.quantize(MODEL, data=images, labels=labels, latency=False)
    assert result.verdict is not None
    assert result.verdict.grade == "good"
    assert result.verdict.score is not None
    assert (result.verdict.score.rows, result.verdict.held_out.rows) == (200, 200)
    assert result.model_path is None
    assert result.judged is not None
    assert result.judged.profile == ""
    assert repr(result).startswith("<QuantizeResult: good: accuracy 100.00 -> 100.00 % of ")
    assert result.to_markdown().startswith("## good: accuracy 100.00 -> 100.00 % of ")
    result.save(tmp_path / "q.onnx")


def test_a_file_is_written_with_its_profile_and_plan_beside_it(tmp_path: Path) -> None:
    out = tmp_path / "q.onnx"
    for _ in range(2):
        result = qprof.quantize(MODEL, None, out, data=DIGITS / "calibration", latency=False)
        assert result.judged is not None
        assert result.judged.profile == str(tmp_path / "q.qprof" / "profile.yaml")
    assert qprof.load_plan(tmp_path / "q.qprof" / "plan.yaml") == result.plan


@pytest.mark.slow
def test_another_output_takes_the_profile_of_the_same_model_and_data_in_its_folder(tmp_path: Path) -> None:
    qprof.quantize(MODEL, None, tmp_path / "a.onnx", data=DIGITS / "calibration", latency=False)
    for data, profile, reused in (("calibration", "a", True), ("heldout", "b", False)):
        result = qprof.quantize(MODEL, None, tmp_path / "b.onnx", data=DIGITS / data, latency=False)
        assert result.judged is not None
        assert result.judged.profile == str(tmp_path / f"{profile}.qprof" / "profile.yaml")
        assert (tmp_path / "b.qprof" / "profile.yaml").exists() != reused


def test_a_profile_of_another_output_that_is_damaged_is_passed_over(tmp_path: Path) -> None:
    made = qprof.quantize(MODEL, None, tmp_path / "a.onnx", data=DIGITS / "calibration", latency=False)
    assert made.judged is not None
    text = (tmp_path / "a.qprof" / "profile.yaml").read_text()
    (tmp_path / "a.qprof" / "profile.yaml").write_text(text.replace("count: ", "count: -", 1))
    result = qprof.quantize(MODEL, None, tmp_path / "b.onnx", data=DIGITS / "calibration", latency=False)
    assert result.judged is not None
    assert result.judged.profile == str(tmp_path / "b.qprof" / "profile.yaml")


@pytest.mark.parametrize(
    ("result", "node"),
    [
        ("float[n, k]", "Relu (x)"),
        ("float[n, k]", "ai.onnx.ml.LinearRegressor <coefficients = [1.0, 2.0], targets = 1> (x)"),
        ("float[n, k]", "RandomNormalLike (x)"),
        ("int64[n, 1]", "ArgMax <axis = 1> (x)"),
    ],
)
def test_a_model_without_products_has_nothing_to_quantize_with_data_as_with_a_profile(
    result: str, node: str
) -> None:
    text = f"""<ir_version: 8, opset_import: ["": 17, "ai.onnx.ml": 1]>
        net (float[n, 2] x) => ({result} y) {{ y = {node} }}"""
    model, rng = onnx.parser.parse_model(text), np.random.default_rng(0)
    samples = [{"x": rng.normal(size=(1, 2)).astype(np.float32)} for _ in range(40)]
    judged = qprof.quantize(model, data=samples, latency=False)
    assert judged.verdict is not None
    assert judged.verdict.sentence.startswith("none: there is nothing to quantize")
    found = qprof.quantize(model, qprof.profile(model, samples)).findings
    assert NOTHING_TO_QUANTIZE in found


@pytest.mark.slow
def test_a_large_model_is_not_timed_where_nobody_asks_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(from_samples, "MAX_COPIED_BYTES", 0)
    for gate in (qprof.Gate(), qprof.Gate(min_speedup=1e-3)):
        result = qprof.quantize(MODEL, data=DIGITS / "calibration", gate=gate)
        assert result.judged is not None
        is_timed = gate.has_limit
        assert (result.judged.evaluation.latency is not None) == is_timed


def test_a_model_with_floats_arithmetic_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target, "costs_of", cost_table.costs_of)
    monkeypatch.setattr(from_samples, "weights_fix", lambda recipe: None)
    result = qprof.quantize(MODEL, data=DIGITS / "calibration", keep_float=("*",), budget=0.0)
    assert result.verdict is not None
    assert (result.verdict.latency, result.verdict.has_floats_speed) == (None, True)


@pytest.mark.slow
@pytest.mark.parametrize("fix", ["off", "auto"])
def test_a_fix_that_is_only_printed_is_not_run_on_check_samples(
    fix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs, write = list[bool](), from_samples.write_quantized

    def written(*files: Any, check_outputs: bool, **how: Any) -> Any:
        runs.append(check_outputs)
        return write(*files, check_outputs=check_outputs, **how)

    monkeypatch.setattr(from_samples, "write_quantized", written)
    noisy = {
        "calibrator": "percentile:95.5",
        "equalization": "off",
        "bias_correction": "off",
        "cost_model": "off",
    }
    qprof.quantize(MODEL, data=DIGITS / "calibration", latency=False, fix=fix, **noisy)
    *plans, weights = runs
    assert all(plans)
    assert weights is (fix == "auto")


def test_labels_of_which_the_float_model_has_none_right_are_refused_before_a_profile_is_made(
    tmp_path: Path,
) -> None:
    labels = (np.loadtxt(DIGITS / "heldout" / "labels.txt", dtype=int) + 1) % 10
    with pytest.raises(qprof.DataError, match="the float model gets nothing right"):
        qprof.quantize(MODEL, None, tmp_path / "q.onnx", data=DIGITS / "heldout", labels=labels)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("limit", [None, 100])
def test_a_metric_whose_truth_is_in_the_order_of_the_samples_judges_those_that_are_held_out(limit) -> None:
    images = np.concatenate([np.load(file)["image"] for file in sorted(DIGITS.glob("heldout/*.npz"))])
    truth = np.loadtxt(DIGITS / "heldout" / "labels.txt", dtype=int)

    def right(outputs, indices):
        return [100.0 * (one["logits"].argmax() == truth[n]) for one, n in zip(outputs, indices, strict=True)]

    samples = [image[None] for image in images]
    result = qprof.quantize(MODEL, data=samples, metric=right, latency=False, limit=limit)
    assert result.verdict is not None
    assert result.verdict.score is not None
    assert result.verdict.score.rows == (limit or len(images)) // 4
    assert result.verdict.score.float_score > 95.0


def test_what_judges_goes_with_samples() -> None:
    with pytest.raises(qprof.ConfigError, match="labels: is for data, on which the result is judged; give"):
        qprof.quantize(MODEL, mode="weight-only", labels=[1])


def test_a_profile_decides_the_ranges_and_all_samples_judge(profile: qprof.Profile) -> None:
    labels = DIGITS / "heldout" / "labels.txt"
    result = qprof.quantize(MODEL, profile, data=DIGITS / "heldout", labels=labels, latency=False)
    alone = qprof.quantize(MODEL, profile)
    assert result.verdict is not None
    assert result.verdict.score is not None
    assert (result.verdict.score.rows, result.verdict.held_out.seen) == (400, False)
    assert result.plan.tensors == alone.plan.tensors
    evaluation = qprof.evaluate(MODEL, result, DIGITS / "heldout", labels=labels, latency=False)
    assert result.verdict.score == evaluation.score


def test_samples_of_the_profile_are_not_called_held_out(profile: qprof.Profile) -> None:
    result = qprof.quantize(MODEL, profile, data=DIGITS / "calibration", latency=False)
    assert result.verdict is not None
    assert result.verdict.held_out.seen
    assert any("figures are too good" in remark for remark in map(str, result.verdict.findings))


def test_of_a_profile_of_a_part_of_the_samples_the_others_judge(tmp_path: Path) -> None:
    first = qprof.quantize(MODEL, None, tmp_path / "q.onnx", data=DIGITS / "calibration", latency=False)
    kept = tmp_path / "q.qprof" / "profile.yaml"
    again = qprof.quantize(MODEL, kept, data=DIGITS / "calibration", latency=False)
    assert first.verdict is not None
    assert again.verdict is not None
    assert again.verdict.held_out == first.verdict.held_out
    assert again.verdict.sqnr == first.verdict.sqnr


@pytest.mark.slow
def test_samples_that_round_do_not_judge(profile: qprof.Profile) -> None:
    result = qprof.quantize(MODEL, profile, data=DIGITS / "heldout", rounding="gptq", latency=False)
    assert result.verdict is not None
    assert result.verdict.held_out.rows == 200
    assert result.plan.adjustments.roundings


def test_where_pixels_are_not_scaled_no_other_settings_are_tried() -> None:
    images = [255 * np.load(file)["image"] for file in sorted(DIGITS.glob("calibration/*.npz"))]
    rough = {"calibrator": "percentile:90", "min_output_sqnr": 0.0, "equalization": "off"}
    result = qprof.quantize(MODEL, images, latency=False, budget=0.0, check_outputs="off", **rough)
    assert result.verdict is not None
    assert result.verdict.grade == "poor"
    (cause,) = result.verdict.cause
    assert "did you forget to normalise?" in cause.text
    assert result.verdict.fixes == ()


@pytest.mark.parametrize(("figure", "kept"), [(1.0, [["head"], ["head", "block.conv2"]]), (9.0, [])])
def test_near_the_limit_the_noisiest_layers_are_tried_in_float(
    figure: float, kept: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    noise = {"logits": OutputNoise(figure, 0.1)}
    found = [
        Attribution(noise, (AttributedNode((name,), noise, is_run=True),), "1 sample")
        for name in ("head", "block.conv2")
    ]
    left, tried = iter(found), list[list[str]]()

    def keep(recipe: Any, settings: Any, *rest: Any, **options: Any) -> Any:
        tried.append(list(settings["keep_float"]))
        return with_settings(recipe, settings, *rest, **options)

    monkeypatch.setattr(from_samples, "proposed_fixes", lambda verdict, recipe: iter(()))
    monkeypatch.setattr(from_samples, "_attributed", lambda *_: next(left))
    monkeypatch.setattr(from_samples, "with_settings", keep)
    rough = {"calibrator": "percentile:90", "min_output_sqnr": 0.0, "equalization": "off"}
    how = {"latency": False, "budget": 60.0, "check_outputs": "off", **rough}
    qprof.quantize(MODEL, data=DIGITS / "calibration", **how)
    assert tried == kept


def test_noise_is_not_attributed_again_if_a_layer_in_float_makes_no_other_plan(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    noise, asked = {"logits": OutputNoise(1.0, 0.1)}, list[object]()

    def attributed(task: object, result: object, judged: object, seconds: float) -> Attribution:
        asked.append(result)
        return Attribution(noise, (AttributedNode(("no such layer",), noise, is_run=True),), "1 sample")

    monkeypatch.setattr(from_samples, "proposed_fixes", lambda verdict, recipe: iter(()))
    monkeypatch.setattr(from_samples, "_attributed", attributed)
    rough = {"calibrator": "percentile:90", "min_output_sqnr": 0.0, "equalization": "off"}
    how = {"latency": False, "budget": 60.0, "check_outputs": "off", **rough}
    qprof.quantize(MODEL, data=DIGITS / "calibration", **how)
    assert len(asked) == 1


def test_a_good_verdict_on_pixels_that_are_not_scaled_says_so_first() -> None:
    images = [255 * np.load(file)["image"] for file in sorted(DIGITS.glob("calibration/*.npz"))]
    # Logits that are 255 times as large move much probability for little noise: noise is asked for here.
    told: list[Finding] = []
    how = {"target": "onnxruntime-x86", "min_output_sqnr": 20.0, "note": told.append}
    result = qprof.quantize(MODEL, images, latency=False, budget=0.0, **how)
    assert result.verdict is not None
    assert result.verdict.grade == "good"
    assert "did you forget to normalise?" in result.verdict.findings[0].text
    assert Code.PIXELS not in {one.code for one in told}  # once is enough


def test_pixels_are_no_cause_where_the_float_model_does_well_on_them() -> None:
    images = [255 * np.load(file)["image"] for file in sorted(DIGITS.glob("heldout/*.npz"))]
    rough = {"calibrator": "percentile:90", "min_output_sqnr": 0.0, "equalization": "off", "budget": 0.0}
    labels = DIGITS / "heldout" / "labels.txt"
    result = qprof.quantize(MODEL, images, labels=labels, latency=False, check_outputs="off", **rough)
    assert result.verdict is not None
    assert any("did you forget to normalise?" in one.text for one in result.verdict.findings)
    assert not any("normalise" in one.text for one in result.verdict.cause)
    assert any("no other settings were tried" in one.text for one in result.verdict.findings)


@pytest.mark.parametrize("before", [None, b"\x08\x0a, an older model"])
def test_a_model_that_cannot_be_judged_does_not_appear(
    before: bytes | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ModelError("cannot be compared")

    out = tmp_path / "q.onnx"
    if before is not None:
        out.write_bytes(before)
    monkeypatch.setattr(from_samples, "evaluate", fail)
    with pytest.raises(ModelError, match="cannot be compared"):
        qprof.quantize(MODEL, None, out, data=DIGITS / "calibration", latency=False)
    assert (out.read_bytes() if out.exists() else None) == before
    left = sorted(str(file.relative_to(tmp_path)) for file in tmp_path.rglob("*.*") if file != out)
    assert left == [
        "q.qprof",
        "q.qprof/profile.samples.npz",
        "q.qprof/profile.yaml",
    ]  # the same call goes on from them


def test_an_error_on_a_model_that_is_judged_names_its_output(tmp_path: Path) -> None:
    (tmp_path / "t.onnx").write_bytes(b"no model")
    with pytest.raises(ModelError) as error:
        _ = ModelFile(tmp_path / "t.onnx", Path("out.onnx")).model
    assert str(error.value).startswith("out.onnx (not written): ")


def test_of_samples_that_are_not_to_be_kept_a_report_shows_none() -> None:
    for keep in (0, 16):
        result = qprof.quantize(MODEL, data=DIGITS / "calibration", keep_samples=keep, latency=False, limit=8)
        assert result.judged is not None
        assert result.judged.evaluation.worst_samples
        assert bool(result.judged.evaluation.excerpts) == bool(keep)


def test_samples_of_which_only_nan_comes_out_are_refused_and_leave_no_model(tmp_path: Path) -> None:
    data = [{"image": np.full((8, 1, 8, 8), np.nan, np.float32)}] * 4
    with pytest.raises(qprof.DataError, match=r"no output of the model is a finite number: NaN .* 'image'"):
        qprof.quantize(DIGITS / "model.onnx", data, tmp_path / "q.onnx")
    assert not [*tmp_path.glob("**/*.onnx"), *tmp_path.glob("**/profile.*")]


def test_a_judged_sample_with_nan_is_told(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    data = [{"image": rng.uniform(0, 1, (8, 1, 8, 8)).astype(np.float32)} for _ in range(5)]
    broken = {"image": data[0]["image"].copy()}
    broken["image"][0, 0, 0, 0] = np.nan
    result = qprof.quantize(
        DIGITS / "model.onnx", data[:4], tmp_path / "q.onnx", holdout_data=[data[4], broken]
    )
    assert result.judged is not None
    codes = [finding.code for finding in result.judged.evaluation.findings]
    assert Code.NON_FINITE in codes
