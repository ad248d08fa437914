"""The measures of drift, against values reckoned by hand, and their laws."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from qprof_onnx.profiles.base.errors import ProfileError
from qprof_onnx.profiles.observers.tensor_observer import TensorObserver
from qprof_onnx.profiles.records.histogram import MIN_EXPONENT, Histogram
from qprof_onnx.profiles.records.profile import DataId, ModelId, Profile, TensorProfile
from qprof_onnx.quantizer.numerics.clipping import share_outside
from qprof_onnx.quantizer.plan.documents import load_profile
from qprof_onnx.quantizer.plugins.drift.drift import diff
from qprof_onnx.quantizer.plugins.drift.measures import (
    TensorDrift,
    channel_distances,
    check_comparable,
    common_bins,
    jensen_shannon,
    range_growth,
    tensor_drift,
)

MODEL = ModelId("a" * 64, "b" * 64, 17, "m.onnx")
GLOW = Path(__file__).parents[3] / "data" / "profile-glow.yaml"
FLOAT64 = st.floats(allow_nan=False, allow_infinity=False)
SOME = st.lists(FLOAT64 | st.floats(-4, 4), min_size=1, max_size=30).map(np.array)


def tensor(values: npt.ArrayLike) -> TensorProfile:
    array = np.asarray(values)
    found = TensorObserver("double" if array.dtype == np.float64 else "float")
    found.add(array, array.shape)
    return found.profile()


def drifted(old: npt.ArrayLike, new: npt.ArrayLike) -> TensorDrift:
    before = tensor(old)
    cover = min(before.minimum, 0.0), max(before.maximum, 0.0)
    return tensor_drift("x", before, tensor(new), cover, (1, 1))


def rows(values: npt.ArrayLike) -> TensorProfile:
    """Return the profile of rows with columns, and of the columns."""
    array = np.asarray(values, np.float32)
    found = TensorObserver("float", axis=-1, channels=array.shape[1])
    found.add(array, array.shape)
    return found.profile()


def profile(digest: int = 1, **tensors: npt.ArrayLike) -> Profile:
    data = DataId(1, f"{digest:032x}")
    return Profile(MODEL, data, {name: tensor(values) for name, values in tensors.items()})


def spread(low: float, high: float, count: int = 10_000) -> npt.NDArray[np.float64]:
    """Return numbers evenly spread from low to high."""
    return np.linspace(low, high, count)


# Range growth


@pytest.mark.parametrize(
    ("old", "new", "growth"),
    [
        ([0.0, 2.0], [0.0, 2.0], 1.0),
        ([0.0, 2.0], [0.5, 1.0], 1.0),
        ([0.0, 2.0], [0.0, 3.0], 1.5),
        ([0.0, 2.0], [-1.0, 1.0], 1.5),
        ([-1.0, 1.0], [-2.0, 3.0], 2.5),
        ([1.0, 2.0], [0.0, 2.0], 1.0),  # codes hold 0 anyway
        ([-2.0, -1.0], [-2.0, 2.0], 2.0),
        ([0.0], [0.0], 1.0),
        ([0.0], [0.1], math.inf),
        ([-1.7e308, 1.7e308], [-1.7e308, 1.7e308], 1.0),
    ],
)
def test_range_growth_is_the_wider_range_over_the_old(
    old: list[float], new: list[float], growth: float
) -> None:
    assert range_growth(tensor(old), tensor(new)) == growth


# Clipped mass


@pytest.mark.parametrize(
    ("values", "cover", "share"),
    [
        ([0.25, 0.5, 1.0, 2.0], (0.0, 2.0), 0.0),
        ([0.25, 0.5, 1.0, 2.0], (0.0, 1.5), 0.25),
        ([-3.0, -2.0, 0.5, 1.0, 9.0], (-1.0, 4.0), 0.6),
        ([5.0, 5.0], (0.0, 1.0), 1.0),
        ([5.0, 5.0], (0.0, 5.0), 0.0),
        ([1e300, 1.0], (0.0, 1e-300), 1.0),
        ([-1.7e308, 1.7e308, 0.0, 0.0], (0.0, 1.0), 0.5),
        ([], (0.0, 1.0), 0.0),
    ],
)
def test_clipped_is_the_share_outside(values: list[float], cover: tuple[float, float], share: float) -> None:
    assert share_outside(tensor(np.array(values)), cover) == share


def test_a_bin_that_the_cover_ends_in_is_shared_out() -> None:
    # 1844 bins of width 2**-11 over [1, 1.9]: the cover ends in the middle of the bin of all but one.
    values = np.append(np.full(99, 1.0), 1.9)
    assert share_outside(tensor(values), (0.0, 1.0 + 2**-12)) == pytest.approx(0.505, abs=1e-12)


def test_zeros_are_never_clipped() -> None:
    # Bins are far wider than the cover, and zeros lie in the same bin as what is clipped.
    assert share_outside(tensor([0.0, 0.0, 0.0, 1000.0]), (-1e-6, 1e-6)) == 0.25


@given(SOME, FLOAT64, FLOAT64)
def test_clipped_is_right_to_the_bins_that_the_cover_ends_in(
    values: npt.NDArray[np.float64], a: float, b: float
) -> None:
    low, high = min(a, b, 0.0), max(a, b, 0.0)
    found = tensor(values)
    exact = float(np.mean((values < low) | (values > high)))
    width = math.ldexp(1.0, found.histogram.exponent)  # type: ignore[union-attr]
    ends = (np.abs(values / 4 - end / 4) <= width / 4 for end in (low, high))  # the whole range overflows
    near = float(np.mean(np.logical_or(*ends)))
    # 1e-9: rounding of the shares of at most 30 values.
    assert abs(share_outside(found, (low, high)) - exact) <= near + 1e-9


# Jensen-Shannon distance


def test_equal_histograms_have_distance_zero() -> None:
    counts = np.array([3, 0, 5, 7])
    assert jensen_shannon(counts, counts * 2) == 0.0


def test_separate_histograms_have_distance_one() -> None:
    assert jensen_shannon(np.array([4, 3, 0, 0]), np.array([0, 0, 2, 9])) == 1.0


def test_the_jensen_shannon_distance_of_two_bins_is_that_of_the_formula() -> None:
    # p = (1/2, 1/2), q = (1/4, 3/4), m = (3/8, 5/8); 1000 elements make 14 groups: nothing is joined.
    divergence = (
        0.5 * math.log2(4 / 3) + 0.5 * math.log2(4 / 5) + 0.25 * math.log2(2 / 3) + 0.75 * math.log2(6 / 5)
    ) / 2
    found = jensen_shannon(np.array([500, 500]), np.array([250, 750]))
    assert found == pytest.approx(math.sqrt(divergence), rel=1e-12)  # rounding of a few logarithms


def test_neighbouring_bins_are_joined_when_there_are_few_elements() -> None:
    # 4 elements make (2 * 4)^(1/3) = 2 groups of two bins, in which both have the same mass.
    assert jensen_shannon(np.array([2, 0, 2, 0]), np.array([0, 2, 0, 2])) == 0.0
    # 32 elements make 4: all bins for themselves.
    assert jensen_shannon(np.array([16, 0, 16, 0]), np.array([0, 16, 0, 16])) == 1.0


def test_two_draws_of_one_distribution_are_near() -> None:
    rng = np.random.default_rng(7)
    a, b = (tensor(rng.normal(size=640)) for _ in range(2))
    assert isinstance(a.histogram, Histogram)
    assert isinstance(b.histogram, Histogram)
    fine = common_bins(a.histogram, b.histogram, MIN_EXPONENT)
    p, q = fine[0] / 640, fine[1] / 640
    m = np.maximum(p + q, 1e-300) / 2
    unjoined = sum(float(np.sum(x[x > 0] * np.log2(x[x > 0] / m[x > 0]))) for x in (p, q)) / 2
    # Most of the 2000 bins hold one element of one side: without joining, equal distributions would look
    # nearly separate.
    assert math.sqrt(unjoined) > 0.7
    assert jensen_shannon(*fine) < 0.15


def test_an_outlier_does_not_hide_a_shift_of_the_rest() -> None:
    rng = np.random.default_rng(7)
    plain, shifted = rng.normal(size=10_000), rng.normal(1.0, size=10_000)
    lone = drifted(plain, shifted).js_distance
    with_outlier = drifted(np.append(plain, 40.0), np.append(shifted, 40.0)).js_distance
    assert lone is not None
    assert with_outlier == pytest.approx(lone, abs=0.02)  # ten times wider bins, the same 28 groups


@given(SOME, SOME)
@example(np.array([0.0]), np.array([5e-324]))
@example(np.array([-1.7e308]), np.array([1.7e308]))
def test_the_jensen_shannon_distance_is_symmetric_and_between_zero_and_one(
    a: npt.NDArray[np.float64], b: npt.NDArray[np.float64]
) -> None:
    x, y = Histogram.of(a), Histogram.of(b)
    there, back = (
        jensen_shannon(*common_bins(x, y, MIN_EXPONENT)),
        jensen_shannon(*common_bins(y, x, MIN_EXPONENT)),
    )
    assert 0.0 <= there == back <= 1.0


@given(SOME, SOME)
def test_common_bins_are_exact(a: npt.NDArray[np.float64], b: npt.NDArray[np.float64]) -> None:
    x, y = Histogram.of(a), Histogram.of(b)
    old, new = common_bins(x, y, MIN_EXPONENT)
    np.testing.assert_array_equal(old + new, Histogram.of(np.append(a, b)).counts)
    assert (old.sum(), new.sum()) == (a.size, b.size)


def test_a_constant_that_moves_by_less_than_a_code_has_not_drifted() -> None:
    found = drifted(np.full(100, 0.3), np.full(100, 0.3 + 1e-7))
    assert found.js_distance == 0.0


def test_the_same_data_is_not_moved() -> None:
    found = drifted(spread(-1, 2), spread(-1, 2))
    assert (found.js_distance, found.clipping_rate, found.range_growth) == (0.0, 0.0, 1.0)


# Odd tensors


def test_without_elements_there_is_no_distance() -> None:
    none = np.zeros(0, np.float32)
    emptied, filled = drifted([1.0], none), drifted(none, [1.0])
    assert (emptied.js_distance, emptied.clipping_rate) == (None, None)
    assert emptied.added_clipping is None
    assert (filled.js_distance, filled.clipping_rate, filled.range_growth) == (None, 1.0, math.inf)
    both = drifted(none, none)
    assert (both.js_distance, both.clipping_rate, both.range_growth) == (0.0, 0.0, 1.0)


def test_what_is_not_finite_is_a_share_of_all_elements() -> None:
    assert drifted([1.0], [1.0, np.nan, np.inf, 0.5]).non_finite == 0.5
    assert drifted([1.0], [np.nan]).non_finite == 1.0


def test_newly_clipped_is_what_old_does_not_clip_itself() -> None:
    old, new = tensor([1.0, 2.0, 3.0, 9.0]), tensor([1.0, 9.0, 9.0, 9.0])
    found = tensor_drift("x", old, new, (0.0, 4.0), (1, 1))
    assert (found.clipping_rate, found.baseline_clipping, found.added_clipping) == (0.75, 0.25, 0.5)
    assert tensor_drift("x", new, old, (0.0, 4.0), (1, 1)).added_clipping == 0.0


# Channels


def test_one_tripled_column_of_thirty_is_the_distance_of_the_tensor() -> None:
    night = np.random.default_rng(0).gamma(4.0, 1.0, (3, 300, 30)) * np.r_[np.full(10, 1e3), np.full(20, 0.1)]
    night[2, :, 13] *= 3.0
    old, same, tripled = map(rows, night)
    ordinary, drifts = (tensor_drift("x", old, new, (0.0, 1e4), (300, 300)) for new in (same, tripled))
    assert ordinary.js_distance is not None
    assert ordinary.js_distance < 0.1
    assert ordinary.channel is None
    whole = drifted(night[0], night[2]).js_distance
    assert whole is not None
    assert whole < 0.1
    assert drifts.js_distance is not None
    assert drifts.js_distance > 0.3
    assert drifts.channel == 13


@given(low=st.integers(-8, 8), step=st.integers(1, 8), share=st.floats(0.01, 0.5))
def test_two_values_with_other_probabilities_attain_the_bound(low: int, step: int, share: float) -> None:
    count = round(10_000 * share)
    old = np.full((10_000, 1), low)
    old[:count] = low + step
    new = np.full((10_000, 1), low + step)
    new[:count] = low
    (bound,) = channel_distances(rows(old).channels, rows(new).channels, (10_000, 10_000))
    exact = jensen_shannon(np.array([count, 10_000 - count]), np.array([10_000 - count, count]))
    assert bound <= exact + 1e-9
    # Ten thousand elements: the error of a difference of two means is 0.014 deviations at most.
    assert bound == pytest.approx(exact, abs=0.03)


def test_a_moved_mean_counts_by_samples_and_not_by_elements() -> None:
    old, new = rows(np.tile([[0.0], [2.0]], (500, 1))), rows(np.tile([[2.0], [4.0]], (500, 1)))
    few, many = (channel_distances(old.channels, new.channels, (n, n))[0] for n in (8, 1000))
    # The means are 2 deviations apart; with 8 samples their difference has a standard error of 1/2.
    assert few == pytest.approx(math.sqrt(1 - _entropy(math.sqrt(1 / 5))), abs=1e-3)  # 1**2 / (2 + 2 + 1**2)
    assert few < 0.4 < many


def _entropy(t: float) -> float:
    """Return the entropy of shares (1 + t) / 2 and (1 - t) / 2, in bits."""
    return -sum(share * math.log2(share) for share in ((1 + t) / 2, (1 - t) / 2))


@pytest.mark.parametrize("value", [0.0, 2020.3, -1e-30, 1e30])
def test_a_constant_column_has_not_drifted(value: float) -> None:
    same = rows(np.full((9, 2), value)).channels, rows(np.full((700, 2), value)).channels
    assert channel_distances(*same, (9, 700)).tolist() == [0.0, 0.0]


def test_channels_of_one_profile_only_or_without_elements_have_no_distance() -> None:
    some, other = rows([[1.0, 2.0], [1.0, 2.0]]).channels, rows([[9.0], [9.0]]).channels
    assert channel_distances(some, None, (2, 2)).size == channel_distances(some, other, (2, 2)).size == 0
    partly = rows([[np.nan, 2.0], [np.nan, 2.0]]).channels
    assert channel_distances(some, partly, (2, 2)).tolist() == [0.0, 0.0]


# Profiles


def test_tensors_are_matched_by_name_in_the_old_order() -> None:
    old, new = profile(1, b=[1.0], a=[1.0], gone=[1.0]), profile(2, come=[1.0], a=[2.0], b=[1.0])
    found = diff(old, new)
    assert [t.tensor for t in found.tensors] == ["b", "a"]
    assert found.vanished == ("gone",)
    assert [t.range_growth for t in found.tensors] == [1.0, 2.0]


def test_the_same_data_is_noted() -> None:
    (note,) = check_comparable(profile(x=[1.0]), profile(x=[1.0]))
    assert note.line == "note: both profiles are of the same data"


@pytest.mark.parametrize("change", [{"structure": "c" * 64}, {"opset": 18}])
def test_another_structure_is_refused_with_both_names(change: dict[str, object]) -> None:
    new = replace(profile(2, x=[1.0]), model=replace(MODEL, **change))  # type: ignore[arg-type]
    sentence = r"^n\.yaml: is of another model than o\.yaml: m\.onnx .* and m\.onnx .*; give profiles of one"
    with pytest.raises(ProfileError, match=sentence):
        check_comparable(profile(1, x=[1.0]), new, ("o.yaml", "n.yaml"))


def test_profiles_without_a_common_tensor_are_refused() -> None:
    with pytest.raises(ProfileError, match=r"^n\.yaml: has no tensor that o\.yaml has; give"):
        check_comparable(profile(1, x=[1.0]), profile(2, y=[1.0]), ("o.yaml", "n.yaml"))


@pytest.mark.parametrize("turned", [False, True])
def test_a_profile_of_glow_is_refused_with_advice(turned: bool) -> None:
    pair = (load_profile(GLOW), profile(x=[1.0]))
    with pytest.raises(ProfileError, match=r"^g: comes from Glow x\.y, .* 'qprof dump-profile'"):
        check_comparable(*(pair[::-1] if turned else pair), ("q", "g") if turned else ("g", "q"))
