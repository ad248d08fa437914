"""Models with constants that onnxruntime has no kernel for, with the float values that they are dequantized
to instead."""

from __future__ import annotations

from functools import partial

import numpy as np
import onnx_ir as ir

from ...model.computed_scales import scale_of
from ...model.unread_types import replace_by, result_type, unread_constants
from ...numerics.affine import FLOAT4E2M1, QuantParams, dequantize


def with_floats(model: ir.Model) -> ir.Model:
    """Return a model with lazily computed floats in place of these constants and their DequantizeLinear."""
    copy = model.clone()
    for node, quantized in unread_constants(copy):
        stored, params, dtype = quantized.const_value, _params_of(node), result_type(node)
        if params is None or stored is None:
            continue
        name, shape = str(node.outputs[0].name), ir.Shape(stored.shape.numpy())
        values = ir.LazyTensor(partial(_dequantized, stored, params, dtype), dtype, shape, name=name)
        constant = ir.Value(name=name, type=ir.TensorType(dtype), shape=shape, const_value=values)
        graph = node.graph
        assert isinstance(graph, ir.Graph)
        replace_by(node, constant, quantized)
        graph.register_initializer(constant)
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


def _dequantized(stored: ir.TensorProtocol, params: QuantParams, dtype: ir.DataType) -> ir.TensorProtocol:
    return ir.Tensor(dequantize(stored.numpy(), params).astype(dtype.numpy()), dtype=dtype)
