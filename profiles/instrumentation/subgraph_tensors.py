"""Which tensors inside the subgraphs of If, Loop and Scan can be read, and why the others cannot."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from .activations import FLOATS
from .subgraphs import activations_of, nested_graphs

SEQUENCE_OPERATORS = ("Loop", "If")
"""Operators that can pass a sequence out of their subgraphs."""


@dataclass(frozen=True, eq=False)
class SubgraphTensor:
    """A floating-point tensor of a subgraph.

    Attributes:
        value: the tensor.
        dtype: its element type; None when unknown.
        owners: the nodes that own the graphs around it, the outermost first.
        hidden: why its values cannot be read; "" when they can.
    """

    value: ir.Value
    dtype: ir.DataType | None
    owners: tuple[ir.Node, ...]
    hidden: str

    @property
    def scan_axes(self) -> int:
        """How many leading dimensions of its arrays count the iterations of Scans."""
        return sum(owner.op_type == "Scan" for owner in self.owners)


def subgraph_tensors(model: ir.Model) -> tuple[SubgraphTensor, ...]:
    """Return the floating-point tensors of all subgraphs: their inputs, then the outputs of their nodes."""
    values = [value for graph in model.graphs() for value in activations_of(graph)]
    uses, constant = Counter(str(value.name) for value in values), _constant_dimensions(model)
    return tuple(
        SubgraphTensor(value, value.dtype, owners, _reason(value, owners, uses[str(value.name)], constant))
        for owners, graph in nested_graphs(model.graph)
        for value in activations_of(graph)
        if value.name and (value.type is None or value.dtype in FLOATS)
    )


def hidden_tensors(model: ir.Model) -> dict[str, str]:
    """Return the floating-point tensors of subgraphs whose values cannot be read, each with the reason."""
    return {str(inner.value.name): inner.hidden for inner in subgraph_tensors(model) if inner.hidden}


def _reason(value: ir.Value, owners: Sequence[ir.Node], same_names: int, constant: Collection[str]) -> str:
    supported = (*SEQUENCE_OPERATORS, "Scan")
    other = next((o.op_type for o in owners if o.domain != "" or o.op_type not in supported), None)
    if other is not None:
        return f"it is in a subgraph of {other}, and only those of If, Loop and Scan run as they are written"
    if same_names > 1:
        return "other tensors have the same name; prepare the model first"
    if value.dtype is None:
        return "its element type is unknown"
    kinds = [owner.op_type for owner in owners]
    if "Scan" not in kinds:
        return ""
    inside = kinds[kinds.index("Scan") :]
    if any(kind != "Scan" for kind in inside):
        return f"it is in {' in '.join(reversed(inside))}: the outputs of a Scan are arrays of one shape"
    if value.producer() is None or _keeps_shape(value, constant):
        return ""
    return "it is in a Scan, whose outputs are arrays of one shape, and its shape is unknown"


def _keeps_shape(value: ir.Value, constant: Collection[str]) -> bool:
    """Whether a tensor of a Scan has the same shape in each iteration."""
    return value.shape is not None and all(isinstance(d, int) or d.value in constant for d in value.shape)


def _constant_dimensions(model: ir.Model) -> frozenset[str]:
    """Return the named dimensions that no iteration of a Scan changes: of its inputs and the model's."""
    inputs = list(model.graph.inputs)
    for owners, graph in nested_graphs(model.graph):
        if owners[-1].op_type == "Scan":
            inputs.extend(graph.inputs)
    dims = (dim for value in inputs if value.shape is not None for dim in value.shape)
    return frozenset(dim.value for dim in dims if not isinstance(dim, int) and dim.value is not None)
