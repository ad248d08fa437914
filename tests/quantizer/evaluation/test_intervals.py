import math

import numpy as np
import pytest
from qprof_onnx.quantizer.evaluation.metrics.intervals import (
    bootstrap_interval,
    drop_interval,
    rows_to_show,
    student95,
    with_two_added,
)
from qprof_onnx.quantizer.evaluation.metrics.metric import mean_of, of_sums
from qprof_onnx.quantizer.evaluation.metrics.score import score_of
from qprof_onnx.quantizer.evaluation.metrics.table import named_metric

stats = pytest.importorskip("scipy.stats", reason="of the extra test-all")


def paired(only_float: int, only_quantized: int, rows: int) -> tuple[float, float]:
    """Return the interval of rows of which some are right in one model alone, as shares."""
    differences = np.zeros(rows)
    differences[:only_float], differences[rows - only_quantized :] = 100.0, -100.0
    found = drop_interval(differences)
    return found.low / 100.0, found.high / 100.0


@pytest.mark.parametrize(
    ("freedom", "quantile"), [(1, 12.706), (2, 4.303), (3, 3.182), (7, 2.365), (30, 2.042)]
)
def test_students_quantile_is_that_of_the_tables(freedom, quantile) -> None:
    # 2 %: the expansion is cut off; it is worst at 3 degrees
    assert student95(freedom) == pytest.approx(quantile, rel=0.02)


def test_scores_that_differ_little_have_a_narrow_interval_even_when_they_are_few() -> None:
    found = drop_interval(np.array([1.0, 1.2, 1.1, 1.3]))
    assert 0.9 < found.low < 1.15 < found.high < 1.4
    assert drop_interval(np.array([1.0])).high > 90.0


def test_the_paired_interval_is_bonett_and_price() -> None:
    # by hand: a = 11/102, b = 3/102; d = 8/102; half = 1.96 * sqrt((14/102 - (8/102)**2) / 102)
    half = 1.959963984540054 * math.sqrt((14 / 102 - (8 / 102) ** 2) / 102)
    assert paired(10, 2, 100) == pytest.approx((8 / 102 - half, 8 / 102 + half), rel=1e-12)


@pytest.mark.parametrize(("only_float", "only_quantized"), [(0.06, 0.03), (0.10, 0.10), (0.30, 0.05)])
def test_the_interval_covers_the_true_drop_as_often_as_it_says(only_float, only_quantized) -> None:
    rows = 200
    shares = [only_float, only_quantized, 1.0 - only_float - only_quantized]
    counts = [(a, b, rows - a - b) for a in range(rows + 1) for b in range(rows + 1 - a)]
    likely = stats.multinomial.pmf(np.array(counts), rows, shares)
    intervals = np.array([paired(a, b, rows) for a, b, _ in counts])
    drop = only_float - only_quantized
    covered = likely[(intervals[:, 0] <= drop) & (drop <= intervals[:, 1])].sum()
    assert likely.sum() == pytest.approx(1.0)
    assert 0.95 <= covered <= 0.97  # nominal 0.95; no draws, the probabilities of all counts are summed


@pytest.mark.parametrize(
    ("counts", "limit"), [((0, 0, 500), 0.01), ((12, 8, 1000), 0.02), ((3, 0, 100), 0.1)]
)
def test_the_rows_that_would_show_a_limit_do(counts: tuple[int, int, int], limit: float) -> None:
    only_float, only_quantized, rows = counts
    drop, differing = (only_float - only_quantized) / rows, (only_float + only_quantized) / rows
    needed = rows_to_show(drop, math.sqrt(differing - drop**2), 1.0, limit)
    assert needed is not None
    found = with_two_added(drop, math.sqrt(differing - drop**2), needed, 1.0)
    assert found.high == pytest.approx(limit, rel=0.05)  # whole rows


def test_no_number_of_rows_shows_a_limit_that_is_exceeded() -> None:
    assert rows_to_show(0.03, 0.2, 1.0, 0.03) is None


def test_the_bootstrap_of_a_mean_is_about_as_wide_as_the_interval_of_a_mean() -> None:
    widths = []
    for seed in range(10):
        values = np.random.default_rng(seed).normal(2.0, 1.0, 12)
        found = bootstrap_interval(lambda weights, v=values: weights @ v / weights.sum(axis=1), 12)
        of_mean = drop_interval(values)
        widths.append((found.high - found.low) / (of_mean.high - of_mean.low))
    assert np.mean(widths) == pytest.approx(1.0, abs=0.1)  # ten samples of 12 values, 400 draws of each


def test_losses_that_are_not_skewed_have_students_interval() -> None:
    values = np.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0])
    found = drop_interval(values)
    half = stats.t.ppf(0.975, 6) * values.std(ddof=1) / math.sqrt(7)
    assert (found.low, found.high) == pytest.approx((4.0 - half, 4.0 + half), rel=0.005)  # `student95`


@pytest.mark.parametrize(("share", "rows"), [(0.15, 48), (0.15, 100), (0.3, 60), (1.0, 60)])
def test_the_true_loss_is_seldom_above_the_interval_of_skewed_losses(share: float, rows: int) -> None:
    rng = np.random.default_rng(7)
    above = below = 0
    for _ in range(1000):
        losses = np.where(rng.random(rows) < share, rng.exponential(20.0, rows), 0.0)
        found = drop_interval(losses, 1000.0)
        above += found.high < 20.0 * share
        below += found.low > 20.0 * share
    assert above < 40  # 2.5 % wanted; Student's interval has 67 to 100 of 1,000
    assert below < 40


def test_one_sample_says_nothing_of_others() -> None:
    found = bootstrap_interval(lambda weights: weights[:, 0], 1)
    assert (found.low, found.high) == (-math.inf, math.inf)


def test_skewed_losses_need_the_rows_with_which_their_interval_ends_at_the_limit() -> None:
    rng = np.random.default_rng(1)
    losses = np.where(rng.random(80) < 0.3, rng.exponential(20.0, 80), 0.0)
    asked = named_metric("top-1")
    assert asked is not None
    found = score_of(asked.kind, 80, mean_of(np.full(80, 100.0)), mean_of(100.0 - losses))
    assert found.rows_to_show(found.drop_high) == pytest.approx(80, abs=1)  # whole rows


def test_the_interval_of_a_drop_in_percent_ends_at_a_hundred_points() -> None:
    asked = named_metric("top-1")
    assert asked is not None
    kept, lost = np.full(8, 100.0), np.array([0.0, 0.0, 0.0, 0.0, 10.0, 5.0, 0.0, 90.0])
    counts = [of_sums(side[:, None], lambda s: s[:, 0] / 8.0) for side in (kept, lost)]
    assert score_of(asked.kind, 8, *counts).drop_high == 100.0
    assert score_of(asked.kind, 8, *counts[::-1]).drop_low == -100.0


@pytest.mark.parametrize("limit", [1e308, 1e-300, 5e-324])
def test_a_limit_of_any_size_has_a_number_of_rows_or_none(limit: float) -> None:
    found = rows_to_show(0.0, 3.0, 100.0, limit)
    assert found == 1 if limit > 1.0 else found is None
