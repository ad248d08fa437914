"""Finding out that a model is quantized already."""

from __future__ import annotations

import onnx_ir as ir

_TYPES = frozenset(
    {"QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear", "ConvInteger", "MatMulInteger"},
)


def quantized_operators(model: ir.Model) -> tuple[str, ...]:
    """Return the operator types of quantized computation in the model, sorted; empty for a float model.

    Those are QuantizeLinear and DequantizeLinear, the integer operators, and every type that begins with
    "QLinear" (also in onnxruntime's own domain) or "QGemm"; subgraphs count.
    """
    found = {
        node.op_type
        for node in ir.traversal.RecursiveGraphIterator(model.graph)
        if node.op_type in _TYPES or node.op_type.startswith(("QLinear", "QGemm"))
    }
    return tuple(sorted(found))
