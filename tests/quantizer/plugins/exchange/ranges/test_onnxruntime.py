"""onnxruntime's calibration data: files that it wrote are read, and it reads those that are written here."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnxruntime.quantization import CalibrationMethod, write_calibration_table
from onnxruntime.quantization.calibrate import TensorData, TensorsData, load_tensors_data
from qprof_onnx.profiles.base.errors import ProfileError
from qprof_onnx.profiles.records.histogram import BINS, UNKNOWN_BINS, EqualBins
from qprof_onnx.profiles.records.profile import DataId, ModelId, Profile, TensorProfile
from qprof_onnx.quantizer.plan.documents import load_profile, profile_in
from qprof_onnx.quantizer.plugins.exchange.formats import FORMATS
from qprof_onnx.quantizer.plugins.exchange.onnxruntime_json import join_bins
from qprof_onnx.quantizer.plugins.exchange.profiles import ranges_profile

DATA = Path(__file__).parent / "data"
MODEL = ir.Model(ir.Graph((), (), nodes=()), ir_version=8)
TABLES = {
    "onnxruntime": "calibration.json",
    "onnxruntime-flatbuffers": "calibration.flatbuffers",
}
FLOATS = st.floats(-(2.0**100), 2.0**100, width=32)
PAIRS = st.tuples(FLOATS, FLOATS).map(lambda pair: (min(pair), max(pair)))
TOP, BOTTOM = np.float32(10.576943397521973), np.float32(-5.129703521728516)


def profile(pairs: dict[str, tuple[float, float]]) -> Profile:
    found = {n: TensorProfile("float", None, *p, 1, 0, 0, 0, UNKNOWN_BINS) for n, p in pairs.items()}
    return Profile(ModelId("", "", 0), DataId(), found, "onnxruntime")


def written(name: str, pairs: dict[str, tuple[float, float]]) -> bytes:
    content = FORMATS[name].load().write(profile(pairs), MODEL)
    return content if isinstance(content, bytes) else content.encode()


def table(**values: Any) -> bytes:
    return json.dumps(values).encode()


def test_both_ends_of_a_range_are_read() -> None:
    found = load_profile(DATA / "digits-minmax.json")
    assert (len(found), found.origin) == (20, "onnxruntime")
    assert (found["block.add.out"].minimum, found["block.add.out"].maximum) == (BOTTOM, TOP)
    assert found["block.add.out"].histogram == UNKNOWN_BINS


def test_a_table_with_one_end_of_each_range_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "calibration.flatbuffers"
    file.write_bytes(written("onnxruntime-flatbuffers", {"x": (-4.0, 1.0)}))
    with pytest.raises(ProfileError, match=r"give calibration\.json, which onnxruntime writes beside it"):
        load_profile(file)


def test_histograms_of_entropy_become_equal_bins_without_empty_ends() -> None:
    found = load_profile(DATA / "digits-entropy.json")
    exact = load_profile(DATA / "digits-minmax.json")
    assert all(isinstance(tensor.histogram, EqualBins) for tensor in found.values())
    for name, tensor in found.items():
        assert tensor.histogram.counts[0] > 0 < tensor.histogram.counts[-1]
        width = (tensor.maximum - tensor.minimum) / tensor.histogram.counts.size
        assert abs(tensor.minimum - exact[name].minimum) <= width
        assert abs(tensor.maximum - exact[name].maximum) <= width


def test_chosen_ranges_are_those_of_the_file() -> None:
    data = (DATA / "digits-entropy.json").read_bytes()
    found = ranges_profile(FORMATS["onnxruntime"], data, "c.json", chosen_ranges=True)
    lowest = json.loads(data)["data"]["block.add.out"]["lowest"]
    assert found["block.add.out"].minimum == lowest
    assert all(tensor.histogram == UNKNOWN_BINS for tensor in found.values())


def test_percentile_has_no_histogram_in_its_file() -> None:
    found = load_profile(DATA / "digits-percentile.json")
    assert all(tensor.histogram == UNKNOWN_BINS for tensor in found.values())


def test_a_plain_mapping_of_ranges_is_read() -> None:
    assert profile_in(table(x=[-1, 2.5]), "r.json")["x"].minimum == -1.0


def test_ranges_of_channels_become_one_and_that_is_noted(caplog: pytest.LogCaptureFixture) -> None:
    ends = {"lowest": [-1.0, -3.0], "highest": [2.0, 1.0], "CLS": "TensorData"}
    found = profile_in(table(x=ends), "r.json")["x"]
    assert (found.minimum, found.maximum) == (-3.0, 2.0)
    assert "r.json: 1 tensors have a range for each channel" in caplog.messages[0]


@given(st.integers(1, 9000), st.integers(0, 5))
def test_joining_bins_keeps_counts_and_width(size: int, seed: int) -> None:
    counts = np.random.default_rng(seed).integers(1, 9, size).astype(np.float64)
    found = join_bins(-1.0, -1.0 + 0.25 * size, counts, 0.25)
    assert found.counts.size <= BINS
    assert found.total == counts.sum()
    width = (found.maximum - found.minimum) / found.counts.size
    assert width / 0.25 == 2.0 ** round(np.log2(width / 0.25))


# Writing


@given(st.dictionaries(st.text(min_size=1), PAIRS, min_size=1))
def test_json_keeps_every_range(pairs: dict[str, tuple[float, float]]) -> None:
    found = profile_in(written("onnxruntime", pairs), "c.json")
    assert {name: (t.minimum, t.maximum) for name, t in found.items()} == pairs


@pytest.mark.parametrize("name", TABLES)
def test_the_bytes_are_those_that_onnxruntime_writes(name: str, tmp_path: Path) -> None:
    pairs = {"b": (-1.5, 2.25), "a": (0.0, 0.1), "c:0 d": (-3.0, 3.5)}
    arrays = {n: [np.array([end], np.float32) for end in pair] for n, pair in pairs.items()}
    data = {n: TensorData(lowest=low, highest=high) for n, (low, high) in arrays.items()}
    write_calibration_table(TensorsData(CalibrationMethod.MinMax, data), str(tmp_path))
    rounded = {n: (float(low[0]), float(high[0])) for n, (low, high) in arrays.items()}
    assert written(name, rounded) == (tmp_path / TABLES[name]).read_bytes()


def test_onnxruntime_reads_what_is_written(tmp_path: Path) -> None:
    (tmp_path / "c.json").write_bytes(written("onnxruntime", {"x": (-1.5, 2.25)}))
    found = load_tensors_data(tmp_path / "c.json")
    assert found.calibration_method == CalibrationMethod.MinMax
    assert [float(end[0]) for end in found["x"].range_value] == [-1.5, 2.25]


# Files that are wrong


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b'{"x": [NaN, 1.0]}', "tensor 'x': the range nan .. 1.0 is not finite"),
        (b'{"x": [0, Infinity]}', "tensor 'x': the range 0.0 .. inf is not finite"),
        (b'{"x": [2, 1]}', "tensor 'x': minimum 2.0 is greater than maximum 1.0"),
        (b'{"CLS": "TensorsData", "x": 1, "x": 2, "Tensor": 1}', "duplicate key 'x'"),
        (b'{"CLS": "TensorsData", "data": 3}', "'data' is not a mapping"),
        (b'{"CLS": "TensorsData", "data": {"x": {"CLS": "TensorData"}}}', "tensor 'x': has no 'lowest' and"),
        (b'{"x": {"CLS": "TensorData", "lowest": "a", "highest": 1}}', "tensor 'x': lowest is not a number"),
    ],
)
def test_each_malformed_file_has_its_sentence(data: bytes, sentence: str) -> None:
    with pytest.raises(ProfileError, match=rf"^c: {sentence}.*; .+"):
        profile_in(data, "c")
