"""What is written of a plan is read again: scales to the bit, and the same float values."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from qprof_onnx.profiles.base.errors import ConfigError
from qprof_onnx.quantizer.numerics.affine import INT7, INT8, INT32, TYPES, QuantParams, unsigned_equivalent
from qprof_onnx.quantizer.plan.plan import Adjustments, EqualizationScales, QuantPlan
from qprof_onnx.quantizer.plugins.exchange.foreign import ForeignParams
from qprof_onnx.quantizer.plugins.exchange.formats import FORMATS, read_as, recognised
from qprof_onnx.quantizer.plugins.exchange.importing import with_axes
from qprof_onnx.quantizer.prepare.prepare import PreparedModel, open_prepared
from qprof_onnx.quantizer.targets.config import QuantConfig

CHANNELS = {"cw": (0, 4), "gw": (1, 3)}
UNSIGNED = ("aimet-1.0", "qnn")
"""Formats in which a type is signed only with zero point 0."""
NAMES = (*UNSIGNED, "aimet-2.0")
scales = st.floats(2.0**-60, 2.0**60, width=32)


def twelve(values: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    """Return lists of as many values as 'gw' has blocks of 16."""
    return st.lists(values, min_size=12, max_size=12)


@st.composite
def activations(draw: st.DrawFn) -> QuantParams:
    """Return parameters of one scale, of any type that activations have."""
    qtype = TYPES[draw(st.sampled_from(["uint8", "int8", "uint16", "int16", "uint4"]))]
    return QuantParams((draw(scales),), (draw(st.integers(qtype.low, qtype.high)),), qtype)


@st.composite
def weights(draw: st.DrawFn, name: str) -> QuantParams:
    """Return parameters of a scale for each channel."""
    axis, count = CHANNELS[name]
    qtype = TYPES[draw(st.sampled_from(["int8", "int4", "int7"]))]
    found = draw(st.lists(scales, min_size=count, max_size=count))
    return QuantParams(tuple(found), (0,) * count, qtype, axis)


@cache
def prepared() -> PreparedModel:
    """Return the model whose tensors the plans have."""
    return open_prepared(Path(__file__).parent / "data" / "model.onnx")


def plan_of(tensors: Mapping[str, QuantParams]) -> QuantPlan:
    """Return a plan with these tensors."""
    return QuantPlan(prepared().identity, QuantConfig(), dict(tensors), {})


def again(name: str, plan: QuantPlan) -> Mapping[str, QuantParams]:
    """Return the tensors of a plan after they were written and read."""
    text = FORMATS[name].load().write(plan, prepared().model)
    entry = recognised(text.encode())
    assert entry is FORMATS[name]
    read = read_as(entry, text.encode(), "file", ConfigError)
    assert isinstance(read, ForeignParams)
    return with_axes(read, prepared().graph).tensors


def expected(name: str, params: QuantParams) -> QuantParams:
    """Return what a format makes of parameters: the same float values, in a type that it has."""
    params = replace(params, qtype=INT8) if params.qtype is INT7 else params
    if name in UNSIGNED and params.qtype.signed and params.zero_point.any():
        return unsigned_equivalent(params)
    return params


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=25)
@given(x=activations(), y=activations(), cw=weights("cw"), gw=weights("gw"))
def test_scales_and_zero_points_come_back_to_the_bit(
    name: str, x: QuantParams, y: QuantParams, cw: QuantParams, gw: QuantParams
) -> None:
    tensors = {"x": x, "y": y, "cw": cw, "gw": gw}
    assert again(name, plan_of(tensors)) == {key: expected(name, params) for key, params in tensors.items()}


@pytest.mark.parametrize("name", NAMES)
def test_a_zero_point_of_minus_1_comes_back_as_the_same_values(name: str) -> None:
    x = QuantParams((0.0078125,), (-1,), INT8)  # of a range that is nearly symmetric, as that of Tanh
    assert again(name, plan_of({"x": x})) == {"x": expected(name, x)}


@settings(max_examples=25)
@given(found=twelve(scales), points=twelve(st.integers(0, 15)))
def test_blocks_come_back_in_their_order(found: list[float], points: list[int]) -> None:
    gw = QuantParams(tuple(found), tuple(points), TYPES["uint4"], 0, 16)
    assert again("aimet-2.0", plan_of({"gw": gw})) == {"gw": gw}


@pytest.mark.parametrize("name", ["aimet-1.0", "qnn"])
def test_blocks_are_not_written_where_the_format_has_none(name: str) -> None:
    gw = QuantParams((0.5,) * 12, (0,) * 12, TYPES["int4"], 0, 16)
    x = QuantParams((0.5,), (0,), TYPES["uint8"])
    assert again(name, plan_of({"gw": gw, "x": x})).keys() == {"x"}


@pytest.mark.parametrize("name", NAMES)
def test_scales_of_biases_are_written_by_2_0_alone(name: str) -> None:
    cb = QuantParams((0.5,) * 4, (0,) * 4, INT32, 0)
    text = FORMATS[name].load().write(plan_of({"cb": cb}), prepared().model)
    assert ("cb" in text) == (name == "aimet-2.0")


def test_min_and_max_of_qnn_are_the_ends_of_the_integers() -> None:
    """Older converters compute scale and offset from them."""
    x = QuantParams((np.float32(0.02).item(),), (128,), TYPES["uint8"])
    text = FORMATS["qnn"].load().write(plan_of({"x": x}), prepared().model)
    (found,) = json.loads(text)["activation_encodings"]["x"]
    scale = x.tensor_scale
    assert (found["min"], found["max"], found["offset"]) == (-128 * scale, 127 * scale, -128)
    assert (found["max"] - found["min"]) / 255 == pytest.approx(scale, rel=1e-12)


def test_channels_with_zero_points_are_not_for_qnn() -> None:
    cw = QuantParams((0.5,) * 4, (1, 2, 3, 4), TYPES["int8"], 0)
    x = QuantParams((0.5,), (0,), TYPES["uint8"])
    assert again("qnn", plan_of({"cw": cw, "x": x})).keys() == {"x"}


@pytest.mark.parametrize("name", NAMES)
def test_parameters_of_equalized_weights_are_refused(name: str) -> None:
    """They are not those of the model that the file is for."""
    equalized = Adjustments(equalization={"r": EqualizationScales(1, (1.0, 2.0, 1.0, 1.0))})
    plan = replace(plan_of({"x": QuantParams((0.5,), (0,), TYPES["uint8"])}), adjustments=equalized)
    with pytest.raises(ConfigError, match=r"its channels are equalized.*--set equalization=off"):
        FORMATS[name].load().write(plan, prepared().model)
