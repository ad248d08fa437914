"""A model in another opset, by onnx's converter."""

from __future__ import annotations

import onnx
import onnx.version_converter
import onnx_ir as ir

HIDDEN = "qprof.foreign"
"""Domain of operators that the converter does not know, while it works."""

MAX_SHOWN_BYTES = 1024
"""Bytes up to which the values of an initialiser are shown to the converter (axes, shapes, scales)."""


def in_opset(model: ir.Model, opset: int) -> ir.Model:
    """Return a copy in another opset; the converter gets large initialisers by type and shape only."""
    bare = model.clone()

    # Large initialisers refer to a file which is never opened.
    tensors: dict[str, ir.TensorProtocol] = {}
    for graph in bare.graphs():
        for name, value in graph.initializers.items():
            tensor = value.const_value
            if tensor is None:
                continue
            tensors[name] = tensor
            is_small = tensor.nbytes <= MAX_SHOWN_BYTES and not isinstance(tensor, ir.ExternalTensor)
            if not is_small and tensor.dtype != ir.DataType.STRING:  # text is never in another file
                shape = ir.Shape(tensor.shape.numpy())
                value.const_value = ir.ExternalTensor(
                    "values", 0, tensor.nbytes, tensor.dtype, shape=shape, name=tensor.name or ""
                )

    # The converter skips other domains than the standard one. onnxruntime has operators there that ONNX has
    # not in the model's opset, such as LayerNormalization in every opset; they mean the same in all.
    opset_before = bare.opset_imports.get("", 0)
    foreign = [
        node
        for node in bare.graph.all_nodes()
        if node.domain == "" and not onnx.defs.has(node.op_type, opset_before)
    ]
    for node in foreign:
        node.domain = HIDDEN
    if foreign:
        bare.opset_imports[HIDDEN] = 1

    converted = ir.from_proto(onnx.version_converter.convert_version(ir.to_proto(bare), opset))
    if foreign:
        for node in converted.graph.all_nodes():
            if node.domain == HIDDEN:
                node.domain = ""
        del converted.graph.opset_imports[HIDDEN]
    for graph in converted.graphs():
        for name, value in graph.initializers.items():
            value.const_value = tensors.get(name, value.const_value)
    for node in converted.graph.all_nodes():  # its new constants, such as axes, have no type
        constant = node.attributes.get("value") if node.op_type == "Constant" else None
        if constant is not None and node.outputs[0].type is None:
            node.outputs[0].type = ir.TensorType(constant.as_tensor().dtype)
            node.outputs[0].shape = ir.Shape(constant.as_tensor().shape.numpy())
    return converted
