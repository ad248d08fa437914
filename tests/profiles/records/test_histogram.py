"""The laws of the histogram, against a bin-by-bin count in exact arithmetic."""

from __future__ import annotations

import math
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from qprof_onnx.profiles.records.histogram import (
    BINS,
    INDEX_BITS,
    MIN_EXPONENT,
    EqualBins,
    Histogram,
    bin_exponent,
    count_bins,
    grid_index,
)

FLOAT32 = st.floats(allow_nan=False, allow_infinity=False, width=32)
FLOAT64 = st.floats(allow_nan=False, allow_infinity=False)
SOME_FLOAT32 = st.lists(FLOAT32 | st.floats(-4, 4, width=32), max_size=40).map(
    lambda v: np.array(v, np.float32)
)
SOME_FLOAT64 = st.lists(FLOAT64 | st.floats(-4, 4), max_size=40).map(lambda v: np.array(v, np.float64))
SOME_FLOAT16 = st.lists(st.floats(allow_nan=False, allow_infinity=False, width=16), max_size=40).map(
    lambda v: np.array(v, np.float16)
)
ANY = SOME_FLOAT32 | SOME_FLOAT64 | SOME_FLOAT16
TINY_NEGATIVE = np.array([-1e-300])
HUGE = np.array([1.7e308])


def exact_index(value: float, e: int) -> int:
    return math.floor(Fraction(value) / Fraction(2) ** e)


def exactly_fits(minimum: float, maximum: float, e: int) -> bool:
    first, last = exact_index(minimum, e), exact_index(maximum, e)
    return last - first < BINS and max(abs(first), abs(last)) < 2**INDEX_BITS


def as_counter(histogram: Histogram) -> Counter[int]:
    return Counter({histogram.first + i: int(n) for i, n in enumerate(histogram.counts) if n})


@given(FLOAT64, FLOAT64)
@example(-5e-324, 1.7976931348623157e308)
@example(-1.7976931348623157e308, 1.7976931348623157e308)
@example(5e-324, 5e-324)
@example(1.0, 1.0)
def test_the_exponent_is_the_smallest_that_fits(a: float, b: float) -> None:
    minimum, maximum = min(a, b), max(a, b)
    e = bin_exponent(minimum, maximum)
    assert exactly_fits(minimum, maximum, e)
    assert e == MIN_EXPONENT or not exactly_fits(minimum, maximum, e - 1)


@given(FLOAT64, FLOAT64, FLOAT64)
def test_the_exponent_never_falls_when_the_range_grows(a: float, b: float, c: float) -> None:
    assert bin_exponent(min(a, b), max(a, b)) <= bin_exponent(min(a, b, c), max(a, b, c))


@given(FLOAT64, st.integers(MIN_EXPONENT, 1015))
@example(-1e-300, 1000)
@example(-5e-324, 1)
@example(-0.0, 0)
def test_the_grid_index_is_exact(value: float, e: int) -> None:
    try:
        index = grid_index(value, e)
    except OverflowError:  # more than a double holds: bin_exponent never gets there
        assert abs(Fraction(value) / Fraction(2) ** e) >= 2**1023
    else:
        assert index == exact_index(value, e)


@given(ANY)
@example(np.concatenate([TINY_NEGATIVE, HUGE]))
@example(np.array([-5e-324, 0.0, 5e-324, 1e308]))
@example(np.array([-(2.0**-149), 3e38], np.float32))
@example(np.array([-(2.0**-149), 5000], np.float32))
@example(np.array([-5e-324, 1999.5 * 2.0**900]))
@example(np.array([2.0**40, 2.0**40 + 2**20], np.float32))
def test_every_value_is_in_its_exact_bin(values: np.ndarray) -> None:
    histogram = Histogram.of(values)
    assert as_counter(histogram) == Counter(exact_index(v, histogram.exponent) for v in values.tolist())
    if values.size:
        assert histogram.exponent == bin_exponent(float(values.min()), float(values.max()))
        assert histogram.counts[0] > 0
        assert histogram.counts[-1] > 0
    assert histogram.counts.size <= BINS
    assert histogram.total == values.size


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e4])
def test_long_arrays_are_counted_like_short_ones(dtype: type, scale: float) -> None:
    values = (np.random.default_rng(0).standard_normal(200_001) * scale).astype(dtype)
    histogram = Histogram.of(values)
    indices = np.floor(np.ldexp(values.astype(np.float64), -histogram.exponent)).astype(np.int64)
    bins, counts = np.unique(indices, return_counts=True)
    assert as_counter(histogram) == Counter(dict(zip(bins.tolist(), counts.tolist(), strict=True)))


@given(SOME_FLOAT32, st.integers(0, 6))
def test_counting_in_float32_and_in_float64_agree(values: np.ndarray, coarser: int) -> None:
    if values.size:
        e = bin_exponent(float(values.min()), float(values.max())) + coarser
        first = grid_index(float(values.min()), e)
        bins = grid_index(float(values.max()), e) - first + 1
        wide = count_bins(values.astype(np.float64), e, first, bins)
        assert np.array_equal(count_bins(values, e, first, bins), wide)


@given(ANY, ANY)
@example(TINY_NEGATIVE, HUGE)
@example(np.zeros(3, np.float32), np.array([1e-40, -1e38], np.float32))
@example(np.array([1.0, 1.0 + 2**-23], np.float32), np.array([1.5], np.float32))
def test_merging_equals_counting_all_at_once(a: np.ndarray, b: np.ndarray) -> None:
    both = np.concatenate([a.astype(np.float64), b.astype(np.float64)])
    assert Histogram.of(a).merged(Histogram.of(b)) == Histogram.of(both)


def test_the_empty_histogram_is_neutral() -> None:
    histogram = Histogram.of(np.array([1.0, 2.0], np.float32))
    assert histogram.merged(Histogram.empty()) == histogram == Histogram.empty().merged(histogram)


@given(SOME_FLOAT32, st.integers(0, 300))
def test_coarsening_keeps_the_mass_and_the_places(values: np.ndarray, shift: int) -> None:
    histogram = Histogram.of(values)
    coarse = histogram.coarsened(histogram.exponent + shift)
    expected = Counter(exact_index(v, coarse.exponent) for v in values.tolist())
    assert as_counter(coarse) == expected


def test_refining_is_refused() -> None:
    histogram = Histogram.of(np.array([1.0, 2.0], np.float32))
    with pytest.raises(ValueError, match="cannot refine"):
        histogram.coarsened(histogram.exponent - 1)


def test_counts_are_read_only_and_not_shared() -> None:
    counts = np.array([1, 2], np.int64)
    histogram = Histogram(0, 0, counts)
    counts[0] = 7
    assert histogram.counts.tolist() == [1, 2]
    with pytest.raises(ValueError, match="read-only"):
        histogram.counts[0] = 7


def test_equal_histograms_have_equal_hashes() -> None:
    a, b = Histogram(0, 1, np.array([1, 2])), Histogram(0, 1, np.array([1, 2]))
    assert a == b
    assert hash(a) == hash(b)
    assert a != Histogram(1, 1, np.array([1, 2]))
    assert a != Histogram(0, 2, np.array([1, 2]))


@given(SOME_FLOAT32, st.integers(1, 3000))
def test_resampling_keeps_the_total(values: np.ndarray, bins: int) -> None:
    if values.size:
        equal = Histogram.of(values).resampled(float(values.min()), float(values.max()), bins)
        assert equal.total == values.size
        assert equal.counts.size == bins
        assert (equal.counts >= 0).all()


def test_resampling_to_twice_as_many_bins_splits_each_evenly() -> None:
    histogram = Histogram(0, 0, np.array([4, 8], np.int64))
    assert histogram.resampled(0.0, 2.0, 4).counts.tolist() == [2, 2, 4, 4]


def test_equal_bins_keep_their_own_range() -> None:
    bins = EqualBins(0.0, 1.0, np.ones(4))
    assert bins.resampled(0.0, 1.0) is bins


def test_equal_bins_over_another_range_are_split_evenly_and_what_lies_outside_is_at_its_ends() -> None:
    bins = EqualBins(0.0, 4.0, np.array([8.0, 8.0, 8.0, 8.0]))
    assert bins.resampled(1.0, 3.0, 4) == EqualBins(1.0, 3.0, np.array([12.0, 4.0, 4.0, 12.0]))
