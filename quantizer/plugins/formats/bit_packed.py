"""Weights of 4 or 8 bits in onnxruntime's own operators: MatMulNBits and GatherBlockQuantized.

Both read unsigned values (signed ones with a shifted zero point), and assume a zero point of 8 (128 for 8
bits) if it is missing. From their documentation in onnxruntime 1.31, domain com.microsoft:

=====================  =======================================================================================
MatMulNBits            A [..., K] times B [N, blocks, bytes of a block], blocks of K; two values of 4 bits in
                       a byte, the first in the low half. Scales [N, blocks]; zero points packed like B, rows
                       of whole bytes; a bias [N]. A last block that is not full is filled up. With
                       accuracy_level 4 the kernel may round A to 8 bits, with a scale for each block; with 0
                       it computes in float. Of 4 with A in float16, onnxruntime 1.32 makes wrong values
                       at every level of optimization that leaves A in float16
GatherBlockQuantized   data [entries, ..., bytes of an entry], packed along the last axis; scales and zero
                       points [entries, ..., blocks]. An index that is out of range gives zeros, not an error
=====================  =======================================================================================
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from ....profiles.base.errors import PlanError
from ...lowering.emitter import become, constant_shape
from ...lowering.writers import Task
from ...numerics.affine import QuantParams
from ...operators.table import MICROSOFT, product_layout
from ...targets.config import FEWEST_IN_BLOCK
from .packed_bytes import in_bytes, packed_blocks, unblocked_size

Array = npt.NDArray[Any]
Bytes = npt.NDArray[np.uint8]

BIAS = 5
"""Position of the bias of MatMulNBits; before it come zero points and an input that is no longer used."""

ACCURACY = {"runtime": 4, "runtime-float": 0}
"""The operator's attribute accuracy_level, by implementation."""


def packed_weight(task: Task) -> bool:
    """Write a MatMul, Gemm or Gather with a packed constant; raise PlanError if that does not fit."""
    return _gather(task) if task.node.op_type == "Gather" else _product(task)


def _product(task: Task) -> bool:
    node, emitter = task.node, task.emitter
    layout = product_layout(node) if node.op_type in ("MatMul", "Gemm") else None
    data, weight = node.inputs[:2] if layout is not None else (None, None)
    shape = None if weight is None else constant_shape(weight)
    params = None if shape is None else task.params(1)
    if data is None or weight is None or layout is None or params is None:
        raise _misfit(task)
    if shape is None or len(shape) != 2:
        raise _misfit(task)
    axes = layout.axes(node, shape)
    expected = axes.output if params.block_size is None else axes.input
    if axes.input is None or params.axis not in (None, expected) or not _takes_blocks(params):
        raise _misfit(task)
    size, outputs = shape if axes.input == 0 else shape[::-1]
    block, bits = params.block_size or unblocked_size(size), params.qtype.packed_bits
    grid, block_bytes = (outputs, -(-size // block)), block * bits // 8

    def in_grid(numbers: Array) -> Array:
        if params.block_size is None:
            return np.ascontiguousarray(np.broadcast_to(numbers.reshape(-1, 1), grid))
        by_block = numbers.reshape(grid[::-1]).T if axes.input == 0 else numbers.reshape(grid)
        return np.ascontiguousarray(by_block)

    def packed(array: Array) -> Bytes:
        blocked = params
        if params.block_size is None:  # a channel is a block as long as it
            scale, point = (np.broadcast_to(each, outputs) for each in (params.scale, params.zero_point))
            blocked = QuantParams(scale, point, params.qtype, axes.input, max(size, 2))
        return packed_blocks(array, blocked, grid[1] * block_bytes).reshape(*grid, block_bytes)

    inputs: list[ir.Value | None] = [emitter.floating(data, node)]
    shapes = {"shape": (*grid, block_bytes), "grid": grid}
    inputs += _packed_constants(task, weight, params, axes.input, **shapes, pack=packed, in_grid=in_grid)
    if len(node.inputs) > 2 and node.inputs[2] is not None:
        inputs += [None] * (BIAS - len(inputs)) + [emitter.floating(node.inputs[2], node)]
    attributes = {"K": size, "N": outputs, "block_size": block, "bits": bits}
    is_float16 = task.plan.config.is_float16 and not task.entry.float32
    attributes["accuracy_level"] = 0 if is_float16 else ACCURACY[task.entry.implementation]
    become(node, "MatMulNBits", inputs, attributes, MICROSOFT)
    return False


def _gather(task: Task) -> bool:
    node, table = task.node, task.node.inputs[0]
    shape = None if table is None else constant_shape(table)
    params = None if shape is None else task.params(0)
    if table is None or shape is None or params is None or params.block_size is None:
        raise _misfit(task)
    last, bits = len(shape) - 1, params.qtype.packed_bits
    entries_axis = node.attributes.get_int("axis", 0) % len(shape)
    ragged = shape[last] * bits % 8
    if not _takes_blocks(params) or params.axis != last or entries_axis != 0 or last == 0 or ragged:
        raise _misfit(task)
    grid, entry_bytes = params.grid_shape(shape), shape[last] * bits // 8
    packed_shape = (*shape[:last], entry_bytes)

    def packed(weight: Array) -> Bytes:
        return packed_blocks(weight, params, entry_bytes).reshape(packed_shape)

    def in_grid(numbers: Array) -> Array:
        return numbers.reshape(grid)

    data, *numbers = _packed_constants(
        task, table, params, last, shape=packed_shape, grid=grid, pack=packed, in_grid=in_grid
    )
    inputs = [data, node.inputs[1], *numbers]
    attributes = {"gather_axis": 0, "quantize_axis": last, "block_size": params.block_size, "bits": bits}
    become(node, "GatherBlockQuantized", inputs, attributes, MICROSOFT)
    return False


def _packed_constants(
    task: Task,
    value: ir.Value,
    params: QuantParams,
    axis: int,
    *,
    shape: Sequence[int],
    grid: Sequence[int],
    pack: Callable[[Array], Bytes],
    in_grid: Callable[[Array], Array],
) -> list[ir.Value]:
    """Return packed values, scales, and zero points if these are not the usual ones.

    All are computed when they are written: none of them is in memory longer than that. `axis` is the one that
    the product sums over, or along which a table is packed; `shape` is that of the packed values, `grid` that
    of the scales; `in_grid` returns one number for each scale in the shape `grid`.
    """
    constant, bits = value.const_value, params.qtype.packed_bits
    usual = 1 << (bits - 1)
    assert constant is not None

    def points() -> Bytes:
        return (params.zero_point + (usual if params.qtype.signed else 0)).astype(np.uint8)

    def packed_points() -> Bytes:
        return in_bytes(in_grid(points()), bits, usual)

    def initializer(
        suffix: str, shape: Sequence[int], elements: Callable[[], Array], dtype: ir.DataType
    ) -> ir.Value:
        key = (suffix, axis, params)
        return task.emitter.packed(value, key, shape, elements, before=task.node, suffix=suffix, dtype=dtype)

    integer, number = ir.DataType.UINT8, ir.DataType.FLOAT
    constants = [
        initializer("packed", shape, lambda: pack(constant.numpy()), integer),
        initializer("scale", grid, lambda: in_grid(params.scale_array), number),
    ]
    if np.any(points() != usual):
        *before, last = grid
        constants.append(initializer("zero_point", (*before, -(-last * bits // 8)), packed_points, integer))
    return constants


def _takes_blocks(params: QuantParams) -> bool:
    """Whether the operators take blocks of this size; there may be none."""
    block = params.block_size
    return block is None or (block >= FEWEST_IN_BLOCK and block & (block - 1) == 0)


def _misfit(task: Task) -> PlanError:
    return task.error(
        "packed weights are for MatMul and Gemm with a constant matrix, in blocks of its input axis or with "
        "a scale for each output channel, and for Gather along axis 0 of a table in blocks of its last axis; "
        "change the parameters, or the implementation"
    )
