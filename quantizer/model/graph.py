"""Names and constants of single nodes and values, and the subgraphs that nodes run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy.typing as npt
import onnx_ir as ir

from ...profiles.instrumentation.subgraphs import CONTROL_FLOW, graph_attributes


def subgraphs(node: ir.Node) -> tuple[ir.Graph, ...]:
    """Return the subgraphs that a node runs as written: the branches of an If, the body of a Loop or Scan."""
    return graph_attributes(node) if node.domain == "" and node.op_type in CONTROL_FLOW else ()


def nodes_run_by(node: ir.Node) -> Iterator[ir.Node]:
    """Yield a node and, for an If, Loop or Scan, the nodes of its subgraphs at any depth."""
    yield node
    for graph in subgraphs(node):
        for inner in graph:
            yield from nodes_run_by(inner)


def name_of(item: ir.Node | ir.Value | None) -> str:
    """Return the name of a node or value, "" for an input that is left out and an output without a name."""
    return "" if item is None else item.name or ""


def input_name(node: ir.Node, position: int) -> str:
    """Return the name of a node's input at a position, or "" if it is missing."""
    return name_of(node.inputs[position]) if position < len(node.inputs) else ""


def output_name(node: ir.Node, position: int = 0) -> str:
    """Return the name of a node's output, by default the first."""
    return name_of(node.outputs[position])


def is_constant(value: ir.Value | None) -> bool:
    """Tell whether a value is an initialiser and no graph input, whose value is only a default."""
    if value is None or value.const_value is None:
        return False
    return value.is_initializer() and not value.is_graph_input()


def constant_of(value: ir.Value | None) -> npt.NDArray[Any] | None:
    """Return the array of a constant, None for every other value. Must not be written to."""
    tensor = value.const_value if value is not None and is_constant(value) else None
    return None if tensor is None else tensor.numpy()
