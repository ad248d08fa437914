"""onnxruntime's `quantize_static` takes the overrides that are written, and its own are read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
from qprof_onnx.quantizer.numerics.affine import TYPES, QuantParams
from qprof_onnx.quantizer.plan.plan import QuantPlan
from qprof_onnx.quantizer.plugins.exchange.formats import FORMATS
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
