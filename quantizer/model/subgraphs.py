"""Subgraphs of a node: bodies of If, Loop and Scan, and other graph attributes."""

from __future__ import annotations

import onnx_ir as ir

CONTROL_FLOW = ("If", "Loop", "Scan")
"""Operators that run graphs of their own as they are written."""


def bodies(node: ir.Node) -> tuple[ir.Graph, ...]:
    """Return the graphs that a node runs as they are: the branches of an If, the body of a Loop or Scan."""
    return inner_graphs(node) if node.domain == "" and node.op_type in CONTROL_FLOW else ()


def inner_graphs(node: ir.Node) -> tuple[ir.Graph, ...]:
    """Return all graphs that a node has as attributes; those that are no `bodies` tell it what to do."""
    found: list[ir.Graph] = []
    for attribute in node.attributes.values():
        if attribute.type == ir.AttributeType.GRAPH:
            found.append(attribute.as_graph())
        elif attribute.type == ir.AttributeType.GRAPHS:
            found.extend(attribute.as_graphs())
    return tuple(found)
