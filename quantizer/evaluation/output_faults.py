"""Faults of an output that no decibels excuse: another shape, not finite, dead columns. Pure."""

from __future__ import annotations

import math
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
    """Return the fault of an output of a declared shape, or ""; `width` is the profiled range, or 0."""
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
            return f"has shape {list(q.shape)}, but the float model's has {list(f.shape)}"
    if floats and all(f.size for f in floats) and not any(q.size for q in quantized):
        return "is empty, but the float model's is not"
    return ""


def _common(floats: Arrays, quantized: Arrays) -> Iterator[tuple[npt.NDArray[Any], npt.NDArray[Any]]]:
    """Yield the values of samples on which both models gave as many."""
    yield from ((f, q) for f, q in zip(floats, quantized, strict=True) if f.shape == q.shape and f.size)


def _not_finite(floats: Arrays, quantized: Arrays) -> str:
    broken = total = 0
    for f, q in _common(floats, quantized):
        if is_float(f) and is_float(q):
            total += f.size
            if not (finite := np.isfinite(q)).all():
                broken += int(np.count_nonzero(np.isfinite(f) & ~finite))
    return f"{broken} of {total} values are not finite" if broken else ""


def _dead(floats: Arrays, quantized: Arrays, classes: ClassAxis, are_scores: bool, width: float) -> str:
    """Return that columns are constant that vary in the float model, or "" if none is."""
    pairs = [(f, q) for f, q in _common(floats, quantized) if f.dtype.kind in "iub" or is_float(f)]
    if not pairs:
        return ""
    shape, of_float, of_int8 = pairs[0][0].shape, [f for f, _ in pairs], [q for _, q in pairs]
    for axis in (None, *channel_axes(shape, classes)):
        if axis is not None and any(f.ndim != len(shape) or f.shape[axis] != shape[axis] for f in of_float):
            continue
        least, most = _extremes(of_int8, axis)
        values = sum(f.size for f in of_float) // least.size
        if values < FEWEST_VALUES or not (least == most).any():
            continue
        low, high = _extremes(of_float, axis, finite=True)
        is_number = is_float(of_float[0])
        varying = max(width, float(high.max() - low.min())) if is_number and low.min() < math.inf else 0.0
        within_one = are_scores & is_number & (low >= 0.0) & (high <= 1.0)
        dead = (least == most) & (high - low > np.where(within_one, LEAST_SCORE, STEPS * varying))
        if dead.any() and axis is None:
            return f"all {values} values are {least.flat[0]:.3g}, but the float model's vary"
        if dead.any():
            where = f"{int(dead.sum())} of {dead.size} along axis {axis}"
            return f"columns are constant, but the float model's vary ({where}; the first is {dead.argmax()})"
    return ""


def _extremes(arrays: Arrays, axis: int | None, *, finite: bool = False) -> tuple[Floats, Floats]:
    """Return the least and the largest value of each column, or of all values, in all samples."""
    found = []
    for array in arrays:
        rest = None if axis is None else tuple(a for a in range(array.ndim) if a != axis % array.ndim)
        if finite and is_float(array):
            counted = np.isfinite(array)
            low, high = (
                reduce(array, axis=rest, initial=start, where=counted)
                for reduce, start in ((np.min, np.inf), (np.max, -np.inf))
            )
        else:
            low, high = array.min(axis=rest), array.max(axis=rest)
        found.append((np.asarray(low, np.float64), np.asarray(high, np.float64)))
    return np.min([low for low, _ in found], axis=0), np.max([high for _, high in found], axis=0)
