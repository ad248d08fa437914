"""Scales of blocks of a weight: the range of each block is shrunk as far as its squared error falls. Pure.

With 4 bits a block has 16 values, and covering its largest element costs the others precision: a range that
saturates a little has less error (as the mse calibrator has it for activations; for weights Banner et al.,
"Post-Training 4-bit Quantization of Convolution Networks for Rapid-Deployment", 2019, arXiv:1810.05723).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ...profiles.base.errors import ModelError, PlanError
from .affine import QuantParams, QuantType
from .quantization_noise import decibels
from .schema_table import Schema
from .schemas import choose_arrays, signed_equivalent

Floats = npt.NDArray[np.float64]

SHRINKS = tuple(1.0 - step / 20.0 for step in range(10))
"""Shares of a block's range that are tried. Below 0.55 the error of what saturates grows faster than that of
rounding falls, even for values with heavy tails; for powers of two a half is among them, nearly."""

MOST_BITS = 4
"""With more bits the range is covered: saturation gains next to nothing."""

CHUNK = 1 << 22
"""Elements whose blocks are searched together, so that memory stays small for large weights."""


def searched_block_params(
    weight: npt.NDArray[np.floating],
    axis: int,
    block: int,
    schema: Schema,
    qtype: QuantType,
) -> tuple[QuantParams, float]:
    """Return a scale and a zero point for each block of a constant, and the SQNR (dB) that they leave.

    Args:
        weight: the constant, any shape.
        axis: axis that is divided into blocks, counted from the front; the last block may be smaller.
        block: elements in a block.
        schema, qtype: as for `schemas.channel_params`.

    Raises:
        ModelError: the constant holds NaN or infinity. PlanError: it has no such axis.
    """
    if not 0 <= axis < weight.ndim:
        raise PlanError(
            f"weight of shape {list(weight.shape)}: axis {axis} is not one of its axes; give another"
        )
    if not np.isfinite(weight).all():
        raise ModelError(f"weight of shape {list(weight.shape)}: holds NaN or infinity; repair the model")
    blocks = _in_blocks(weight, axis, block)
    rows = max(1, CHUNK // block)
    scales, zero_points = [], []
    signal = noise = 0.0
    if schema.unsigned_when_positive and not qtype.signed and (blocks < 0.0).any():
        qtype = signed_equivalent(qtype)  # one type for all blocks
    for begin in range(0, len(blocks), rows):
        part = blocks[begin : begin + rows]
        scale, zero_point, error = _searched(part, schema, qtype)
        scales.append(scale)
        zero_points.append(zero_point)
        signal += float(np.square(part).sum(dtype=np.float64))
        noise += float(error.sum())
    grid = (*weight.shape[:axis], *weight.shape[axis + 1 :], -(-weight.shape[axis] // block))
    found = [
        np.moveaxis(np.concatenate(parts).reshape(grid), -1, axis).reshape(-1)
        for parts in (scales, zero_points)
    ]
    return QuantParams(found[0], found[1], qtype, axis, block), decibels(signal, noise)


def _in_blocks(array: npt.NDArray[np.floating], axis: int, block: int) -> npt.NDArray[np.float32]:
    """Return an array as (blocks, elements), the axis of blocks last among the axes; padded by zeros."""
    moved = np.moveaxis(np.asarray(array, np.float32), axis, -1)
    missing = -moved.shape[-1] % block
    if missing:
        moved = np.pad(moved, [(0, 0)] * (moved.ndim - 1) + [(0, missing)])
    return np.ascontiguousarray(moved).reshape(-1, block)


def _searched(
    blocks: npt.NDArray[np.float32], schema: Schema, qtype: QuantType
) -> tuple[Floats, npt.NDArray[np.int64], Floats]:
    """Return scales, zero points and summed squared errors of blocks (n, elements), where these are least."""
    low, high = blocks.min(1, initial=0.0), blocks.max(1, initial=0.0)
    scale, zero_point, _ = choose_arrays(low, high, schema, qtype)
    least = _errors(blocks, scale, zero_point, qtype)
    for shrink in SHRINKS[1:] if qtype.bits <= MOST_BITS else ():
        tried, points, _ = choose_arrays(low * shrink, high * shrink, schema, qtype)
        error = _errors(blocks, tried, points, qtype)
        better = error < least
        least = np.where(better, error, least)
        scale, zero_point = np.where(better, tried, scale), np.where(better, points, zero_point)
    return scale, zero_point, least


def _errors(
    blocks: npt.NDArray[np.float32],
    scale: Floats,
    zero_point: npt.NDArray[np.int64],
    qtype: QuantType,
) -> Floats:
    steps = scale.astype(np.float32)[:, None]
    low = (qtype.low - zero_point).astype(np.float32)[:, None]
    high = (qtype.high - zero_point).astype(np.float32)[:, None]
    rounded = blocks / steps
    np.rint(rounded, out=rounded)
    np.maximum(rounded, low, out=rounded)
    np.minimum(rounded, high, out=rounded)
    rounded *= steps
    rounded -= blocks
    np.square(rounded, out=rounded)
    return np.asarray(rounded.sum(1, dtype=np.float64))
