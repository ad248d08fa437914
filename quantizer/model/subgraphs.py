"""Subgraphs of a node: those that If, Loop and Scan run, and other graph attributes."""

from __future__ import annotations

import onnx_ir as ir

CONTROL_FLOW = ("If", "Loop", "Scan")
"""Operators whose graph attributes are run as they are written."""


def bodies(node: ir.Node) -> tuple[ir.Graph, ...]:
    """Return the subgraphs that a node runs as written: the branches of an If, the body of a Loop or Scan."""
    return inner_graphs(node) if node.domain == "" and node.op_type in CONTROL_FLOW else ()


def inner_graphs(node: ir.Node) -> tuple[ir.Graph, ...]:
    """Return all graphs that a node has as attributes, also of operators that do not run them as they are."""
    return tuple(graph for attribute in node.attributes.values() for graph in graphs_of(attribute))


def graphs_of(attribute: ir.Attr) -> tuple[ir.Graph, ...]:
    """Return the graphs that an attribute holds: one, several, or none for an attribute of another type."""
    match attribute.type:
        case ir.AttributeType.GRAPH:
            return (attribute.as_graph(),)
        case ir.AttributeType.GRAPHS:
            return tuple(attribute.as_graphs())
    return ()
