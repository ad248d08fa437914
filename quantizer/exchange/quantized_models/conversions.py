"""The parameters that a QuantizeLinear or DequantizeLinear has."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from ....profiles.base.errors import PlanError
from ...model.graph import constant_of
from ...numerics.affine import TYPES, QuantParams, QuantType
from ...operators.table import QUANTIZE


def params_of(node: ir.Node) -> QuantParams | None:
    """Return the parameters of a conversion; None where they vary, or are of a type not known here."""
    scale = constant_of(node.inputs[1])
    given = node.inputs[2] if len(node.inputs) > 2 else None
    points = constant_of(given)
    qtype = _type(node, given)
    if scale is None or qtype is None or (given is not None and points is None):
        return None
    axis, block = _axis(node, scale)
    flat = np.asarray(scale, np.float32).reshape(-1)
    zeros = (
        np.zeros(flat.size, np.int64) if points is None else np.asarray(points).astype(np.int64).reshape(-1)
    )
    if axis is None:
        flat, zeros = flat[:1], zeros[:1]
    if zeros.size == 1:
        zeros = np.repeat(zeros, flat.size)
    try:
        return QuantParams(tuple(flat.astype(np.float64).tolist()), tuple(zeros.tolist()), qtype, axis, block)
    except PlanError:
        return None


def _type(node: ir.Node, zero_point: ir.Value | None) -> QuantType | None:
    value = node.outputs[0] if node.op_type == QUANTIZE else node.inputs[0]
    dtype = None if zero_point is None else zero_point.dtype
    if dtype is None and node.op_type == QUANTIZE and "output_dtype" in node.attributes:
        dtype = ir.DataType(node.attributes.get_int("output_dtype", 0))
    dtype = dtype if dtype is not None else None if value is None else value.dtype
    if dtype is None:
        return TYPES["uint8"]  # the default of QuantizeLinear
    return TYPES.get(dtype.name.lower())


def _axis(node: ir.Node, scale: np.ndarray) -> tuple[int | None, int | None]:
    """Return the axis of the scales, counted from the front, and the size of a block."""
    size = node.attributes.get_int("block_size", 0)
    block = size if size else None
    if scale.size == 1 and block is None:
        return None, None
    axis = node.attributes.get_int("axis", 1)
    if axis >= 0:
        return axis, block
    value = node.inputs[0]
    shape = None if value is None else value.shape
    rank = scale.ndim if block is not None else len(shape) if shape is not None else 2
    return axis % rank, block
