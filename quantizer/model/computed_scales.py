"""Scales of DequantizeLinear that a model computes from constants of few bits: MX formats and NVFP4."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from .editing import is_standard
from .graph import constant_of


def scale_of(value: ir.Value | None) -> tuple[npt.NDArray[Any], str] | None:
    """Return the scales of a conversion and the ONNX type of their stored form; None if they vary."""
    if value is None:
        return None
    array, node = constant_of(value), value.producer()
    if array is not None:
        return array, _type_of(value)
    source = None if node is None or not node.inputs else node.inputs[0]
    stored = constant_of(source)
    if node is None or source is None or stored is None:
        return None
    if is_standard(node, "Cast"):
        return stored.astype(np.float32), _type_of(source)
    if not is_standard(node, "DequantizeLinear") or "block_size" in node.attributes:
        return None
    whole = constant_of(node.inputs[1])
    points = constant_of(node.inputs[2]) if len(node.inputs) > 2 else None
    if whole is None or whole.size != 1 or (points is not None and points.astype(np.float32).any()):
        return None
    return stored.astype(np.float32) * whole.astype(np.float32).reshape(()), _type_of(source)


def _type_of(value: ir.Value) -> str:
    return "" if value.dtype is None else value.dtype.name.lower()
