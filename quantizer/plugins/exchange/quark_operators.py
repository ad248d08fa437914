"""AMD Quark's own operators (domain com.amd.quark, com.vai.quantize before), in terms of those of ONNX.

========================  ====================================================================================
operator                  in its place
========================  ====================================================================================
ExtendedQuantizeLinear,   of integers the operators of ONNX, whose inputs they have; of float16 and bfloat16
ExtendedDequantizeLinear  nothing, and a constant in float32: that is a type of floats, and no quantization
MXQuantizeDequantize      of a weight in blocks of a format of ONNX DequantizeLinear of a constant; of an
                          activation, whose blocks are scaled at run time, nothing
BFPQuantizeDequantize     nothing
========================  ====================================================================================

Source: Quark's specification of each operator, and of how its quantizer writes them (`ExtendedQDQQuantizer`);
scales of MX blocks by the OCP specification of microscaling formats 1.0, section 6.3.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from ...model.editing import add_initializer, free_name
from ...model.graph import constant_of, name_of
from ...numerics.affine import TYPES
from ...operators.table import DEQUANTIZE, QUANTIZE

DOMAINS = ("com.amd.quark", "com.vai.quantize")

CONVERSIONS = {
    "ExtendedQuantizeLinear": QUANTIZE,
    "ExtendedDequantizeLinear": DEQUANTIZE,
    "VitisQuantizeLinear": QUANTIZE,
    "VitisDequantizeLinear": DEQUANTIZE,
}
"""Conversions, and the operator of ONNX with the same inputs."""

IN_BLOCKS = ("MXQuantizeDequantize", "MXFixNeuron", "BFPQuantizeDequantize", "BFPFixNeuron")
"""Operators that round floats in blocks."""

FEW_BITS = (ir.DataType.FLOAT16, ir.DataType.BFLOAT16)


ELEMENTS = {"fp8_e4m3": ("mxfp8", 8), "fp4_e2m1": ("mxfp4", 2)}
"""Elements of MX blocks as Quark calls them -> type of qprof, exponent of its largest power of two."""


def write_in_onnx(model: ir.Model, taken: set[str]) -> tuple[ir.DataType | None, dict[str, list[str]]]:
    """Write Quark's operators as those of ONNX, in place, of constants that are initializers.

    Returns the type of 16 bits to which tensors are rounded, and operator -> the nodes left out, with why.
    """
    types, unread = Counter[ir.DataType](), dict[str, list[str]]()
    for node in list(model.graph.all_nodes()):
        if node.domain not in DOMAINS or not node.inputs or node.inputs[0] is None:
            continue
        if node.op_type in CONVERSIONS:
            point = node.inputs[2] if len(node.inputs) > 2 else None
            dtype = None if point is None else point.dtype
            if dtype in FEW_BITS:
                types[dtype] += 1
                _become_identity(node, _in_float32(node, model, taken))
            else:
                node.op_type, node.domain = CONVERSIONS[node.op_type], ""
        elif node.op_type in IN_BLOCKS:
            operator, why = node.op_type, _read_blocks(node, model, taken)
            if why:
                unread.setdefault(operator, []).append(f"'{node.name or name_of(node.outputs[0])}': {why}")
                _become_identity(node, node.inputs[0])
    commonest = types.most_common(1)
    return commonest[0][0] if commonest else None, unread


def _become_identity(node: ir.Node, source: ir.Value | None) -> None:
    """Make a node pass on a value; preparation drops such nodes later."""
    node.op_type, node.domain = "Identity", ""
    node.attributes.clear()
    node.resize_inputs(1)
    node.replace_input_with(0, source)
    node.outputs[0].type = ir.TensorType(ir.DataType.FLOAT)


def _in_float32(node: ir.Node, model: ir.Model, taken: set[str]) -> ir.Value | None:
    """Return the input of a conversion; of a constant that it dequantizes the float32 values."""
    stored, scale = constant_of(node.inputs[0]), constant_of(node.inputs[1])
    if stored is None or CONVERSIONS[node.op_type] == QUANTIZE:
        return node.inputs[0]
    factors = np.ones((), np.float32) if scale is None else np.asarray(scale, np.float32)
    if factors.size > 1:
        axis = node.attributes.get_int("axis", 1) % stored.ndim
        factors = factors.reshape([-1 if at == axis else 1 for at in range(stored.ndim)])
    else:
        factors = factors.reshape(())
    name = free_name(f"{name_of(node.inputs[0])}_float", taken)
    return add_initializer(model.graph, name, stored.astype(np.float32) * factors)


def _read_blocks(node: ir.Node, model: ir.Model, taken: set[str]) -> str:
    """Write a weight in MX blocks as DequantizeLinear of a constant; return why it cannot be, or ""."""
    array = constant_of(node.inputs[0])
    if node.op_type.startswith("BFP"):
        return "block floating point (bfp16, mx4, mx6, mx9) is no format of ONNX"
    if array is None:
        return "it rounds an activation in blocks that are scaled at run time, which ONNX has no operator for"
    name = node.attributes.get_string("element_dtype", "int8")
    block, (qtype, exponent) = node.attributes.get_int("block_size", 32), ELEMENTS.get(str(name), ("", 0))
    own = TYPES.get(qtype)
    if own is None or own.scales is None or own.scales.block_size != block:
        read = " and ".join(ELEMENTS)
        return f"{name} in blocks of {block} is no format of ONNX; {read} in blocks of 32 are"
    if array.ndim < 2:
        return "it rounds a vector in blocks"
    axis = node.attributes.get_int("axis", 1) % array.ndim
    codes, scales = _blocks(np.asarray(array, np.float32), axis, block, own.high, exponent)
    scale_type = ir.DataType[own.scales.type.upper()].numpy()
    parts = {"codes": codes.astype(own.numpy_dtype), "scales": scales.astype(scale_type)}
    inputs = [
        add_initializer(model.graph, free_name(f"{name_of(node.inputs[0])}_{part}", taken), values)
        for part, values in parts.items()
    ]
    node.op_type, node.domain = DEQUANTIZE, ""
    node.attributes.clear()
    node.attributes["axis"] = ir.AttrInt64("axis", axis)
    node.attributes["block_size"] = ir.AttrInt64("block_size", block)
    node.resize_inputs(2)
    for place, value in enumerate(inputs):
        node.replace_input_with(place, value)
    node.outputs[0].type = ir.TensorType(ir.DataType.FLOAT)
    return ""


def _blocks(
    array: npt.NDArray[np.float32], axis: int, block: int, largest: float, exponent: int
) -> tuple[npt.NDArray[Any], npt.NDArray[np.float32]]:
    """Return the elements of blocks along an axis, within the range of their type, and a scale for each."""
    count = -(-array.shape[axis] // block)
    moved = np.moveaxis(array, axis, -1)
    padded = np.pad(moved, [(0, 0)] * (array.ndim - 1) + [(0, count * block - array.shape[axis])])
    parts = padded.reshape(*moved.shape[:-1], count, block)
    top = np.abs(parts).max(-1)
    powers = np.frexp(np.where(top > 0.0, top, 1.0))[1] - 1 - exponent
    scales = np.ldexp(np.float32(1.0), np.clip(powers, -127, 127)).astype(np.float32)
    steps = np.clip(parts / scales[..., None], -largest, largest).reshape(padded.shape)
    return np.moveaxis(steps[..., : array.shape[axis]], -1, axis), np.moveaxis(scales, -1, axis)
