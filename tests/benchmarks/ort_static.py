"""onnxruntime's own static quantization as one command: pre-process, calibrate, quantize (U8S8, QDQ).

python ort_static.py MODEL.onnx --data DIR -o OUT.onnx [--method entropy] [--per-channel] [--opset 13] ...
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np
import onnx
import onnx.version_converter
from onnxruntime.quantization import (
    CalibrationDataReader,
    CalibrationMethod,
    QuantFormat,
    QuantType,
    quantize_static,
)
from onnxruntime.quantization.shape_inference import quant_pre_process
from record import read_feeds

METHODS = {
    "minmax": CalibrationMethod.MinMax,
    "entropy": CalibrationMethod.Entropy,
    "percentile": CalibrationMethod.Percentile,
}
AT_ONCE = 8  # samples whose activations onnxruntime may hold in memory together


class Folder(CalibrationDataReader):  # type: ignore[misc]  # onnxruntime has no types
    """The feeds of a folder, one by one, as onnxruntime's calibration wants them."""

    def __init__(self, folder: Path) -> None:
        self._feeds = list(read_feeds(folder))
        self._rest = iter(self._feeds)

    def __len__(self) -> int:
        return len(self._feeds)

    def shapes(self) -> set[tuple[tuple[int, ...], ...]]:
        """Return the shapes that feeds have."""
        return {tuple(array.shape for array in feed.values()) for feed in self._feeds}

    def set_range(self, start_index: int, end_index: int) -> None:
        self._rest = iter(self._feeds[start_index:end_index])

    def get_next(self) -> dict[str, np.ndarray] | None:
        return next(self._rest, None)


def pre_processed(folder: Path, given: argparse.Namespace) -> Path:
    """Raise the opset if the model's is lower, then run onnxruntime's pre-processing."""
    model, opset = given.model, given.opset
    loaded = onnx.load(model)
    known = next(o.version for o in loaded.opset_import if o.domain in {"", "ai.onnx"})
    if opset > known:
        model = folder / "raised.onnx"
        onnx.save(onnx.version_converter.convert_version(loaded, opset), model)
    if not given.pre_process:
        return model
    ready = folder / "ready.onnx"
    quant_pre_process(str(model), str(ready), skip_symbolic_shape=given.skip_symbolic_shape)
    return ready


def static(ready: Path, given: argparse.Namespace) -> None:
    """Calibrate and quantize; several samples at a time, since onnxruntime keeps their activations."""
    reader = Folder(given.data)
    together = 1
    if len(reader.shapes()) == 1:  # histograms want samples that are read together to have one shape
        together = max(size for size in range(1, AT_ONCE + 1) if len(reader) % size == 0)
    quantize_static(
        str(ready),
        str(given.output),
        reader,
        quant_format=QuantFormat.QDQ,
        activation_type=QuantType.QUInt8,
        weight_type=QuantType.QInt8,
        per_channel=given.per_channel,
        calibrate_method=METHODS[given.method],
        extra_options={"CalibStridedMinMax": together},  # the name is old: every method reads by this stride
        calibration_cache_path=given.ranges,
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", type=Path)
    parser.add_argument("--data", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--method", choices=tuple(METHODS), default="minmax")
    parser.add_argument("--per-channel", action="store_true")
    parser.add_argument("--ranges", type=Path, help="file of ranges: written, or read where it is there")
    parser.add_argument("--opset", type=int, default=0, help="raise the model to this opset first")
    parser.add_argument("--skip-symbolic-shape", action="store_true", help="where symbolic shapes fail")
    parser.add_argument("--no-pre-process", dest="pre_process", action="store_false", help="where it fails")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        ready = pre_processed(Path(folder), given)
        static(ready, given)


if __name__ == "__main__":
    main()
