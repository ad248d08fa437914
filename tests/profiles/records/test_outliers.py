"""Samples that stand out and ranges that grow: what is unusual, and that the usual is not."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from qprof_onnx.profiles.records.data_checks import (
    binomial_tail,
    data_findings,
    growth,
    median_growth,
    outliers,
    widening,
)
from qprof_onnx.profiles.records.histogram import Histogram
from qprof_onnx.profiles.records.profile import (
    DataId,
    Extreme,
    Extremes,
    ModelId,
    Profile,
    TensorProfile,
    most_extreme,
)


def extremes_of(lows: Any, highs: Any) -> Extremes:
    """Return the extremes of samples with these minima and maxima, called s0, s1 and so on."""
    sides = [
        most_extreme([Extreme(float(v), f"{i:032x}", f"s{i}") for i, v in enumerate(values)], sign)
        for values, sign in ((lows, 1.0), (highs, -1.0))
    ]
    return Extremes(*sides)


def tensor_of(lows: Any, highs: Any) -> TensorProfile:
    low, high = float(np.min(lows)), float(np.max(highs))
    histogram = Histogram.of(np.array([low, high]))
    return TensorProfile("float", (1,), low, high, 2, 0, 0, 0, histogram, extremes=extremes_of(lows, highs))


def tensors_of(samples: int, count: int, seed: int, loud: float = 1.0) -> dict[str, TensorProfile]:
    """Return tensors of independent ranges; those of the last sample are `loud` times as wide."""
    rng = np.random.default_rng(seed)
    gains = np.r_[np.ones(samples - 1), loud]
    return {
        f"t{i}": tensor_of(-gains * rng.gamma(9.0, size=samples), gains * rng.gamma(9.0, size=samples))
        for i in range(count)
    }


def profile_of(tensors: dict[str, TensorProfile], runs: int) -> Profile:
    return Profile(ModelId("s", "w", 13), DataId(runs, "0" * 32), tensors, runs=runs)


def test_a_sample_widens_a_range_by_what_the_others_lack() -> None:
    found = widening("t", extremes_of([-1.0, -1.5, -1.0], [2.0, 5.5, 3.0]))
    assert found is not None
    assert (found.sample, found.share) == ("s1", pytest.approx(7.0 / 4.0 - 1.0))


def test_a_range_on_one_side_of_zero_begins_at_zero() -> None:
    found = widening("t", extremes_of([3.0, 9.0], [4.0, 10.0]))
    assert found is not None
    assert found.share == pytest.approx(10.0 / 4.0 - 1.0)


def test_nothing_widens_a_range_of_equal_ends() -> None:
    assert widening("t", extremes_of([0.0, 0.0], [1.0, 1.0])) is None
    assert widening("t", extremes_of([0.0], [1.0])) is None


def test_the_expected_growth_is_that_of_twice_the_samples() -> None:
    """Exponential maxima: the range of n samples is H(n) on average, so twice as many widen it by ln 2."""
    rng, shares = np.random.default_rng(0), []
    for _ in range(400):
        share = growth(extremes_of(np.zeros(32), rng.exponential(size=32)))
        assert share is not None
        shares.append(share)
    first = sum(1.0 / n for n in range(1, 33))
    assert np.mean(shares) == pytest.approx(math.log(2.0) / first, rel=0.2)


def test_ranges_that_grow_are_noticed_and_ranges_that_do_not_are_not() -> None:
    rng = np.random.default_rng(0)
    growing = {f"t{i}": tensor_of(-rng.pareto(1.5, 16), rng.pareto(1.5, 16)) for i in range(60)}
    steady = {f"t{i}": tensor_of(-rng.normal(9, 0.2, 16), rng.normal(9, 0.2, 16)) for i in range(60)}
    assert median_growth(steady) < 0.05 < median_growth(growing)
    assert [hint.code for hint in data_findings(profile_of(growing, 16))] == ["few-samples"]
    assert data_findings(profile_of(steady, 16)) == ()


@given(st.integers(0, 30), st.floats(0.01, 0.9), st.integers(-1, 31))
def test_the_tail_of_a_binomial_distribution(trials: int, chance: float, least: int) -> None:
    terms = [math.comb(trials, k) * chance**k * (1.0 - chance) ** (trials - k) for k in range(trials + 1)]
    assert binomial_tail(trials, chance, least) == pytest.approx(sum(terms[max(least, 0) :]), abs=1e-12)


@pytest.mark.parametrize("seed", range(10))
def test_of_samples_that_are_alike_none_stands_out(seed: int) -> None:
    assert outliers(tensors_of(16, 100, seed), 16) == ()


def test_samples_whose_tensors_go_together_do_not_stand_out() -> None:
    """Ten independent tensors, each followed by nineteen that only scale it."""
    few = tensors_of(16, 10, seed=3)
    together = {f"{name}/{i}": tensor for name, tensor in few.items() for i in range(20)}
    assert outliers(together, 16) == ()


def test_a_sample_that_is_out_of_the_ordinary_is_named_with_an_example() -> None:
    tensors = tensors_of(16, 100, seed=0, loud=3.0)
    (found,) = outliers(tensors, 16)
    assert (found.sample, found.of, found.expected) == ("s15", 200, 12.5)
    assert found.ends > 150
    assert found.example is not None
    assert found.example.share == max(w.share for n, t in tensors.items() if (w := widening(n, t.extremes)))
    start = f"sample s15 is unusual: it alone sets {found.ends} of 200 limits of ranges, where about 12 would"
    assert found.sentence.startswith(start)
    assert [hint.code for hint in profile_of(tensors, 16).findings][-1] == "outlier"


def test_ends_that_several_samples_share_are_not_counted() -> None:
    tensors = {f"t{i}": tensor_of(np.zeros(9), np.ones(9)) for i in range(50)}
    assert outliers(tensors, 9) == ()


def test_of_a_profile_without_runs_nothing_is_said() -> None:
    assert data_findings(profile_of(tensors_of(16, 9, 0, loud=9.0), 0)) == ()
