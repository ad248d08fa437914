"""Which tensors can have another shape once values were rounded, and which only compute shapes.

Decided from the graph alone. Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

import onnx_ir as ir

from ...profiles.instrumentation.subgraphs import graph_attributes
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


def compute_shapes(model: ir.Model) -> frozenset[str]:
    """Return the values of the main graph that follow from shapes and constants alone and lead to shapes.

    Such a number may be a float, as the size of a grid that Range counts up to: no plan can round it.
    """
    varying: set[ir.Value] = set(model.graph.inputs)
    nodes = list(model.graph)
    for node in nodes:
        if not _reads_shapes_only(node) and any(value in varying for value in values_read(node)):
            varying.update(node.outputs)
    found: set[ir.Value] = set()
    for node in reversed(nodes):
        leads = any(value in found for value in node.outputs)
        positions = range(len(node.inputs)) if leads else _shape_inputs(node)
        read = (node.inputs[index] for index in positions if index < len(node.inputs))
        found.update(value for value in read if value is not None and value not in varying)
    return frozenset(str(value.name) for value in found)


def shapes_at_risk(model: ir.Model, names: Collection[str]) -> frozenset[str]:
    """Return the values of the main graph whose shape may depend on rounded values.

    What an operator outside the standard does is not known: its outputs are among them where it reads any
    value that depends on rounded ones, unless their shapes are declared.

    Args:
        model: the prepared model.
        names: of the activations that are rounded.
    """
    noisy: set[ir.Value] = {v for v in model.graph.inputs if v.name in names}
    risky: set[ir.Value] = set()
    for node in model.graph:
        read = tuple(values_read(node))
        moved = any(value in noisy for value in read)
        reshaped = any(value in risky for value in read)
        if reshaped or (moved and _steps(node, noisy)):
            risky.update(value for value in node.outputs if not _is_fixed(value))
        if reshaped or (moved and not _reads_shapes_only(node)):
            noisy.update(node.outputs)
        noisy.update(value for value in node.outputs if value.name in names)
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
    return any(index < len(node.inputs) and node.inputs[index] in noisy for index in _shape_inputs(node))


def _shape_inputs(node: ir.Node) -> tuple[int, ...]:
    return _SHAPES.get(node.op_type, ()) if node.domain in STANDARD_DOMAINS else ()


def _reads_shapes_only(node: ir.Node) -> bool:
    return node.domain in STANDARD_DOMAINS and node.op_type in ("Shape", "Size")


def _is_fixed(value: ir.Value) -> bool:
    """Whether the model declares all dimensions of a value."""
    return value.shape is not None and value.shape.is_static()
