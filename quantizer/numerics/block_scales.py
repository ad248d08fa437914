"""Scales of blocks of a weight: the range of each block is shrunk as far as its squared error falls. Pure.

With 4 bits a block has 16 values, and covering its largest element costs the others precision: a range that
saturates a little has less error (as the mse calibrator has it for activations; for weights Banner et al.,
"Post-Training 4-bit Quantization of Convolution Networks for Rapid-Deployment", 2019, arXiv:1810.05723).

A compiled kernel reads a weight once, block by block, with almost no memory. Without a compiler, and for
scales that are powers of two, numpy computes the same bytes.
"""

from __future__ import annotations

from itertools import product

import numpy as np
import numpy.typing as npt

from ...profiles.base.errors import ModelError, PlanError
from ...profiles.base.extras import OptionalModule
from .affine import QuantParams, QuantType
from .array_file import ArrayFile
from .quantization_noise import decibels, weight_sqnr
from .schemas import Schema, channel_params, choose_arrays, signed_type_of

FLOAT_BLOCKS = OptionalModule("the formats of numbers", "quantizer.plugins.formats.float_blocks")
"""Has `search_float_blocks` and `stored_scales`."""

try:
    from . import _blocks
except ImportError:  # installed without a compiler
    _blocks = None  # type: ignore[assignment]

Array = npt.NDArray[np.float32]
Shape = tuple[int, int, int]
"""A weight whose middle axis is divided into blocks: sizes before it, of it, and after it."""

SHRINKS = tuple(1.0 - step / 20.0 for step in range(10))
"""Fractions of a block's range that are tried: below 0.55, saturation costs more than rounding gains."""

MAX_SEARCHED_BITS = 4
"""Bits up to which the ranges of blocks are shrunk: with more, saturation gains next to nothing."""

CHUNK_ELEMENTS = 1 << 22
"""Elements whose blocks numpy searches together, so that memory stays small for large weights."""

LEVELS = () if _blocks is None else _blocks.levels()
"""Instruction sets of the compiled kernel that can be used, best first; beyond them numpy is used."""


def searched_block_params(
    weight: npt.NDArray[np.floating],
    axis: int,
    block: int,
    schema: Schema,
    qtype: QuantType,
    *,
    file: ArrayFile | None = None,
    level: int = 0,
) -> tuple[QuantParams, float]:
    """Return a scale and a zero point for each block of a constant, and their SQNR in dB.

    `axis` is divided into blocks of `block` elements; the last may be smaller. `file` stores scales and zero
    points. `level` is one of `LEVELS`, beyond them numpy; all give the same parameters. Raises ModelError if
    the constant has NaN or infinity, and PlanError if it has no such axis.
    """
    if not 0 <= axis < weight.ndim:
        raise PlanError(
            f"weight of shape {list(weight.shape)}: axis {axis} is not one of its axes; give another"
        )
    if is_transposed_view(weight):
        params, sqnr = searched_block_params(weight.T, 1 - axis, block, schema, qtype, level=level)
        return transposed_params(params, weight.T.shape), sqnr
    array, shape = as_columns(weight, axis)
    if schema.unsigned_when_positive and not qtype.signed and (array < 0.0).any():
        qtype = signed_type_of(qtype)  # one type for all blocks
    grid = shape[0], -(-shape[1] // block), shape[2]
    file = file or ArrayFile()
    scale, point = file.empty(grid, np.float32), file.empty(grid, np.int32)
    shrinks = np.array(SHRINKS if qtype.bits <= MAX_SEARCHED_BITS else SHRINKS[:1], np.float32)
    in_kernel = not (schema.power_of_two or schema.unsigned_when_positive)
    if qtype.is_float:
        point[...] = 0
        search = FLOAT_BLOCKS.load(qtype.name).search_float_blocks
        signal, noise, finite = search(array.reshape(shape), block, qtype, scale)
    elif level < len(LEVELS) and in_kernel and (qtype.signed or not schema.symmetric):
        ends = int(qtype.low), int(qtype.high), schema.symmetric
        signal, noise, finite = _blocks.search(array, shape, block, *ends, shrinks, scale, point, level)
    else:
        array = array.reshape(shape)
        signal, noise, finite = _search(array, block, schema, qtype, shrinks, scale=scale, point=point)
    if not finite:
        raise ModelError(f"weight of shape {list(weight.shape)}: contains NaN or infinity; repair the model")
    return QuantParams(scale.reshape(-1), point.reshape(-1), qtype, axis, block), decibels(signal, noise)


def channel_params_and_sqnr(
    weight: npt.NDArray[np.floating], axis: int | None, schema: Schema, qtype: QuantType
) -> tuple[QuantParams, float]:
    """Return `schemas.channel_params` of a constant, and their SQNR in dB.

    The channels of a matrix are blocks as long as its other axis: so it is read once, without a copy.
    """
    is_few = qtype.bits <= MAX_SEARCHED_BITS
    if weight.ndim != 2 or axis not in (0, 1) or is_few or qtype.is_float or not weight.size:
        params = channel_params(weight, axis, schema, qtype)
        return params, weight_sqnr(weight, params)
    params, sqnr = searched_block_params(weight, 1 - axis, weight.shape[1 - axis], schema, qtype)
    return QuantParams(params.scale, params.zero_point, params.qtype, axis), sqnr


def is_transposed_view(weight: npt.NDArray[np.generic]) -> bool:
    """Whether a matrix is the transposed view of one in memory, as the tied head of a mapped table is."""
    return weight.ndim == 2 and weight.flags.f_contiguous and not weight.flags.c_contiguous


def transposed_params(params: QuantParams, shape: tuple[int, ...]) -> QuantParams:
    """Return the parameters of the transposed matrix of one of a shape."""
    assert params.axis is not None
    grid = params.grid_shape(shape)
    scale, point = (
        np.ascontiguousarray(numbers.reshape(grid).T).reshape(-1)
        for numbers in (params.scale, params.zero_point)
    )
    return QuantParams(scale, point, params.qtype, 1 - params.axis, params.block_size)


def as_columns(weight: npt.NDArray[np.floating], axis: int) -> tuple[Array, Shape]:
    """Return a weight in memory order, and its sizes before, of and after an axis."""
    before, after = weight.shape[:axis], weight.shape[axis + 1 :]
    shape = int(np.prod(before)), weight.shape[axis], int(np.prod(after))
    return np.ascontiguousarray(weight, np.float32), shape


def _search(
    array: Array,
    block: int,
    schema: Schema,
    qtype: QuantType,
    shrinks: Array,
    *,
    scale: Array,
    point: npt.NDArray[np.int32],
) -> tuple[float, float, bool]:
    """Fill in scales and zero points of all blocks, as the compiled kernel does, and return the same."""
    outer, _, inner = array.shape
    if not np.isfinite(array).all():
        return 0.0, 0.0, False
    signal = noise = 0.0
    wide = max(1, CHUNK_ELEMENTS // (block * inner))
    for number, begin in product(range(scale.shape[1]), range(0, outer, wide)):
        with np.errstate(over="ignore"):
            part = array[begin : begin + wide, number * block : (number + 1) * block]
            rows = np.moveaxis(part, 1, 0).reshape(part.shape[1], -1)
            low, high = rows.min(0, initial=0.0), rows.max(0, initial=0.0)
            least = np.full(low.shape, np.inf, np.float32)
            best, zero = np.zeros_like(least), np.zeros(low.shape, np.int64)
            for shrink in shrinks:
                tried, points, _ = choose_arrays(low * shrink, high * shrink, schema, qtype)
                tried_scale = tried.astype(np.float32)
                rounded = rows / tried_scale
                np.maximum(rounded, (qtype.low - points).astype(np.float32), out=rounded)
                np.minimum(rounded, (qtype.high - points).astype(np.float32), out=rounded)
                np.rint(rounded, out=rounded)
                rounded *= tried_scale
                rounded -= rows
                np.square(rounded, out=rounded)
                error = _summed(rounded)
                better = (error < least) | (shrink == 1.0)
                least = np.where(better, error, least)
                best, zero = np.where(better, tried, best), np.where(better, points, zero)
            blocks = slice(begin, begin + wide), number
            scale[blocks], point[blocks] = best.reshape(-1, inner), zero.reshape(-1, inner)
            signal += float(_summed(np.square(rows)).sum(dtype=np.float64))
            noise += float(least.sum(dtype=np.float64))
    return signal, noise, True


def _summed(rows: Array) -> Array:
    """Return the sum of rows, added in their order: numpy's own order depends on the memory layout."""
    total = np.zeros(rows.shape[1], np.float32)
    for row in rows:
        total += row
    return total
