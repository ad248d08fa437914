"""onnxruntime's `quantize_static` takes the overrides that are written, and its own are read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
from onnxruntime.quantization.tensor_quant_overrides import TensorQuantOverridesHelper
from qprof_onnx.profiles.base.errors import ConfigError
from qprof_onnx.quantizer.numerics.affine import TYPES, QuantParams
from qprof_onnx.quantizer.plan.plan import QuantPlan
from qprof_onnx.quantizer.plugins.exchange.foreign import ForeignParams
from qprof_onnx.quantizer.plugins.exchange.formats import FORMATS, read_as, recognised
from qprof_onnx.quantizer.prepare.prepare import open_prepared
from qprof_onnx.quantizer.targets.config import QuantConfig

MODEL = Path(__file__).parent / "data" / "model.onnx"
FORMAT = FORMATS["tensor-quant-overrides"]
TENSORS = {
    "x": QuantParams((0.03125,), (7,), TYPES["uint8"]),
    "r": QuantParams((np.float32(0.017).item(),), (0,), TYPES["uint8"]),
    "y": QuantParams((np.float32(0.07).item(),), (121,), TYPES["uint8"]),
    "cw": QuantParams(tuple(np.float32([0.011, 0.012, 0.013, 0.014]).tolist()), (0,) * 4, TYPES["int8"], 0),
    "gw": QuantParams(tuple(np.float32([0.021, 0.022, 0.023]).tolist()), (0,) * 3, TYPES["int8"], 1),
}


class Samples(CalibrationDataReader):  # type: ignore[misc]
    """Two random samples."""

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        self.samples = iter([{"x": rng.normal(size=(1, 2, 4, 4)).astype(np.float32)} for _ in range(2)])

    def get_next(self) -> dict[str, Any] | None:
        """Return a sample, None after the last."""
        return next(self.samples, None)


def read(document: object) -> ForeignParams:
    """Return the parameters of a document of this format."""
    data = json.dumps(document, default=str).encode()
    assert recognised(data) is FORMAT
    found = read_as(FORMAT, data, "overrides.json", ConfigError)
    assert isinstance(found, ForeignParams)
    return found


def written() -> str:
    """Return the overrides of a plan with `TENSORS`."""
    prepared = open_prepared(MODEL)
    text: str = FORMAT.load().write(QuantPlan(prepared.identity, QuantConfig(), TENSORS, {}), prepared.model)
    return text


def for_onnxruntime(text: str) -> dict[str, list[dict[str, Any]]]:
    """Return overrides as the option wants them; the how-to page has these lines."""
    overrides: dict[str, list[dict[str, Any]]] = json.loads(text)
    for channels in overrides.values():
        for channel in channels:
            channel["quant_type"] = QuantType.from_string(channel["quant_type"])
            channel["scale"] = np.array(channel["scale"], np.float32)
            channel["zero_point"] = np.array(channel["zero_point"])
    return overrides


def test_quantize_static_has_our_scales_and_zero_points_to_the_bit(tmp_path: Path) -> None:
    options = {"TensorQuantOverrides": for_onnxruntime(written()), "QDQDisableWeightAdjustForInt32Bias": True}
    output = tmp_path / "q.onnx"
    kinds = {"quant_format": QuantFormat.QDQ, "activation_type": QuantType.QUInt8, "per_channel": True}
    quantize_static(MODEL, output, Samples(), extra_options=options, **kinds)
    graph = onnx.load(output).graph
    constants = {tensor.name: tensor for tensor in graph.initializer}
    found = {}
    for node in graph.node:
        if node.op_type in ("QuantizeLinear", "DequantizeLinear"):
            scale, point = (numpy_helper.to_array(constants[name]) for name in node.input[1:3])
            name = node.input[0].removesuffix("_quantized").removesuffix("_QuantizeLinear_Input")
            found[name] = (np.atleast_1d(scale).tolist(), np.atleast_1d(point).tolist(), str(point.dtype))
    for name, params in TENSORS.items():
        assert found[name] == (params.scale.tolist(), params.zero_point.tolist(), params.qtype.name)


def test_what_onnxruntime_holds_is_read_as_its_text() -> None:
    helper = TensorQuantOverridesHelper(for_onnxruntime(written()))
    assert read(json.loads(helper.pprint_str())).tensors == TENSORS


@pytest.mark.parametrize(
    ("channel", "reason"),
    [
        ({"scale": 0.1, "zero_point": 3}, "it has no quant_type"),
        ({"quant_type": "QUInt8", "rmin": -1.0, "rmax": 3.0}, "it has no scale and zero point"),
        ({"quant_type": "QFLOAT8E4M3FN", "scale": 0.1, "zero_point": 0}, "qprof has no QFLOAT8E4M3FN"),
    ],
)
def test_what_cannot_be_taken_is_left_out_with_a_reason(channel: dict[str, object], reason: str) -> None:
    found = read({"x": [channel]})
    assert not found.tensors
    assert reason in str(found.findings[0])


def test_what_is_converted_for_some_readers_is_said() -> None:
    other = {"quant_type": "QUInt16", "scale": 0.001, "zero_point": 0}
    found = read({"x": [{"quant_type": "QUInt8", "scale": 0.5, "zero_point": 1, "convert": other}]})
    assert found.tensors["x"].qtype.name == "uint8"
    assert "'convert' is not read" in str(found.findings[0])


def test_a_scale_without_a_zero_point_is_malformed() -> None:
    with pytest.raises(ConfigError, match=r"overrides.json: 'x': scale and zero_point belong together; give"):
        read({"x": [{"quant_type": "QUInt8", "scale": 0.5}]})
