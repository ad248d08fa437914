"""Weights that saturate sums of 16 bits, and what evaluate says of them on a processor without VNNI."""

from __future__ import annotations

from pathlib import Path

import onnx_ir as ir
import pytest
import qprof_onnx as qprof
from onnx import parser
from qprof_onnx.profiles.base.findings import Code
from qprof_onnx.quantizer.evaluation import evaluate as evaluation
from qprof_onnx.quantizer.evaluation.doubts import saturating_nodes
from qprof_onnx.quantizer.model.loading import load_model
from qprof_onnx.quantizer.targets.loading import load_recipe

DIGITS = Path(__file__).parents[3] / "examples" / "digits"
FULL = load_recipe(None, None, {"pairs_in_16_bits": False})


@pytest.fixture
def without_vnni(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluation, "int8_kernels_saturate", lambda: True)


def model_of(text: str) -> ir.Model:
    proto = parser.parse_model(f'<ir_version: 9, opset_import: ["": 21, "com.microsoft": 1]> g {text}')
    return ir.from_proto(proto)


PAIR = "int8[2, 1] w = {127, 2}"
APART = "int8[2, 1] w = {127, -127}"
SCALES = "float s = {1.0}, uint8 z = {0}, int8 zw = {0}"
QLINEAR = (
    "(uint8[1, 2] x) => (uint8[1, 1] y) <%s, " + SCALES + "> { y = QLinearMatMul (x, s, z, w, s, zw, s, z) }"
)
INTEGER = "(uint8[1, 2] x) => (int32[1, 1] y) <%s> { y = MatMulInteger (x, w) }"
DEQUANTIZED = (
    "(uint8[1, 2] x) => (float[1, 1] y) <%s, " + SCALES + "> "
    "{ d = DequantizeLinear (x, s, z) v = DequantizeLinear (w, s, zw) y = MatMul (d, v) }"
)
FLOAT = (
    "(float[1, 2] x) => (float[1, 1] y) <%s, " + SCALES + "> "
    "{ v = DequantizeLinear (w, s, zw) y = MatMul (x, v) }"
)


@pytest.mark.parametrize("text", [QLINEAR, INTEGER, DEQUANTIZED], ids=["QLinear", "Integer", "QDQ"])
def test_a_pair_of_large_weights_of_one_sign_saturates(text: str) -> None:
    assert saturating_nodes(model_of(text % PAIR)) == ("y",)
    assert saturating_nodes(model_of(text % APART)) == ()


def test_weights_that_are_dequantized_saturate_nothing() -> None:
    assert saturating_nodes(model_of(FLOAT % PAIR)) == ()


def test_an_evaluation_names_the_node(path: Path, profile: qprof.Profile, without_vnni: None) -> None:
    full = qprof.quantize(path, profile, config=FULL)
    found = qprof.evaluate(path, full, DIGITS / "heldout", latency=False)
    assert full.model is not None
    (warning,) = [one for one in found.findings if one.code is Code.SATURATING_KERNELS]
    nodes = saturating_nodes(full.model)
    assert warning.subject == nodes[0]
    assert f"int8 weights of '{nodes[0]}' and {len(nodes) - 1} more can saturate here" in warning.text


@pytest.mark.parametrize("mode", ["static", "dynamic", "weight-only"])
def test_weights_of_qprof_saturate_nowhere(
    path: Path, profile: qprof.Profile, tmp_path: Path, without_vnni: None, mode: str
) -> None:
    result = qprof.quantize(path, profile, tmp_path / "q.onnx", mode=mode, cost_model="off")
    assert saturating_nodes(load_model(tmp_path / "q.onnx")) == ()
    found = qprof.evaluate(path, result, DIGITS / "heldout", latency=False)
    assert not any(one.code is Code.SATURATING_KERNELS for one in found.findings)


def test_with_vnni_nothing_is_said(
    path: Path, profile: qprof.Profile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluation, "int8_kernels_saturate", lambda: False)
    full = qprof.quantize(path, profile, config=FULL)
    found = qprof.evaluate(path, full, DIGITS / "heldout", latency=False)
    assert not any(one.code is Code.SATURATING_KERNELS for one in found.findings)
