from dataclasses import replace
from pathlib import Path

import pytest
from qprof_onnx.profiles.base.errors import ConfigError
from qprof_onnx.quantizer.evaluation.evaluate import evaluate
from qprof_onnx.quantizer.evaluation.latency import Latency
from qprof_onnx.quantizer.evaluation.options import Judge
from qprof_onnx.quantizer.plugins.card.options import Slack
from qprof_onnx.quantizer.plugins.card.record import Asked, Card, make_card
from qprof_onnx.quantizer.plugins.card.regression import checks_of_newer
from qprof_onnx.quantizer.plugins.card.verification import Check

DIGITS = Path(__file__).parents[4] / "examples" / "digits"
FAST = Latency(2.0, 1.0, 2.0, 1.9, 2.1, 5, 5, 1, 1)
NAMES = ("accepted.json", "tonight.json")


@pytest.fixture(scope="module")
def accepted() -> Card:
    """Return the card of a model with itself, 50 dB off and twice as fast."""
    model, data = DIGITS / "model.onnx", str(DIGITS / "heldout")
    how = Judge(limit=3, latency=None, metric="top-5")
    found = evaluate(model, model, data, labels=DIGITS / "heldout" / "labels.txt", measuring=how)
    (output,) = found.outputs
    noisy = replace(output, difference=replace(output.difference, sqnr=50.0))
    evaluation = replace(found, latency=FAST, findings=(), outputs=(noisy,))
    return make_card(model, model, evaluation, Asked("heldout"))


def newer(card: Card, **changes: object) -> Card:
    return replace(card, evaluation=replace(card.evaluation, **changes))


def results(card: Card, other: Card, slack: Slack | None = None) -> dict[str, str]:
    return {check.of: check.result for check in checks_of_newer(card, other, slack or Slack(), NAMES)}


def with_sqnr(card: Card, sqnr: float) -> Card:
    (output,) = card.evaluation.outputs
    return newer(card, outputs=(replace(output, difference=replace(output.difference, sqnr=sqnr)),))


def test_a_card_is_not_worse_than_itself(accepted: Card) -> None:
    assert results(accepted, accepted, Slack(0.0, 0.0, 0.0, 0.0)) == {
        "top-5 of the quantized model": "kept",
        "SQNR of output 'logits'": "kept",
        "size": "kept",
        "speed": "kept",
    }


def test_each_figure_that_is_worse_is_named_with_both_values_and_the_slack(accepted: Card) -> None:
    score, size = accepted.evaluation.score, accepted.evaluation.quantized_bytes
    worse = newer(
        with_sqnr(accepted, 20.0),
        score=replace(score, quantized_score=score.quantized_score - 5.0),
        quantized_bytes=2 * size,
        latency=replace(FAST, speedup=1.0),
    )
    checks = list(checks_of_newer(accepted, worse, Slack(), NAMES))
    assert {check.result for check in checks} == {"worse"}
    assert len(checks) == 4
    assert checks[1:] == [
        Check(
            "SQNR of output 'logits'", "worse", "50.00 dB", "20.00 dB", "-30.00 dB, with a slack of 0.5 dB"
        ),
        Check(
            "size",
            "worse",
            f"{size} bytes",
            f"{2 * size} bytes",
            f"+{size} bytes, with a slack of {size / 100:.4g} bytes",
        ),
        Check("speed", "worse", "2.00 times", "1.00 times", "-1.00 times, with a slack of 0.3 times"),
    ]


def test_what_is_better_is_kept_whatever_the_slack(accepted: Card) -> None:
    better = newer(with_sqnr(accepted, 70.0), quantized_bytes=10, latency=replace(FAST, speedup=3.0))
    assert set(results(accepted, better, Slack(0.0, 0.0, 0.0, 0.0)).values()) == {"kept"}


def test_slack_allows_a_little(accepted: Card) -> None:
    slower = newer(accepted, latency=replace(FAST, speedup=1.75))
    assert results(accepted, slower)["speed"] == "kept"
    assert results(accepted, slower, Slack(speedup=5.0))["speed"] == "worse"


def test_a_score_where_lower_is_better_may_not_grow(accepted: Card) -> None:
    rate = replace(accepted.evaluation.score, higher_is_better=False)
    grown = replace(rate, quantized_score=rate.quantized_score + 1.0)
    less = replace(rate, quantized_score=rate.quantized_score - 1.0)
    then = newer(accepted, score=rate)
    assert results(then, newer(accepted, score=grown))["top-5 of the quantized model"] == "worse"
    assert results(then, newer(accepted, score=less))["top-5 of the quantized model"] == "kept"


def test_a_figure_that_the_newer_card_has_not_is_worse(accepted: Card) -> None:
    (output,) = accepted.evaluation.outputs
    for other in (
        newer(accepted, outputs=()),
        newer(accepted, outputs=(replace(output, shape_mismatches=1),)),
    ):
        (check,) = (c for c in checks_of_newer(accepted, other, Slack(), NAMES) if c.of.startswith("SQNR"))
        assert (check.result, check.reason) == ("worse", "could not be measured")
    assert results(accepted, newer(accepted, score=None))["top-5 of the quantized model"] == "worse"


def test_cards_without_a_score_or_an_output_prove_nothing(accepted: Card) -> None:
    bare = newer(accepted, outputs=(), score=None)
    assert results(bare, bare)["figures"] == "worse"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"subject": {"float_model": "x"}}, "another float model"),
        ({"subject": {"data": "x"}}, "other samples"),
        ({"subject": {"metric": "x"}}, "other labels or other options"),
        ({"metric": "top-1"}, "another metric"),
        ({"runtime": "openvino"}, "another runtime"),
    ],
)
def test_a_card_of_something_else_is_refused(accepted: Card, changes: dict, message: str) -> None:
    subject = accepted.evaluation.subject
    inner = {name: {**subject, **value} for name, value in changes.items() if isinstance(value, dict)}
    with pytest.raises(ConfigError, match=f"tonight.json: is about {message} .*than accepted.json"):
        list(checks_of_newer(accepted, newer(accepted, **{**changes, **inner}), Slack(), NAMES))


def test_times_are_compared_on_one_machine_and_on_as_many_threads(accepted: Card) -> None:
    slow = newer(accepted, latency=replace(FAST, speedup=1.0))
    assert results(accepted, slow)["speed"] == "worse"
    elsewhere = replace(slow, machine=replace(slow.machine, processor="another"))
    others = newer(accepted, latency=replace(FAST, speedup=1.0, threads=2))
    for other in (elsewhere, others, newer(accepted, latency=None)):
        assert results(accepted, other)["speed"] == "not checked"


def test_slack_is_no_negative_number() -> None:
    with pytest.raises(ConfigError, match="sqnr: -1 is below 0"):
        Slack(sqnr=-1.0)
