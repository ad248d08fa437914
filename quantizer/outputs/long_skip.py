"""Outputs that are the sum of an input, moved or resized, and of what the network computes. Pure.

A network of super-resolution or denoising adds details to a picture that it was given. The picture has nearly
all of the power, and is exact; what the network is worth is in the other part, so that noise is held against
this one.
"""

from __future__ import annotations

from ..model.graph import Graph
from ..operators.table import is_clip, rule_of
from .paths import before_move, moves_values, upstream

SUMS = ("Add", "Sub", "Sum")
RESIZING = ("Resize", "Upsample", "AveragePool", "Slice", "Pad", "Concat")


def computed_part(graph: Graph, name: str) -> str | None:
    """Return the tensor that is added to a moved or resized input to make another, None where none is.

    Args:
        graph: of the model.
        name: an output; it may be clipped or moved after the sum.
    """
    source: str | None = name
    while source is not None:
        node = graph.producer(source)
        if node is not None and node.op_type in SUMS:
            names = [n for n in dict.fromkeys(graph.inputs_of(node)) if n and not graph.is_constant(n)]
            computed = [n for n in names if not _is_input(graph, n)]
            if len(names) > 1:
                return computed[0] if len(computed) == 1 else None
        source = before_move(graph, source)
    return None


def _is_input(graph: Graph, name: str) -> bool:
    """Whether a tensor is a float input of the model after nothing but moves, resizing, and constants that
    are added or multiplied."""
    found = name in graph.inputs
    for node in upstream(graph, [name]):
        rule = rule_of(node)
        constants = sum(graph.is_constant(n) for n in graph.inputs_of(node) if n)
        affine = node.op_type in ("Add", "Sub", "Mul", "Div") and constants == len(node.inputs) - 1
        shape = rule is None and not graph.is_float(graph.inputs_of(node)[0] if node.inputs else name)
        if not (moves_values(node) or is_clip(node) or affine or node.op_type in RESIZING or shape):
            return False
        found = found or any(n in graph.inputs and graph.is_float(n) for n in graph.inputs_of(node))
    return found
