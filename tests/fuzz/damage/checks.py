"""Whether the result of a command that succeeded is right: names of checks, which cases refer to.

A check returns what is wrong, "" for nothing. It runs in the folder of the case.
"""

from __future__ import annotations

import io
import json
import math
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import onnxruntime as ort

from damage.cases import Base, Case
from damage.judge import Ending

Check = Callable[[Base, Case, Ending], str]

LEAST_SQNR = 5.0
"""dB of a damaged model, quantized, against itself in float: weights may be anything."""


def _session(path: str) -> ort.InferenceSession | None:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        return ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    except Exception:
        return None


def _samples(case: Case) -> list[dict[str, np.ndarray]]:
    folder = Path(case.command[case.command.index("--data") + 1] if "--data" in case.command else "cal")
    names = sorted((p for p in folder.glob("*.npz")), key=lambda p: p.name)
    return [_arrays(name) for name in names]


def _arrays(path: Path) -> dict[str, np.ndarray]:
    """Return the arrays of an .npz file; `numpy.load` takes none that begins with other bytes."""
    with zipfile.ZipFile(path) as archive:
        members = {name.removesuffix(".npy"): archive.read(name) for name in archive.namelist()}
    return {
        name: np.lib.format.read_array(io.BytesIO(data), allow_pickle=False) for name, data in members.items()
    }


def ranges_of_outputs(base: Base, case: Case, ending: Ending) -> str:
    """The profile has the range of each output that onnxruntime gives for the samples."""
    from qprof_onnx.profiles.records.store import load_profile

    profile = load_profile("out.yaml")
    session = _session(case.command[1])
    if session is None:
        return ""  # qprof mends what it can on its way; then there is nothing to compare with
    names = [o.name for o in session.get_outputs() if o.type == "tensor(float)"]
    rows: dict[str, list[np.ndarray]] = {name: [] for name in names}
    for sample in _samples(case):
        try:
            outputs = session.run(names, sample)
        except Exception:
            return ""
        for name, array in zip(names, outputs, strict=True):
            rows[name].append(array.ravel())
    for name, arrays in rows.items():
        values = np.concatenate(arrays)
        values = values[np.isfinite(values)]
        if name not in profile or not values.size:
            continue
        tensor, slack = profile[name], 1e-5 * (1 + np.abs(values).max())
        if abs(tensor.minimum - values.min()) > slack or abs(tensor.maximum - values.max()) > slack:
            own = f"{tensor.minimum} .. {tensor.maximum}"
            return f"'{name}': profile {own}, runtime {values.min()} .. {values.max()}"
    return ""


def close_outputs(base: Base, case: Case, ending: Ending) -> str:
    """The quantized model loads, runs, and gives outputs close to those of the model that was given."""
    quantized = _session("out.onnx")
    if quantized is None:
        return "the quantized model does not load"
    before = _session(case.command[1])
    if before is None:
        return ""
    for sample in _samples(case):
        try:
            expected = before.run(None, sample)
        except Exception:
            return ""
        try:
            got = quantized.run(None, sample)
        except Exception as error:
            return f"the quantized model does not run: {error}"
        for one, other in zip(expected, got, strict=True):
            if wrong := _apart(np.asarray(one), np.asarray(other)):
                return wrong
    return ""


def _apart(expected: np.ndarray, got: np.ndarray) -> str:
    if expected.shape != got.shape or expected.dtype != got.dtype:
        return f"{got.dtype} of shape {got.shape} for {expected.dtype} of shape {expected.shape}"
    if expected.dtype.kind != "f" or not np.isfinite(expected).all():
        return ""
    signal, error = float(np.square(expected, dtype=np.float64).sum()), got.astype(np.float64) - expected
    noise = float(np.square(error).sum())
    sqnr = math.inf if noise <= 1e-12 else 10 * math.log10(max(signal, 1e-30) / noise)
    return "" if sqnr >= LEAST_SQNR else f"{sqnr:.1f} dB from the float model's outputs"


def loads(base: Base, case: Case, ending: Ending) -> str:
    """The model that was written loads in onnxruntime."""
    return "" if _session("out.onnx") is not None else "the written model does not load"


def applies(base: Base, case: Case, ending: Ending) -> str:
    """The plan that was written applies to the model, and the result loads in onnxruntime."""
    from qprof_onnx.quantizer.api.quantize import quantize

    quantize("model.onnx", plan="out.yaml", output="out.onnx")
    return loads(base, case, ending)


def accuracy(base: Base, case: Case, ending: Ending) -> str:
    """The accuracy of the float model is that of the labels as numpy reads them."""
    path = Path(case.command[case.command.index("--labels") + 1])
    labels = (
        np.load(path)
        if path.suffix == ".npy"
        else np.array([int(line) for line in path.read_text("utf-8-sig").split()])
    )
    right = np.load(base.folder / "labels.npy")
    percent = json.loads(ending.stdout)["score"]["float_score"]
    expected = 100 * float(np.mean(right == labels[: len(right)])) if len(labels) == len(right) else math.nan
    return "" if abs(percent - expected) < 1e-6 else f"{percent} % instead of {expected} %"


CHECKS: Mapping[str, Check] = {
    check.__name__: check
    for check in (
        ranges_of_outputs,
        close_outputs,
        loads,
        applies,
        accuracy,
    )
}
