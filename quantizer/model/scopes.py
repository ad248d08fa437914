"""The check that every value which a node reads is visible to it, after a step that has edited a graph."""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from ...profiles.base.errors import PlanError
from ...profiles.instrumentation.subgraphs import graph_attributes
from .graph import name_of


def check_scopes(model: ir.Model, where: str) -> ir.Model:
    """Return the model itself if every value that a node reads is made before it, in its or an outer graph.

    Args:
        model: a model that a step has edited.
        where: the step, for messages.

    Raises:
        PlanError: naming the first nodes and values of which this is not true.
    """
    errors = list(_errors(model.graph, set()))
    if errors:
        more = f"; and {len(errors) - 3} more" if len(errors) > 3 else ""
        raise PlanError(f"{where}: {'; '.join(errors[:3])}{more}; report this as a defect of qprof")
    return model


def _errors(graph: ir.Graph, visible: set[int]) -> Iterator[str]:
    """Yield a sentence for each read of what is not visible; `visible` has the ids of outer values."""
    visible = visible | {id(value) for value in (*graph.inputs, *graph.initializers.values())}
    for node in graph:
        for value in node.inputs:
            if value is not None and id(value) not in visible:
                yield (
                    f"node '{name_of(node)}' reads '{name_of(value)}', which is not made before it in its "
                    "own or an outer graph"
                )
        for subgraph in graph_attributes(node):
            yield from _errors(subgraph, visible)
        visible |= {id(value) for value in node.outputs}
    for value in graph.outputs:
        if id(value) not in visible:
            yield f"output '{name_of(value)}' of graph '{graph.name}' is not made in it or an outer graph"
