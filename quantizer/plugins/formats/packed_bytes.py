"""Quantized values of weights packed into bytes, in blocks as kernels of packed weights want them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ...numerics.affine import QuantParams, quantize
from ...numerics.block_scales import LEVELS, as_columns, is_transposed_view, transposed_params
from ...plan.plan import UNBLOCKED
from ...targets.config import FEWEST_IN_BLOCK

try:
    from ...numerics import _blocks
except ImportError:  # installed without a compiler, and LEVELS is empty
    _blocks = None  # type: ignore[assignment]

BLOCK_SCALE_BYTES = 4
"""Bytes of the scale of a block."""


def unblocked_size(size: int) -> int:
    """Return the block that takes fewest bytes, the last one filled up, `UNBLOCKED` at most."""
    blocks = (UNBLOCKED >> halvings for halvings in range(UNBLOCKED.bit_length()))
    return min(
        (block for block in blocks if block >= FEWEST_IN_BLOCK),
        key=lambda block: -(-size // block) * (block + BLOCK_SCALE_BYTES),
    )


def packed_blocks(
    weight: npt.NDArray[np.floating], params: QuantParams, pitch: int, level: int = 0
) -> npt.NDArray[np.uint8]:
    """Return the unsigned quantized values of a constant in blocks, those of 2 and 4 bits packed into bytes.

    The result is [columns, pitch], the columns in the order of the other axes; `pitch` is the bytes of a
    column, padded with 0. Signed values are moved by half of the range of their bits; the first of a byte is
    in the low half. Raises DataError if the constant has NaN.
    """
    assert params.axis is not None
    assert params.block_size is not None
    if is_transposed_view(weight):
        return packed_blocks(weight.T, transposed_params(params, weight.shape), pitch, level)
    array, shape = as_columns(weight, params.axis)
    qtype, bits = params.qtype, params.qtype.packed_bits
    offset = 1 << (bits - 1) if qtype.signed else 0
    packed = np.zeros((shape[0] * shape[2], pitch), np.uint8)
    if level < len(LEVELS) and bits != 2:
        ends = int(qtype.low), int(qtype.high), offset, bits
        numbers = params.scale, params.zero_point
        if _blocks.pack(array, shape, params.block_size, *ends, *numbers, packed, pitch, level):
            return packed
    quantized = quantize(array, params).astype(np.int16) + offset
    columns: npt.NDArray[np.uint8] = np.moveaxis(quantized.reshape(shape), 1, -1).astype(np.uint8)
    columns = columns.reshape(packed.shape[0], -1)
    columns = in_bytes(columns, bits, 0)
    packed[:, : columns.shape[1]] = columns
    return packed


def in_bytes(values: npt.NDArray[np.uint8], bits: int, fill: int) -> npt.NDArray[np.uint8]:
    """Return values of 2, 4 or 8 bits packed along the last axis: in a byte the first is in the lowest bits.

    The last values share their byte with `fill`.
    """
    count = 8 // bits
    missing = -values.shape[-1] % count
    if missing:
        values = np.pad(values, [(0, 0)] * (values.ndim - 1) + [(0, missing)], constant_values=fill)
    packed = np.zeros((*values.shape[:-1], values.shape[-1] // count), np.uint8)
    for place in range(count):
        packed |= values[..., place::count] << np.uint8(bits * place)
    return packed
