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

from ..numerics.affine import QuantParams
from ..plan.plan import QuantPlan
from .quantized_types import QuantizedTensor, quantized_tensors, signed_equivalent

if TYPE_CHECKING:
    import onnx_ir as ir

VERSION = "0.22"
VALUES = {4: "Q4F", 7: "Q8F", 8: "Q8F"}
STORES: dict[str, Any] = {"Q4F": {"PackedU32": 0}, "Q8F": "Native"}
PRECISIONS = {"f32": "F32", "f16": "F16", "bf16": "BF16"}
MOST_DIMS, LARGEST_BLOCK = 5, 255


def write(plan: QuantPlan, model: ir.Model) -> str:
    """Return a JSON document: of each tensor its quantization (a QuantScheme), shape and scales, or a reason.

    Scales are in the row-major order of the blocks.
    """
    tensors: dict[str, Any] = {}
    left_out: dict[str, str] = {}
    for tensor in quantized_tensors(plan, model):
        params = signed_equivalent(tensor.params)
        block = _block(params, tensor)
        if problem := _problem(params, tensor):
            left_out[tensor.name] = problem
        elif isinstance(block, str):
            left_out[tensor.name] = block
        else:
            tensors[tensor.name] = _record(params, tensor, block)
    head = {"format": "burn-quantization", "burn": VERSION, "tool": plan.tool, "model": plan.model.file}
    parts = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in head.items()]
    parts += [f'"tensors": {_lines(tensors)}', f'"left_out": {_lines(left_out)}']
    return "{" + ",\n".join(parts) + "}\n"


def _lines(entries: Mapping[str, Any]) -> str:
    """Return a JSON object with one entry a line."""
    return (
        "{\n" + ",\n".join(f" {json.dumps(key)}: {json.dumps(value)}" for key, value in entries.items()) + "}"
    )


def _problem(params: QuantParams, tensor: QuantizedTensor) -> str:
    if params.qtype.bits not in VALUES:
        return f"Burn has no {params.qtype.bits}-bit integers for quantized values"
    if tensor.expressed not in PRECISIONS:
        return f"Burn has no scales of {tensor.expressed}"
    if params.zero_point.any():
        return "Burn's mode is symmetric; this tensor has a zero point"
    return ""


def _block(params: QuantParams, tensor: QuantizedTensor) -> list[int] | str | None:
    """Return the sizes of a block, None for one scale; or why there is no such block."""
    if params.axis is None:
        return None
    shape = [size for size in tensor.shape or () if size is not None]
    if not tensor.shape or len(shape) != len(tensor.shape):
        return "a block needs known dimensions"
    if params.block_size is None:
        sizes = [1 if axis == params.axis else size for axis, size in enumerate(shape)]
    else:
        sizes = [params.block_size if axis == params.axis else 1 for axis in range(len(shape))]
    if len(sizes) > MOST_DIMS or max(sizes) > LARGEST_BLOCK:
        return f"a block of {sizes} is more than Burn's {MOST_DIMS} dimensions of {LARGEST_BLOCK} elements"
    if shape[params.axis] % sizes[params.axis]:
        return f"blocks of {sizes[params.axis]} do not divide dimension {params.axis} of {shape}"
    return sizes


def _record(params: QuantParams, tensor: QuantizedTensor, block: list[int] | None) -> dict[str, Any]:
    value = VALUES[params.qtype.bits]
    storage = [*(block or []), *[1] * (MOST_DIMS - len(block or []))]
    quantization = {
        "value": value,
        "param": PRECISIONS[tensor.expressed],
        "store": STORES[value],
        "level": "Tensor" if block is None else {"Block": {"storage": storage, "len": len(block)}},
        "mode": "Symmetric",
    }
    shape = None if tensor.shape is None else list(tensor.shape)
    return {"quantization": quantization, "shape": shape, "scales": params.scale.tolist()}
