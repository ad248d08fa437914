"""TFLite's dialect of MLIR: for each quantized tensor one function that quantizes it, with its type.

TFLite's types are signed, so an unsigned tensor is written as its signed equivalent: all integers, the zero
point among them, less 128 (or 8, or 32768), which is the same quantization. TFLite rounds halves away from
zero where ONNX rounds them to even: at such values its integer is the neighbour.

Source: LiteRT, 8-bit quantization specification (int8 activations; weights and 16-bit activations with zero
point 0; scales per tensor, and per axis for weights).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...numerics.affine import INT16, INT32, QuantParams, signed_equivalent
from ...plan.plan import QuantPlan
from .quantized_types import declaration, function_text, module_text, quantized_tensors

if TYPE_CHECKING:
    import onnx_ir as ir


def write(plan: QuantPlan, model: ir.Model) -> str:
    """Return the text of an MLIR module; types that TFLite lacks are declared without a body."""
    functions = []
    for tensor in quantized_tensors(plan, model):
        params = signed_equivalent(tensor.params)
        problem = _problem(params)
        if problem:
            functions.append(f"  // {problem}:\n{declaration(tensor, params)}")
        else:
            operation = '"tfl.quantize"(%value) <{{qtype = {result}}}>'
            functions.append(function_text(tensor, params, operation))
    return module_text(plan, "Quantized types for TFLite, one function for each tensor", functions)


def _problem(params: QuantParams) -> str:
    """Return why TFLite's specification has no such tensor, "" if it has."""
    if params.block_size is not None:
        return "TFLite's specification has no scales for blocks"
    if params.qtype in (INT16, INT32) and params.zero_point.any():
        return "TFLite's 16-bit and 32-bit tensors have zero point 0"
    if params.axis is not None and params.zero_point.any():
        return "TFLite's tensors with scales per axis have zero points 0"
    return ""
