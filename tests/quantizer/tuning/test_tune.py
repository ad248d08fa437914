import errno
import json
import os
import re
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import numpy_helper, parser
from qprof_onnx.profiles.base.errors import ConfigError, DataError, ModelError, WritingError
from qprof_onnx.profiles.runner.settings import RunSettings
from qprof_onnx.quantizer.evaluation.accuracy import paired_interval
from qprof_onnx.quantizer.evaluation.outputs import NO_CLASSES, ClassAxis
from qprof_onnx.quantizer.model.files import load_model
from qprof_onnx.quantizer.pipeline.profiling import dump_profile
from qprof_onnx.quantizer.plan.store import load_plan
from qprof_onnx.quantizer.runtime.sessions import open_session
from qprof_onnx.quantizer.targets.loading import load_recipe
from qprof_onnx.quantizer.tuning.quality_target import QualityTarget
from qprof_onnx.quantizer.tuning.scores import (
    Score,
    accuracy_metric,
    agreement_metric,
    are_answers,
    correlation_metric,
    drop_interval,
    score_outputs,
    student95,
    user_metric,
)
from qprof_onnx.quantizer.tuning.search import (
    Base,
    Candidate,
    RankNodes,
    Trial,
    best_of,
    meets,
    search,
    steps,
)
from qprof_onnx.quantizer.tuning.state import State, load_state, save_state
from qprof_onnx.quantizer.tuning.trial import score_model
from qprof_onnx.quantizer.tuning.tune import TuneFiles, bases_of, tune
from qprof_onnx.quantizer.tuning.tuning_data import TuningData, halves, read_samples

DIGITS = Path(__file__).parents[3] / "examples" / "digits"
HELDOUT = str(DIGITS / "heldout")
LABELS = DIGITS / "heldout" / "labels.txt"
DEFAULT = Base("default")
CLASSES = ClassAxis(-1, True)
NODES = tuple("abcdefghijklmnopqrst")


def score(drop: float) -> Score:
    return Score(10, 10, 99.0, 99.0 - drop, drop, drop - 1.0, drop + 1.0)


def trial(candidate: Candidate, drop: float, value: float | None = None, nodes: int = 20) -> Trial:
    return Trial(candidate, score(drop), value, nodes)


def candidates(sensitive: set[str], ranking: tuple[str, ...] = NODES, bases=(DEFAULT,)) -> list[Candidate]:
    """Run the search on a model that meets the target when all sensitive nodes are float."""
    requests = search(bases, 0.5)
    request, tried = next(requests), []
    while True:
        if isinstance(request, RankNodes):
            result = ranking
        else:
            tried.append(request)
            floats = set(request.keep_float)
            result = trial(request, 2.0 * len(sensitive - floats), nodes=20 - len(floats))
        try:
            request = requests.send(result)
        except StopIteration:
            return tried


def last_that_meets(tried: list[Candidate], sensitive: set[str]) -> set[str]:
    return next(set(c.keep_float) for c in reversed(tried) if sensitive <= set(c.keep_float))


@given(st.sets(st.sampled_from(NODES[:-1]), min_size=1, max_size=5))
def test_the_search_ends_with_the_sensitive_nodes_alone_float(sensitive) -> None:
    assert last_that_meets(candidates(sensitive), sensitive) == sensitive


def test_the_search_never_leaves_all_nodes_float() -> None:
    tried = candidates(set(NODES))
    assert max(len(candidate.keep_float) for candidate in tried) == len(NODES) - 1


def test_only_the_default_is_tried_when_it_meets_the_target() -> None:
    assert candidates(set()) == [Candidate(Base("default"))]


def test_the_worst_nodes_are_left_float_in_doubling_groups_and_then_bisected() -> None:
    counts = [len(c.keep_float) for c in candidates(set("abcde"))]
    assert counts[:6] == [0, 1, 2, 4, 8, 6]
    assert counts[6] == 5


def test_no_nodes_are_left_float_when_another_base_meets_the_target_with_as_many_nodes() -> None:
    requests = search((Base("default"), Base("other")), 0.5)
    assert next(requests) == Candidate(Base("default"))
    assert requests.send(trial(Candidate(Base("default")), 3.0)) == Candidate(Base("other"))
    with pytest.raises(StopIteration):
        requests.send(trial(Candidate(Base("other")), 0.0))


def test_nodes_are_left_float_when_another_base_meets_the_target_with_fewer_nodes() -> None:
    requests = search((Base("default"), Base("other")), 0.5)
    next(requests)
    requests.send(trial(Candidate(Base("default")), 3.0))
    assert requests.send(trial(Candidate(Base("other")), 0.0, nodes=5)) == RankNodes(Base("default"))


def test_steps_double_and_never_take_all() -> None:
    assert list(steps(1)) == []
    assert list(steps(6)) == [(0, 1), (1, 2), (2, 4), (4, 5)]


def test_a_plan_without_quantized_nodes_does_not_meet_the_target() -> None:
    assert not meets(trial(Candidate(Base("default")), 0.0, nodes=0), 0.5)


def test_the_best_of_those_that_meet_the_target_is_chosen() -> None:
    a, b, c = (Candidate(Base(name)) for name in "abc")
    trials = [trial(a, 0.4, 1.5), trial(b, 0.1, 1.2), trial(c, 3.0)]
    assert best_of(trials, 0.5) == trials[0]
    assert best_of(trials, 0.5, tie=0.25) == trials[1]
    assert best_of(trials, 0.05) == trials[1]
    assert best_of([], 0.5) is None


@given(st.integers(0, 40), st.integers(0, 40), st.integers(0, 200))
def test_the_interval_of_whole_rows_is_that_of_two_proportions(only_float, only_quantized, same) -> None:
    differences = np.array([1.0] * only_float + [-1.0] * only_quantized + [0.0] * same)
    low, high = paired_interval(only_float, only_quantized, differences.size)
    # 1e-9: two ways to add the same float64 numbers
    assert drop_interval(differences) == pytest.approx((100 * low, 100 * high), abs=1e-9)


@pytest.mark.parametrize(
    ("freedom", "quantile"), [(1, 12.706), (2, 4.303), (3, 3.182), (7, 2.365), (30, 2.042)]
)
def test_students_quantile_is_that_of_the_tables(freedom, quantile) -> None:
    # 2 %: the expansion is cut off; it is worst at 3 degrees
    assert student95(freedom) == pytest.approx(quantile, rel=0.02)


def test_scores_that_differ_little_have_a_narrow_interval_even_when_they_are_few() -> None:
    low, high = drop_interval(np.array([0.010, 0.012, 0.011, 0.013]))
    assert 0.9 < low < 1.15 < high < 1.4
    assert drop_interval(np.array([0.01])) == (-100.0, 100.0)


def rows(*best: int) -> dict[str, np.ndarray]:
    return {"y": np.eye(4, dtype=np.float32)[list(best)]}


def test_accuracy_is_scored_with_the_labels_of_the_samples_chosen() -> None:
    metric = accuracy_metric("y", np.array([0, 1, 2, 3]), [0, 2], CLASSES)
    result = score_outputs(metric, [1], [rows(2, 3)], [rows(2, 0)])
    assert (result.float_percent, result.quantized_percent, result.drop, result.rows) == (
        100.0,
        50.0,
        50.0,
        2,
    )


def test_agreement_counts_the_answers_that_changed_in_each_row() -> None:
    floats = {"y": np.eye(3, dtype=np.float32)[[[0, 1], [2, 2]]]}
    quantized = {"y": np.eye(3, dtype=np.float32)[[[0, 2], [2, 2]]]}
    result = score_outputs(agreement_metric({"y": CLASSES}), [0], [floats], [quantized])
    assert (result.rows, result.drop) == (2, 25.0)


def test_an_output_of_another_shape_agrees_in_nothing() -> None:
    assert score_outputs(agreement_metric({"y": CLASSES}), [0], [rows(0, 1)], [rows(0)]).drop == 100.0


def test_noise_is_the_share_of_the_worst_group_of_channels() -> None:
    boxes_and_scores = np.array([[[600.0, 500.0, 1.0, 1.0]]], np.float32)
    off = boxes_and_scores - np.array([0.0, 0.0, 0.1, 0.1], np.float32)
    metric = correlation_metric({"y": NO_CLASSES})
    result = score_outputs(metric, [0], [{"y": boxes_and_scores}], [{"y": off}])
    # half the noise of the scores alone: 0.01 of 1; over all elements it would be 3e-8
    assert result.drop == pytest.approx(0.5, rel=1e-4)  # 0.1 is no float32
    assert score_outputs(metric, [0], [{"y": off[0]}], [{"y": off[0]}]).drop == 0.0


def test_a_sample_without_signal_in_a_group_does_not_ruin_the_score() -> None:
    metric = correlation_metric({"y": NO_CLASSES})
    floats = [{"y": np.array([[[600.0, score]]], np.float32)} for score in (0.001, 1.0)]
    off = [{"y": values["y"] + np.array([0.0, 0.01], np.float32)} for values in floats]
    assert score_outputs(metric, [0, 1], floats, off).drop < 0.02


def test_an_output_that_is_not_finite_has_no_correlation() -> None:
    metric, broken = correlation_metric({"y": NO_CLASSES}), {"y": np.full((1, 4), np.nan, np.float32)}
    assert score_outputs(metric, [0, 1], [rows(0), rows(1)], [rows(0), broken]).drop == 100.0


def test_outputs_without_classes_have_no_answers() -> None:
    axes = {"y": CLASSES, "length": NO_CLASSES}
    assert are_answers(rows(0), axes)
    assert are_answers({"length": np.zeros(3, np.int64)}, axes)
    assert not are_answers({"y": np.zeros((2, 1), np.float32), "length": np.zeros(3, np.int64)}, axes)
    assert not are_answers({**rows(0), "boxes": rows(0)["y"]}, {**axes, "boxes": NO_CLASSES})


def test_a_metric_of_ones_own_gets_outputs_and_indices() -> None:
    calls = []

    def metric(outputs, indices):
        calls.append((len(outputs), list(indices)))
        return [80.0 if outputs[0]["y"][0, 0] else 60.0 for _ in indices]

    result = score_outputs(user_metric(metric, "m:f"), [4, 7], [rows(0), rows(0)], [rows(1), rows(1)])
    assert (result.float_percent, result.drop) == (80.0, pytest.approx(20.0))  # a mean of float64
    assert calls == [(2, [4, 7]), (2, [4, 7])]


@pytest.mark.parametrize("scores", [[1.0], [101.0, 0.0], [float("nan"), 0.0]])
def test_a_metric_that_returns_something_else_is_refused(scores) -> None:
    metric = user_metric(lambda outputs, indices: scores, "m:f")
    with pytest.raises(DataError, match=r"--metric m:f: returned .* return one score for each sample"):
        metric([0, 1], [rows(0), rows(0)], [rows(0), rows(0)])


def test_a_metric_that_returns_no_numbers_is_refused() -> None:
    metric = user_metric(lambda outputs, indices: ["good"], "m:f")
    with pytest.raises(DataError, match="--metric m:f: returned no numbers"):
        metric([0], [rows(0)], [rows(0)])


def test_a_metric_that_fails_is_an_error_of_the_data_and_no_traceback(tmp_path, monkeypatch) -> None:
    (tmp_path / "broken_metric.py").write_text("def score(outputs, indices):\n    return 1 / 0\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match=r"--metric broken_metric:score: .*ZeroDivisionError"):
        read(metric="broken_metric:score")
    with pytest.raises(ConfigError, match="as module:function"):
        read(metric="score")


def read(**options):
    model = str(DIGITS / "model.onnx")
    return read_samples(open_session(model, model), load_model(model), TuningData(HELDOUT, **options))


def test_halves_share_no_sample_and_lose_none() -> None:
    whole = read()
    first, second = halves(whole, 5)
    assert sorted([*first.indices, *second.indices]) == list(whole.indices)
    assert [s.name for s in first.samples] == [whole.samples[i].name for i in first.indices]
    assert all({a // 2, b // 2} == {a // 2} for a, b in zip(first.indices, second.indices, strict=True))
    assert halves(whole, 5)[0].indices == first.indices
    assert any(halves(whole, seed)[0].indices != first.indices for seed in range(4))


def test_labels_that_do_not_fit_are_refused(tmp_path) -> None:
    (tmp_path / "l.txt").write_text("1\n2\n")
    with pytest.raises(DataError, match="2 labels, but the samples have 400 rows"):
        read(labels=tmp_path / "l.txt")
    with pytest.raises(ModelError, match=r"output 'logit': the model has none .*logits"):
        read(labels=LABELS, output="logit")
    with pytest.raises(ConfigError, match="exclude each other"):
        read(labels=LABELS, metric="m:f")


def test_a_state_comes_back_as_it_was(tmp_path) -> None:
    base = Base("min_sqnr 15", {"min_sqnr": 15.0})
    failed = Trial(Candidate(base, ("x",)), None, None, 0, error="why")
    state = State({"model": "m", "max_drop": 0.5}, (trial(Candidate(base), 0.25, 1.5),))
    state = state.with_result(failed.candidate, failed).with_result(RankNodes(base), ("b", "a"))
    save_state(state, tmp_path / "s.json")
    result = load_state(tmp_path / "s.json", state.key)
    assert result == state
    assert result.trial(Candidate(base, ("x",))) == failed


def test_a_state_of_another_tuning_is_refused(tmp_path) -> None:
    save_state(State({"model": "m", "max_drop": 0.5}), tmp_path / "s.json")
    with pytest.raises(ConfigError, match=r"state of another tuning \(different: max_drop\)"):
        load_state(tmp_path / "s.json", {"model": "m", "max_drop": 1.0})


REST = ('"key": Infinity', '"key": {}', '"sha256": 1e999')


@pytest.mark.parametrize(
    "text",
    [
        *("", "[]", "{}", "\udcff", 100_000 * "[", "null", "3"),
        *(f'{{"format": "qprof-tune/3", {rest}}}' for rest in REST),
    ],
)
def test_a_file_that_is_not_a_state_is_refused(tmp_path, text) -> None:
    (tmp_path / "s.json").write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(ConfigError, match=r"is not a state of qprof tune.*delete it to start over"):
        load_state(tmp_path / "s.json", {})


def test_a_state_with_any_number_changed_is_refused(tmp_path) -> None:
    state = State({"model": "m"}, (trial(Candidate(DEFAULT), 0.25, 1.5),))
    save_state(state, tmp_path / "s.json")
    text = (tmp_path / "s.json").read_text()
    numbers = list(re.finditer(r"(?<=: )[0-9.]+", text))
    assert len(numbers) > 6
    for number in numbers:
        (tmp_path / "s.json").write_text(f"{text[: number.start()]}7{text[number.end() :]}")
        with pytest.raises(ConfigError, match="do not have the digest"):
            load_state(tmp_path / "s.json", state.key)
    (tmp_path / "s.json").write_text(json.dumps(json.loads(text)))  # laid out in another way
    assert load_state(tmp_path / "s.json", state.key) == state


@pytest.mark.parametrize("key", [[], "x", None, 3])
def test_a_state_with_a_whole_digest_and_a_wrong_type_is_refused(tmp_path, key) -> None:
    save_state(replace(State({}), key=key), tmp_path / "s.json")
    with pytest.raises(ConfigError, match=r"is damaged \(Expected `object`, got `\w+` - at `\$.key`\)"):
        load_state(tmp_path / "s.json", {})


def test_a_state_that_is_a_folder_is_refused(tmp_path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: Is a directory; name another"):
        load_state(tmp_path, {})


@pytest.mark.parametrize("name", ["qprof-tune/2", "qprof-tune/4"])
def test_a_state_of_another_format_is_refused_as_a_cache_that_can_be_deleted(tmp_path, name) -> None:
    (tmp_path / "s.json").write_text(json.dumps({"format": name, "key": {}, "trials": [], "rankings": {}}))
    message = f"has format '{name}', and this version of qprof reads 'qprof-tune/3' only.*delete it"
    with pytest.raises(ConfigError, match=message):
        load_state(tmp_path / "s.json", {})


@pytest.fixture(scope="module")
def profile(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("tune") / "profile.yaml"
    dump_profile(DIGITS / "model.onnx", DIGITS / "calibration", path, RunSettings(threads=1))
    return path


def tuned(profile: Path, target: QualityTarget, data: TuningData | None = None, **options):
    return tune(DIGITS / "model.onnx", profile, data or TuningData(HELDOUT, LABELS), target, **options)


def test_an_easy_target_is_met_on_the_held_out_half(profile, tmp_path) -> None:
    files = TuneFiles(tmp_path / "o.onnx", tmp_path / "plan.yaml")
    result = tuned(profile, QualityTarget(0.5, "size"), files=files)
    assert result.target_met
    assert result.separate_holdout
    assert result.holdout is not None
    assert (result.holdout.samples, result.holdout.rows) == (4, 200)
    assert result.best is not None
    assert result.best.value == pytest.approx(
        result.float_bytes / result.quantized_bytes, rel=1e-12
    )  # a quotient
    assert files.model.exists()
    assert load_plan(files.plan).nodes["head"].kind.value == "quantized"


def test_few_rows_do_not_verify_a_target_of_half_a_percentage_point(profile) -> None:
    result = tuned(profile, QualityTarget(0.5, "size"))
    assert not result.verified
    assert any("200 held-out rows are too few to verify" in text for text in result.limits)


BAD = {"calibrator": "kl", "bias_correction": "off", "equalization": "off", "min_output_sqnr": 0.0}
"""A recipe whose drop is more than half a percentage point."""


def test_a_target_that_cannot_be_met_fails_and_writes_no_model(profile, tmp_path) -> None:
    files = TuneFiles(tmp_path / "o.onnx", tmp_path / "plan.yaml")
    result = tuned(
        profile, QualityTarget(0.5, "size", budget=1e-6), recipe=load_recipe(None, BAD), files=files
    )
    assert not result.target_met
    assert not files.model.exists()
    assert files.plan.exists()
    assert len(result.trials) == 1
    assert any("no plan that was tried meets the target" in text for text in result.limits)
    assert any("time budget" in text for text in result.limits)


def test_a_plan_that_the_runtime_refuses_is_not_chosen(profile) -> None:
    recipe = load_recipe()
    recipe = replace(recipe, target=replace(recipe.target, opsets=(18, 19)))
    result = tuned(profile, QualityTarget(0.5, "size", budget=1e-6), recipe=recipe)
    assert result.best is None
    assert "does not suit target" in result.trials[0].error
    assert "opset 17" in result.trials[0].error


def test_the_plan_says_what_its_runtime_does_not_support_as_it_stands(profile, tmp_path) -> None:
    files = TuneFiles(plan=tmp_path / "plan.yaml")
    tuned(profile, QualityTarget(0.5, "size", budget=1e-6), recipe=load_recipe("qnn"), files=files)
    assert any("qnn wants fixed shapes" in note for note in load_plan(files.plan).notes)


def test_a_bad_calibrator_is_left_for_a_better_one(profile) -> None:
    result = tuned(profile, QualityTarget(0.5, "int8-share"), recipe=load_recipe(None, BAD))
    assert result.trials[0].drop > 0.5
    assert result.best is not None
    assert result.best.candidate.base.name.startswith("calibrator")
    assert result.target_met


def test_a_tuning_goes_on_from_its_state_without_trying_again(profile, tmp_path) -> None:
    files = TuneFiles(state=tmp_path / "s.json")
    resumed: list[bool] = []
    note = {"files": files, "on_trial": lambda number, trial, from_state: resumed.append(from_state)}
    first = tuned(profile, QualityTarget(0.5, "size", budget=1e-6), **note)
    assert (len(first.trials), resumed) == (1, [False])
    resumed.clear()
    second = tuned(profile, QualityTarget(0.5, "size"), **note)
    assert resumed == [True, *[False] * (len(second.trials) - 1)]
    resumed.clear()
    third = tuned(profile, QualityTarget(0.5, "size"), **note)
    assert all(resumed)
    assert replace(third, seconds=0.0) == replace(second, seconds=0.0)
    assert json.loads(files.state.read_text())["format"] == "qprof-tune/3"


def test_a_full_disk_is_no_result_of_a_trial(profile, tmp_path, monkeypatch) -> None:
    """It ended as a missed target, and the state file kept the trials as failed."""

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    files = TuneFiles(state=tmp_path / "s.json")
    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", full)
        with pytest.raises(WritingError, match=r"trial 'default': .*No space left on device; .* TMPDIR"):
            tuned(profile, QualityTarget(0.5, "size", budget=1e-6), files=files)
    result = tuned(profile, QualityTarget(0.5, "size", budget=1e-6), files=files)
    assert [trial.error for trial in result.trials] == [""]


def test_a_state_does_not_outlive_a_change_of_the_target(profile, tmp_path) -> None:
    files, target = TuneFiles(state=tmp_path / "s.json"), QualityTarget(0.5, "size", budget=1e-6)
    recipe = load_recipe()
    tuned(profile, target, recipe=recipe, files=files)
    fewer = {name: types for name, types in recipe.target.operators.items() if name != "MatMul"}
    changed = replace(recipe, target=replace(recipe.target, operators=fewer))
    with pytest.raises(ConfigError, match=r"state of another tuning \(different: target\)"):
        tuned(profile, target, recipe=changed, files=files)


def test_a_state_does_not_outlive_a_change_of_the_metric_or_of_a_library(
    profile, tmp_path, monkeypatch
) -> None:
    files, target = TuneFiles(state=tmp_path / "s.json"), QualityTarget(0.5, "size", budget=1e-6)
    monkeypatch.chdir(tmp_path)

    def tuned_with(value: int) -> None:
        (tmp_path / "my_metric.py").write_text(f"def f(outputs, indices): return [{value}] * len(indices)")
        sys.modules.pop("my_metric", None)
        tuned(profile, target, TuningData(HELDOUT, metric="my_metric:f"), files=files)

    tuned_with(80)
    with pytest.raises(ConfigError, match=r"another tuning \(different: metric\)"):
        tuned_with(90)
    monkeypatch.setattr("onnxruntime.__version__", "0.0")
    with pytest.raises(ConfigError, match=r"another tuning \(different: libraries\)"):
        tuned_with(80)


def test_a_trial_of_another_plan_than_its_settings_give_is_not_verified(profile, tmp_path) -> None:
    files, target = TuneFiles(state=tmp_path / "s.json"), QualityTarget(0.5, "size", budget=1e-6)
    tuned(profile, target, files=files)
    key = json.loads(files.state.read_text())["key"]
    state = load_state(files.state, key)
    save_state(replace(state, trials=(replace(state.trials[0], plan_digest="0"),)), files.state)
    with pytest.raises(ConfigError, match=r"s\.json: was scored with another plan than its settings give"):
        tuned(profile, target, files=files)


def test_functions_of_python_are_known_by_their_code() -> None:
    first, second = (read(metric=eval(f"lambda outputs, indices: [{v}] * len(indices)")) for v in (80, 90))
    assert first.metric_digest != second.metric_digest
    again = read(metric=eval("lambda outputs, indices: [80] * len(indices)"))
    assert again.metric_digest == first.metric_digest


def test_held_out_samples_that_are_the_tuning_samples_are_called_so(profile) -> None:
    data = TuningData(HELDOUT, LABELS, holdout_data=HELDOUT, holdout_labels=LABELS)
    result = tuned(profile, QualityTarget(1.0, "size"), data)
    assert not result.separate_holdout
    assert not result.verified
    assert result.limits[-1].startswith("400 of 400 rows are in both sets")


def test_samples_that_both_sets_have_are_counted(profile) -> None:
    images = [np.load(path)["image"] for path in sorted((DIGITS / "heldout").glob("*.npz"))][:2]
    given = TuningData(
        [{"image": images[0][:40]}], holdout_data=[{"image": images[0][39::-1]}, {"image": images[1][:1]}]
    )
    result = tuned(profile, QualityTarget(50.0, "size", budget=1e-6), given)
    assert result.target_met
    assert not result.separate_holdout
    assert not result.verified
    assert any(text.startswith("40 of 41 rows are in both sets") for text in result.limits)
    assert "on samples used before" in result.headline()


@pytest.mark.parametrize("halved", [True, False])
def test_held_out_samples_that_the_profile_was_made_from_are_told(profile, halved) -> None:
    calibration = str(DIGITS / "calibration")
    given = TuningData(calibration) if halved else TuningData(HELDOUT, holdout_data=calibration)
    result = tuned(profile, QualityTarget(50.0, "size", budget=1e-6), given)
    assert not result.separate_holdout
    assert any(text.startswith("the profile was made from the held-out samples") for text in result.limits)


def test_a_plan_larger_than_float_misses_the_objective_size(profile, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("qprof_onnx.quantizer.tuning.trial._objective_value", lambda *_: 0.78)
    files = TuneFiles(tmp_path / "o.onnx")
    result = tuned(profile, QualityTarget(0.5, "size", budget=1e-6), files=files)
    assert not result.target_met
    assert not files.model.exists()
    assert any("larger than float (0.78 times smaller): keep the float" in text for text in result.limits)
    assert tuned(profile, QualityTarget(0.5, "latency", budget=1e-6)).target_met


def test_equal_plans_are_run_once(profile, monkeypatch) -> None:
    runs: list[Path] = []

    def counted(path, samples):
        runs.append(path)
        return score_model(path, samples)

    monkeypatch.setattr("qprof_onnx.quantizer.tuning.trial.score_model", counted)
    result = tuned(profile, QualityTarget(0.5, "size"))
    plans = {one.plan_digest for one in result.trials}
    assert len(runs) == len(plans) < len(result.trials)
    by_plan = {one.plan_digest: one.score for one in result.trials}
    assert all(one.score == by_plan[one.plan_digest] for one in result.trials)


def test_latency_is_measured_against_float(profile) -> None:
    result = tuned(profile, QualityTarget(0.5, budget=1e-6))
    assert result.best is not None
    assert result.best.value is not None
    assert result.best.value > 0.0


def test_bases_begin_with_the_settings_that_were_asked_for() -> None:
    bases = bases_of(load_recipe(None, {"calibrator": "mse", "min_sqnr": 20.0}))
    assert bases[0] == Base("default")
    settings = [dict(base.settings) for base in bases[1:]]
    assert {"calibrator": "mse"} not in settings
    assert {"min_sqnr": 0.0} in settings


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"objective": "latecny"}, "Did you mean 'latency'"),
        ({"max_drop": -1.0}, "max_drop: -1 is not a number of percentage points"),
        ({"max_drop": float("nan")}, "max_drop: nan"),
        ({"budget": 0.0}, "budget: 0 is not"),
        ({"threads": 0}, "threads: 0 is below 1"),
    ],
)
def test_a_quality_target_outside_its_range_is_refused(values, message) -> None:
    with pytest.raises(ConfigError, match=message):
        QualityTarget(**values)


def test_a_missing_folder_is_an_error_before_the_work_starts(profile, tmp_path) -> None:
    numbers: list[int] = []
    with pytest.raises(ConfigError, match="there is no folder"):
        tuned(
            profile,
            QualityTarget(),
            files=TuneFiles(tmp_path / "no" / "o.onnx"),
            on_trial=lambda number, trial, from_state: numbers.append(number),
        )
    assert not numbers


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
    dump_profile(tmp_path / "m.onnx", data[:8], tmp_path / "p.yaml", RunSettings(threads=1))
    target, given = QualityTarget(0.5, "int8-share"), TuningData(data[8:])
    result = tune(tmp_path / "m.onnx", tmp_path / "p.yaml", given, target)
    assert result.metric.startswith("correlation with the float model's outputs")
    assert result.target_met
    assert result.best is not None
    assert result.best.candidate == Candidate(DEFAULT)
    assert result.holdout is not None
    assert result.holdout.drop < 0.5
