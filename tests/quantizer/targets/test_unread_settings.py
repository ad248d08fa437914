"""A setting that was given either changes the model, or it is told that nothing reads it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
import qprof_onnx as qprof
from onnx import numpy_helper, parser
from qprof_onnx.profiles.base.findings import Code
from qprof_onnx.quantizer.targets.config import OF_ACTIVATIONS, QuantConfig
from qprof_onnx.quantizer.targets.loading import load_recipe

MODES: Mapping[str, Mapping[str, Any]] = {
    "static": {},
    "dynamic": {"mode": "dynamic"},
    "weight-only": {"mode": "weight-only"},
}
OTHERS: Mapping[str, Any] = {
    "schema": "symmetric-uint8",
    "calibrator": "percentile:90",
    "activation_type": "uint16",
    "weight_schema": "symmetric-power2",
    "weight_type": "int7",
    "min_tensor_sqnr": 60.0,
    "granularity": "per-tensor",
    "equalization": "off",
    "bias_correction": "off",
    "keep_float": ("*",),
    "float_type": "float16",
    "io": "int8",
}
"""Another value of each setting that target onnx takes in every mode."""

ELSEWHERE = {
    **dict.fromkeys(("target", "mode", "form"), "they are what the model is made for"),
    **dict.fromkeys(("block_size", "fit_size"), "refused in other modes"),
    **dict.fromkeys(("min_output_sqnr", "tolerance", "output_kind"), "limits, which a model may keep anyhow"),
    **dict.fromkeys(("rounding", "kv_cache"), "need samples, or a cache"),
    "cost_model": "target onnx has no times",
}
"""Settings without a value in `OTHERS`."""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder, rng = tmp_path_factory.mktemp("net"), np.random.default_rng(0)
    model = parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g (float[2, 64] x) => (float[2, 32] y) '
        "{ a = MatMul (x, w) b = Relu (a) c = Gemm (b, v, u) y = Sigmoid (c) }"
    )
    spread = rng.lognormal(0.0, 1.5, (1, 128))  # so that there is something to equalize
    for name, value in (
        ("w", rng.normal(size=(64, 128)) * spread),
        ("v", rng.normal(size=(128, 32))),
        ("u", rng.normal(size=32)),
    ):
        model.graph.initializer.append(numpy_helper.from_array(value.astype(np.float32), name))
    onnx.save(model, folder / "m.onnx")
    samples = [{"x": rng.normal(size=(2, 64)).astype(np.float32)} for _ in range(8)]
    qprof.profile(folder / "m.onnx", samples, folder / "p.yaml")
    return folder / "m.onnx", folder / "p.yaml"


def written(files: tuple[Path, Path], settings: Mapping[str, Any]) -> bytes:
    result = qprof.quantize(*files, config=load_recipe("onnx", settings), check_outputs="off")
    proto = ir.to_proto(result.model)
    del proto.metadata_props[:]  # the digest of the plan, in which the settings stand
    return bytes(proto.SerializeToString())


def told(caplog: pytest.LogCaptureFixture) -> Iterator[str]:
    for record in caplog.records:
        finding = getattr(record, "finding", None)
        if finding is not None and finding.code is Code.SETTING_UNREAD:
            yield finding.subject


def test_every_setting_has_another_value_here_or_a_reason() -> None:
    assert {field.name for field in fields(QuantConfig)} == OTHERS.keys() | ELSEWHERE.keys()
    assert not OTHERS.keys() & ELSEWHERE.keys()


@pytest.mark.parametrize("setting", OTHERS)
@pytest.mark.parametrize("mode", MODES)
def test_a_setting_changes_the_model_or_is_told_to_do_nothing(
    mode: str, setting: str, files: tuple[Path, Path], caplog: pytest.LogCaptureFixture
) -> None:
    before = written(files, MODES[mode])
    caplog.clear()
    after = written(files, {**MODES[mode], setting: OTHERS[setting]})
    assert (before == after) == (setting in told(caplog))
    assert (before == after) == (mode != "static" and setting in OF_ACTIVATIONS)


def test_calibration_counts_in_every_mode_where_the_border_is_of_integers(
    files: tuple[Path, Path], caplog: pytest.LogCaptureFixture
) -> None:
    border = {"mode": "dynamic", "io": "int8"}
    before = written(files, border)
    assert written(files, {**border, "calibrator": "percentile:90"}) != before
    assert not list(told(caplog))
