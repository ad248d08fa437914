"""Burn: for each quantized tensor a record of its `QuantScheme`, as serde writes it in JSON, and its scales.

Burn quantizes symmetrically, so a tensor whose zero point is not 0 (or, unsigned, not the middle) is left
out, with the reason. Burn has no scales per axis: a channel is a block over the other dimensions.

Source: burn-tensor 0.22.1, module quantization (QuantScheme, QuantValue, QuantLevel, BlockSize: at most 5
dimensions of at most 255 elements; Q8F is the full range -128..127, Q4F is -8..7).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ...numerics.affine import signed_equivalent
from ...plan.plan import QuantPlan
from .quantized_types import QuantizedTensor, quantized_tensors

if TYPE_CHECKING:
    import onnx_ir as ir

VERSION = "0.22"
VALUES = {4: "Q4F", 7: "Q8F", 8: "Q8F"}
"""Burn's names of types, by their bits."""
STORES: dict[str, Any] = {"Q4F": {"PackedU32": 0}, "Q8F": "Native"}
MAX_BLOCK_DIMS, MAX_BLOCK_SIZE = 5, 255


def write(plan: QuantPlan, model: ir.Model) -> str:
    """Return a JSON document with QuantScheme, shape and scales, row-major, of each tensor, or a reason."""
    tensors: dict[str, Any] = {}
    left_out: dict[str, str] = {}
    for tensor in quantized_tensors(plan, model):
        record = _record_or_reason(tensor)
        if isinstance(record, str):
            left_out[tensor.name] = record
        else:
            tensors[tensor.name] = record
    head = {"format": "burn-quantization", "burn": VERSION, "tool": plan.tool, "model": plan.model.file}
    parts = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in head.items()]
    parts += [f'"tensors": {_lines(tensors)}', f'"left_out": {_lines(left_out)}']
    return "{" + ",\n".join(parts) + "}\n"


def _lines(entries: Mapping[str, Any]) -> str:
    """Return a JSON object with one entry a line."""
    return (
        "{\n" + ",\n".join(f" {json.dumps(key)}: {json.dumps(value)}" for key, value in entries.items()) + "}"
    )


def _record_or_reason(tensor: QuantizedTensor) -> dict[str, Any] | str:
    """Return Burn's record of a tensor, or why Burn has none."""
    params = signed_equivalent(tensor.params)
    value = VALUES.get(params.qtype.bits)
    if value is None:
        return f"Burn has no {params.qtype.bits}-bit integers for quantized values"
    if params.zero_point.any():
        return "Burn's mode is symmetric; this tensor has a zero point"

    level: Any = "Tensor"
    if params.axis is not None:
        shape = [size for size in tensor.shape or () if size is not None]
        if not tensor.shape or len(shape) != len(tensor.shape):
            return "a block needs known dimensions"
        if params.block_size is None:  # the block of a channel goes over all other dimensions
            block = [1 if axis == params.axis else size for axis, size in enumerate(shape)]
        else:
            block = [params.block_size if axis == params.axis else 1 for axis in range(len(shape))]
        if len(block) > MAX_BLOCK_DIMS or max(block) > MAX_BLOCK_SIZE:
            return (
                f"a block of {block} is more than Burn's {MAX_BLOCK_DIMS} dimensions of {MAX_BLOCK_SIZE} "
                "elements"
            )
        if shape[params.axis] % block[params.axis]:
            return f"blocks of {block[params.axis]} do not divide dimension {params.axis} of {shape}"
        storage = [*block, *[1] * (MAX_BLOCK_DIMS - len(block))]
        level = {"Block": {"storage": storage, "len": len(block)}}
    return {
        "quantization": {
            "value": value,
            "param": "F32",
            "store": STORES[value],
            "level": level,
            "mode": "Symmetric",
        },
        "shape": None if tensor.shape is None else list(tensor.shape),
        "scales": params.scale.tolist(),
    }
