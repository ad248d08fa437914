"""Records of channels: exact to merge in any order, and the compiled counter equal to its numpy reference."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import reduce
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from qprof_onnx.profiles.base.errors import ProfileError
from qprof_onnx.profiles.observers.channel_counter import (
    ArraySlice,
    ChannelLayout,
    ChannelSums,
    implementations,
    layout_of,
)
from qprof_onnx.profiles.observers.tensor_observer import TensorObserver
from qprof_onnx.profiles.records import channel_statistics as channels_module
from qprof_onnx.profiles.records.channel_statistics import SUMS, Channels, divided, fault

IMPLEMENTATIONS = implementations()
BITS = {"float16": np.uint16, "bfloat16": np.uint16, "float32": np.uint32, "float64": np.uint64}
each = pytest.mark.parametrize("name", IMPLEMENTATIONS)


def dtype_of(name: str) -> np.dtype[Any]:
    return np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)


def gathered(array: npt.NDArray[Any], axis: int, name: str = "numpy", block: int = 1) -> Channels:
    sums = ChannelSums.empty(array.shape[axis])
    add(sums, array, axis, name, block)
    return sums.channels(axis)


def add(sums: ChannelSums, array: npt.NDArray[Any], axis: int, name: str = "numpy", block: int = 1) -> None:
    layout = layout_of(array.shape, axis, block)
    IMPLEMENTATIONS[name]([array], [ArraySlice(layout, 0, array.size // layout.unit, sums)])


def planes(array: npt.NDArray[Any], axis: int) -> npt.NDArray[np.float64]:
    """Return an array of any order as channels times all else, in float64."""
    return np.moveaxis(array.astype(np.float64), axis, 0).reshape(array.shape[axis], -1)


# ------------------------------------------------------------------------------------------- what it records


@pytest.mark.parametrize("axis", [0, 1, -1])
@each
def test_ranges_means_and_powers_are_those_of_the_channels(name: str, axis: int) -> None:
    scale = 10.0 ** np.arange(-4, 3).reshape(1, 7, 1)
    array = (np.random.default_rng(0).standard_normal((7, 7, 7)) * scale + scale).astype(np.float32)
    found, expected = gathered(array, axis, name), planes(array, axis)
    assert np.array_equal(found.minimum, expected.min(axis=1))
    assert np.array_equal(found.maximum, expected.max(axis=1))
    assert found.count.tolist() == [49] * 7
    # The module states the grids: values 2**-10 of the largest, squares 2**-14; half of that when rounded.
    largest = np.abs(expected).max(axis=1)
    assert np.all(np.abs(found.mean - expected.mean(axis=1)) <= 2.0**-11 * largest)
    assert np.all(np.abs(found.power - (expected**2).mean(axis=1)) <= 2.0**-15 * largest**2)


def test_errors_of_rounding_cancel_out_over_many_values() -> None:
    array = np.random.default_rng(0).standard_normal((50_000, 4)).astype(np.float32)
    found, expected = gathered(array, 1), array.astype(np.float64)
    # A grid of 2**-10 * 4.5 at the widest, even errors of at most half of it, over 50,000 values: 6 sigma.
    assert np.abs(found.mean - expected.mean(axis=0)).max() < 6 * 2.0**-10 * 4.5 / np.sqrt(12 * 50_000)
    assert np.abs(found.power / (expected**2).mean(axis=0) - 1.0).max() < 1e-4


def test_a_constant_channel_has_its_value_as_mean_within_its_range() -> None:
    found = gathered(np.full((5, 3), 0.3, np.float32), 1)
    assert found.mean.tolist() == [float(np.float32(0.3))] * 3
    assert np.all(found.power >= found.mean**2)


def test_channels_without_elements_are_zero() -> None:
    array = np.array([[np.nan, 1.0], [np.inf, -1.0]], np.float32)
    found = gathered(array, 1)
    assert (found.minimum.tolist(), found.maximum.tolist()) == ([0.0, -1.0], [0.0, 1.0])
    assert (found.count.tolist(), found.mean.tolist(), found.power.tolist()) == (
        [0, 2],
        [0.0, 0.0],
        [0.0, 1.0],
    )


@pytest.mark.parametrize(
    ("shape", "axis", "block", "layout"),
    [
        ((2, 3, 4, 5), 1, 1, ChannelLayout(3, 20, 1)),
        ((2, 32, 4, 5), 1, 16, ChannelLayout(2, 20, 16)),
        ((2, 3, 4, 5), -1, 1, ChannelLayout(1, 1, 5)),
        ((2, 3, 1, 1), 1, 1, ChannelLayout(1, 1, 3)),
        ((7,), 0, 1, ChannelLayout(1, 1, 7)),
    ],
)
def test_the_layout_of_channels_follows_from_shape_and_axis(
    shape: tuple[int, ...], axis: int, block: int, layout: ChannelLayout
) -> None:
    assert layout_of(shape, axis, block) == layout


@each
def test_blocks_of_channels_give_what_the_usual_order_gives(name: str) -> None:
    array = np.random.default_rng(0).standard_normal((2, 48, 5, 7)).astype(np.float32)
    array *= np.arange(1, 49, dtype=np.float32).reshape(48, 1, 1)
    blocks = array.reshape(2, 3, 16, 5, 7).transpose(0, 1, 3, 4, 2).copy().reshape(array.shape)
    assert gathered(blocks, 1, name, block=16) == gathered(array, 1)


# -------------------------------------------------------------------------------------------------- exactness

FLOATS = st.floats(width=32, allow_nan=False) | st.floats(-8, 8, width=32) | st.just(0.0)
COLUMNS = hnp.arrays(np.float32, st.tuples(st.integers(1, 6), st.just(3)), elements=FLOATS)


@settings(deadline=None)
@given(st.lists(COLUMNS, min_size=1, max_size=5), st.randoms())
@example([np.array([[1e-30, 2, 3]], np.float32), np.array([[1e30, 4e4, 0]], np.float32)], None)
def test_any_split_in_any_order_gives_the_same_record(arrays: list[npt.NDArray[Any]], random: Any) -> None:
    whole = gathered(np.concatenate(arrays), 1)
    shuffled = arrays[::-1] if random is None else random.sample(arrays, len(arrays))
    apart = [gathered(array, 1) for array in shuffled]
    assert reduce(Channels.merged, apart) == whole
    assert reduce(lambda a, b: b.merged(a), apart) == whole
    if len(apart) > 2:
        assert apart[0].merged(reduce(Channels.merged, apart[1:])) == whole
    on = ChannelSums.empty(3)
    for array in shuffled:
        add(on, array, 1)
    assert on.channels(1) == whole


@settings(deadline=None)
@given(COLUMNS)
def test_nothing_is_the_neutral_record(array: npt.NDArray[Any]) -> None:
    found, nothing = gathered(array, 1), ChannelSums.empty(3).channels(1)
    assert found.merged(nothing) == nothing.merged(found) == found


def test_a_record_does_not_change_later() -> None:
    sums = ChannelSums.empty(2)
    add(sums, np.ones((3, 2), np.float32), 1)
    early = sums.channels(1)
    add(sums, np.ones((3, 2), np.float32), 1)
    assert early.count.tolist() == [3, 3]
    with pytest.raises(ValueError, match="read-only"):
        early.sums[0, 0] = 1


@pytest.mark.parametrize(
    "other", [gathered(np.ones((2, 3), np.float32), 0), ChannelSums.empty(3).channels(-1)]
)
def test_records_of_other_channels_are_not_merged(other: Channels) -> None:
    with pytest.raises(ProfileError, match="profile all shards with the same options"):
        ChannelSums.empty(3).channels(1).merged(other)


def test_more_elements_than_sums_can_hold_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channels_module, "MAX_CHANNEL_COUNT", 5)
    found = gathered(np.ones((3, 2), np.float32), 1)
    with pytest.raises(ProfileError, match="merge fewer profiles"):
        found.merged(found)


# ------------------------------------------------------------------------------------------------------ twins


def check_twins(name: str, arrays: list[npt.NDArray[Any]], axis: int, block: int = 1) -> None:
    """Gather some arrays one after the other, and compare the state with the reference's after each."""
    sums, reference = ChannelSums.empty(arrays[0].shape[axis]), ChannelSums.empty(arrays[0].shape[axis])
    for array in arrays:
        add(sums, array, axis, name, block)
        add(reference, array, axis, "numpy", block)
        assert np.array_equal(sums.sums, reference.sums)
        assert np.array_equal(sums.ranges, reference.ranges)
    assert sums.channels(axis) == reference.channels(axis)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", BITS)
@each
@settings(deadline=None, max_examples=60)
@given(st.data())
def test_twins_agree_on_any_bit_patterns(name: str, dtype: str, data: st.DataObject) -> None:
    shape = data.draw(st.sampled_from([(1, 5, 7), (2, 3, 20), (4, 19, 1), (40, 2)]))
    bits = data.draw(hnp.arrays(BITS[dtype], shape))
    for axis in range(len(shape)):
        check_twins(name, [bits.view(dtype_of(dtype))], axis)


@pytest.mark.parametrize(
    ("shape", "axis", "block"),
    [
        ((2, 3, 50, 60), 1, 1),
        ((1, 6, 7, 7), 1, 1),
        ((1, 32, 14, 14), 1, 16),
        ((2, 16, 9, 9), 1, 8),
        ((3, 130, 40), -1, 1),
        ((300, 16), -1, 1),
        ((1, 3, 4100), 1, 1),
    ],
)
@each
def test_twins_agree_in_every_layout(name: str, shape: tuple[int, ...], axis: int, block: int) -> None:
    rng = np.random.default_rng(0)
    for dtype in BITS:
        sizes = [0.001, 1.0, 3.0, 250.0]
        arrays = [(rng.standard_normal(shape) * size).astype(dtype_of(dtype)) for size in sizes]
        check_twins(name, arrays, axis, block)
        arrays[1].reshape(-1)[[3, -5]] = np.nan, np.inf
        check_twins(name, arrays, axis, block)


@each
def test_twins_agree_on_every_size_of_float32(name: str) -> None:
    for exponent in range(-149, 128, 3):
        array = np.ldexp(np.linspace(-1.999, 1.999, 48), exponent).astype(np.float32).reshape(3, 16)
        check_twins(name, [array, array / 3, np.clip(array, -1e38, 1e38) * 2], 1)
        check_twins(name, [array], 0)


def wrong_calls() -> dict[str, Callable[[Any], object]]:
    def call(
        x: npt.NDArray[Any] | None = None,
        layout: tuple[int, int, int] = (3, 2, 1),
        stop: int = 6,
        sums: int = 1 + SUMS,
        level: int = 0,
    ) -> Callable[[Any], object]:
        array = np.zeros(12, np.float32) if x is None else x
        sums = np.zeros((5, 3)), np.zeros((sums, 3), np.int64)
        return lambda module: module.gather([array], [(layout, 0, stop, sums)], level)

    return {
        "arrays must be of": call(x=np.zeros(12, np.int32)),
        "contiguous": call(x=np.zeros(24, np.float32)[::2]),
        "inner and lanes must be": call(layout=(3, 0, 1)),
        "units must lie in the array": call(stop=7),
        "there must be 5 doubles": call(sums=2),
        "no such level": call(level=9),
        "each array needs its part": lambda module: module.gather([np.zeros(12, np.float32)], [], 0),
    }


@pytest.mark.parametrize("message", wrong_calls())
def test_the_compiled_module_refuses_what_it_cannot_add(message: str) -> None:
    module = pytest.importorskip("qprof_onnx.profiles.observers._channels")
    with pytest.raises(ValueError, match=message):
        wrong_calls()[message](module)


def test_a_fault_in_one_of_many_calls_lets_go_of_all_arrays() -> None:
    module = pytest.importorskip("qprof_onnx.profiles.observers._channels")
    arrays, sums = [np.ones(12, np.float32), np.zeros(12, np.float32)], ChannelSums.empty(3)
    before = [sys.getrefcount(array) for array in arrays]
    parts = [ArraySlice(ChannelLayout(3, 2, 1), 0, stop, sums) for stop in (6, 7)]
    with pytest.raises(ValueError, match="units must lie in the array"):
        module.gather(arrays, parts, 0)
    assert [sys.getrefcount(array) for array in arrays] == before
    assert not sums.sums.any()


# ------------------------------------------------------------------------------------------- the accumulator


@each
def test_an_accumulator_records_channels(name: str) -> None:
    array = np.random.default_rng(0).standard_normal((3, 4, 9, 5)).astype(np.float32)
    array[1, 2, 3, 4] = np.nan
    found = TensorObserver("float", axis=1, channels=4, channel_counter=IMPLEMENTATIONS[name])
    assert found.add(array, array.shape) == (1, 0)
    profile = found.profile()
    assert profile.channels == gathered(array, 1)
    plain = TensorObserver("float")
    plain.add(array, array.shape)
    assert profile.histogram == plain.profile().histogram
    found.add(array, array.shape)
    assert found.profile() == profile.merged(profile)


def test_divided_channels_have_the_statistics_of_divided_elements() -> None:
    array = np.random.default_rng(5).standard_normal((40, 6)).astype(np.float32) * 10.0 ** np.arange(-3, 3)
    scales = np.array([2.0**-12, 0.25, 1.0, 2.0, 64.0, 2.0**20])
    found, expected = divided(gathered(array, 1), scales), gathered(array / scales, 1)
    assert fault(found) == ""
    assert np.array_equal(found.minimum, expected.minimum)
    assert np.array_equal(found.maximum, expected.maximum)
    # 2**-10 of the largest magnitude is the coarsest grid, 2**-14 of the largest square.
    assert (np.abs(found.mean - expected.mean) <= 2.0**-10 * expected.magnitude).all()
    assert (np.abs(found.power - expected.power) <= 2.0**-14 * expected.magnitude**2).all()
