"""Faults of an output that no decibels excuse: another shape, not finite, dead columns. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ...profiles.records.profile import Dim
from ..noise.class_axes import ClassAxis
from .compare import channel_axes, is_float

Floats = npt.NDArray[np.float64]
Arrays = Sequence[npt.NDArray[Any]]
"""The values of one output, sample by sample."""

LEAST_SCORE = 0.05
"""Value that a probability or a score reaches, or it holds nothing that counts."""

FEWEST_VALUES = 6
"""Values of a column that show whether it is dead: fewer may be equal by chance."""

STEPS = 2.0 / 255.0
"""Share of an output's range that a column has to vary by, or a constant is its value to 8 bits."""


def output_fault(
    floats: Arrays,
    quantized: Arrays,
    shape: tuple[Dim, ...] | None,
    classes: ClassAxis,
    *,
    are_scores: bool = False,
    width: float = 0.0,
) -> str:
    """Return the fault of an output on samples, or "".

    `shape` is the declared one; of `are_scores` small columns within 0 to 1 mean nothing; `width` is the
    profiled range, or 0.
    """
    return (
        _other_shape(floats, quantized, shape)
        or _not_finite(floats, quantized)
        or _dead(floats, quantized, classes, are_scores, width)
    )


def _other_shape(floats: Arrays, quantized: Arrays, shape: tuple[Dim, ...] | None) -> str:
    for f, q in zip(floats, quantized, strict=True):
        fixed = shape if shape is not None and len(shape) == f.ndim else (None,) * f.ndim
        same_rank = f.ndim == q.ndim
        if not same_rank or any(
            dim is not None and a != b for dim, a, b in zip(fixed, f.shape, q.shape, strict=True)
        ):
            return f"has shape {list(q.shape)} where the float model's has {list(f.shape)}"
    if floats and all(f.size for f in floats) and not any(q.size for q in quantized):
        return "is empty where the float model's is not"
    return ""


def _common(floats: Arrays, quantized: Arrays) -> Iterator[tuple[npt.NDArray[Any], npt.NDArray[Any]]]:
    """Yield the values of samples on which both models gave as many."""
    yield from ((f, q) for f, q in zip(floats, quantized, strict=True) if f.shape == q.shape and f.size)


def _not_finite(floats: Arrays, quantized: Arrays) -> str:
    broken = total = 0
    for f, q in _common(floats, quantized):
        if is_float(f) and is_float(q):
            broken += int(np.count_nonzero(np.isfinite(f) & ~np.isfinite(q)))
            total += f.size
    return f"{broken} of {total} values are not finite" if broken else ""


def _dead(floats: Arrays, quantized: Arrays, classes: ClassAxis, are_scores: bool, width: float) -> str:
    """Return that columns are constant that vary in the float model, or "" if none is."""
    numbers = [(f, q) for f, q in _common(floats, quantized) if f.dtype.kind in "iub" or is_float(f)]
    pairs = [(np.asarray(f, np.float64), np.asarray(q, np.float64)) for f, q in numbers]
    if not pairs:
        return ""
    scores = are_scores and is_float(numbers[0][0])
    finite = np.concatenate([f[np.isfinite(f)] for f, _ in pairs])
    width = max(width, float(np.ptp(finite))) if finite.size and is_float(numbers[0][0]) else 0.0
    dead, values = _dead_columns([(f.reshape(-1, 1), q.reshape(-1, 1)) for f, q in pairs], scores, width)
    if dead.any():
        return f"all {values} values are {pairs[0][1].flat[0]:.3g} where the float model's vary"
    rank = pairs[0][0].ndim
    for axis in channel_axes(pairs[0][0].shape, classes):
        size = pairs[0][0].shape[axis]
        if any(f.ndim != rank or f.shape[axis] != size for f, _ in pairs):
            continue
        columns = [
            (np.moveaxis(f, axis, -1).reshape(-1, size), np.moveaxis(q, axis, -1).reshape(-1, size))
            for f, q in pairs
        ]
        dead, _ = _dead_columns(columns, scores, width)
        if dead.any():
            where = f"{int(dead.sum())} of {size} along axis {axis}"
            return (
                f"columns are constant where the float model's vary ({where}; the first is {dead.argmax()})"
            )
    return ""


def _dead_columns(
    pairs: Sequence[tuple[Floats, Floats]], scores: bool, width: float
) -> tuple[npt.NDArray[np.bool_], int]:
    """Return which columns of matrices [values, columns] are dead, and how many values each has."""
    f, q = (np.concatenate([pair[i] for pair in pairs]) for i in (0, 1))
    f = np.where(np.isfinite(f), f, np.nan)
    if len(f) < FEWEST_VALUES:
        return np.zeros(f.shape[1], np.bool_), len(f)
    low, high = (
        reduce(f, axis=0, initial=start, where=~np.isnan(f))
        for reduce, start in ((np.min, np.inf), (np.max, -np.inf))
    )
    constant = q.min(axis=0) == q.max(axis=0)
    within_one = (low >= 0.0) & (high <= 1.0)
    least = np.where(scores & within_one, LEAST_SCORE, STEPS * width)
    return constant & (high - low > least), len(f)
