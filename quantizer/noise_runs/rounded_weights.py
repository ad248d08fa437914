"""The weights of a model rounded to int8, as they are where nothing else is decided."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from ..model.graph import constant_of
from ..numerics.affine import INT8, dequantize, quantize
from ..numerics.schemas import SCHEMAS, channel_params
from ..operators.table import rule_of
from ..operators.weight_layout import WeightLayout

Array = npt.NDArray[Any]


def quantizable_constants(node: ir.Node) -> Iterator[tuple[int, WeightLayout]]:
    """Yield the float constants that a node multiplies with or reads entries of, by input index.

    These are the weights of products, of recurrent operators, and embedding tables. The scale of a
    normalisation is none: where that stays float, so does its scale.
    """
    rule = rule_of(node)
    for layout in () if rule is None else rule.constants:
        if layout is (rule.weight if rule else None) and not layout.is_product:
            continue
        value = node.inputs[layout.index] if layout.index < len(node.inputs) else None
        if value is not None and value.dtype == ir.DataType.FLOAT and constant_of(value) is not None:
            yield layout.index, layout


def rounded_weight(node: ir.Node, layout: WeightLayout, weight: Array) -> Array | None:
    """Return a weight in int8 with a scale for each output channel, dequantized; None where it is not finite.

    Args:
        node: that reads it.
        layout: of the operator's weight.
        weight: float32, any shape.
    """
    if not weight.size or not np.isfinite(weight).all():
        return None
    axis = None if layout.is_stack(weight.ndim) else layout.axis(node, weight.ndim)
    params = channel_params(weight, axis, SCHEMAS["symmetric"], INT8)
    return dequantize(quantize(weight, params), params)
