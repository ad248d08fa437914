"""Signs that two models are not a float model and its quantized form, in this order."""

from __future__ import annotations

from itertools import chain

import onnx_ir as ir

from ...profiles.base.presentation import size_text

_PREFIXES = ("qlinear", "qgemm", "qattention", "qembed", "qordered", "qmoe")
_PARTS = ("quantize", "integer", "nbits")


def has_quantized_nodes(model: ir.Model) -> bool:
    """Return whether an operator of the model, its subgraphs and functions has quantized values.

    Those are QuantizeLinear, DequantizeLinear, the operators named after integers (MatMulInteger), bits
    (MatMulNBits) and dynamic quantization, and the quantized ones of onnxruntime (QLinearAdd, QGemm).
    """
    nodes = chain(model.graph.all_nodes(), *(f.all_nodes() for f in model.functions.values()))
    names = {node.op_type.lower() for node in nodes}
    return any(name.startswith(_PREFIXES) or any(part in name for part in _PARTS) for name in names)


def doubts(names: tuple[str, str], quantized: tuple[bool, bool], size: tuple[int, int]) -> tuple[str, ...]:
    """Return what speaks against the first model being float and the second its quantized form.

    Args:
        names: what messages call the models.
        quantized: whether each has quantized nodes.
        size: bytes of each.
    """
    first, second = names
    if quantized == (True, False):
        return (f"{first} is quantized and {second} is not: are they swapped? The float model comes first",)
    found = []
    if not quantized[1]:
        found.append(f"{second}: no node is quantized; was the model that you quantized meant?")
    if size[1] > size[0]:
        sizes = f"{size_text(size[1])}, float {size_text(size[0])}"
        found.append(f"{second}: larger than the float model ({sizes}); see which nodes are quantized")
    return tuple(found)
