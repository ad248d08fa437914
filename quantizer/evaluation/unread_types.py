"""Models with constants that onnxruntime has no kernel for, with the float32 values of these instead.

DequantizeLinear of onnxruntime takes no float4e2m1. What it is computed to is known: a constant times its
scale, in float32. So such a model is run with that constant, and gives what a runtime with the kernel does.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import onnx_ir as ir

from ..model.computed_scales import scale_of
from ..model.editing import is_standard
from ..numerics.affine import FLOAT4E2M1, QuantParams, dequantize

UNREAD = frozenset({int(ir.DataType.FLOAT4E2M1)})
"""The types, by their numbers."""


def with_floats(model: ir.Model) -> ir.Model:
    """Return a model in which float32 stands for such constants and the DequantizeLinear after them.

    They are computed when they are read: no more than one is in memory.
    """
    copy = model.clone()
    for graph in copy.graphs():
        for node in list(graph):
            quantized = node.inputs[0] if is_standard(node, "DequantizeLinear") else None
            if quantized is None or quantized.dtype not in UNREAD or quantized.const_value is None:
                continue
            params, result = _params_of(node), node.outputs[0]
            if params is None:
                continue
            name, shape = str(result.name), ir.Shape(quantized.const_value.shape.numpy())
            values = ir.LazyTensor(
                partial(_dequantized, quantized.const_value, params), ir.DataType.FLOAT, shape, name=name
            )
            result.name = None
            constant = ir.Value(
                name=name, type=ir.TensorType(ir.DataType.FLOAT), shape=shape, const_value=values
            )
            graph.register_initializer(constant)
            result.replace_all_uses_with(constant)
            graph.remove(node, safe=True)
            if not quantized.uses():
                holder = quantized.graph or graph  # a graph around this one may have it
                del holder.initializers[str(quantized.name)]
    return copy


def _params_of(node: ir.Node) -> QuantParams | None:
    found = scale_of(node.inputs[1])
    if found is None or len(node.inputs) > 2:
        return None
    scale, _ = found
    axis, block = node.attributes.get_int("axis", 1), node.attributes.get_int("block_size", 0) or None
    axis = axis % scale.ndim if scale.ndim > 1 else axis
    flat = scale.astype(np.float32).reshape(-1)
    return QuantParams(flat, np.zeros(flat.size), FLOAT4E2M1, axis if flat.size > 1 else None, block)


def _dequantized(quantized: ir.TensorProtocol, params: QuantParams) -> ir.TensorProtocol:
    return ir.Tensor(dequantize(quantized.numpy(), params), dtype=ir.DataType.FLOAT)
