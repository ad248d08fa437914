"""StableHLO: for each quantized tensor one function that quantizes it, with its `!quant.uniform` type.

The functions can be run, by StableHLO's interpreter after its pass `stablehlo-legalize-quant-to-math`. That
pass adds the zero point before it rounds to even: where value / scale lies half way between two integers and
the zero point is odd, its integer is the neighbour of ONNX's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...plan.plan import QuantPlan
from .quantized_types import declaration, function_text, module_text, quantized_tensors

if TYPE_CHECKING:
    import onnx_ir as ir


def write(plan: QuantPlan, model: ir.Model) -> str:
    """Return the text of an MLIR module; types that uniform_quantize lacks are declared without a body."""
    functions = []
    for tensor in quantized_tensors(plan, model):
        if tensor.shape is None or tensor.params.block_size is not None:
            functions.append(declaration(tensor, tensor.params))
        else:
            functions.append(function_text(tensor, tensor.params, "stablehlo.uniform_quantize %value"))
    return module_text(plan, "Quantized types for StableHLO, one function for each tensor", functions)
