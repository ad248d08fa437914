"""Keeps float what the plan keeps float: onnxruntime quantizes nodes that stand between conversions.

When it loads a model, onnxruntime 1.31 puts a kernel of integers in the place of DequantizeLinear, operator,
QuantizeLinear. Most of its kernels compute what the three nodes do; of the operators
here they do not:

* Conv, ConvTranspose and Gemm with float weights: it quantizes them to int8 with one scale for the whole
  tensor, and the bias to int32 with scale(x) * scale(w), where it saturates (WeightBiasQuantization).
* Softmax: QLinearSoftmax returns 0 for the probability of a single element (see `operators.conditions`).
* AveragePool: QLinearAveragePool divides by the whole window where `ceil_mode` and `count_include_pad` let it
  reach beyond the padding, and knows no dilations.

A Max of one tensor, which is that tensor, between DequantizeLinear and the node hides it.
"""

from __future__ import annotations

from collections.abc import Mapping

import onnx_ir as ir

from ...model.graph import name_of
from ...operators.table import DEQUANTIZE
from ...plan.plan import ON_CODES, NodePlan
from .emitter import Emitter
from .graph_writer import new_value

FUSED = ("Conv", "ConvTranspose", "Gemm", "Softmax", "AveragePool")
"""What onnxruntime puts another computation in the place of."""

_MOVED = ("Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten", "Slice", "MaxPool")
"""Operators past which it moves conversions."""


def hide_from_fusion(node: ir.Node, entries: Mapping[str, NodePlan], emitter: Emitter) -> None:
    """Put a Max of one tensor before a node that computes in float between quantized tensors.

    Args:
        node: reads float values already; its readers are not written yet.
        entries: the plan's, by node name.
        emitter: of its graph.
    """
    value = node.inputs[0] if node.inputs else None
    if node.op_type not in FUSED or value is None or not _is_dequantized(value):
        return
    if any(_leads_to_quantized(output, entries) for output in node.outputs):
        hidden = new_value(f"{name_of(value)}_float", ir.DataType.FLOAT, value)
        node.replace_input_with(0, emitter.add("Max", [value], hidden, node))


def _is_dequantized(value: ir.Value) -> bool:
    maker = value.producer()
    while maker is not None and maker.op_type in _MOVED and maker.inputs[0] is not None:
        maker = maker.inputs[0].producer()
    return maker is not None and maker.op_type == DEQUANTIZE


def _leads_to_quantized(value: ir.Value, entries: Mapping[str, NodePlan]) -> bool:
    readers = [use.node for use in value.uses()]
    known = [entries[name_of(reader)] for reader in readers if name_of(reader) in entries]
    moved = [reader for reader in readers if reader.op_type in (*_MOVED, "Relu", "Clip")]
    return any(entry.kind in ON_CODES for entry in known) or any(
        _leads_to_quantized(output, entries) for reader in moved for output in reader.outputs
    )
