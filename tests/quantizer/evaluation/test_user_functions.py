import pytest
from qprof_onnx.profiles.base.errors import DataError
from qprof_onnx.quantizer.evaluation.metrics.user_functions import user_metric

from .running import rows, scored


def test_a_metric_of_ones_own_gets_outputs_and_indices() -> None:
    calls = []

    def metric(outputs, indices):
        calls.append((len(outputs), list(indices)))
        return [80.0 if outputs[0]["y"][0, 0] else 60.0 for _ in indices]

    result = scored(user_metric(metric), [rows(0), rows(0)], [rows(1), rows(1)], first=4)
    assert (result.float_score, result.drop) == (80.0, pytest.approx(20.0))  # a mean of float64
    assert calls == [(2, [4, 5]), (2, [4, 5])]


@pytest.mark.parametrize("scores", [[1.0], [101.0, 0.0], [float("nan"), 0.0]])
def test_a_metric_that_returns_something_else_is_refused(scores) -> None:
    metric = user_metric(lambda outputs, indices: scores)
    with pytest.raises(DataError, match=r"--metric <lambda>: returned .* return one score for each sample"):
        scored(metric, [rows(0), rows(0)], [rows(0), rows(0)])


def test_a_metric_that_returns_no_numbers_is_refused() -> None:
    metric = user_metric(lambda outputs, indices: ["good"])
    with pytest.raises(DataError, match="--metric <lambda>: returned no numbers"):
        scored(metric, [rows(0)], [rows(0)])
