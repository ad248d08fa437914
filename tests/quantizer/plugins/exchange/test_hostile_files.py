"""Files of other tools that say what cannot be: refused in a sentence, or left out with a note."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import onnx.parser
import pytest
from qprof_onnx.profiles.base.errors import QprofError
from qprof_onnx.quantizer.plan.documents import profile_in
from qprof_onnx.quantizer.plan.plan import Kind, QuantPlan
from qprof_onnx.quantizer.plugins.exchange.importing import plan_of_file
from qprof_onnx.quantizer.targets.loading import load_recipe

MODEL = """<ir_version: 8, opset_import: ["": 17]>
net (float[1, 2, 4, 4] x) => (float[1, 2, 4, 4] y) <float[2, 2, 1, 1] w = {1, 2, 3, 4}> { y = Conv(x, w) }"""
OLD: dict[str, Any] = {"bitwidth": 8, "is_symmetric": "False", "offset": -128, "scale": 0.1}
WEIGHT = {"bitwidth": 8, "is_symmetric": "True", "offset": -128, "scale": 0.1}
NEW = {"bw": 8, "dtype": "INT", "enc_type": "PER_TENSOR", "is_sym": False, "scale": [0.1], "offset": [-128]}


def planned(folder: Path, document: object) -> QuantPlan:
    (folder / "file.json").write_text(json.dumps(document))
    onnx.save(onnx.parser.parse_model(MODEL), folder / "model.onnx")
    return plan_of_file(folder / "file.json", folder / "model.onnx", load_recipe())


def overrides(**changes: object) -> dict[str, object]:
    return {
        "activation_encodings": {"x": [{**OLD, **changes}], "y": [OLD]},
        "param_encodings": {"w": [WEIGHT]},
    }


@pytest.mark.parametrize("bits", [0, -1, 65, 10**12, 10**30])
@pytest.mark.parametrize("scale", [0.1, 0.0])
def test_a_bit_width_that_is_none_is_refused(bits: int, scale: float, tmp_path: Path) -> None:
    with pytest.raises(QprofError, match=r"file\.json: .*bitwidth is .*(not the width|too large)"):
        planned(tmp_path, overrides(bitwidth=bits, scale=scale, min=-1.0, max=1.0))


@pytest.mark.parametrize("offset", [10**400, -(10**300), 1e300])
def test_an_offset_beyond_all_integers_is_refused(offset: float, tmp_path: Path) -> None:
    with pytest.raises(QprofError, match=r"file\.json: .*offset is too large"):
        planned(tmp_path, overrides(offset=offset))


def test_a_tensor_with_two_entries_is_refused(tmp_path: Path) -> None:
    document = overrides()
    document["param_encodings"] = {"x": [WEIGHT]}
    with pytest.raises(QprofError, match="'x' is repeated"):
        planned(tmp_path, document)
    entries = [{"name": "x", **NEW}, {"name": "x", **NEW, "scale": [5.0]}]
    with pytest.raises(QprofError, match="'x' is repeated"):
        planned(tmp_path, {"activation_encodings": entries, "param_encodings": [], "version": "1.0.0"})
    pairs = [{"name": "x", "output_dtype": "int8", "y_scale": scale} for scale in (0.1, 0.2)]
    with pytest.raises(QprofError, match="'x' is repeated"):
        planned(tmp_path, {"encodings": pairs, "version": "2.0.0"})


def test_a_key_that_stands_twice_is_named(tmp_path: Path) -> None:
    planned(tmp_path, overrides())
    (tmp_path / "file.json").write_text('{"x": [{}], "x": [{}]}')
    with pytest.raises(QprofError, match=r"file\.json: duplicate key 'x'"):
        plan_of_file(tmp_path / "file.json", tmp_path / "model.onnx", load_recipe())


def test_several_scales_of_a_tensor_that_is_per_tensor_are_refused(tmp_path: Path) -> None:
    entry = {"name": "w", **NEW, "scale": [0.1, 0.2], "offset": [-128, -128]}
    with pytest.raises(QprofError, match="PER_TENSOR with 2 scales"):
        planned(tmp_path, {"activation_encodings": [], "param_encodings": [entry], "version": "1.0.0"})


def test_an_activation_with_a_scale_for_each_channel_is_left_out(tmp_path: Path) -> None:
    entries = [
        {"name": "x", "output_dtype": "uint8", "y_scale": [0.1, 0.2], "axis": 1},
        {"name": "y", "output_dtype": "uint8", "y_scale": 0.1},
        {"name": "w", "output_dtype": "int8", "y_scale": 0.1},
    ]
    plan = planned(tmp_path, {"encodings": entries, "version": "2.0.0"})
    assert "left out: 'x': it is an activation, and has several scales" in map(str, plan.findings)
    assert {entry.kind for entry in plan.nodes.values()} == {Kind.WEIGHT_ONLY}
    entries[0]["y_scale"] = [0.1]
    plan = planned(tmp_path, {"encodings": entries, "version": "2.0.0"})
    assert plan.tensors["x"].axis is None


@pytest.mark.parametrize("size", [-1, 3, 7])
def test_blocks_that_do_not_divide_the_weight_are_left_out(size: int, tmp_path: Path) -> None:
    scales = [[[[0.1]]], [[[0.1]]]]
    entry = {"name": "w", "output_dtype": "int8", "y_scale": scales, "axis": 1, "block_size": size}
    plan = planned(tmp_path, {"encodings": [entry], "version": "2.0.0"})
    assert any("left out: 'w'" in note for note in map(str, plan.findings))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f'{{"x": [-{10**400}, 1]}}', "is not a number"),
        ('{"x": [-1e308, 1e308]}', "beyond float32"),
        ("TRT-8601-EntropyCalibration2\nx: 3c1e\n", "of eight hexadecimal digits"),
    ],
)
def test_ranges_that_cannot_be_are_refused(text: str, message: str) -> None:
    with pytest.raises(QprofError, match=message):
        profile_in(text.encode(), "file")


@pytest.mark.parametrize(
    ("counts", "edges"),
    [([1.7e308, 1.7e308], [-1, 0, 1]), ([1, 1], [-1e39, 0, 1e39]), ([1, 1], [0, 1e-322, 2e-322])],
)
def test_a_histogram_beyond_all_numbers_is_not_taken(counts: list[float], edges: list[float]) -> None:
    tensor = {
        "lowest": {"data": [-1]},
        "highest": {"data": [1]},
        "hist": {"data": counts},
        "bins": {"data": edges},
    }
    document = {"CLS": "TensorsData", "data": {"x": {"CLS": "TensorData", **tensor}}}
    profile = profile_in(json.dumps(document).encode(), "file")
    assert not profile["x"].histogram.total
    assert (profile["x"].minimum, profile["x"].maximum) == (-1.0, 1.0)


def test_a_table_whose_entries_all_point_at_one_long_name_takes_no_memory() -> None:
    """100 thousand entries of a name of 3 MB: 300 GB, were they read."""
    name, count = b"k" * 3_000_000, 100_000
    vector = struct.pack("<I", count) + b"".join(struct.pack("<I", 4 * (count - i)) for i in range(count))
    entry_table = struct.pack("<HHHH", 8, 12, 4, 8) + struct.pack("<iII", 8, 8, 8 + len(name) + 5 - 1)
    root = struct.pack("<I", 12) + struct.pack("<HHH", 6, 8, 4) + b"\0\0"
    data = (
        root + struct.pack("<iI", 8, 4) + vector + entry_table + struct.pack("<I", len(name)) + name + b"\0"
    )
    with pytest.raises(QprofError):
        profile_in(data, "table")
