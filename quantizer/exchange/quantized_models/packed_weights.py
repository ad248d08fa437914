"""Weights that operators of onnxruntime's own hold packed: MatMulNBits and GatherBlockQuantized.

Their layout stands in `lowering.writers.bit_packed`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from ...model.graph import constant_of
from ...numerics.affine import INT4, INT8, UINT4, UINT8, QuantParams

Array = npt.NDArray[Any]


def unpacked_product(node: ir.Node) -> tuple[Array, QuantParams] | None:
    """Return the weight [K, N] of a MatMulNBits as unsigned integers, with its parameters.

    None where an input is no constant, or is grouped in another way.
    """
    size = {name: node.attributes.get_int(name, 0) for name in ("K", "N", "block_size", "bits")}
    bits = size["bits"] or 4
    packed, scales = (constant_of(node.inputs[i]) for i in (1, 2))
    given = node.inputs[3] if len(node.inputs) > 3 else None
    points = constant_of(given)
    grouped = constant_of(node.inputs[4]) if len(node.inputs) > 4 else None
    if packed is None or scales is None or bits not in (4, 8) or grouped is not None:
        return None
    if given is not None and (points is None or points.dtype != np.uint8):
        return None
    blocks = -(-size["K"] // size["block_size"])
    rows = _unpacked(packed.reshape(size["N"], -1), bits)[:, : size["K"]]
    zeros = np.full((size["N"], blocks), 1 << (bits - 1), np.int64)
    if points is not None:
        zeros = _unpacked(points.reshape(size["N"], -1), bits)[:, :blocks].astype(np.int64)
    grid = np.asarray(scales, np.float32).reshape(size["N"], blocks)
    params = _blocked(grid.T, zeros.T, bits, 0, size["block_size"])
    return _signed(rows.T, params) if points is None else (rows.T, params)


def unpacked_table(node: ir.Node) -> tuple[Array, QuantParams] | None:
    """Return the table of a GatherBlockQuantized as unsigned integers, with its parameters; None as above."""
    packed, scales = constant_of(node.inputs[0]), constant_of(node.inputs[2])
    given = node.inputs[3] if len(node.inputs) > 3 else None
    points, bits = constant_of(given), node.attributes.get_int("bits", 4)
    block, axis = node.attributes.get_int("block_size", 128), node.attributes.get_int("quantize_axis", 1)
    if packed is None or scales is None or packed.dtype != np.uint8 or (given is not None and points is None):
        return None
    rank = packed.ndim
    if axis % rank != rank - 1:
        return None
    table = _unpacked(packed, bits)
    grid = np.asarray(scales, np.float32)
    zeros = np.full(grid.shape, 1 << (bits - 1), np.int64)
    if points is not None:
        zeros = _unpacked(points, bits)[..., : grid.shape[-1]].astype(np.int64)
    params = _blocked(grid, zeros, bits, rank - 1, block)
    return _signed(table, params) if points is None else (table, params)


def _signed(values: Array, params: QuantParams) -> tuple[Array, QuantParams]:
    """Return values without zero points as signed ones around 0: the same float values."""
    half = 1 << (params.qtype.bits - 1)
    qtype = INT4 if params.qtype == UINT4 else INT8
    signed = (values.astype(np.int64) - half).astype(qtype.numpy_dtype)
    return signed, replace(params, qtype=qtype, zero_point=(0,) * len(params.scale))


def _blocked(scales: Array, zeros: Array, bits: int, axis: int, block: int) -> QuantParams:
    return QuantParams(
        tuple(scales.reshape(-1).astype(np.float64).tolist()),
        tuple(zeros.reshape(-1).tolist()),
        UINT4 if bits == 4 else UINT8,
        axis,
        block,
    )


def _unpacked(packed: Array, bits: int) -> Array:
    """Return the values of bytes along the last axis; of two in a byte the low half is the first."""
    if bits == 8:
        return packed
    halves = np.stack([packed & 15, packed >> 4], axis=-1)
    return np.asarray(halves.reshape(*packed.shape[:-1], -1))
