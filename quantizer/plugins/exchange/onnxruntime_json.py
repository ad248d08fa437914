"""onnxruntime's calibration data as JSON: `calibration.json` of `write_calibration_table`, or the file of
`save_tensors_data`.

Both hold a `TensorsData`: of each tensor "lowest" and "highest", and of the calibrators Entropy and
Distribution a histogram. Before version 1.16 the file was a mapping from name to [lowest, highest].
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from ....profiles.base.errors import MalformedError, ProfileError
from ....profiles.base.json_values import parse_json
from ....profiles.base.output_files import text_of
from ....profiles.records.histogram import BINS, EqualBins
from ....profiles.records.profile import Profile
from .foreign import ForeignRanges, assumption, checked_range, some_of

ADVICE = "give the file as onnxruntime.quantization wrote it, or calibrate again"
UNEVEN = 1e-3
"""By how much of a bin's width the edges of a histogram may stray from equal bins: they are float32."""

Floats = npt.NDArray[np.float64]


def recognises(data: bytes) -> bool:
    """Return whether a file is JSON of onnxruntime's calibration data."""
    if not data.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{"):
        return False
    try:
        top = parse_json(text_of(data, "", ProfileError), non_finite=True)
    except (MalformedError, ProfileError):
        return b'"CLS"' in data and b'"Tensor' in data  # of this kind, and reading says what is wrong
    if not isinstance(top, dict) or not top:
        return False
    return top.get("CLS") == "TensorsData" or all(_is_tensor(value) for value in top.values())


def _is_tensor(value: object) -> bool:
    if isinstance(value, list):
        return len(value) == 2 and all(isinstance(end, int | float) for end in value)
    return isinstance(value, dict) and value.get("CLS") == "TensorData"


def read(data: bytes, where: str) -> ForeignRanges:
    """Return the ranges, and the histograms if there are some; raise MalformedError if a range is invalid."""
    top = parse_json(text_of(data, where, ProfileError), non_finite=True)
    method, tensors = "", top
    if top.get("CLS") == "TensorsData":
        value = top.get("calibration_method")  # "CalibrationMethod.Entropy", alone or as an enumeration
        value = value.get("value") if isinstance(value, dict) else value
        method, tensors = str(value or "").rpartition(".")[2], top.get("data")
    if not isinstance(tensors, dict):
        raise MalformedError("'data' is not a mapping from tensor to range", ADVICE)
    several: list[str] = []
    ranges, histograms = {}, {}
    for name, value in tensors.items():
        low, high = _ends(value, f"tensor '{name}'")
        if low.size > 1 or high.size > 1:
            several.append(name)
        ranges[name] = checked_range(name, float(low.min()), float(high.max()))
        bins = None if isinstance(value, list) else _bins(value)
        if bins is not None:
            histograms[name] = bins
    findings = []
    if several:
        what = f"{len(several)} tensors have a range for each channel; qprof uses the union"
        findings.append(assumption(f"{what}: {some_of(several)}", tensors=len(several)))
    if histograms:
        sentence = (
            f"{len(histograms)} tensors have histograms, from which the calibrator of qprof chooses ranges, "
            f"instead of those that {method or 'the tool'} chose"
        )
        findings.append(assumption(sentence, tensors=len(histograms)))
    tool = f"onnxruntime ({method})" if method else "onnxruntime"
    return ForeignRanges(ranges, tool, tuple(findings), histograms)


def _ends(value: object, where: str) -> tuple[Floats, Floats]:
    if isinstance(value, list) and len(value) == 2:
        return _array(value[0], where), _array(value[1], where)
    if not isinstance(value, dict) or "lowest" not in value or "highest" not in value:
        raise MalformedError(f"{where}: has no 'lowest' and 'highest'", ADVICE)
    return _array(value["lowest"], f"{where}: lowest"), _array(value["highest"], f"{where}: highest")


def _array(value: object, where: str) -> Floats:
    """Return the numbers of a numpy array, or of a number, as onnxruntime writes them."""
    listed = value.get("data") if isinstance(value, dict) else value
    try:
        numbers = np.asarray(listed, np.float64).reshape(-1)
    except (TypeError, ValueError, OverflowError):
        numbers = np.zeros(0)
    if listed is None or isinstance(listed, str | bool) or not numbers.size:
        raise MalformedError(f"{where} is not a number", ADVICE)
    return numbers


def _bins(value: Mapping[str, Any]) -> EqualBins | None:
    """Return a histogram without empty bins at its ends, or None, as for counts of Percentile."""
    try:
        counts = _array(value.get("hist"), "hist")
        edges = _array(value.get("bins", value.get("hist_edges")), "bins")
    except MalformedError:
        return None
    if counts.size < 2 or edges.size != counts.size + 1:
        return None
    if not (np.isfinite(edges).all() and np.isfinite(counts).all() and (counts >= 0).all()):
        return None
    with np.errstate(over="ignore"):
        width, total = (edges[-1] - edges[0]) / counts.size, counts.sum()
    normal = np.finfo(np.float32)
    if not (normal.tiny <= width and np.abs(edges).max() <= normal.max and total < np.inf):
        return None
    if not (np.abs(np.diff(edges) - width).max() <= UNEVEN * width):
        return None
    held = np.flatnonzero(counts)
    if not held.size:
        return None
    first, last = int(held[0]), int(held[-1]) + 1
    return join_bins(float(edges[first]), float(edges[last]), counts[first:last], width)


def join_bins(low: float, high: float, counts: Floats, width: float) -> EqualBins:
    """Return equal bins, neighbours joined until at most `BINS` are left; the last may end above the data."""
    while counts.size > BINS:
        odd = counts.size % 2
        high, width = high + odd * width, 2.0 * width
        counts = np.append(counts, np.zeros(odd)).reshape(-1, 2).sum(axis=1)
    return EqualBins(low, high, counts)


def write(profile: Profile, model: ir.Model) -> str:
    """Return the text that onnxruntime writes for these ranges, calibrated by MinMax; float32."""

    def array(value: float) -> dict[str, object]:
        return {"data": [float(np.float32(value))], "dtype": "float32", "CLS": "numpy.array"}

    tensors = {
        name: {"lowest": array(tensor.minimum), "highest": array(tensor.maximum), "CLS": "TensorData"}
        for name, tensor in profile.items()
    }
    method = {"CLS": "CalibrationMethod", "value": "CalibrationMethod.MinMax"}
    return json.dumps({"CLS": "TensorsData", "data": tensors, "calibration_method": method})
