"""Which inputs of an operator may be float16, by the operator's own schema in the model's opset."""

from __future__ import annotations

from functools import cache
from typing import Any

import onnx.defs
import onnx_ir as ir

from ...operators.table import MICROSOFT

HALF, SINGLE = "tensor(float16)", "tensor(float)"
"""Types as schemas write them."""

FLOAT16_OPSET = 19
"""The first with float16 in QuantizeLinear and DequantizeLinear."""


def float16_places(node: ir.Node, opset: int) -> tuple[bool, ...] | None:
    """Return for each formal input whether it may be float16, the last for all further; None for no float16.

    A node of a domain with unknown schemas has no such places; `opset` is that of the standard operators.
    """
    outputs = tuple(
        index for index, value in enumerate(node.outputs) if value.name and value.dtype is ir.DataType.FLOAT
    )
    return _places(node.domain, node.op_type, opset, outputs)


@cache
def _places(domain: str, op_type: str, opset: int, outputs: tuple[int, ...]) -> tuple[bool, ...] | None:
    schema: Any
    is_standard = domain in ("", "ai.onnx") and onnx.defs.has(op_type, opset)
    # onnxruntime has LayerNormalization and others in every opset, by schemas of its own.
    schema = onnx.defs.get_schema(op_type, opset) if is_standard else _runtime_schema(domain, op_type)
    if schema is None:
        return None
    allowed = {each.type_param_str: list(each.allowed_type_strs) for each in schema.type_constraints}
    inputs, given = (
        [allowed.get(word, [word]) for word in (p.type_str if is_standard else p.typeStr for p in formals)]
        for formals in (schema.inputs, schema.outputs)
    )
    if any(not given or HALF not in given[min(index, len(given) - 1)] for index in outputs):
        return None
    narrow = tuple(HALF in types or SINGLE not in types for types in inputs)
    return narrow if any(narrow) or not narrow else None


@cache
def _runtime_schema(domain: str, op_type: str) -> Any:
    """Return onnxruntime's newest schema of an operator, or None."""
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    schemas = state.get_all_operator_schema() if domain in ("", MICROSOFT) else ()
    found = [schema for schema in schemas if (schema.domain, schema.name) == (domain, op_type)]
    return max(found, key=lambda schema: int(schema.since_version), default=None)
