"""Scales of blocks of a weight in floating-point numbers of few bits, and how they are stored. Pure.

Floating-point numbers have finer steps for smaller values, so the range of a block is not reduced: the
largest magnitude becomes the largest number, or the end of `BlockScales` with less squared error. The error
is computed with the stored scale.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

from ....profiles.base.errors import PlanError
from ...numerics.affine import TYPES, BlockScales, QuantParams, QuantType, levels

Array = npt.NDArray[np.float32]

CHUNK_ELEMENTS = 1 << 16
"""Elements whose blocks are tried together, which a processor's cache holds."""

TENSOR_SCALE_BITS = 20
"""Leading bits that the scale of a whole weight keeps: products with scales of 8 bits are exact then."""

LEAST_EXPONENT, MOST_EXPONENT = -126, 127
"""Exponents of power-of-two scales: all are normal numbers of float32."""


def search_float_blocks(
    array: Array, block: int, qtype: QuantType, scale: Array
) -> tuple[float, float, bool]:
    """Fill in the scales of all blocks; return the sums of squares of the weight and of its error.

    `array` is [before, elements, after], the middle axis in blocks; `scale`, [before, blocks, after], is
    written to. The third result is whether all values are finite; if not, the others are invalid.
    """
    if not np.isfinite(array).all():
        return 0.0, 0.0, False
    whole = 0.0
    if qtype.scales is not None and qtype.scales.has_tensor_scale:
        whole = _tensor_scale(max(float(array.max(initial=0.0)), -float(array.min(initial=0.0))), qtype)
    signal, noise, inner = 0.0, 0.0, array.shape[2]
    wide = max(1, CHUNK_ELEMENTS // (block * inner))
    for number, begin in product(range(scale.shape[1]), range(0, array.shape[0], wide)):
        part = array[begin : begin + wide, number * block : (number + 1) * block]
        best: Array = np.zeros(0, np.float32)
        least: Array = np.zeros(0, np.float32)
        for tried in _candidates(np.abs(part).max(1), qtype, whole):
            off = _rounded(part, tried[:, None], qtype)
            off -= part
            np.square(off, out=off)
            error: Array = np.zeros(tried.shape, np.float32)
            for row in np.moveaxis(off, 1, 0):  # in their order, on every machine
                error += row
            better = error < least if least.size else np.ones(error.shape, bool)
            least = np.where(better, error, least) if least.size else error
            best = np.where(better, tried, best) if best.size else tried
        scale[begin : begin + wide, number] = best
        signal += float(np.square(part).sum(dtype=np.float64))
        noise += float(least.sum(dtype=np.float64))
    return signal, noise, True


def _rounded(values: Array, scale: Array, qtype: QuantType) -> Array:
    """Return values divided by a scale, rounded to even among the numbers of a type, times the scale.

    The sum with a number that is large enough is rounded to the step that numbers have there: four times as
    fast as a conversion of ml_dtypes.
    """
    number = qtype.number
    assert number is not None
    steps = np.asarray(values / scale)
    np.clip(steps, qtype.low, qtype.high, out=steps)
    large = (steps.view(np.int32) & np.int32(0x7F800000)).view(np.float32)  # the power of two below
    np.maximum(large, np.float32(2.0 ** (1 - number.bias)), out=large)
    large *= np.float32(1.5 * 2.0 ** (23 - number.mantissa))
    steps += large
    steps -= large
    steps *= scale
    return steps


def _candidates(largest: Array, qtype: QuantType, whole: float) -> Iterator[Array]:
    """Yield scales of blocks with these largest magnitudes, rounded to numbers of their stored type."""
    scales = qtype.scales
    if scales is None:
        least = np.finfo(np.float32).tiny
        yield np.where(largest > 0.0, np.maximum(largest / np.float32(qtype.high), least), np.float32(1.0))
        return
    if not scales.tops:
        exponent = np.frexp(largest)[1] - np.frexp(qtype.high)[1]
        for step in (0, 1):
            power = np.clip(exponent + step, LEAST_EXPONENT, MOST_EXPONENT)
            yield np.ldexp(np.float32(1.0), power).astype(np.float32)
        return
    stored = TYPES[scales.type]
    smallest = float(levels(stored)[levels(stored) > 0.0][0])
    for top in scales.tops:
        wanted = np.clip(largest / np.float32(top) / np.float32(whole), smallest, stored.high)
        yield wanted.astype(stored.numpy_dtype).astype(np.float32) * np.float32(whole)


def _tensor_scale(largest: float, qtype: QuantType) -> float:
    """Return the scale of a whole weight that gives its largest block the largest scale of its type."""
    assert qtype.scales is not None
    wanted = largest / (qtype.high * TYPES[qtype.scales.type].high)
    mantissa, exponent = np.frexp(max(wanted, float(np.finfo(np.float32).tiny)))
    return float(np.ldexp(np.ceil(mantissa * 2.0**TENSOR_SCALE_BITS), int(exponent) - TENSOR_SCALE_BITS))


def stored_scales(params: QuantParams) -> tuple[npt.NDArray[Any], np.float32 | None]:
    """Return the scales of blocks in their stored type, and the factor of the whole weight or None."""
    scales = params.qtype.scales
    assert scales is not None
    if not scales.has_tensor_scale:
        import ml_dtypes

        stored = params.scale.astype(ml_dtypes.float8_e8m0fnu)
        if np.array_equal(stored.astype(np.float32), params.scale):
            return stored, None
    for whole in _possible_tensor_scales(params.scale, scales):
        narrow = np.clip(params.scale / whole, 0.0, TYPES[scales.type].high)
        stored = narrow.astype(TYPES[scales.type].numpy_dtype)
        if np.array_equal(stored.astype(np.float32) * whole, params.scale):
            return stored, whole
    raise PlanError(
        f"quantization parameters: scales of {params.qtype.name} are not numbers of {scales.type}"
        f"{' with one factor' if scales.has_tensor_scale else ''}; take those of the plan that qprof made"
    )


def _possible_tensor_scales(scale: Array, scales: BlockScales) -> Iterator[np.float32]:
    """Yield the numbers that scales of blocks may have been multiplied with, the likeliest first."""
    if not scales.has_tensor_scale:
        return
    stored = levels(TYPES[scales.type])
    for number in stored[stored > 0.0][::-1]:
        near = np.float32(scale.max() / number)
        for whole in (near, np.nextafter(near, np.float32(0.0)), np.nextafter(near, np.float32(np.inf))):
            first = (scale[:16] / whole).astype(TYPES[scales.type].numpy_dtype).astype(np.float32)
            if np.array_equal(first * whole, scale[:16]):
                yield whole
