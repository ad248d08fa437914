"""Convolutions with parameters of their activations computed at run time, in every form and evaluator."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from qprof_onnx.quantizer.targets.forms import FORMS

from ..lowered import Lowering

IMAGE = "float[2,4,9,8] x"
SMALL = "float[2,4,5,4] x"
"""For transposed ones, which the reference evaluator computes pixel by pixel."""

# name: input, node, weight, and bias channels
CONVOLUTIONS: dict[str, tuple[str, str, str, int]] = {
    "pads that differ": (IMAGE, "Conv<pads=[2,0,1,3]>", "3,4,3,3", 3),
    "strides": (IMAGE, "Conv<pads=[1,1,1,1], strides=[2,3]>", "3,4,3,3", 3),
    "dilations": (IMAGE, "Conv<pads=[2,2,2,2], dilations=[2,2]>", "3,4,3,3", 3),
    "groups": (IMAGE, "Conv<pads=[1,1,1,1], group=2>", "6,2,3,3", 6),
    "depthwise": (IMAGE, "Conv<pads=[1,1,1,1], group=4>", "4,1,3,3", 4),
    "no bias": (IMAGE, "Conv<pads=[1,1,1,1]>", "3,4,3,3", 0),
    "auto_pad": (IMAGE, 'Conv<auto_pad="SAME_UPPER", strides=[2,2]>', "3,4,3,3", 3),
    "one dimension": ("float[2,4,11] x", "Conv<pads=[1,2], dilations=[2]>", "3,4,3", 3),
    "three dimensions": ("float[1,2,5,6,4] x", "Conv<pads=[1,0,1,0,1,1], strides=[1,2,1]>", "3,2,3,3,2", 3),
}
TRANSPOSED: dict[str, tuple[str, str, str, int]] = {
    "transposed": (SMALL, "ConvTranspose", "4,3,3,3", 3),
    "transposed, strides": (
        SMALL,
        "ConvTranspose<strides=[2,2], pads=[1,1,0,1], output_padding=[1,0]>",
        "4,3,4,4",
        3,
    ),
    "transposed, groups": (SMALL, "ConvTranspose<strides=[2,2], group=2>", "4,3,2,2", 6),
    "transposed, no bias": (SMALL, "ConvTranspose<strides=[2,2]>", "4,3,2,2", 0),
    "transposed, one dimension": ("float[2,4,7] x", "ConvTranspose<strides=[3], pads=[1,2]>", "4,3,6", 3),
    "transposed, three dimensions": ("float[1,2,3,4,3] x", "ConvTranspose<strides=[2,1,2]>", "2,3,2,2,2", 3),
}


def text_of(source: str, node: str, weight: str, channels: int) -> str:
    rank = source.count(",") + 1
    op, _, attributes = node.partition("<")
    bias, operand = (f", float[{channels}] b", ", b") if channels else ("", "")
    sizes = ",".join("?" * rank)
    return (
        f"net ({source}) => (float[{sizes}] y) <float[{weight}] w{bias}> "
        f"{{ y = {op}{'<' if attributes else ''}{attributes}(x, w{operand}) }}"
    ).replace("?", "N")


def planned(case: str, *, per_channel: bool = True) -> tuple[str, dict[str, Any]]:
    """Return the text of a net and the arguments of `plan_of`."""
    text = text_of(*(CONVOLUTIONS | TRANSPOSED)[case])
    name = "convtranspose_0" if "ConvTranspose" in text else "conv_0"
    how: dict[str, Any] = {"kinds": {name: "dynamic"}}
    # The channels of a transposed weight in groups have one scale: several of them share a position of it.
    how["per_channel"] = per_channel and not ("ConvTranspose" in text and "group" in text)
    if case in TRANSPOSED:
        how["implementations"] = {name: "sub-pixel"}
    return text, how


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("case", [*CONVOLUTIONS, *TRANSPOSED])
def test_a_dynamic_convolution_is_that_of_the_oracle_to_the_bit(
    lowered: Lowering, case: str, form: str
) -> None:
    for per_channel in (True, False) if form in ("qdq", "integer") else (True,):
        text, how = planned(case, per_channel=per_channel)
        runs = lowered(text, form=form, **how)
        for results in (runs.reference(), runs.onnxruntime(), runs.onnxruntime(optimized=False)):
            assert runs.off(results) == 0.0


@pytest.mark.parametrize("form", ["qdq", "primitives"])
@pytest.mark.parametrize("case", ["pads that differ", "transposed, strides"])
def test_openvino_computes_dynamic_convolutions(lowered: Lowering, case: str, form: str) -> None:
    text, how = planned(case)
    runs = lowered(text, form=form, **how)
    assert runs.off(runs.openvino()) <= 1.0  # millionths of the largest value: it multiplies in another order


@pytest.mark.parametrize("form", ["qdq", "qoperator", "integer"])
@pytest.mark.parametrize("case", ["groups", "transposed, groups"])
def test_the_sums_are_those_of_conv_integer(lowered: Lowering, case: str, form: str) -> None:
    text, how = planned(case)
    found = lowered(text, form=form, **how).operators()
    assert found["ConvInteger"] == found["DynamicQuantizeLinear"] == 1
    assert not {"Conv", "ConvTranspose", "QuantizeLinear"} & set(found)


def test_padding_of_unsigned_data_is_its_zero_point(lowered: Lowering) -> None:
    """Data from 1 to 3 has zero point 0, that from -3 to -1 has 255: what is padded is 0.0 with both."""
    text = "net (float[1,1,3] x) => (float[1,1,5] y) <float[1,1,1] w = {1.0}> { y = Conv<pads=[1,1]>(x, w) }"
    runs = lowered(text, kinds={"conv_0": "dynamic"})
    for sign in (1.0, -1.0):
        runs.arrays["x"] = np.array([[[1.0, 2.0, 3.0]]], np.float32) * sign
        for (result,) in (runs.reference(), runs.onnxruntime(), runs.onnxruntime(optimized=False)):
            assert result[0, 0, 0] == result[0, 0, -1] == 0.0
            np.testing.assert_allclose(result[0, 0, 1:-1], runs.arrays["x"][0, 0], atol=3 / 255)
