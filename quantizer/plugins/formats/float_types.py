"""Which inputs of an operator may be float16, by the operator's own schema in the model's opset."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import onnx.defs
import onnx_ir as ir

from ...operators.table import MICROSOFT

HALF, SINGLE = "tensor(float16)", "tensor(float)"
"""Types as schemas write them."""

FLOAT16_OPSET = 19
"""The first with float16 in QuantizeLinear and DequantizeLinear."""


@dataclass(frozen=True)
class FloatPlaces:
    """Which inputs of an operator stay float32 where the operator computes in float16, by position.

    Attributes:
        single: for each formal input whether it is float32 in any case; the last one stands for all further.
    """

    single: tuple[bool, ...]

    def narrows(self, index: int) -> bool:
        """Whether an input is float16 where the operator computes in float16."""
        return not self.single[min(index, len(self.single) - 1)] if self.single else True


def float16_places(node: ir.Node, opset: int) -> FloatPlaces | None:
    """Return the inputs of a node that may be float16, or None if it computes only in float32.

    A node of a domain with unknown schemas computes in float32; `opset` is that of the standard operators.
    """
    outputs = tuple(
        index for index, value in enumerate(node.outputs) if value.name and value.dtype is ir.DataType.FLOAT
    )
    return _places(node.domain, node.op_type, opset, outputs)


@cache
def _places(domain: str, op_type: str, opset: int, outputs: tuple[int, ...]) -> FloatPlaces | None:
    if domain in ("", "ai.onnx") and onnx.defs.has(op_type, opset):
        schema = onnx.defs.get_schema(op_type, opset)
        allowed = {c.type_param_str: list(c.allowed_type_strs) for c in schema.type_constraints}
        formal_inputs = [[*allowed.get(p.type_str, [p.type_str])] for p in schema.inputs]
        formal_outputs = [[*allowed.get(p.type_str, [p.type_str])] for p in schema.outputs]
    else:
        # onnxruntime has LayerNormalization and others in every opset, by schemas of its own.
        found = [s for s in _runtime_schemas() if s.name == op_type and s.domain == domain]
        if not found:
            return None
        own = max(found, key=lambda s: int(s.since_version))
        allowed = {c.type_param_str: list(c.allowed_type_strs) for c in own.type_constraints}
        formal_inputs = [[*allowed.get(p.typeStr, [p.typeStr])] for p in own.inputs]
        formal_outputs = [[*allowed.get(p.typeStr, [p.typeStr])] for p in own.outputs]
    if any(HALF not in _formal(formal_outputs, index) for index in outputs):
        return None
    single = tuple(HALF not in types and SINGLE in types for types in formal_inputs)
    if all(single) and single:
        return None
    return FloatPlaces(single)


def _formal(formals: Sequence[Sequence[str]], index: int) -> Sequence[str]:
    return formals[min(index, len(formals) - 1)] if formals else ()


@cache
def _runtime_schemas() -> tuple[Any, ...]:
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    wanted = ("", MICROSOFT)
    return tuple(schema for schema in state.get_all_operator_schema() if schema.domain in wanted)
