import errno
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser
from qprof_onnx.profiles.base.errors import ConfigError, DataError, ModelError, WritingError
from qprof_onnx.profiles.base.findings import Code
from qprof_onnx.profiles.records.profile import DataId, ModelId, Profile
from qprof_onnx.profiles.records.store import load_profile
from qprof_onnx.profiles.runner.settings import RunSettings
from qprof_onnx.quantizer.api.profiling import profile_model
from qprof_onnx.quantizer.evaluation.runtimes import open_session
from qprof_onnx.quantizer.plan.store import load_plan
from qprof_onnx.quantizer.plugins.tune.trial import Candidate, TuningRun, screen_model
from qprof_onnx.quantizer.plugins.tune.tune import bases_of, tune
from qprof_onnx.quantizer.plugins.tune.tune_options import QualityTarget, TuneOptions
from qprof_onnx.quantizer.plugins.tune.tuning_data import Split, read_samples
from qprof_onnx.quantizer.prepare.prepare import open_prepared
from qprof_onnx.quantizer.search.ranking import ranked_nodes
from qprof_onnx.quantizer.targets.loading import load_recipe

DIGITS = Path(__file__).parents[4] / "examples" / "digits"
HELDOUT = str(DIGITS / "heldout")
LABELS = DIGITS / "heldout" / "labels.txt"
DEFAULT = Candidate("default")


def tuned(profile: Path, max_drop=0.5, objective=None, *, data=HELDOUT, labels=LABELS, recipe=None, **more):
    how = {"max_drop": max_drop, "objective": objective, "labels": labels, **more}
    return tune(DIGITS / "model.onnx", profile, data, config=recipe or load_recipe("onnxruntime-x86"), **how)


def test_an_easy_target_is_met_on_the_held_out_half(profile, tmp_path) -> None:
    files = {"output": tmp_path / "o.onnx", "save_plan": tmp_path / "plan.yaml"}
    result = tuned(profile, 0.5, "size", **files)
    assert result.target_met
    assert result.separate_holdout
    assert result.holdout is not None
    assert (result.holdout.samples, result.holdout.rows) == (4, 200)
    table = tmp_path / "t.csv"
    table.write_text("digit\n" + LABELS.read_text())
    assert tuned(profile, 0.5, "size", labels=f"{table}:digit").holdout == result.holdout
    assert result.best is not None
    assert result.best.value == pytest.approx(
        result.float_bytes / result.quantized_bytes, rel=1e-12
    )  # a quotient
    assert files["output"].exists()
    assert load_plan(files["save_plan"]).nodes["head"].kind.value == "quantized"


def test_models_for_a_runtime_that_is_not_timed_here_are_tuned_for_integers(profile) -> None:
    result = tuned(profile, 50.0, budget=0.01, recipe=load_recipe("tensorrt"))
    assert result.target.objective == "int8-share"
    assert result.best is not None
    assert 0.0 < result.best.value <= 1.0


def test_latency_in_another_runtime_than_the_targets_is_refused(profile) -> None:
    with pytest.raises(ConfigError, match="is not the runtime of target tensorrt; use int8-share or size"):
        tuned(profile, 0.5, "latency", recipe=load_recipe("tensorrt"))


def test_few_rows_do_not_verify_a_target_of_half_a_percentage_point(profile) -> None:
    result = tuned(profile, 0.5, "size")
    assert not result.verified
    assert any("200 held-out rows are too few to verify" in text for text in map(str, result.limits))


BAD = {"calibrator": "percentile:90", "bias_correction": "off", "equalization": "off", "min_output_sqnr": 0.0}
"""A recipe whose drop is more than half a percentage point."""


def test_a_target_that_cannot_be_met_fails_and_writes_no_model(profile, tmp_path) -> None:
    files = {"output": tmp_path / "o.onnx", "save_plan": tmp_path / "plan.yaml"}
    result = tuned(profile, 0.5, "size", budget=1e-6, recipe=load_recipe(None, BAD), **files)
    assert not result.target_met
    assert not files["output"].exists()
    assert files["save_plan"].exists()
    assert len(result.trials) == 1
    assert any("no plan that was tried meets the target" in text for text in map(str, result.limits))
    assert any("the budget of" in text for text in map(str, result.limits))


def test_a_plan_that_the_runtime_refuses_is_not_chosen(profile) -> None:
    recipe = load_recipe()
    recipe = replace(recipe, target=replace(recipe.target, opsets=(18, 19)))
    result = tuned(profile, 0.5, "size", budget=1e-6, recipe=recipe)
    assert result.best is None
    assert "does not suit target" in result.trials[0].error
    assert "opset 17" in result.trials[0].error


def test_the_plan_says_what_its_runtime_does_not_support_as_it_stands(profile, tmp_path) -> None:
    files = {"save_plan": tmp_path / "plan.yaml"}
    tuned(profile, 0.5, "size", budget=1e-6, recipe=load_recipe("qnn"), **files)
    assert any("qnn wants fixed shapes" in note for note in map(str, load_plan(files["save_plan"]).findings))


def test_a_bad_calibrator_is_left_for_a_better_one(profile) -> None:
    result = tuned(profile, 0.5, "int8-share", recipe=load_recipe(None, BAD))
    assert result.trials[0].drop > 0.5
    assert result.best is not None
    assert result.best.candidate.name.startswith("calibrator")
    assert result.target_met


def test_a_full_disk_is_no_result_of_a_trial(profile, monkeypatch) -> None:
    """It ended as a missed target."""

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(WritingError, match=r"trial.onnx: the temporary folder .* no room for its .* TMPDIR"):
        tuned(profile, 0.5, "size", budget=1e-6)


def test_samples_that_both_sets_have_are_counted(profile) -> None:
    images = [np.load(path)["image"] for path in sorted((DIGITS / "heldout").glob("*.npz"))][:2]
    given, others = [{"image": images[0][:40]}], [{"image": images[0][39::-1]}, {"image": images[1][:1]}]
    result = tuned(profile, 50.0, "size", budget=1e-6, data=given, labels=None, holdout_data=others)
    assert result.target_met
    assert not result.separate_holdout
    assert not result.verified
    assert any(text.startswith("40 of 41 rows are in both sets") for text in map(str, result.limits))
    assert "on samples used before" in result.headline()


def test_labels_belong_to_the_held_out_samples_as_in_quantize(profile) -> None:
    """It asked for as many labels as --data has rows."""
    given = {"data": str(DIGITS / "calibration"), "holdout_data": HELDOUT}
    result = tuned(None, 0.5, "size", budget=1e-6, **given)
    assert result.separate_holdout
    assert result.holdout is not None
    assert (result.holdout.samples, result.holdout.rows) == (4, 200)
    assert result.holdout.float_score > 95.0
    assert isinstance(result.profile, Profile)
    assert result.profile.data.samples == 64  # all of --data
    with pytest.raises(ConfigError, match=r"^profile: with holdout_data= and labels=, data= is"):
        tuned(profile, 0.5, "size", **given)


@pytest.mark.parametrize("halved", [True, False])
def test_held_out_samples_that_the_profile_was_made_from_are_told(profile, halved) -> None:
    calibration = str(DIGITS / "calibration")
    given = {"data": calibration} if halved else {"holdout_data": calibration}
    result = tuned(profile, 50.0, "size", budget=1e-6, labels=None, **given)
    assert not result.separate_holdout
    (found, *_) = (one for one in result.limits if one.code is Code.SEEN_SAMPLES)
    assert found.text.startswith("the profile was made from the held-out samples")


def test_labels_that_do_not_fit_are_refused_before_a_profile_is_made(tmp_path) -> None:
    (tmp_path / "labels.txt").write_text(LABELS.read_text() + "3\n" * 9)
    with pytest.raises(DataError, match="409 labels, but the samples have 400 rows; give one label"):
        tuned(None, labels=tmp_path / "labels.txt", output=tmp_path / "o.onnx")
    assert not (tmp_path / "o.qprof").exists()


def test_a_plan_larger_than_float_misses_the_objective_size(profile, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("qprof_onnx.quantizer.plugins.tune.trial.size_ratio", lambda *_: 0.78)
    files = {"output": tmp_path / "o.onnx"}
    result = tuned(profile, 0.5, "size", budget=1e-6, **files)
    assert not result.target_met
    assert not files["output"].exists()
    assert any("larger than float; keep the float" in text for text in map(str, result.limits))
    assert tuned(profile, 0.5, "latency", budget=1e-6).target_met


def tuning_run(profile: Path, settings=None) -> TuningRun:
    path = DIGITS / "model.onnx"
    prepared, session = open_prepared(path), open_session(str(path), "model")
    samples = read_samples(session, prepared.model, HELDOUT, TuneOptions(labels=LABELS))
    recipe, split = load_recipe(None, settings or {}), Split(samples, samples, "")
    return TuningRun(path, prepared, load_profile(profile), recipe, QualityTarget(), session, split)


@pytest.mark.slow
def test_what_is_kept_from_plan_to_plan_changes_no_plan(profile) -> None:
    run = tuning_run(profile)
    for settings in ({}, {"calibrator": "percentile"}, {"mode": "weight-only"}, {"min_output_sqnr": 10.0}):
        run.planned(Candidate(str(settings), settings))
    for settings in ({}, {"calibrator": "minmax"}, {"mode": "dynamic"}):
        candidate = Candidate(f"head float, {settings}", settings, ("head",))
        assert run.planned(candidate).plan == tuning_run(profile).planned(candidate).plan, settings


@pytest.mark.slow
def test_the_same_tuning_has_the_same_trials(profile) -> None:
    one, two = (tuned(profile, 0.0, "int8-share", recipe=load_recipe(None, BAD)) for _ in range(2))
    assert len(one.trials) > 1
    assert one.trials == two.trials
    assert (one.chosen, one.holdout) == (two.chosen, two.holdout)


def test_a_plan_that_does_not_run_is_made_again_with_nodes_in_float(profile, monkeypatch) -> None:
    made: list[int] = []

    def refused_once(path, *rest, **named):
        made.append(1)
        if len(made) == 1:
            raise ModelError("onnxruntime: no")
        return screen_model(path, *rest, **named)

    monkeypatch.setattr("qprof_onnx.quantizer.plugins.tune.trial.screen_model", refused_once)
    result = tuned(profile, 0.5, "size", budget=1e-6)
    assert len(made) == 2
    assert [trial.error for trial in result.trials] == [""]
    assert result.target_met


def test_a_model_without_a_node_that_can_be_quantized_is_kept_float(tmp_path) -> None:
    text = """<ir_version: 8, opset_import: ["": 17]>
    agraph (float[2, 4] x) => (float[2, 4] y) { y = Erf (x) }"""
    onnx.save(parser.parse_model(text), tmp_path / "m.onnx")
    rng = np.random.default_rng(0)
    data = [{"x": rng.normal(size=(2, 4)).astype(np.float32)} for _ in range(8)]
    profile_model(tmp_path / "m.onnx", data[:4], tmp_path / "p.yaml", RunSettings(threads=1))
    recipe = load_recipe(None, {"keep_float": ("Erf",)})
    files = {"output": tmp_path / "o.onnx", "save_plan": tmp_path / "plan.yaml"}
    result = tune(
        tmp_path / "m.onnx",
        tmp_path / "p.yaml",
        data[4:],
        config=recipe,
        **files,
    )
    assert result.best is None
    assert not result.target_met
    assert any("keep the float model" in str(one) for one in result.findings)
    assert not files["output"].exists()


def test_nodes_are_ranked_by_noise_that_was_measured(profile) -> None:
    run = tuning_run(profile)
    planned = run.planned(DEFAULT)
    ranked = ranked_nodes(planned, run.split.tuning)
    floats = {name for name, entry in planned.plan.nodes.items() if entry.kind.value == "float"}
    names = [name for one in ranked for name in one.nodes]
    assert set(names) == set(planned.plan.nodes) - floats
    assert len(names) == len(set(names))
    assert sum(one.noise for one in ranked) > 0.0
    worth = [one.noise / one.microseconds for one in ranked]
    assert worth == sorted(worth, reverse=True)


def test_bases_begin_with_the_settings_that_were_asked_for() -> None:
    nothing = Profile(ModelId("", "", 0), DataId(), {})
    bases = bases_of(load_recipe(None, {"calibrator": "mse", "mode": "dynamic"}), nothing)
    assert bases[0] == Candidate("default")
    settings = [dict(base.settings) for base in bases[1:]]
    assert {"calibrator": "mse"} not in settings
    assert {"mode": "dynamic"} not in settings
    assert {"mode": "weight-only"} in settings
    assert {"min_output_sqnr": 0.0} in settings


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"objective": "latecny"}, "objective: is 'latecny'; give 'latency', 'size' or"),
        ({"max_drop": -1.0}, "max_drop: -1 is not a number of percentage points"),
        ({"max_drop": float("nan")}, "max_drop: nan"),
        ({"budget": 0.0}, "budget: 0 is not"),
        ({"threads": 0}, "threads: 0 is below 1"),
    ],
)
def test_a_quality_target_outside_its_range_is_refused(values, message) -> None:
    with pytest.raises(ConfigError, match=message):
        QualityTarget(**values)


ENCODER = """<ir_version: 8, opset_import: ["": 17]>
agraph (float[N, T, 16] x) => (float[N, T, 16] y) {
  up = MatMul (x, w1)
  act = Relu (up)
  down = MatMul (act, w2)
  sum = Add (x, down)
  y = LayerNormalization (sum, g, b)
}"""
DETECTOR = """<ir_version: 8, opset_import: ["": 17]>
agraph (float[1, 8, 6, 6] x) => (float[1, 22, 36] y)
<float large = {600.0}, int64[3] boxes_shape = {1, 4, 36}, int64[3] scores_shape = {1, 18, 36}> {
  c = Conv <pads = [1, 1, 1, 1]> (x, w0)
  a = Relu (c)
  p = Conv (a, w1)
  q = Conv (a, w2)
  near = Sigmoid (p)
  boxes = Mul (near, large)
  scores = Sigmoid (q)
  flat = Reshape (boxes, boxes_shape)
  flat_scores = Reshape (scores, scores_shape)
  y = Concat <axis = 1> (flat, flat_scores)
}"""


@pytest.mark.parametrize(
    ("text", "shape", "weights"),
    [
        (ENCODER, (2, 5, 16), {"w1": (16, 64), "w2": (64, 16), "g": (16,), "b": (16,)}),
        (DETECTOR, (1, 8, 6, 6), {"w0": (32, 8, 3, 3), "w1": (4, 32, 1, 1), "w2": (18, 32, 1, 1)}),
    ],
)
def test_embeddings_and_boxes_are_tuned_for_the_error_and_not_for_arg_max(
    tmp_path, text, shape, weights
) -> None:
    rng = np.random.default_rng(0)
    model = parser.parse_model(text)
    for name, dims in weights.items():
        values = rng.normal(0.0, 0.2, dims).astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(values, name))
    onnx.save(model, tmp_path / "m.onnx")
    data = [{"x": rng.normal(size=shape).astype(np.float32)} for _ in range(16)]
    profile_model(tmp_path / "m.onnx", data[:8], tmp_path / "p.yaml", RunSettings(threads=1))
    result = tune(tmp_path / "m.onnx", tmp_path / "p.yaml", data[8:], max_drop=0.5, objective="int8-share")
    assert result.metric.startswith("correlation with the float model's outputs")
    assert result.target_met
    assert result.best is not None
    assert result.best.candidate == DEFAULT
    assert result.holdout is not None
    assert result.holdout.drop < 0.5
