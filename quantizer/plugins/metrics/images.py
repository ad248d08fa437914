"""PSNR and SSIM of pictures against the true ones, the mean over the pictures."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from ....profiles.base.errors import DataError, ModelError
from ...evaluation.metrics.metric import Floats, Metric, MetricSource, Outputs, mean_of
from ...evaluation.metrics.truth import Place, read_npy
from .truth_files import array_truth, read_picture

MAX_DECIBELS = 100.0
"""PSNR of pictures that are equal."""

K1, K2, SIGMA, RADIUS = 0.01, 0.03, 1.5, 5
"""Window of SSIM, as in Wang et al. (2004): Gaussian, 11 by 11."""

Picture = npt.NDArray[np.float64]
"""[channels, height, width], from 0 to the range."""


def psnr(source: MetricSource) -> Metric:
    """Return the peak signal-to-noise ratio in dB, at most MAX_DECIBELS, of each picture."""

    def score(true: Picture, output: Picture, peak: float) -> float:
        error = float(np.mean((true - output) ** 2)) / peak**2
        if not np.isfinite(error):
            return 0.0
        return float(min(MAX_DECIBELS, -10.0 * np.log10(max(error, 1e-300))))

    return _metric(source, score)


def ssim(source: MetricSource) -> Metric:
    """Return the structural similarity in percent, the mean over channels, of each picture."""

    def score(true: Picture, output: Picture, peak: float) -> float:
        return 100.0 * float(np.nan_to_num(similarity(true, output, peak)))

    return _metric(source, score)


def similarity(one: Picture, other: Picture, peak: float) -> float:
    """Return the similarity of two pictures [channels, height, width], -1 to 1 (Wang et al., 2004).

    By hand, as the library that has it brings six others; the tests compare it with that library.
    """
    a, b = _blurred(one), _blurred(other)
    aa, bb, ab = _blurred(one * one) - a * a, _blurred(other * other) - b * b, _blurred(one * other) - a * b
    c1, c2 = (K1 * peak) ** 2, (K2 * peak) ** 2
    ssim_map = (2.0 * a * b + c1) * (2.0 * ab + c2) / ((a * a + b * b + c1) * (aa + bb + c2))
    return float(ssim_map.mean())


def _blurred(picture: Picture) -> Picture:
    """Return weighted means under the window, at all places inside the picture."""
    at = np.arange(-RADIUS, RADIUS + 1)
    weights = np.exp(-0.5 * (at / SIGMA) ** 2)
    weights /= weights.sum()
    for axis in (1, 2):
        windows = np.lib.stride_tricks.sliding_window_view(picture, weights.size, axis=axis)
        picture = windows @ weights
    return picture


def _metric(source: MetricSource, score: Callable[[Picture, Picture, float], float]) -> Metric:
    file, output = source.required_truth(), source.values_output
    of_sample, check_rows = array_truth(file, {".npy": read_npy, ".png": read_picture})
    peak = _peak(source)

    def truth(place: Place, floats: Outputs) -> tuple[Any, int]:
        shape = floats[output].shape
        if len(shape) != 4:
            raise ModelError(
                f"output '{output}': has shape {list(shape)} and is not a picture [rows, channels, height,  "
                "width]; choose another with --scored-output"
            )
        picture, rows = of_sample(place, shape[0])
        scale = peak / np.iinfo(picture.dtype).max if picture.dtype.kind == "u" else 1.0
        return _as_shape(picture.astype(np.float64) * scale, shape, f"{file}, sample {place.name}"), rows

    def scored(true: npt.NDArray[np.float64], outputs: Outputs) -> Floats:
        values = np.clip(outputs[output].astype(np.float64), 0.0, peak)
        if min(values.shape[2:], default=0) <= 2 * RADIUS and source.metric.kind.name == "ssim":
            raise ModelError(f"output '{output}': is smaller than the window of SSIM, 11 by 11; take psnr")
        if values.shape != true.shape:
            raise ModelError(f"output '{output}': has another shape than in the float model; fix its shapes")
        return np.array([score(a, b, peak) for a, b in zip(true, values, strict=True)])

    return Metric(
        *source.called,
        f"{source.metric.title} of output '{output}'",
        reads=output,
        truth=truth,
        scored=scored,
        figures=lambda kept: mean_of(np.concatenate(list(kept))),
        finish=check_rows,
        assumed=(f"{source.metric.kind.name}: values of output '{output}' are assumed to be 0 to {peak:g}",),
    )


def _peak(source: MetricSource) -> float:
    """Return the largest value that a pixel can have: the user's, or 1 or 255 by the first picture."""
    given = source.metric.options["range"]
    if given is None:
        return 1.0 if float(source.first_outputs[source.values_output].max(initial=0.0)) <= 4.0 else 255.0
    return float(given)


def _as_shape(
    picture: npt.NDArray[np.float64], shape: tuple[int, ...], where: str
) -> npt.NDArray[np.float64]:
    """Return pictures as [rows, channels, height, width]; files have the channels last and may lack rows."""
    rows = picture if picture.ndim == 4 else picture[None]
    for candidate in (rows, rows[:, None] if rows.ndim == 3 else np.moveaxis(rows, -1, 1)):
        if candidate.shape == shape:
            return candidate
    raise DataError(
        f"{where}: the true picture has shape {list(picture.shape)}, the output {list(shape)}; give pictures "
        "of that size"
    )
