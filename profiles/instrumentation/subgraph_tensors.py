"""Which tensors inside the bodies of If, Loop and Scan can be profiled, and why the others cannot."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from .activations import FLOATS

LOOPS = ("Loop", "If")
"""Operators whose bodies a sequence can pass."""


@dataclass(frozen=True, eq=False)
class Inner:
    """A floating-point tensor of a body.

    Attributes:
        value: the tensor.
        dtype: its element type; None when unknown.
        owners: the nodes that have the graphs around it, the outermost first.
        hidden: why its values cannot be shown; "" when they can.
    """

    value: ir.Value
    dtype: ir.DataType | None
    owners: tuple[ir.Node, ...]
    hidden: str

    @property
    def stacked(self) -> int:
        """How many leading dimensions of the arrays count the steps of Scans."""
        return sum(owner.op_type == "Scan" for owner in self.owners)


def inner_tensors(model: ir.Model) -> tuple[Inner, ...]:
    """Return the floating-point tensors of all bodies: their inputs, then what their nodes make."""
    values = [value for graph in model.graphs() for value in values_of(graph)]
    names, fixed = Counter(str(value.name) for value in values), _fixed_dimensions(model)
    return tuple(
        Inner(value, value.dtype, owners, _reason(value, owners, names[str(value.name)], fixed))
        for owners, graph in _graphs(model.graph, ())
        for value in values_of(graph)
        if value.name and (value.type is None or value.dtype in FLOATS)
    )


def hidden_tensors(model: ir.Model) -> dict[str, str]:
    """Return the floating-point tensors of bodies whose values cannot be shown, each with the reason."""
    return {str(inner.value.name): inner.hidden for inner in inner_tensors(model) if inner.hidden}


def _reason(value: ir.Value, owners: Sequence[ir.Node], same_names: int, fixed: Collection[str]) -> str:
    odd = next((o for o in owners if o.domain != "" or o.op_type not in (*LOOPS, "Scan")), None)
    if odd is not None:
        return f"it is in a graph of {odd.op_type}, which does not run it as it is written"
    if same_names > 1:
        return "other tensors have its name; prepare the model first"
    if value.dtype is None:
        return "its type is not known"
    kinds = [owner.op_type for owner in owners]
    if "Scan" not in kinds:
        return ""
    inside = kinds[kinds.index("Scan") :]
    if any(kind != "Scan" for kind in inside):
        return f"it is in {' in '.join(reversed(inside))}: a Scan gives arrays of one shape alone"
    if value.producer() is None or _keeps_shape(value, fixed):
        return ""
    return "it is in a Scan, which gives arrays of one shape alone, and its shape is not known"


def _keeps_shape(value: ir.Value, fixed: Collection[str]) -> bool:
    """Whether a tensor of a Scan has the same shape in each step."""
    return value.shape is not None and all(isinstance(d, int) or d.value in fixed for d in value.shape)


def _fixed_dimensions(model: ir.Model) -> frozenset[str]:
    """Return names of dimensions that no step of a Scan changes: those of its inputs and of the model's."""
    inputs = list(model.graph.inputs)
    for owners, graph in _graphs(model.graph, ()):
        if owners[-1].op_type == "Scan":
            inputs.extend(graph.inputs)
    dims = (dim for value in inputs if value.shape is not None for dim in value.shape)
    return frozenset(dim.value for dim in dims if not isinstance(dim, int) and dim.value is not None)


def _graphs(graph: ir.Graph, owners: tuple[ir.Node, ...]) -> Iterator[tuple[tuple[ir.Node, ...], ir.Graph]]:
    """Yield the graphs inside a graph, each with the nodes that have the graphs around it."""
    for node in graph:
        for attribute in node.attributes.values():
            bodies: Sequence[ir.Graph] = ()
            if attribute.type == ir.AttributeType.GRAPH:
                bodies = (attribute.as_graph(),)
            elif attribute.type == ir.AttributeType.GRAPHS:
                bodies = attribute.as_graphs()
            for body in bodies:
                inside = (*owners, node)
                yield inside, body
                yield from _graphs(body, inside)


def values_of(graph: ir.Graph) -> Iterator[ir.Value]:
    """Yield the inputs of a graph and what its nodes make."""
    yield from (value for value in graph.inputs if value.name not in graph.initializers)
    for node in graph:
        if node.op_type != "Constant" or node.domain != "":
            yield from node.outputs
