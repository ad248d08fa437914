"""How many rows an integer input selects from: the ids that the embedding of a model has."""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

PASSED_ON = ("Cast", "Identity", "Reshape", "Squeeze", "Unsqueeze", "Transpose", "Flatten", "Expand")
"""Operators that give the same integers."""
SELECTING = ("Gather", "GatherElements", "GatherND", "ScatterElements")
"""Operators whose second input selects of the first."""


def selected_rows(value: ir.Value) -> int | None:
    """Return how many rows the values of a tensor select from, the fewest where there are several.

    Args:
        value: an input of a model.

    Returns:
        1 where the model does not say how many, None where nothing is selected.
    """
    return min(_rows(value), default=None)


def _rows(value: ir.Value) -> Iterator[int]:
    for node, index in value.uses():
        if node.op_type in PASSED_ON and index == 0:
            yield from _rows(node.outputs[0])
        elif node.op_type in SELECTING and index == 1:
            yield _size(node)


def _size(node: ir.Node) -> int:
    selected = node.inputs[0]
    axis = node.attributes["axis"].as_int() if "axis" in node.attributes else 0
    shape = None if selected is None else selected.shape
    size = shape[axis] if shape and node.op_type != "GatherND" and axis < len(shape) else None
    return size if isinstance(size, int) else 1
