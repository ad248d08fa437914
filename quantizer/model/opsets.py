"""A model in another opset, by onnx's converter."""

from __future__ import annotations

import onnx.version_converter
import onnx_ir as ir

SMALL = 1024
"""Bytes up to which the values of an initialiser are shown to the converter (axes, shapes, scales)."""


def in_opset(model: ir.Model, opset: int) -> ir.Model:
    """Return the model in another opset, with the tensors of its initialisers as they are.

    The converter gets large initialisers by type and shape only. So weights are neither read nor copied,
    models of any size can be converted, and external data keeps its folder, which a protobuf does not record.

    Args:
        model: is left as it was; names of initialisers are unique over all its graphs.
        opset: of the standard operators.

    Raises:
        RuntimeError: the converter cannot take the model there.
    """
    bare = model.clone()
    kept = {}
    for name, value in _initializers(bare):
        if value.const_value is not None:
            kept[name] = value.const_value
            value.const_value = _without_values(value.const_value)
    converted = ir.from_proto(onnx.version_converter.convert_version(ir.to_proto(bare), opset))
    for name, value in _initializers(converted):
        value.const_value = kept.get(name, value.const_value)
    return converted


def _initializers(model: ir.Model) -> list[tuple[str, ir.Value]]:
    return [(name, value) for graph in model.graphs() for name, value in graph.initializers.items()]


def _without_values(tensor: ir.TensorProtocol) -> ir.TensorProtocol:
    """Return a tensor of the same type and shape that refers to a file which is never opened."""
    small = tensor.nbytes <= SMALL and not isinstance(tensor, ir.ExternalTensor)
    if small or tensor.dtype == ir.DataType.STRING:  # text is never outside
        return tensor
    shape = ir.Shape(tensor.shape.numpy())
    return ir.ExternalTensor("values", 0, tensor.nbytes, tensor.dtype, shape=shape, name=tensor.name or "")
