"""Profiles on disk: exact round trips, and one sentence for each way of being malformed."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from qprof_onnx.profiles.base.errors import ProfileError
from qprof_onnx.profiles.observers.tensor_observer import TensorObserver
from qprof_onnx.profiles.records.histogram import BINS, EqualBins, Histogram
from qprof_onnx.profiles.records.profile import DataId, ModelId, Profile, TensorProfile
from qprof_onnx.profiles.records.store import dumps, load_profile, loads, save_profile

DATA = Path(__file__).parents[2] / "data"
MODEL = ModelId("5a" * 32, "c3" * 32, 17, "digits.onnx")


def tensor(values: Any, dtype: str = "float", shape: Any = (None, 4), nan: int = 0) -> TensorProfile:
    """Return the profile of some values."""
    array = np.asarray(values, np.float32)
    low, high = (float(array.min()), float(array.max())) if array.size else (0.0, 0.0)
    zeros = int((array == 0).sum())
    return TensorProfile(dtype, shape, low, high, array.size, zeros, nan, 0, Histogram.of(array))


def profile(**tensors: TensorProfile) -> Profile:
    return Profile(MODEL, DataId(3, "0f" * 16), tensors, "qprof", "qprof 0.1.0")


SMALL = profile(x=tensor([-1.5, 0.0, 0.25, 2.0]))
TEXT = dumps(SMALL)

arrays = hnp.arrays(
    np.float32, st.integers(0, 40), elements=st.floats(width=32, allow_nan=False, allow_infinity=False)
)
shapes = st.none() | st.lists(st.none() | st.integers(0, 10**6), max_size=5).map(tuple)


@st.composite
def weighed(draw: st.DrawFn) -> TensorProfile:
    dtype = draw(st.sampled_from(["float", "float16", "double"]))
    rows = hnp.arrays(
        np.float64 if dtype == "double" else np.float32, st.tuples(st.integers(0, 5), st.just(3))
    )
    gathered = TensorObserver(dtype, axis=draw(st.sampled_from([1, -1])), channels=3)
    gathered.add(draw(rows), (None, 3))
    return gathered.profile()


exact = st.builds(tensor, arrays, st.sampled_from(["float", "float16", "double"]), shapes, st.integers(0, 9))


@st.composite
def equal(draw: st.DrawFn) -> TensorProfile:
    ends = st.floats(width=32, allow_nan=False, allow_infinity=False)
    low, high = sorted([draw(ends), draw(ends)])
    counts = draw(hnp.arrays(np.float32, st.integers(1, 40), elements=st.floats(0, 2.0**60, width=32)))
    bins = EqualBins(low, high, counts)
    return TensorProfile("float", draw(shapes), low, high, bins.total, 0, 0, 0, bins)


@given(
    st.dictionaries(st.text(), exact | weighed() | equal(), max_size=4),
    st.text(),
    st.sampled_from(["qprof", "glow"]),
)
def test_loading_what_was_saved_gives_the_same(
    tensors: dict[str, TensorProfile], tool: str, origin: str
) -> None:
    saved = Profile(MODEL, DataId(7, "ab" * 16), tensors, origin, tool)
    loaded = loads(dumps(saved))
    assert loaded == saved
    assert (list(loaded), loaded.tool, loaded.model.file) == (list(saved), saved.tool, saved.model.file)


@given(arrays)
def test_the_same_profile_gives_the_same_bytes_after_a_round_trip(values: Any) -> None:
    text = dumps(profile(x=tensor(values)))
    assert dumps(loads(text)) == text


def test_runs_of_zeros_are_written_as_one_word() -> None:
    text = dumps(profile(x=tensor([1.0, 1.5, 1.5 + 2.0**-10, 2.0])))
    assert re.search(r'counts: "1 0\*\d+ 1 1 0\*\d+ 1"', text)


def test_floats_keep_every_bit() -> None:
    values = np.array([1e-45, 0.1, 16777217.0, 3.4028235e38], np.float32)
    loaded = loads(dumps(profile(x=tensor(values))))
    assert (loaded["x"].minimum, loaded["x"].maximum) == (float(values[0]), float(values[-1]))


def test_a_file_holds_every_kind_of_bins() -> None:
    loaded = load_profile(DATA / "profile-small.yaml")
    assert loaded.model == ModelId("0123456789abcdef" * 4, "fedcba9876543210" * 4, 13, "small.onnx")
    assert loaded.data == DataId(2, "00000000000000000000000000000abc")
    assert list(loaded)[:5] == ["input", "conv:0", "7", "glow's", "none"]
    assert all(loaded[name].channels is None for name in list(loaded)[:5])
    x = loaded["input"]
    assert (x.dtype, x.shape, x.minimum, x.maximum) == ("float", (None, 1, 8, 8), -1.0, 2.5)
    assert (x.count, x.zeros, x.nan, x.inf) == (6, 1, 2, 1)
    assert x.histogram == Histogram.of(np.array([-1.0, -0.5, 0.0, 0.1, 2.0, 2.5], np.float32))
    assert loaded["conv:0"].shape is None
    assert loaded["7"].shape == ()
    assert loaded["glow's"].histogram == EqualBins(-0.5, 0.75, np.array([3, 0, 0, 0, 1e20, 0.5]))
    assert loaded["none"].count == 0


def test_a_file_holds_channels() -> None:
    tensor = load_profile(DATA / "profile-small.yaml")["weighed"]
    assert tensor.channels is not None
    assert (tensor.channels.axis, tensor.channels.count.tolist()) == (-1, [2, 2, 0])
    assert tensor.channels.minimum.tolist() == [float(np.float32(0.1)), -3.0, 0.0]
    assert tensor.channels.maximum.tolist() == [0.5, 7.0, 0.0]
    # 0.1 is rounded to the grid of its channel.
    assert tensor.channels.mean.tolist() == pytest.approx([0.3, 2.0, 0.0], abs=0.5 * 2.0**-11)
    assert tensor.channels.power.tolist() == pytest.approx([0.13, 29.0, 0.0], abs=0.25 * 2.0**-15)


MALFORMED = {
    "unknown key": ("    zeros: ", "    zeroes: ", "tensor 'x': unknown key 'zeroes'.*mean 'zeros'"),
    "unknown origin": ("origin: qprof", "origin: TF Lite", "origin 'TF Lite' is not the name of a format"),
    "unknown dtype": ("dtype: float", "dtype: flaot16", "dtype 'flaot16' is not one of.*mean 'float16'"),
    "negative dimension": (
        r"\[null, 4\]",
        "[-1, 4]",
        "tensor 'x': shape must be a whole number from 0 on, not -1",
    ),
    "infinite maximum": ("maximum: 2.0", "maximum: .inf", "tensor 'x': maximum must be finite"),
    "count of wrong type": (
        "count: 4",
        "count: 4.5",
        "tensor 'x': count must be a whole number from 0 on, not 4.5",
    ),
    "minimum above maximum": ("minimum: -1.5", "minimum: 3.0", "minimum 3.0 is greater than maximum 2.0"),
    "more zeros than elements": ("zeros: 1", "zeros: 5", "tensor 'x': 5 zeros in 4 elements"),
    "wrong sum": ("count: 4", "count: 5", "tensor 'x': the histogram's counts add up to 4, not to count 5"),
    "outside the minimum": ("minimum: -1.5", "minimum: -1.25", "outside minimum .. maximum: -1.25 must"),
    "outside the maximum": ("maximum: 2.0", "maximum: 1e300", "outside minimum .. maximum: .*1e.300 in"),
    "negative count": ('counts: "1 ', 'counts: "-1 ', "tensor 'x': the histogram has negative counts"),
    "fractional count": (
        'counts: "1 ',
        'counts: "1.5 ',
        "tensor 'x': histogram: counts: '1.5' is not a whole number",
    ),
    "count beyond 63 bits": (
        'counts: "1 ',
        'counts: "9999999999999999999 ',
        "histogram: counts: a number is not below 2..63",
    ),
    "too many bins": ('counts: "1 ', f'counts: "{"1 " * BINS}', "tensor 'x': histogram has more than 2000"),
    "too long a run": (
        r"0\*\d+",
        "0*999999999",
        "tensor 'x': histogram: counts has more than 4194304 numbers",
    ),
    "empty last bin": (' 1"}', ' 1 0"}', "the first or the last bin of the histogram is empty"),
    "unknown histogram": ("exponent: ", "exp: ", "tensor 'x': histogram: unknown key 'exp'"),
    "huge exponent": (
        "exponent: .*?,",
        "exponent: 100000,",
        "exponent must be a whole number from -200 to 1024, not 100000",
    ),
    "digest": (
        'digest: ".*"|digest: .*',
        "digest: xyz",
        "data: digest must be 32 hexadecimal digits, not 'xyz'",
    ),
}


@pytest.mark.parametrize("way", MALFORMED)
def test_each_way_of_being_malformed_has_its_sentence(way: str, tmp_path: Path) -> None:
    pattern, replacement, sentence = MALFORMED[way]
    path = tmp_path / "broken.yaml"
    text, times = re.subn(pattern, replacement, TEXT, count=1)
    assert times == 1
    path.write_text(text)
    with pytest.raises(ProfileError, match=sentence) as caught:
        load_profile(path)
    assert re.match(r"broken\.yaml: .*; .+", str(caught.value)), "file, what, and what to do"


def test_equal_bins_must_have_the_range_of_their_tensor() -> None:
    bins = EqualBins(-1.0, 1.0, np.array([1.0]))
    text = dumps(profile(g=TensorProfile("float", None, -1.0, 1.0, 1, 0, 0, 0, bins)))
    with pytest.raises(ProfileError, match=r"tensor 'g': the histogram is outside minimum \.\. maximum"):
        loads(text.replace("histogram: {minimum: -1.0", "histogram: {minimum: -2.0"))


def test_a_range_without_elements_is_refused() -> None:
    text = dumps(profile(x=tensor([])))
    with pytest.raises(ProfileError, match="tensor 'x': no elements, but a range"):
        loads(text.replace("maximum: 0.0", "maximum: 1.0"))


def test_a_profile_that_contradicts_itself_is_not_written(tmp_path: Path) -> None:
    wrong = profile(x=replace(SMALL["x"], count=9))
    with pytest.raises(ProfileError, match="tensor 'x': the histogram's counts add up to 4, not to count 9"):
        save_profile(wrong, tmp_path / "p.yaml")
    assert not (tmp_path / "p.yaml").exists()


# ------------------------------------------------------------------------------------------------ channels


def with_channels() -> str:
    gathered = TensorObserver("float", axis=1, channels=2)
    gathered.add(np.array([[1.5, -2.0], [3.0, 0.25]], np.float32), (None, 2))
    return dumps(profile(x=gathered.profile()))


def test_one_number_stands_for_equal_ones_of_all_channels() -> None:
    assert 'minimum: float32 1.5 -2.0, maximum: float32 3.0 0.25, count: "2*2"' in with_channels()
    assert loads(with_channels())["x"].channels.count.tolist() == [2, 2]


WRONG_CHANNELS = {
    "missing key": ("axis: 1, ", "", "channels: key 'axis' is missing"),
    "no mapping": ("channels: .*", "channels: 3", "channels must be a mapping, not 3"),
    "axis outside": ("axis: 1", "axis: 2", "channels: axis 2 is not an axis of the shape"),
    "too few": ("float32 1.5 -2.0", "float32 1.5 -2 3.0", "channels: the arrays are not of one length"),
    "as many as the shape has not": (r"shape: \[null, 2\]", "shape: [null, 3]", "the shape has 3 on axis 1"),
    "a word": ("float32 1.5 -2.0", "float32 1.5 low", "channels: minimum: 'low' is not a number"),
    "a run of a word": ('"2[*]2"', '"a*2"', "channels: count: 'a' is not a whole number"),
    "not finite": ("float32 1.5 -2.0", "float32 1.5 -inf", "channels: minimum: '-inf' is not a number"),
    "too large": ("float32 1.5 -2.0", "float32 1.5 -1e99", "channels: minimum: a number is not finite"),
    "sums missing": (r'(sums: \[)"[^"]*", ', r"\1", "channels: the arrays are not of one length"),
    "sums of other lengths": (r'(sums: \[)"[^"]*"', r'\1"1 2 3"', "channels: sums: the rows are not of one"),
    "range upside down": (
        "float32 1.5 -2.0",
        "float32 1.5 2",
        "channels: a minimum is greater than the maximum",
    ),
    "negative count": ('"2[*]2"', '"-2*2"', r"channels: a count is not in 0 \.\."),
    "wrong count": ('"2[*]2"', '"3*2"', "channels: their counts do not add up to count 4"),
    "other range": (
        "float32 1.5 -2.0",
        "float32 1.5 -1",
        r"channels: their ranges span -1.0 \.\. 3.0, not minimum",
    ),
    "sum too large": (r'(sums: \[")\d+', rf"\g<1>{10**12}", "channels: a sum is too large for its count"),
    "nothing with a range": ('"2[*]2"', '"0 4"', "a channel without elements has a range or a sum"),
}


@pytest.mark.parametrize("way", WRONG_CHANNELS)
def test_each_way_that_channels_are_malformed_has_its_sentence(way: str) -> None:
    pattern, replacement, sentence = WRONG_CHANNELS[way]
    text, times = re.subn(pattern, replacement, with_channels(), count=1)
    assert times == 1
    with pytest.raises(ProfileError, match=f"p.yaml: tensor 'x': .*{sentence}"):
        loads(text, "p.yaml")
