import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from qprof_onnx.quantizer.evaluation.compare import Sums, by_range, range_groups
from qprof_onnx.quantizer.evaluation.metrics.relative import noise_share
from qprof_onnx.quantizer.noise.class_axes import NO_CLASSES


def difference(f, q):
    return Sums().plus(np.asarray(f), np.asarray(q)).difference


def test_sqnr_is_signal_over_noise_in_decibels() -> None:
    # signal 3*3 + 4*4 = 25, noise 0.5*0.5 = 0.25: ratio 100
    found = difference([3.0, 4.0], [3.0, 4.5])
    assert found.sqnr == pytest.approx(20.0, rel=1e-14)  # float64 arithmetic on small exact numbers
    assert found.max_abs_value == 4.0


def test_equal_tensors_have_infinite_sqnr() -> None:
    assert difference([0.1, -3.0], [0.1, -3.0]).sqnr == math.inf


def test_noise_without_signal_is_minus_infinity() -> None:
    assert difference([0.0, 0.0], [0.0, 1.0]).sqnr == -math.inf


def test_all_zero_on_both_sides_is_equal() -> None:
    assert difference([0.0], [0.0]).sqnr == math.inf


def test_a_nan_in_one_of_the_two_ruins_the_sqnr() -> None:
    found = difference([1.0, 2.0, 3.0], [1.0, np.nan, 3.0])
    assert (found.sqnr, found.non_finite) == (-math.inf, 1)


def test_the_same_infinity_on_both_sides_is_no_difference() -> None:
    found = difference([1.0, -np.inf, np.nan], [1.0, -np.inf, np.nan])
    assert (found.sqnr, found.non_finite) == (math.inf, 0)


def test_opposite_infinities_differ() -> None:
    assert difference([np.inf], [-np.inf]).non_finite == 1


def test_float16_is_summed_in_float64() -> None:
    f = np.full(100, 200.0, np.float16)  # the squares overflow float16
    assert difference(f, f - np.float16(2)).sqnr == pytest.approx(40.0, rel=1e-14)


def test_doubles_whose_squares_overflow_do_not_give_nan() -> None:
    assert difference([1e200, 1.0], [-1e200, 1.0]).sqnr == -math.inf


pairs = hnp.arrays(np.float32, (2, 3, 4), elements=st.floats(-1e3, 1e3, width=32))


@given(pairs, pairs)
def test_adding_two_halves_equals_the_whole(f, q) -> None:
    whole, halves = Sums().plus(f, q), Sums().plus(f[:1], q[:1]).plus(f[1:], q[1:])
    assert halves.noise == pytest.approx(whole.noise, rel=1e-12)  # order of float64 additions
    assert halves.signal == pytest.approx(whole.signal, rel=1e-12)
    assert (halves.max_abs_value, halves.elements) == (whole.max_abs_value, f.size)


@given(pairs, pairs)
def test_the_groups_of_channels_add_up_to_the_total(f, q) -> None:
    whole = Sums().plus(f, q)
    for axis in (None, 1, 2):
        top, signal, noise = zip(*by_range(list(f[:, None]), list(q[:, None]), axis), strict=True)
        assert max(top) == whole.max_abs_value
        assert np.sum(signal) == pytest.approx(whole.signal, rel=1e-12)  # order of float64 additions
        assert np.sum(noise) == pytest.approx(whole.noise, rel=1e-12)


def test_channels_of_like_range_are_one_group() -> None:
    assert [g.tolist() for g in range_groups(np.array([1.0, 15.0, 2.0]))] == [[0, 1, 2]]


def test_boxes_and_scores_are_two_groups() -> None:
    groups = range_groups(np.array([600.0, 640.0, 0.9, 0.8, 500.0]))
    assert [g.tolist() for g in groups] == [[0, 1, 4], [2, 3]]


def test_silent_channels_do_not_make_endless_groups() -> None:
    groups = range_groups(np.array([1.0] + [10.0**-k for k in range(1, 40)] + [0.0]))
    assert len(groups) <= 5
    assert sorted(i for g in groups for i in g.tolist()) == list(range(41))


def test_no_signal_at_all_is_one_group() -> None:
    assert [g.tolist() for g in range_groups(np.zeros(3))] == [[0, 1, 2]]


def test_a_healthy_total_does_not_hide_a_ruined_channel() -> None:
    rng = np.random.default_rng(0)
    f = np.stack([rng.uniform(0, 600, 1000), rng.uniform(0, 1, 1000)], axis=1)
    q = np.stack([f[:, 0] + 0.1, np.zeros(1000)], axis=1)  # the scores are gone
    assert difference(f, q).sqnr > 50
    boxes, (top, signal, noise) = by_range([f], [q], 1)
    assert boxes[0] > 500
    assert top < 1
    assert signal.tolist() == noise.tolist()


def test_noise_is_found_beside_large_values_and_in_integers() -> None:
    floats = [{"y": np.array([[600.0, 1.0]], np.float32)}]
    off = [{"y": np.array([[600.0, 1.1]], np.float32)}]
    axes = {"y": NO_CLASSES}
    assert noise_share(floats, off, axes) == pytest.approx(0.01, rel=1e-4)  # 0.1 is no float32
    classes = [{"y": np.array([1, 2, 3, 4])}], [{"y": np.array([1, 2, 3, 5])}]
    assert noise_share(*classes, axes) == 0.25
    assert noise_share(floats, floats, axes) == 0.0
