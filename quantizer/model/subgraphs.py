"""Subgraphs of a node: those that If, Loop and Scan run, and other graph attributes."""

from __future__ import annotations

import onnx_ir as ir

from ...profiles.instrumentation.subgraphs import graph_attributes

CONTROL_FLOW = ("If", "Loop", "Scan")
"""Operators whose graph attributes are run as they are written."""


def subgraphs(node: ir.Node) -> tuple[ir.Graph, ...]:
    """Return the subgraphs that a node runs as written: the branches of an If, the body of a Loop or Scan."""
    return graph_attributes(node) if node.domain == "" and node.op_type in CONTROL_FLOW else ()
