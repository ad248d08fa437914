"""AMD Quark's own operators (domain com.amd.quark, com.vai.quantize before), in terms of those of ONNX.

========================  ====================================================================================
operator                  in its place
========================  ====================================================================================
ExtendedQuantizeLinear,   of integers the operators of ONNX, whose inputs they have; of float16 and bfloat16
ExtendedDequantizeLinear  nothing, and a constant in float32: that is a type of floats, and no quantization
MXQuantizeDequantize,     nothing: MX and BFP blocks are not read
BFPQuantizeDequantize
========================  ====================================================================================

Source: Quark's specification of each operator, and of how its quantizer writes them (`ExtendedQDQQuantizer`).
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import onnx_ir as ir

from ...model.editing import add_initializer, free_name
from ...model.graph import constant_of, name_of
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
            name = node.name or name_of(node.outputs[0])
            unread.setdefault(node.op_type, []).append(f"'{name}': MX and BFP blocks are not read")
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
