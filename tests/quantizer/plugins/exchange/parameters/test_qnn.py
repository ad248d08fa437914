"""Qualcomm's quantization overrides are read as its documentation has them (data/qnn-overrides.json)."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from qprof_onnx.quantizer.numerics.affine import QuantParams
from qprof_onnx.quantizer.plugins.exchange.foreign import ForeignParams
from qprof_onnx.quantizer.plugins.exchange.formats import recognised

EXAMPLE = (Path(__file__).parent / "data" / "qnn-overrides.json").read_bytes()


def read(data: bytes) -> ForeignParams:
    """Return the parameters of a file of this format."""
    entry = recognised(data)
    assert entry is not None
    assert entry.name == "qnn"
    found = entry.load().read(data, "overrides.json")
    assert isinstance(found, ForeignParams)
    return found


def one(**fields: object) -> ForeignParams:
    """Return the parameters of a file with one constant, 'w'."""
    return read(json.dumps({"activation_encodings": {}, "param_encodings": {"w": [fields]}}).encode())


def facts(params: QuantParams) -> tuple[str, int, float]:
    """Return type, zero point and scale of the first channel."""
    return params.qtype.name, int(params.zero_point[0]), float(params.scale[0])


def test_the_example_of_the_documentation_is_read() -> None:
    params = read(EXAMPLE)
    assert {name: facts(p)[:2] for name, p in params.tensors.items()} == {
        "Conv1:0": ("uint8", 0),
        "input:0": ("uint8", 127),
        "Conv2d/weights": ("uint8", 140),
        "features.9.conv.3.weight": ("uint8", 103),
        "features.8.conv.3.weight": ("int8", 0),
    }
    assert params.tensors["features.8.conv.3.weight"].scale[2] == np.float32(0.005801794566507415)
    assert params.axis_unknown == {"features.8.conv.3.weight"}


def test_what_was_assumed_or_left_out_of_the_example_is_said() -> None:
    assert tuple(map(str, read(EXAMPLE).findings)) == (
        "left out: 'conv1_1': it has only a bit width",
        "left out: 'conv2_1': they stay float",
        "'input:0', 'Conv2d/weights': the offset is positive, and read as zero point",
    )


def test_scale_and_offset_follow_from_a_range_where_they_are_missing() -> None:
    params = one(bitwidth=8, min=-1.28, max=1.27)
    assert facts(params.tensors["w"]) == ("int8", 0, pytest.approx(0.01))
    assert tuple(map(str, params.findings)) == (
        "'w': scale and offset are computed from min, max and bitwidth",
    )


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"is_symmetric": "true", "offset": -128, "min": -1.28}, ("int8", 0)),
        ({"is_symmetric": True, "offset": -128}, ("int8", 0)),
        ({"is_symmetric": "True", "offset": 0, "min": 0.0}, ("int8", -128)),
        ({"is_symmetric": "True", "offset": 0, "min": -1.28}, ("int8", 0)),
        ({"is_symmetric": "False", "offset": -128, "min": -1.28}, ("uint8", 128)),
        ({"offset": -128}, ("int8", 0)),
        ({"offset": -100}, ("uint8", 100)),
        ({"offset": -100, "min": -7.0}, ("uint8", 100)),
        ({"is_symmetric": "True", "offset": -127, "min": -1.27}, ("int8", 0)),
    ],
)
def test_offsets_count_from_the_lowest_value_unless_the_range_says_otherwise(
    fields: dict[str, object], expected: tuple[str, int]
) -> None:
    assert facts(one(bitwidth=8, scale=0.01, **fields).tensors["w"])[:2] == expected


def test_a_range_that_disagrees_with_scale_and_offset_is_named() -> None:
    assert tuple(map(str, one(bitwidth=8, scale=0.01, offset=-100, min=-7.0).findings)) == (
        "'w': min and max disagree with scale and offset, and are not used",
    )


@pytest.mark.parametrize(("bits", "name"), [(4, "int4"), (16, "int16")])
def test_other_widths_are_read(bits: int, name: str) -> None:
    params = one(bitwidth=bits, scale=0.01, offset=-(1 << (bits - 1)), is_symmetric="True")
    assert facts(params.tensors["w"])[:2] == (name, 0)


def test_widths_that_qprof_has_not_are_left_out() -> None:
    params = one(bitwidth=6, scale=0.01, offset=-32, is_symmetric="True")
    assert tuple(map(str, params.findings)) == ("left out: 'w': qprof has no such type",)
