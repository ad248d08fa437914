"""The subgraphs of a model: branches of If, and what Loop, Scan and other operators have as attributes."""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir


def graphs_of(attribute: ir.Attr) -> tuple[ir.Graph, ...]:
    """Return the graphs that an attribute holds: one, several, or none for an attribute of another type."""
    match attribute.type:
        case ir.AttributeType.GRAPH:
            return (attribute.as_graph(),)
        case ir.AttributeType.GRAPHS:
            return tuple(attribute.as_graphs())
    return ()


def graph_attributes(node: ir.Node) -> tuple[ir.Graph, ...]:
    """Return the graphs that a node has as attributes, also of operators that do not run them as they are."""
    return tuple(graph for attribute in node.attributes.values() for graph in graphs_of(attribute))


def nested_graphs(
    graph: ir.Graph, owners: tuple[ir.Node, ...] = ()
) -> Iterator[tuple[tuple[ir.Node, ...], ir.Graph]]:
    """Yield all graphs inside a graph, at any depth, each with the nodes that own the graphs around it.

    Args:
        graph: not yielded itself.
        owners: of `graph`, the outermost first; they come first in what is yielded.
    """
    for node in graph:
        for subgraph in graph_attributes(node):
            yield (*owners, node), subgraph
            yield from nested_graphs(subgraph, (*owners, node))


def activations_of(graph: ir.Graph) -> Iterator[ir.Value]:
    """Yield the inputs of a graph and the outputs of its nodes; no constants, nothing of subgraphs."""
    yield from (value for value in graph.inputs if value.name not in graph.initializers)
    for node in graph:
        if node.op_type != "Constant" or node.domain not in ("", "ai.onnx"):
            yield from node.outputs


def value_names(model: ir.Model) -> set[str]:
    """Return the names of all values of a model: inputs, initialisers and outputs of nodes, of any graph."""
    values: list[ir.Value] = []
    for graph in model.graphs():
        values += [*graph.inputs, *graph.initializers.values()]
        values += [value for node in graph for value in node.outputs]
    return {value.name for value in values if value.name}
