"""Which tensors can have another shape once values were rounded. Decided from the graph alone. Pure."""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from ...profiles.instrumentation.subgraphs import graph_attributes
from ..model.graph import FLOAT_TYPES
from ..operators.table import STANDARD_DOMAINS

_SHAPES: dict[str, tuple[int, ...]] = {
    "Reshape": (1,),
    "Expand": (1,),
    "Tile": (1,),
    "Slice": (1, 2, 3, 4),
    "Resize": (1, 2, 3),
    "Upsample": (1,),
    "Pad": (1, 3),
    "Range": (0, 1, 2),
    "ConstantOfShape": (0,),
    "TopK": (1,),
    "OneHot": (1,),
    "Split": (1,),
    "Squeeze": (1,),
    "Unsqueeze": (1,),
    "CenterCropPad": (1,),
    "MaxUnpool": (2,),
    "AffineGrid": (1,),
    "STFT": (1, 3),
    "DFT": (1, 2),
    "HannWindow": (0,),
    "HammingWindow": (0,),
    "BlackmanWindow": (0,),
}
"""Inputs whose values the shape of an output depends on; of other operators only shapes matter."""

_COUNTING = ("NonZero", "Compress", "Unique", "NonMaxSuppression", "StringSplit", "If", "Loop", "Scan")
"""Operators that make as many elements as values say."""


def shapes_at_risk(model: ir.Model) -> frozenset[str]:
    """Return the values of the main graph whose shape may depend on the values of activations.

    What an operator outside the standard does is not known: its outputs are among them where it reads any
    value that depends on activations, unless their shapes are declared.
    """
    noisy: set[ir.Value] = {v for v in model.graph.inputs if v.dtype in FLOAT_TYPES}
    risky: set[ir.Value] = set()
    for node in model.graph:
        read = tuple(values_read(node))
        moved = any(value in noisy for value in read)
        reshaped = any(value in risky for value in read)
        if reshaped or (moved and _steps(node, noisy)):
            risky.update(value for value in node.outputs if not _is_fixed(value))
        shape_only = node.domain in STANDARD_DOMAINS and node.op_type in ("Shape", "Size")
        if reshaped or (moved and not shape_only):
            noisy.update(node.outputs)
    return frozenset(str(value.name) for value in risky)


def values_read(node: ir.Node) -> Iterator[ir.Value]:
    """Yield the values that a node reads, those that its subgraphs read from outside included."""
    yield from (value for value in node.inputs if value is not None)
    for graph in graph_attributes(node):
        for inner in graph:
            yield from values_read(inner)


def _steps(node: ir.Node, noisy: set[ir.Value]) -> bool:
    """Whether shapes of a node's outputs may follow from values, some of which are noisy."""
    if node.domain not in STANDARD_DOMAINS or node.op_type in _COUNTING or graph_attributes(node):
        return True
    if "Sequence" in node.op_type or node.op_type.startswith(("Optional", "Split")):
        return any(value in noisy for value in node.inputs[1:])
    return any(
        index < len(node.inputs) and node.inputs[index] in noisy for index in _SHAPES.get(node.op_type, ())
    )


def _is_fixed(value: ir.Value) -> bool:
    """Whether the model declares all dimensions of a value."""
    return value.shape is not None and value.shape.is_static()
