import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from qprof_onnx.quantizer.evaluation.compare import channels_of, range_groups, sums_along
from qprof_onnx.quantizer.evaluation.metrics.relative import noise_share
from qprof_onnx.quantizer.noise.class_axes import NO_CLASSES


def difference(f, q):
    return sums_along(np.asarray(f), np.asarray(q), (None,))[0].difference()


def test_sqnr_is_signal_over_noise_in_decibels() -> None:
    # signal 3*3 + 4*4 = 25, noise 0.5*0.5 = 0.25: ratio 100
    found = difference([3.0, 4.0], [3.0, 4.5])
    assert found.sqnr == pytest.approx(20.0, rel=1e-14)  # float64 arithmetic on small exact numbers
    assert found.max_abs_error == 0.5
    assert found.max_abs_value == 4.0
    assert found.cosine == pytest.approx((9 + 18) / (5 * math.sqrt(9 + 20.25)), rel=1e-14)


def test_equal_tensors_have_infinite_sqnr_and_cosine_one() -> None:
    found = difference([0.1, -3.0], [0.1, -3.0])
    assert (found.sqnr, found.cosine, found.max_abs_error) == (math.inf, 1.0, 0.0)


def test_noise_without_signal_is_minus_infinity() -> None:
    found = difference([0.0, 0.0], [0.0, 1.0])
    assert (found.sqnr, found.cosine) == (-math.inf, 0.0)


def test_all_zero_on_both_sides_is_equal() -> None:
    assert difference([0.0], [0.0]).sqnr == math.inf
    assert difference([0.0], [0.0]).cosine == 1.0


def test_a_nan_in_one_of_the_two_ruins_the_sqnr() -> None:
    found = difference([1.0, 2.0, 3.0], [1.0, np.nan, 3.0])
    assert (found.sqnr, found.non_finite, found.elements) == (-math.inf, 1, 2)


def test_the_same_infinity_on_both_sides_is_no_difference() -> None:
    found = difference([1.0, -np.inf, np.nan], [1.0, -np.inf, np.nan])
    assert (found.sqnr, found.non_finite, found.elements) == (math.inf, 0, 1)


def test_opposite_infinities_differ() -> None:
    assert difference([np.inf], [-np.inf]).non_finite == 1


def test_float16_is_summed_in_float64() -> None:
    f = np.full(100, 200.0, np.float16)  # the squares overflow float16
    assert difference(f, f - np.float16(2)).sqnr == pytest.approx(40.0, rel=1e-14)


def test_doubles_whose_squares_overflow_do_not_give_nan() -> None:
    found = difference([1e200, 1.0], [-1e200, 1.0])
    assert found.sqnr == -math.inf
    assert not math.isnan(found.cosine)


pairs = hnp.arrays(np.float32, (2, 3, 4), elements=st.floats(-1e3, 1e3, width=32))


@given(pairs, pairs)
def test_adding_two_halves_equals_the_whole(f, q) -> None:
    whole = sums_along(f, q, (1,))[0]
    halves = sums_along(f[:1], q[:1], (1,))[0].added(sums_along(f[1:], q[1:], (1,))[0])
    np.testing.assert_allclose(halves.noise, whole.noise, rtol=1e-12)  # order of float64 additions
    np.testing.assert_allclose(halves.signal, whole.signal, rtol=1e-12)
    np.testing.assert_array_equal(halves.max_abs_error, whole.max_abs_error)
    np.testing.assert_array_equal(halves.elements, whole.elements)


@given(pairs, pairs)
def test_the_sum_over_channels_is_the_total(f, q) -> None:
    total, by_channel = sums_along(f, q, (None, 2))
    assert by_channel.difference().elements == total.difference().elements == f.size
    assert by_channel.noise.sum() == pytest.approx(total.noise.sum(), rel=1e-12)  # order of additions
    for c in range(4):
        alone = difference(f[:, :, c], q[:, :, c])
        assert by_channel.difference(np.array([c])).max_abs_error == alone.max_abs_error
        assert by_channel.noise[c] == pytest.approx(
            float(((f[..., c] - q[..., c].astype(float)) ** 2).sum()), rel=1e-12
        )


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
    sums = sums_along(f, q, (1,))[0]
    found = channels_of(sums, 1)
    assert sums.difference().sqnr > 50
    assert found.worst == 1
    assert found.worst_difference.sqnr == 0.0  # noise equals signal
    assert [g.runs for g in found.groups] == [((0, 0),), ((1, 1),)]
    assert found.groups[1].difference.sqnr == 0.0


def test_channel_runs_are_written_short() -> None:
    f = np.array([[100.0, 100.0, 1.0, 100.0, 1.0]])
    groups = channels_of(sums_along(f, f, (1,))[0], 1).groups
    assert [g.text for g in groups] == ["0-1, 3", "2, 4"]


def test_noise_is_found_beside_large_values_and_in_integers() -> None:
    floats = [{"y": np.array([[600.0, 1.0]], np.float32)}]
    off = [{"y": np.array([[600.0, 1.1]], np.float32)}]
    axes = {"y": NO_CLASSES}
    assert noise_share(floats, off, axes) == pytest.approx(0.01, rel=1e-4)  # 0.1 is no float32
    classes = [{"y": np.array([1, 2, 3, 4])}], [{"y": np.array([1, 2, 3, 5])}]
    assert noise_share(*classes, axes) == 0.25
    assert noise_share(floats, floats, axes) == 0.0
