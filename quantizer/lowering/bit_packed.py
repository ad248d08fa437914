"""Weights of 4 or 8 bits in onnxruntime's own operators: MatMulNBits and GatherBlockQuantized.

Both read unsigned values, for signed ones with the zero point moved by as much, and without zero points take
8 (128 for 8 bits). As their documentation in onnxruntime 1.31 has it, in domain com.microsoft:

=====================  =======================================================================================
MatMulNBits            A [..., K] times B [N, blocks, bytes of a block], blocks of K; two values of 4 bits in
                       a byte, the first in the low half. Scales [N, blocks]; zero points packed like B, rows
                       of whole bytes; a bias [N]. A last block that is not full is filled up. With
                       accuracy_level 4 the kernel may round A to 8 bits, with a scale for each block; with 0
                       it computes in float
GatherBlockQuantized   data [entries, ..., bytes of an entry], packed along the last axis; scales and zero
                       points [entries, ..., blocks]. An index that is out of range gives zeros, not an error
=====================  =======================================================================================
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from ...profiles.base.errors import PlanError
from ..model.graph import constant_of
from ..numerics.affine import QuantParams
from ..numerics.block_scales import packed_blocks
from ..operators.table import MICROSOFT, product_layout
from ..plan.plan import unblocked_size
from ..targets.config import FEWEST_IN_BLOCK
from .emitter import become, constant_shape
from .writers import Task

Array = npt.NDArray[Any]
Bytes = npt.NDArray[np.uint8]

BIAS = 5
"""Position of the bias of MatMulNBits; before it come zero points and an input that is no longer used."""

ACCURACY = {"runtime": 4, "runtime-float": 0}
"""The operator's attribute accuracy_level, by implementation."""


def packed_weight(task: Task) -> bool:
    """Write a MatMul, Gemm or Gather with a packed constant.

    Raises:
        PlanError: the node is another one, or its constant is not what the operator takes.
    """
    return _gather(task) if task.node.op_type == "Gather" else _product(task)


def _product(task: Task) -> bool:
    node, emitter, layout = task.node, task.emitter, product_layout(task.node)
    value = node.inputs[1] if layout is not None and len(node.inputs) > 1 else None
    shape, data = None if value is None else constant_shape(value), node.inputs[0]
    params = None if shape is None else task.params(1)
    if node.op_type not in ("MatMul", "Gemm") or layout is None or params is None or data is None:
        raise _misfit(task)
    if value is None or shape is None or len(shape) != 2:
        raise _misfit(task)
    axes = layout.axes(node, shape)
    expected = axes.output if params.block_size is None else axes.input
    if axes.input is None or params.axis not in (None, expected) or not _is_power(params.block_size):
        raise _misfit(task)
    size, outputs = shape if axes.input == 0 else shape[::-1]
    block = params.block_size or unblocked_size(size)
    grid, bits = (outputs, -(-size // block)), _stored_bits(params)
    per_row = block * bits // 8

    def by_block(numbers: Array) -> Array:
        if params.block_size is None:
            return np.ascontiguousarray(np.broadcast_to(numbers.reshape(-1, 1), grid))
        return np.ascontiguousarray(
            numbers.reshape(grid[::-1]).T if axes.input == 0 else numbers.reshape(grid)
        )

    def packed(weight: Array) -> Bytes:
        blocked = params
        if params.block_size is None:  # a channel is a block as long as it
            scale, point = (np.broadcast_to(each, outputs) for each in (params.scale, params.zero_point))
            blocked = QuantParams(scale, point, params.qtype, axes.input, max(size, 2))
        return packed_blocks(weight, blocked, grid[1] * per_row).reshape(*grid, per_row)

    inputs: list[ir.Value | None] = [emitter.floating(data, node)]
    inputs += _operands(task, value, _Packed(params, axes.input, (*grid, per_row), packed, grid, by_block))
    if len(node.inputs) > 2 and node.inputs[2] is not None:
        inputs += [None] * (BIAS - len(inputs)) + [emitter.floating(node.inputs[2], node)]
    sizes = {"K": size, "N": outputs, "block_size": block, "bits": bits}
    sizes["accuracy_level"] = ACCURACY[task.entry.implementation]
    become(node, "MatMulNBits", inputs, sizes, MICROSOFT)
    return False


def _gather(task: Task) -> bool:
    node, table = task.node, task.node.inputs[0]
    array = constant_of(table)
    params = None if array is None else task.params(0)
    if table is None or array is None or params is None or params.block_size is None:
        raise _misfit(task)
    last, bits = array.ndim - 1, _stored_bits(params)
    first = node.attributes.get_int("axis", 0) % array.ndim
    if (
        not _is_power(params.block_size)
        or params.axis != last
        or first != 0
        or last == 0
        or array.shape[last] * bits % 8
    ):
        raise _misfit(task)
    grid, row = params.grid_shape(array.shape), array.shape[last] * bits // 8
    shape = (*array.shape[:last], row)
    written = _Packed(
        *(params, last, shape),
        lambda weight: packed_blocks(weight, params, row).reshape(shape),
        *(grid, lambda numbers: numbers.reshape(grid)),
    )
    data, *numbers = _operands(task, table, written)
    inputs = [data, node.inputs[1], *numbers]
    attributes = {"gather_axis": 0, "quantize_axis": last, "block_size": params.block_size, "bits": bits}
    become(node, "GatherBlockQuantized", inputs, attributes, MICROSOFT)
    return False


@dataclass(frozen=True, eq=False)
class _Packed:
    """How a constant is written for an operator of the runtime's own.

    Attributes:
        params: of the constant.
        axis: which the product sums over, or along which a table is packed.
        shape: of the packed values.
        pack: returns them for the constant.
        grid: shape of the scales.
        by_block: returns one number for each scale in this shape.
    """

    params: QuantParams
    axis: int
    shape: Sequence[int]
    pack: Callable[[Array], Bytes]
    grid: Sequence[int]
    by_block: Callable[[Array], Array]


def _operands(task: Task, value: ir.Value, written: _Packed) -> list[ir.Value]:
    """Return packed values, scales, and zero points where these are not the usual ones.

    All are computed when they are written: none of them is in memory longer than that.
    """
    params, constant, bits = written.params, value.const_value, _stored_bits(written.params)
    usual = 1 << (bits - 1)
    assert constant is not None

    def points() -> Bytes:
        return _pack(written.by_block(_unsigned(params.zero_point, params)), bits, usual)

    def written_as(
        suffix: str, shape: Sequence[int], elements: Callable[[], Array], dtype: ir.DataType
    ) -> ir.Value:
        key = (suffix, written.axis, params)
        return task.emitter.packed(value, key, shape, elements, before=task.node, suffix=suffix, dtype=dtype)

    bytes_, floats = ir.DataType.UINT8, ir.DataType.FLOAT
    found = [
        written_as("packed", written.shape, lambda: written.pack(constant.numpy()), bytes_),
        written_as("scale", written.grid, lambda: written.by_block(params.scale_array), floats),
    ]
    if np.any(_unsigned(params.zero_point, params) != usual):
        *before, last = written.grid
        found.append(written_as("zero_point", (*before, -(-last * bits // 8)), points, bytes_))
    return found


def _is_power(block: int | None) -> bool:
    """Whether the operators take blocks of this size; there may be none."""
    return block is None or (block >= FEWEST_IN_BLOCK and block & (block - 1) == 0)


def _stored_bits(params: QuantParams) -> int:
    return 4 if params.qtype.bits <= 4 else 8


def _unsigned(quantized: Array, params: QuantParams) -> Bytes:
    """Return integers as unsigned ones, signed ones moved by half of what their bits hold."""
    moved = np.asarray(quantized).astype(np.int16)
    if params.qtype.signed:
        moved += 1 << (_stored_bits(params) - 1)
    return moved.astype(np.uint8)


def _pack(values: Bytes, bits: int, fill: int = 0) -> Bytes:
    """Return values of 4 bits two in a byte along the last axis, the first in the low half; others as are."""
    if bits == 8:
        return values
    if values.shape[-1] % 2:
        values = np.pad(values, [(0, 0)] * (values.ndim - 1) + [(0, 1)], constant_values=fill)
    return np.asarray(values[..., 0::2] | (values[..., 1::2] << 4), np.uint8)


def _misfit(task: Task) -> PlanError:
    return task.error(
        "packed weights are for MatMul and Gemm with a constant matrix, in blocks of its input axis or with "
        "a scale for each output channel, and for Gather along axis 0 of a table in blocks of its last axis; "
        "change the parameters, or the implementation"
    )
