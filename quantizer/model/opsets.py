"""A model in another opset, by onnx's converter."""

from __future__ import annotations

import onnx
import onnx.version_converter
import onnx_ir as ir

HIDDEN = "qprof.foreign"
"""Domain of operators that the converter does not know, while it works."""

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
    hidden = _hide_foreign(bare)
    converted = ir.from_proto(onnx.version_converter.convert_version(ir.to_proto(bare), opset))
    if hidden:
        for node in converted.graph.all_nodes():
            if node.domain == HIDDEN:
                node.domain = ""
        del converted.graph.opset_imports[HIDDEN]
    for name, value in _initializers(converted):
        value.const_value = kept.get(name, value.const_value)
    return converted


def _hide_foreign(model: ir.Model) -> bool:
    """Move nodes of operators that ONNX has not in the model's opset to a domain that the converter skips.

    onnxruntime has LayerNormalization in every opset, for one; it means the same in all.
    """
    opset = model.opset_imports.get("", 0)
    foreign = [
        node
        for node in model.graph.all_nodes()
        if node.domain == "" and not onnx.defs.has(node.op_type, opset)
    ]
    for node in foreign:
        node.domain = HIDDEN
    if foreign:
        model.opset_imports[HIDDEN] = 1
    return bool(foreign)


def _initializers(model: ir.Model) -> list[tuple[str, ir.Value]]:
    return [(name, value) for graph in model.graphs() for name, value in graph.initializers.items()]


def _without_values(tensor: ir.TensorProtocol) -> ir.TensorProtocol:
    """Return a tensor of the same type and shape that refers to a file which is never opened."""
    small = tensor.nbytes <= SMALL and not isinstance(tensor, ir.ExternalTensor)
    if small or tensor.dtype == ir.DataType.STRING:  # text is never outside
        return tensor
    shape = ir.Shape(tensor.shape.numpy())
    return ir.ExternalTensor("values", 0, tensor.nbytes, tensor.dtype, shape=shape, name=tensor.name or "")
