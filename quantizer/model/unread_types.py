"""Nodes that read constants without a kernel in onnxruntime (float4e2m1), and models without these."""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from ...profiles.instrumentation.subgraphs import value_names
from .editing import free_name, is_standard

UNREAD = frozenset({int(ir.DataType.FLOAT4E2M1)})
"""The types, by their numbers."""


def unread_constants(model: ir.Model) -> Iterator[tuple[ir.Node, ir.Value]]:
    """Yield each DequantizeLinear of a constant of an unread type, in all graphs, and the constant."""
    for graph in model.graphs():
        for node in list(graph):
            quantized = node.inputs[0] if is_standard(node, "DequantizeLinear") else None
            if quantized is not None and quantized.dtype in UNREAD and quantized.const_value is not None:
                yield node, quantized


def result_type(node: ir.Node) -> ir.DataType:
    """Return the type of a DequantizeLinear's result."""
    stated = node.attributes.get_int("output_dtype", 0)
    scale = node.inputs[1]
    return ir.DataType(stated) if stated else (scale and scale.dtype) or ir.DataType.FLOAT


def replace_by(node: ir.Node, value: ir.Value, quantized: ir.Value) -> None:
    """Let readers of a DequantizeLinear read another value, and remove the node and its constant."""
    graph, result = node.graph, node.outputs[0]
    assert graph is not None
    result.name = None
    result.replace_all_uses_with(value)
    graph.remove(node, safe=True)
    holder = quantized.graph or graph  # a graph around this one may have it
    if not quantized.uses() and isinstance(holder, ir.Graph):
        holder.initializers.pop(str(quantized.name), None)


def without_unread(model: ir.Model) -> ir.Model:
    """Return a model to load and not to run: further inputs stand for the values read of such constants."""
    copy = model.clone()
    taken = value_names(copy)
    for node, quantized in unread_constants(copy):
        assert quantized.const_value is not None
        value = ir.Value(
            name=free_name(f"{node.outputs[0].name}_read", taken),
            type=ir.TensorType(result_type(node)),
            shape=ir.Shape(quantized.const_value.shape.numpy()),
        )
        replace_by(node, value, quantized)
        copy.graph.inputs.append(value)
    return copy
