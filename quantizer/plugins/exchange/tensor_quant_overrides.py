"""`TensorQuantOverrides`, an extra option of onnxruntime's `quantize_static`, as JSON.

    {NAME: [{"quant_type": "QUInt8", "scale": 0.02, "zero_point": 128}],
     WEIGHT: [{"quant_type": "QInt8", "axis": 0, "scale": 0.1, "zero_point": 0}, {...}, ...]}

A list has one mapping, or one for each channel along the `axis` of the first. The option itself needs
`QuantType` and numpy numbers instead of JSON's texts and numbers.

Source: `quantize_static` and `tensor_quant_overrides.py` of onnxruntime 1.31.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from .encodings import stored_type, written_tensors

if TYPE_CHECKING:
    import onnx_ir as ir

    from ...plan.plan import QuantPlan

QUANT_TYPES = {
    "int8": "QInt8",
    "uint8": "QUInt8",
    "int16": "QInt16",
    "uint16": "QUInt16",
    "int4": "QInt4",
    "uint4": "QUInt4",
}
"""The members of onnxruntime's `QuantType`, by our names."""


def write(plan: QuantPlan, model: ir.Model) -> str:
    """Return the file of a plan's parameters: its tensors, but for biases and blocks."""
    overrides = {}
    for name, tensor in written_tensors(plan):
        if tensor.block_size is not None:
            continue
        params = stored_type(tensor)
        axis = {} if params.axis is None else {"axis": params.axis}
        kind = {"quant_type": QUANT_TYPES[params.qtype.name], **axis}
        overrides[name] = [
            {**kind, "scale": scale, "zero_point": point}
            for scale, point in zip(params.scale.tolist(), params.zero_point.tolist(), strict=True)
        ]
    return json.dumps(overrides, indent=1, ensure_ascii=False) + "\n"
