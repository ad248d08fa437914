"""AIMET's encodings are read as AIMET itself lowers them, on files that it wrote (see data/README.md)."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from qprof_onnx.profiles.base.errors import ConfigError
from qprof_onnx.quantizer.numerics.affine import TYPES, QuantParams, dequantize, quantize
from qprof_onnx.quantizer.operators.graph import Graph
from qprof_onnx.quantizer.plugins.exchange.foreign import ForeignParams
from qprof_onnx.quantizer.plugins.exchange.formats import read_as, recognised
from qprof_onnx.quantizer.plugins.exchange.importing import plan_of_file, with_axes
from qprof_onnx.quantizer.prepare.prepare import open_prepared
from qprof_onnx.quantizer.targets.loading import load_recipe

DATA = Path(__file__).parent / "data"
TRUTH: dict[str, dict[str, Any]] = json.loads((DATA / "aimet-qdq.json").read_text())
QDQ = [name for name, tensors in TRUTH.items() if tensors]


@cache
def graph() -> Graph:
    """Return the graph of the model that the files are for."""
    return open_prepared(DATA / "model.onnx").graph


def read(name: str) -> ForeignParams:
    """Return the parameters of a file of AIMET, with the model's axes."""
    data = (DATA / f"{name}.encodings").read_bytes()
    if name.endswith("0.6"):  # without the version it is a file for Qualcomm's converters
        data = json.dumps(
            {key: value for key, value in json.loads(data).items() if key != "version"}
        ).encode()
    entry = recognised(data)
    assert entry is not None
    assert entry.name == ("qnn" if name.endswith("0.6") else f"aimet-{name[-3:]}")
    found = read_as(entry, data, name, ConfigError)
    assert isinstance(found, ForeignParams)
    return with_axes(found, graph())


def lowered(name: str, tensor: str) -> QuantParams | None:
    """Return the parameters of a tensor in AIMET's own QDQ model.

    Of 0.6 and 1.0 those of strict symmetric ones, -1, as 0.
    """
    found = TRUTH[name].get(tensor) or TRUTH[name].get(f"{tensor}_qdq")
    if found is None:
        return None
    points = found["zero_point"]
    points = [0] * len(points) if name in ("strict-0.6", "strict-1.0") else points
    qtype = TYPES[found["type"]]
    return QuantParams(tuple(found["scale"]), tuple(points), qtype, found["axis"], found["block_size"])


@pytest.mark.parametrize("name", QDQ)
def test_the_parameters_are_those_of_the_model_that_aimet_makes_of_the_file(name: str) -> None:
    params = read(name)
    assert {"x", "r", "y", "cw", "gw"} <= params.tensors.keys()
    for tensor, own in params.tensors.items():
        assert own == lowered(name, tensor)


@pytest.mark.parametrize("kind", ["block", "lpbq"])
def test_blocks_are_read_from_2_0_alone(kind: str) -> None:
    one, two = (read(f"{kind}-{version}") for version in ("1.0", "2.0"))
    blocks = two.tensors["gw"]
    assert (blocks.axis, blocks.block_size, blocks.qtype.name, len(blocks.scale)) == (0, 16, "int4", 12)
    assert "gw" not in one.tensors
    assert any("encodings 2.0 have blocks with their axis" in note for note in map(str, one.findings))


def test_scales_of_lpbq_are_multiples_of_the_scale_of_their_channel() -> None:
    whole = np.array([[16, 12, 16], [15, 16, 15], [16, 11, 14], [16, 14, 15]], np.float32)
    channels = np.array([0.01873619481921196, 0.017878504736082896, 0.017502306827477047], np.float32)
    assert read("lpbq-2.0").tensors["gw"].scale.tolist() == (whole * channels).reshape(-1).tolist()


def test_blocks_of_qnn_cannot_be_told_from_channels_and_are_left_out() -> None:
    params = read("block-0.6")
    assert "gw" not in params.tensors
    assert "left out: 'gw': its scales do not fit an axis of the model's constant" in map(
        str, params.findings
    )


def test_a_file_of_0_6_says_which_versions_are_read_and_how_to_write_one() -> None:
    with pytest.raises(ConfigError, match=r"encodings 0\.6\.1; .*1\.0, 2\.0 and 2\.1: .*encoding_version='1"):
        plan_of_file(DATA / "default-0.6.encodings", DATA / "model.onnx", load_recipe())


@pytest.mark.parametrize("version", ["0.6", "1.0"])
def test_tensors_of_float_types_are_named_and_left_out(version: str) -> None:
    params = read(f"f16-{version}")
    assert not params.tensors
    assert any(note.endswith(" and 2 more: they stay float") for note in map(str, params.findings))


def test_symmetric_without_the_lowest_value_has_zero_point_0_and_the_same_weights() -> None:
    params = read("strict-1.0")
    own = params.tensors["cw"]
    weights = graph().constant("cw")
    assert weights is not None
    theirs = QuantParams(own.scale, (-1,) * len(own.scale), own.qtype, own.axis)
    same = (dequantize(quantize(weights, each), each) for each in (own, theirs))
    np.testing.assert_array_equal(*same)
    assert any("read with zero_point 0" in note for note in map(str, params.findings))


def test_who_wrote_the_file_is_said() -> None:
    assert read("default-1.0").tool == "aimet-onnx 2.42.0 (encodings 1.0.0)"


def encodings_2(**fields: object) -> bytes:
    """Return a file of version 2.1.0 with one weight."""
    entry = {"name": "w", "output_dtype": "int4", "axis": 1, "block_size": 32, **fields}
    return json.dumps({"version": "2.1.0", "encodings": [entry]}).encode()


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        (
            {"y_scale": {"x": [[0.5]], "x_scale": 0.1, "input_dtype": "float8e4m3fn"}},
            "its scales are quantized",
        ),
        ({"y_scale": [[0.1]], "y_zero_point": [[-0.5]]}, "fractions"),
        ({"y_scale": [[0.1]], "output_dtype": "int3"}, "no such type"),
        ({"y_scale": [[0.1]], "output_dtype": "float8e5m2"}, "no float8e5m2"),
        ({"y_scale": [[0.0]]}, "not a positive float32"),
        ({"y_scale": [[0.1]], "y_zero_point": [[8]]}, "not a value of int4"),
        ({"y_scale": [[0.1]], "axis": -1}, "counted from the end"),
    ],
)
def test_what_qprof_has_no_parameters_for_is_left_out_with_a_reason(
    fields: dict[str, object], reason: str
) -> None:
    entry = recognised(data := encodings_2(**fields))
    assert entry is not None
    params = entry.load().read(data, "file")
    assert not params.tensors
    assert reason in str(params.findings[0])


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ('{"version": "1.0.0", "activation_encodings": 3, "param_encodings": []}', "must be a list"),
        ('{"activation_encodings": {"x": []}, "param_encodings": {}}', "empty list"),
        ('{"activation_encodings": {"x": [{"bitwidth": 8.5}]}, "param_encodings": {}}', "not whole"),
        ('{"version": "2.0.0", "encodings": [{"name": "x"}]}', "output_dtype must be text, not empty"),
        (
            '{"version": "2.0.0", "encodings": [{"name": "x", "output_dtype": "int8", "y_scale": [[1], 2]}]}',
            "lists of numbers",
        ),
    ],
)
def test_a_malformed_file_is_named(text: str, what: str) -> None:
    entry = recognised(text.encode())
    assert entry is not None
    with pytest.raises(ConfigError, match=f"^my.encodings: .*{what}.*; "):
        read_as(entry, text.encode(), "my.encodings", ConfigError)
