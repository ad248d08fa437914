import math

import numpy as np
import pytest
from qprof_onnx.profiles.base.errors import ConfigError, DataError
from qprof_onnx.quantizer.evaluation.metrics.metric import mean_of, of_sums
from qprof_onnx.quantizer.evaluation.metrics.score import score_of
from qprof_onnx.quantizer.evaluation.metrics.table import KINDS, check_metric, named_metric

from .running import opened, rows


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_an_entry_names_a_function_and_says_what_it_needs(kind) -> None:
    assert callable(getattr(kind.module.load(), kind.maker.partition(":")[2]))
    assert kind.truth or kind.without_truth
    assert kind.title


def test_a_number_and_options_follow_the_name() -> None:
    found = named_metric("map50:nms=0.7,classes=1+12,ids=yes")
    assert (found.kind.name, found.options["nms"], found.options["ids"]) == ("map50", 0.7, True)
    assert found.options["classes"] == "1+12"
    assert named_metric("recall@7").title == "queries with one of their documents among the first 7"
    assert named_metric("top-5").number == 5
    assert named_metric("my_metrics:top1") is None


@pytest.mark.parametrize(
    ("text", "name", "number"),
    [
        ("mAP@0.5", "map50", 1),
        ("mAP50", "map50", 1),
        ("mAP@0.5:0.95", "map", 1),
        ("mAP50:nms=0.7", "map50", 1),
        ("top5", "top-K", 5),
        ("Top-1", "top-K", 1),
        ("recall_10", "recall@K", 10),
        ("acc", "top-K", 1),
        ("accuracy", "top-K", 1),
    ],
)
def test_a_metric_may_be_called_as_other_tools_call_it(text: str, name: str, number: int) -> None:
    found = named_metric(text)
    assert (found.kind.name, found.number) == (name, number)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("map5", r"there is no such metric; use one of .*map50"),
        ("top-0", "counts from 1"),
        ("map50:nmss=0.7", r"'nmss=0.7' is not an option of it.*nms"),
        ("map50:nms=7", "is not a number from 0 to 1"),
        ("cer:blank=x", "is not a whole number"),
        ("f1:ids=maybe", "is not yes or no"),
    ],
)
def test_what_the_table_does_not_have_is_refused(text, message) -> None:
    with pytest.raises(ConfigError, match=message):
        check_metric(text)


def test_a_missing_truth_says_what_is_missing() -> None:
    with pytest.raises(ConfigError, match=r"metric 'top-1': needs labels: class of each row.*--labels"):
        opened("top-1", rows(0))


def test_a_drop_is_what_the_table_says() -> None:
    psnr, rmse, cer = (named_metric(name).kind for name in ("psnr", "rmse", "cer"))
    lost = score_of(psnr, 3, mean_of(np.array([30.0, 31.0, 32.0])), mean_of(np.array([29.0, 30.5, 31.5])))
    assert (lost.drop, lost.unit, lost.drop_unit) == (pytest.approx(2 / 3), "dB", "dB")
    assert lost.drop_low < 2 / 3 < lost.drop_high
    figures = [
        of_sums(np.array(sums, float), lambda s: s[:, 0] / s[:, 1])
        for sums in ([[2, 1], [2, 1]], [[3, 1], [3, 1]])
    ]
    assert score_of(rmse, 2, *figures).drop == 50.0  # percent of the float model's
    assert score_of(cer, 2, *figures).drop == 1.0  # a rate that grew is a drop
    assert (
        score_of(rmse, 2, figures[0], of_sums(np.full((2, 1), math.nan), lambda s: s[:, 0])).drop == math.inf
    )


def test_nothing_to_score_is_refused() -> None:
    with pytest.raises(DataError, match="have no rows to score"):
        score_of(named_metric("psnr").kind, 0, mean_of(np.zeros(0)), mean_of(np.zeros(0)))
