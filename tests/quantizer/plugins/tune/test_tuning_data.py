from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from qprof_onnx.profiles.base.errors import ConfigError, DataError, ModelError
from qprof_onnx.quantizer.evaluation.metrics.metric import mean_of
from qprof_onnx.quantizer.evaluation.runtimes import open_session
from qprof_onnx.quantizer.model.loading import load_model
from qprof_onnx.quantizer.noise.class_axes import ClassAxis
from qprof_onnx.quantizer.plugins.tune.trial import rounded_sqnr, screen_model
from qprof_onnx.quantizer.plugins.tune.tune_options import TuneOptions
from qprof_onnx.quantizer.plugins.tune.tuning_data import halves, read_samples
from qprof_onnx.quantizer.search.run_samples import outputs_of

DIGITS = Path(__file__).parents[4] / "examples" / "digits"
HELDOUT = str(DIGITS / "heldout")
LABELS = DIGITS / "heldout" / "labels.txt"
CLASSES = ClassAxis(-1, True)


def test_a_metric_that_fails_is_an_error_of_the_data_and_no_traceback(tmp_path, monkeypatch) -> None:
    (tmp_path / "broken_metric.py").write_text("def score(outputs, indices):\n    return 1 / 0\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match=r"--metric broken_metric:score: .*ZeroDivisionError"):
        read(metric="broken_metric:score")
    with pytest.raises(ConfigError, match="as module:function"):
        read(metric="score")


def read(**options):
    model = str(DIGITS / "model.onnx")
    return read_samples(open_session(model, model), load_model(model), HELDOUT, TuneOptions(**options))


def half_positions(whole) -> tuple[list[int], list[int]]:
    """Return the positions in the data of the samples of each half."""
    positions = {sample.name: number for number, sample in enumerate(whole.samples)}
    first, second = halves(whole)
    return [positions[s.name] for s in first.samples], [positions[s.name] for s in second.samples]


def test_halves_share_no_sample_and_lose_none() -> None:
    whole = read()
    first, second = half_positions(whole)
    assert sorted([*first, *second]) == list(range(len(whole.samples)))
    assert all({a // 2, b // 2} == {a // 2} for a, b in zip(first, second, strict=True))
    assert half_positions(whole)[0] == first
    assert len({place % 2 for place in first}) == 2  # not alternating


def test_steps_of_a_sequence_go_into_one_half() -> None:
    whole = read()
    steps = tuple(replace(sample, step=number % 3) for number, sample in enumerate(whole.samples))
    first, second = half_positions(replace(whole, samples=steps))
    assert sorted([*first, *second]) == list(range(len(whole.samples)))
    assert not {i // 3 for i in first} & {i // 3 for i in second}


def test_labels_that_do_not_fit_are_refused(tmp_path) -> None:
    (tmp_path / "l.txt").write_text("1\n2\n")
    with pytest.raises(DataError, match="2 labels, but the samples have 400 rows"):
        read(labels=tmp_path / "l.txt")
    with pytest.raises(ModelError, match=r"output 'logit': the model has no output of this name.*logits"):
        read(labels=LABELS, scored_output="logit")
    with pytest.raises(ConfigError, match="exclude each other"):
        read(labels=LABELS, metric="m:f")


@pytest.mark.parametrize(("noise", "sqnr"), [(0.0, None), (0.01, 20.0), (float("inf"), -300.0)])
def test_noise_in_decibels_is_a_number_that_a_file_can_hold(noise, sqnr) -> None:
    assert rounded_sqnr(noise) == sqnr


def test_samples_that_run_side_by_side_have_the_same_outputs() -> None:
    model, samples = str(DIGITS / "model.onnx"), read().samples
    session = open_session(model, model)
    one, three = (outputs_of(session, samples, model, count) for count in (1, 3))
    assert all(np.array_equal(a["logits"], b["logits"]) for a, b in zip(one, three, strict=True))


def test_the_first_samples_decide_where_they_leave_no_doubt() -> None:
    model, samples, calls = DIGITS / "model.onnx", read(), []

    def figures(kept):
        calls.append(len(kept))
        return mean_of(np.array(kept))

    many = samples.subset(list(range(len(samples.samples))) * 4)
    metric = replace(many.metric, scored=lambda truth, outputs: 25.0, figures=figures)
    lost = replace(many, metric=metric, float_scored=(100.0,) * len(many.samples))
    result, sqnr = screen_model(model, lost, {"logits": CLASSES}, 0.5)
    assert (calls, result.samples, sqnr) == ([11, 11], 11, None)
    outputs = outputs_of(open_session(str(model), "quantized model"), many.samples, "quantized model")
    assert screen_model(model, many, {"logits": CLASSES}, 0.5)[0] == many.score(outputs)
