"""Spectra and logarithms inside a graph: of values over many decades, rounding leaves the large ones."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime as ort
import pytest
from onnx import numpy_helper, parser
from qprof_onnx import profile, quantize

Array = npt.NDArray[np.float32]
WINDOW, BINS, BANDS = 128, 65, 32
NET = """<ir_version: 8, opset_import: ["": 17]>
net (float[1, 1, 4096] x) => (float[1, 10] y) {
    re = Conv <kernel_shape = [128], strides = [64]> (x, cosine)
    im = Conv <kernel_shape = [128], strides = [64]> (x, sine)
    p = Pow(re, two)  q = Pow(im, two)  s = Add(p, q)
    t = Transpose <perm = [0, 2, 1]> (s)
    m = MatMul(t, bands)
    c = Clip(m, least)
    l = Log(c)
    i = Transpose <perm = [0, 2, 1]> (l)
    a = Conv <pads = [1, 1]> (i, w)  b = Relu(a)
    d = Conv <pads = [1, 1]> (b, v)  e = Relu(d)
    g = GlobalAveragePool(e)  f = Flatten(g)
    y = MatMul(f, u)
}"""


def front_end(seed: int, folder: Path) -> Path:
    rng = np.random.default_rng(seed)
    phase = 2 * np.pi * np.outer(np.arange(BINS), np.arange(WINDOW)) / WINDOW
    window = np.hanning(WINDOW)
    centres = np.linspace(1, BINS - 2, BANDS)
    bands = np.maximum(0.0, 1.0 - np.abs(np.arange(BINS)[:, None] - centres) / 4.0)
    weights = {
        "cosine": (np.cos(phase) * window)[:, None],
        "sine": (np.sin(phase) * window)[:, None],
        "two": 2.0,
        "bands": bands,
        "least": 1e-8,
        "w": rng.normal(0, (BANDS * 3) ** -0.5, (64, BANDS, 3)),
        "v": rng.normal(0, (64 * 3) ** -0.5, (64, 64, 3)),
        "u": rng.normal(0, 64**-0.5, (64, 10)),
    }
    model = parser.parse_model(NET)
    for name, array in weights.items():
        model.graph.initializer.append(numpy_helper.from_array(np.asarray(array, np.float32), name))
    onnx.save(model, folder / "m.onnx")
    return folder / "m.onnx"


def sounds(rng: np.random.Generator) -> list[dict[str, Array]]:
    """Return sums of harmonics, loud for a while and then quiet, with little noise."""
    time, found = np.arange(4096), []
    for _ in range(12):
        pitch = rng.uniform(0.02, 0.1)
        tone = sum(np.sin(pitch * k * time + rng.uniform(0, 6)) / k**1.5 for k in range(1, 12))
        level = np.repeat(10.0 ** rng.uniform(-3, 0, 8), 512)
        sound = level * tone + rng.normal(0, 1e-4, time.size)
        found.append({"x": sound[None, None].astype(np.float32)})
    return found


def sqnr(model: Path, quantized: Path, samples: list[dict[str, Array]]) -> float:
    signal = noise = 0.0
    sessions = [ort.InferenceSession(str(f), providers=["CPUExecutionProvider"]) for f in (model, quantized)]
    for sample in samples:
        exact, found = (session.run(["y"], sample)[0].astype(np.float64) for session in sessions)
        signal += float(np.square(exact).sum())
        noise += float(np.square(exact - found).sum())
    return 10.0 * np.log10(signal / noise)


@pytest.mark.parametrize("seed", [31, 32])
def test_what_quantized_spectra_lose_before_a_logarithm_is_not_estimated_too_good(
    seed: int, tmp_path: Path
) -> None:
    rng = np.random.default_rng(seed)
    model, written = front_end(seed, tmp_path), tmp_path / "q.onnx"
    settings = {"weight_type": "int8", "min_output_sqnr": 0.0, "keep_float": ["MatMul", "Transpose"]}
    plan = quantize(model, profile(model, sounds(rng)), written, target="onnx", **settings).plan
    measured = sqnr(model, written, sounds(rng))
    low, high = plan.origin.sqnr_bands["y"]
    assert measured < 20.0  # the convolutions are quantized, and little is left of quiet values
    assert low <= measured <= high


@pytest.mark.parametrize("seed", [31, 32])
def test_a_spectrum_before_a_logarithm_stays_float_by_itself(seed: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(seed)
    model, written = front_end(seed, tmp_path), tmp_path / "q.onnx"
    plan = quantize(model, profile(model, sounds(rng)), written, target="onnx", weight_type="int8").plan
    assert sqnr(model, written, sounds(rng)) > 25.0
    assert any(entry.kind.value == "quantized" for entry in plan.nodes.values())


def test_no_kernel_rounds_a_spectrum_before_a_logarithm_where_only_weights_are_quantized(
    tmp_path: Path,
) -> None:
    rng = np.random.default_rng(31)
    model, written = front_end(31, tmp_path), tmp_path / "q.onnx"
    plan = quantize(model, profile(model, sounds(rng)), written, mode="weight-only").plan
    measured = sqnr(model, written, sounds(rng))
    assert plan.nodes["MatMul_m"].implementation == "runtime-float"
    low, high = plan.origin.sqnr_bands["y"]
    assert low <= measured <= high
