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

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from ...profiles.base.errors import PlanError
from ..numerics.affine import QuantParams, quantize
from ..operators.table import MICROSOFT, product_layout
from ..plan.plan import UNBLOCKED
from .graph_writer import constant_array
from .task import Task

Array = npt.NDArray[Any]
Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]

FEWEST = 16
"""Elements of the smallest block."""

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
    array, data = None if value is None else constant_array(value), node.inputs[0]
    params = None if array is None else task.params(1)
    if node.op_type not in ("MatMul", "Gemm") or layout is None or params is None or data is None:
        raise _misfit(task)
    if value is None or array is None or array.ndim != 2:
        raise _misfit(task)
    axes = layout.axes(node, array.shape)
    expected = axes.output if params.block_size is None else axes.input
    if axes.input is None or params.axis not in (None, expected) or not _is_power(params.block_size):
        raise _misfit(task)
    weight = _Weight(array.T if axes.input == 0 else array, params, by_input=axes.input == 0)
    name = emitter.name(value)
    inputs: list[ir.Value | None] = [
        emitter.floating(data, node),
        emitter.packed(value, (params, axes.input), weight.packed, node),
        emitter.constant(f"{name}_scale", weight.scales()),
    ]
    points, usual = weight.zero_points(), 1 << (weight.bits - 1)
    if np.any(points != usual):
        inputs.append(emitter.constant(f"{name}_zero_point", _pack(points, weight.bits, usual)))
    if len(node.inputs) > 2 and node.inputs[2] is not None:
        inputs += [None] * (BIAS - len(inputs)) + [emitter.floating(node.inputs[2], node)]
    sizes = {"K": weight.inputs, "N": weight.outputs, "block_size": weight.block, "bits": weight.bits}
    return _become(
        node, "MatMulNBits", inputs, {**sizes, "accuracy_level": ACCURACY[task.entry.implementation]}
    )


def _gather(task: Task) -> bool:
    node, emitter, table = task.node, task.emitter, task.node.inputs[0]
    array = None if table is None else constant_array(table)
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
    name, grid, usual = emitter.name(table), params.grid_shape(array.shape), 1 << (bits - 1)

    def packed() -> Bytes:
        return _pack(_unsigned(quantize(array, params), params), bits)

    inputs: list[ir.Value | None] = [
        emitter.packed(table, (params, last), packed, node),
        node.inputs[1],
        emitter.constant(f"{name}_scale", params.scale_array.reshape(grid)),
    ]
    points = _unsigned(params.zero_point, params).reshape(grid)
    if np.any(points != usual):
        inputs.append(emitter.constant(f"{name}_zero_point", _pack(points, bits, usual)))
    attributes = {"gather_axis": 0, "quantize_axis": last, "block_size": params.block_size, "bits": bits}
    return _become(node, "GatherBlockQuantized", inputs, attributes)


@dataclass(frozen=True, eq=False)
class _Weight:
    """A weight as the product reads it.

    Attributes:
        array: [N, K], float32.
        params: of the constant.
        by_input: whether the constant is [K, N].
    """

    array: Array
    params: QuantParams
    by_input: bool

    @property
    def outputs(self) -> int:
        return int(self.array.shape[0])

    @property
    def inputs(self) -> int:
        return int(self.array.shape[1])

    @property
    def bits(self) -> int:
        return _stored_bits(self.params)

    @property
    def block(self) -> int:
        """Elements of a block; of a weight without blocks `UNBLOCKED`, or fewer where it has fewer."""
        block = self.params.block_size or UNBLOCKED
        while self.params.block_size is None and block > FEWEST and block >= 2 * self.inputs:
            block //= 2
        return block

    def packed(self) -> Bytes:
        """Return the quantized values, [N, blocks, bytes of a block]."""
        constant = self.array.T if self.by_input else self.array
        quantized = _unsigned(quantize(constant, self.params), self.params)
        blocks = -(-self.inputs // self.block)
        padded = np.zeros((self.outputs, blocks * self.block), np.uint8)
        padded[:, : self.inputs] = quantized.T if self.by_input else quantized
        return _pack(padded, self.bits).reshape(self.outputs, blocks, -1)

    def scales(self) -> Floats:
        """Return the scales, [N, blocks]."""
        return np.asarray(self._by_block(self.params.scale_array), np.float32)

    def zero_points(self) -> Bytes:
        """Return the zero points of the unsigned values, [N, blocks]."""
        return self._by_block(_unsigned(self.params.zero_point, self.params))

    def _by_block(self, numbers: Array) -> Array:
        blocks = -(-self.inputs // self.block)
        if self.params.block_size is None:
            each = np.broadcast_to(numbers.reshape(-1, 1), (max(numbers.size, 1), blocks))
            return np.ascontiguousarray(np.broadcast_to(each, (self.outputs, blocks)))
        grid = (blocks, self.outputs) if self.by_input else (self.outputs, blocks)
        found = numbers.reshape(grid)
        return np.ascontiguousarray(found.T if self.by_input else found)


def _is_power(block: int | None) -> bool:
    """Whether the operators take blocks of this size; there may be none."""
    return block is None or (block >= FEWEST and block & (block - 1) == 0)


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


def _become(
    node: ir.Node, op_type: str, inputs: Sequence[ir.Value | None], attributes: Mapping[str, int]
) -> bool:
    """Make the node the runtime's operator, under its name and with its output."""
    node.op_type, node.domain = op_type, MICROSOFT
    node.attributes.clear()
    for name, number in attributes.items():
        node.attributes[name] = ir.AttrInt64(name, number)
    node.resize_inputs(len(inputs))
    for index, value in enumerate(inputs):
        node.replace_input_with(index, value)
    return False


def _misfit(task: Task) -> PlanError:
    return task.error(
        "packed weights are for MatMul and Gemm with a constant matrix, in blocks of its input axis or with "
        "a scale for each output channel, and for Gather along axis 0 of a table in blocks of its last axis; "
        "change the parameters, or the implementation"
    )
