from dataclasses import replace
from pathlib import Path

import pytest
from qprof_onnx.cli.commands.evaluate import evaluation_json, evaluation_text
from qprof_onnx.profiles.base.errors import ConfigError
from qprof_onnx.quantizer.evaluation.baseline import compare_with_baseline, load_baseline
from qprof_onnx.quantizer.evaluation.evaluate import Evaluation, evaluate
from qprof_onnx.quantizer.evaluation.latency import Latency
from qprof_onnx.quantizer.evaluation.options import EvaluationOptions, Slack

DIGITS = Path(__file__).parents[3] / "examples" / "digits"
FAST = Latency(2.0, 1.0, 2.0, 1.9, 2.1, 5, 5, 1, 1)


@pytest.fixture(scope="module")
def measured() -> Evaluation:
    model, data = DIGITS / "model.onnx", str(DIGITS / "heldout")
    how = EvaluationOptions(limit=3, latency=None, metric="top-5")
    found = evaluate(model, model, data, labels=DIGITS / "heldout" / "labels.txt", measuring=how)
    return replace(found, latency=FAST, doubts=())


@pytest.fixture
def earlier(measured: Evaluation, tmp_path: Path):
    (tmp_path / "b.json").write_text(evaluation_json(measured))
    return load_baseline(tmp_path / "b.json")


def test_an_evaluation_is_not_worse_than_itself(measured, earlier) -> None:
    found = compare_with_baseline(measured, earlier, "b.json", Slack(0.0, 0.0, 0.0, 0.0))
    assert (found.passed, found.failures, found.gated) == (True, (), True)
    assert "gate       passed, not worse than b.json" in evaluation_text(found)


def test_each_figure_that_is_worse_fails(measured, earlier) -> None:
    output = measured.outputs[0]
    noisy = replace(output, difference=replace(output.difference, sqnr=20.0))
    worse = replace(
        measured,
        outputs=(noisy,),
        score=replace(measured.score, quantized_score=measured.score.quantized_score - 5.0),
        quantized_bytes=2 * measured.quantized_bytes,
        latency=replace(FAST, speedup=1.0),
    )
    found = compare_with_baseline(worse, earlier, "b.json", Slack())
    assert [f.demand for f in found.failures] == [
        f"baseline_{name}" for name in ("score", "sqnr", "size", "speedup")
    ]
    assert not found.passed
    text = evaluation_text(found)
    assert "FAILED     --baseline: speedup 1 times, b.json has 2; with its slack 1.7" in text
    assert "--baseline: output 'logits': SQNR 20 dB, b.json has inf" in text


def test_slack_allows_a_little(measured, earlier) -> None:
    slower = replace(measured, latency=replace(FAST, speedup=1.75))
    assert compare_with_baseline(slower, earlier, "b.json", Slack()).passed
    assert not compare_with_baseline(slower, earlier, "b.json", Slack(speedup=5.0)).passed


def test_a_score_where_lower_is_better_may_not_grow(measured, earlier) -> None:
    rate = replace(measured.score, higher_is_better=False)
    grown = replace(measured, score=replace(rate, quantized_score=rate.quantized_score + 1.0))
    assert [f.demand for f in compare_with_baseline(grown, earlier, "b.json", Slack()).failures] == [
        "baseline_score"
    ]
    less = replace(measured, score=replace(rate, quantized_score=rate.quantized_score - 1.0))
    assert compare_with_baseline(less, earlier, "b.json", Slack()).passed


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"subject": {"float_model": "x"}}, "another float model"),
        ({"subject": {"data": "x"}}, "other samples"),
        ({"subject": {"metric": "x"}}, "another truth or other options"),
        ({"metric": "top-1"}, "another metric"),
        ({"runtime": "openvino"}, "another runtime"),
    ],
)
def test_a_baseline_of_something_else_is_refused(measured, earlier, changes, message) -> None:
    inner = {
        name: replace(measured.subject, **value) for name, value in changes.items() if isinstance(value, dict)
    }
    other = replace(measured, **{**changes, **inner})
    with pytest.raises(ConfigError, match=f"b.json: is about {message}"):
        compare_with_baseline(other, earlier, "b.json", Slack())


def test_a_speedup_on_other_threads_is_not_compared(measured, earlier) -> None:
    other = replace(measured, latency=replace(FAST, speedup=1.0, threads=2))
    found = compare_with_baseline(other, earlier, "b.json", Slack())
    assert found.passed
    assert "b.json: its speedup was measured on another number of threads" in found.remarks


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{}",
        '{"format": "qprof-drift/1"}',
        "[[[",
        '{"subject": 3}',
        '{"outputs": [], "quantized_bytes": 1, "latency": {"speedup": "x"}}',
    ],
)
def test_a_file_that_is_no_evaluation_is_refused(tmp_path, content) -> None:
    (tmp_path / "b.json").write_text(content)
    with pytest.raises(ConfigError, match=r"b.json: is no evaluation as JSON .*--save-baseline"):
        load_baseline(tmp_path / "b.json")
    with pytest.raises(ConfigError, match="cannot be read"):
        load_baseline(tmp_path / "c.json")


def test_slack_is_no_negative_number() -> None:
    with pytest.raises(ConfigError, match="slack sqnr: -1 is below 0"):
        Slack(sqnr=-1.0)
