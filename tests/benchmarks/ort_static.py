"""onnxruntime's own static quantization as one command: pre-process, calibrate, quantize (U8S8, minmax).

python ort_static.py MODEL.onnx --data DIR -o OUT.onnx [--per-channel] [--opset 13] ...
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import onnx.version_converter
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process
from record import read_feeds


class Folder(CalibrationDataReader):  # type: ignore[misc]  # onnxruntime has no types
    """The feeds of a folder, one by one, as onnxruntime's calibration wants them."""

    def __init__(self, folder: Path) -> None:
        self._feeds: Iterator[dict[str, np.ndarray]] = read_feeds(folder)

    def get_next(self) -> dict[str, np.ndarray] | None:
        return next(self._feeds, None)


def pre_processed(model: Path, folder: Path, opset: int, symbolic: bool) -> Path:
    """Raise the opset if asked to, then run onnxruntime's pre-processing."""
    if opset:
        raised = onnx.version_converter.convert_version(onnx.load(model), opset)
        model = folder / "raised.onnx"
        onnx.save(raised, model)
    ready = folder / "ready.onnx"
    quant_pre_process(str(model), str(ready), skip_symbolic_shape=not symbolic)
    return ready


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", type=Path)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--per-channel", action="store_true")
    parser.add_argument("--opset", type=int, default=0, help="raise the model to this opset first")
    parser.add_argument("--skip-symbolic-shape", action="store_true", help="where symbolic shapes fail")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        quantize_static(
            str(pre_processed(given.model, Path(folder), given.opset, not given.skip_symbolic_shape)),
            str(given.output),
            Folder(given.data),
            quant_format=QuantFormat.QDQ,
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
            per_channel=given.per_channel,
        )


if __name__ == "__main__":
    main()
