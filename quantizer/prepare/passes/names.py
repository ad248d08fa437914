"""Unique names for all nodes and values, and the original nodes that each node stands for.

onnx_ir's NameFixPass makes node names unique within each graph only and numbers copies in another way: names
are part of a profile, so they cannot change.
"""

from __future__ import annotations

from collections.abc import Mapping

import onnx_ir as ir

from ...model.editing import ORIGIN, FreeNames, value_names


def name_nodes(model: ir.Model) -> int:
    """Give every node, those of subgraphs too, a unique name; return how many changed.

    A unique name stays. A node without a name becomes `<operator>_<first output>`; of several nodes with one
    name the first keeps it and the others get a number. Node names depend on the file alone.
    """
    nodes = list(ir.traversal.RecursiveGraphIterator(model.graph))
    names = FreeNames({node.name for node in nodes if node.name})
    used: set[str] = set()
    changed = 0
    for node in nodes:
        if node.name and node.name not in used:
            used.add(node.name)
            continue
        first = next((value.name for value in node.outputs if value.name), "")
        node.name = names.take(node.name or f"{node.op_type}_{first}")
        used.add(node.name)
        changed += 1
    return changed


def name_values(model: ir.Model) -> int:
    """Give every used node output that has no name one after its node; return how many changed."""
    names = FreeNames(value_names(model))
    changed = 0
    for node in ir.traversal.RecursiveGraphIterator(model.graph):
        for index, value in enumerate(node.outputs):
            if not value.name and (value.uses() or value.is_graph_output()):
                value.name = names.take(f"{node.name}_output_{index}")
                changed += 1
    return changed


def unshare_names(model: ir.Model) -> int:
    """Give values of subgraphs (of If, Loop, Scan) names that no other graph has; return how many changed.

    ONNX lets the two branches of an If use the same names. Profiles and plans identify a tensor by its name
    alone. The main graph keeps its names; of several subgraphs with one name the first keeps it.
    """
    names = FreeNames(value_names(model))
    used: set[str] = set()
    changed = 0
    for graph in model.graphs():
        results = (value for node in graph for value in node.outputs)
        for value in dict.fromkeys((*graph.inputs, *graph.initializers.values(), *results)):
            if value.name in used and graph is not model.graph:
                value.name = names.take(value.name)
                changed += 1
            if value.name:
                used.add(value.name)
    return changed


def mark_origin(model: ir.Model) -> int:
    """Record for every node of the main graph without an origin that it stands for itself."""
    for node in model.graph:
        if ORIGIN not in node.meta:
            node.meta[ORIGIN] = (node.name,)
    return 0


def forget_origin(model: ir.Model) -> int:
    """Remove the origins that an earlier `prepare` of the same object recorded."""
    for node in model.graph:
        node.meta.pop(ORIGIN, None)
    return 0


def collect_origin(model: ir.Model) -> Mapping[str, tuple[str, ...]]:
    """Return, for every node of the main graph in order, the original nodes that it stands for."""
    return {str(node.name): tuple(node.meta.get(ORIGIN, ())) for node in model.graph}
