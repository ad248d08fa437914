"""The subgraphs of a model: branches of If, and attributes of Loop, Scan and other operators."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from ..records.profile import FLOAT_DTYPES, Dim
from ..runtime.session import runtime_dtypes

STANDARD_DOMAINS = ("", "ai.onnx")
"""The two names of the standard operator domain."""

CONTROL_FLOW = ("If", "Loop", "Scan")
"""Operators with supported graph attributes."""


def graphs_of(attribute: ir.Attr) -> tuple[ir.Graph, ...]:
    """Return the graphs in an attribute: one, several, or none for an attribute of another type."""
    match attribute.type:
        case ir.AttributeType.GRAPH:
            return (attribute.as_graph(),)
        case ir.AttributeType.GRAPHS:
            return tuple(attribute.as_graphs())
    return ()


def graph_attributes(node: ir.Node) -> tuple[ir.Graph, ...]:
    """Return the graphs that a node has as attributes, also of operators that do not run them unchanged."""
    attributes = node.attributes.data.values()  # of the dict inside: a walk over a model asks each node
    return tuple(graph for attribute in attributes for graph in graphs_of(attribute))


def nested_graphs(
    graph: Iterable[ir.Node], owners: tuple[ir.Node, ...] = ()
) -> Iterator[tuple[tuple[ir.Node, ...], ir.Graph]]:
    """Yield all graphs inside a graph, at any depth, each with the nodes that own it, the outermost first."""
    for node in graph:
        for subgraph in graph_attributes(node):
            yield (*owners, node), subgraph
            yield from nested_graphs(subgraph, (*owners, node))


def activations_of(graph: ir.Graph) -> Iterator[ir.Value]:
    """Yield the inputs of a graph and the outputs of its nodes; no constants, nothing of subgraphs."""
    yield from (value for value in graph.inputs if value.name not in graph.initializers)
    for node in graph:
        if node.op_type != "Constant" or node.domain not in STANDARD_DOMAINS:
            yield from node.outputs


def value_names(model: ir.Model) -> set[str]:
    """Return the names of all values of a model: inputs, initialisers and outputs of nodes, of any graph."""
    names, graphs = set[str](), [model.graph]
    for graph in graphs:
        names.update(value.name for value in graph.inputs if value.name)
        names.update(graph.initializers)
        for node in graph:
            names.update(value.name for value in node.outputs if value.name)
            graphs += graph_attributes(node)
    return names


# The floating-point activations of a model: names, element types, declared shapes.

FLOAT_TYPES = tuple(ir.DataType[name.upper()] for name in FLOAT_DTYPES)
"""Element types of the tensors that are profiled."""


def float_activations(model: ir.Model) -> tuple[ir.Value, ...]:
    """Return graph inputs and outputs of nodes that are floats, or of no known type, in order."""
    return tuple(value for value in activations_of(model.graph) if value.name and _may_be_float(value))


def typed_activations(model: ir.Model) -> tuple[tuple[ir.Value, ir.DataType], ...]:
    """Return the `float_activations` with their element types, unknown ones from onnxruntime."""
    values = float_activations(model)
    unknown = tuple(str(v.name) for v in values if v.dtype is None)
    dtypes = runtime_dtypes(model, unknown) if unknown else {}
    typed = ((v, v.dtype if v.dtype is not None else dtypes[str(v.name)]) for v in values)
    return tuple((v, dtype) for v, dtype in typed if dtype is not None and dtype in FLOAT_TYPES)


def _may_be_float(value: ir.Value, types: Collection[ir.DataType] = FLOAT_TYPES) -> bool:
    return value.type is None or (isinstance(value.type, ir.TensorType) and value.dtype in types)


def readable_dtype(dtype: ir.DataType) -> ir.DataType:
    """Return the element type for reading a tensor: bfloat16, which numpy lacks, is read as float32."""
    return ir.DataType.FLOAT if dtype == ir.DataType.BFLOAT16 else dtype


def declared_shape(declared: ir.Shape | None) -> tuple[Dim, ...] | None:
    """Return a shape of the model as profiles have it: None for a dimension that is left free."""
    return None if declared is None else tuple(d if isinstance(d, int) else None for d in declared)


# Which tensors inside the subgraphs of If, Loop and Scan can be read, and why the others cannot.


SEQUENCE_OPERATORS = ("Loop", "If")
"""Operators that can pass a sequence out of their subgraphs."""


@dataclass(frozen=True, eq=False)
class SubgraphTensor:
    """A tensor of a subgraph, the nodes around it from the outermost on, and why it cannot be read."""

    value: ir.Value
    dtype: ir.DataType | None
    owners: tuple[ir.Node, ...]
    hidden: str

    @property
    def scan_axes(self) -> int:
        """How many leading dimensions of its arrays count the iterations of Scans."""
        return sum(owner.op_type == "Scan" for owner in self.owners)


def subgraph_tensors(
    model: ir.Model, types: Collection[ir.DataType] = FLOAT_TYPES
) -> tuple[SubgraphTensor, ...]:
    """Return the inputs of each subgraph, then the outputs of its nodes, of some types or none known."""
    counts = Counter(str(value.name) for graph in model.graphs() for value in activations_of(graph))
    # The named dimensions that no iteration of a Scan changes: of its inputs and the model's.
    inputs = list(model.graph.inputs)
    for owners, graph in nested_graphs(model.graph):
        if owners[-1].op_type == "Scan":
            inputs.extend(graph.inputs)
    dims = (dim for value in inputs if value.shape is not None for dim in value.shape)
    constant = {dim.value for dim in dims if not isinstance(dim, int) and dim.value is not None}
    return tuple(
        SubgraphTensor(value, value.dtype, owners, _hidden(value, owners, counts[str(value.name)], constant))
        for owners, graph in nested_graphs(model.graph)
        for value in activations_of(graph)
        if value.name and _may_be_float(value, types)
    )


def hidden_tensors(model: ir.Model) -> dict[str, str]:
    """Return the floating-point tensors of subgraphs whose values cannot be read, each with the reason."""
    return {str(inner.value.name): inner.hidden for inner in subgraph_tensors(model) if inner.hidden}


def _hidden(value: ir.Value, owners: Sequence[ir.Node], same_names: int, constant: Collection[str]) -> str:
    """Return the reason why a tensor cannot be read, or ""; no Scan changes `constant` dimensions."""
    other = next((o.op_type for o in owners if o.domain != "" or o.op_type not in CONTROL_FLOW), None)
    if other is not None:
        return f"it is in a subgraph of {other}, and qprof only quantizes subgraphs of If, Loop and Scan"
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
    shape = value.shape
    if value.producer() is None:
        return ""
    if shape is not None and all(isinstance(dim, int) or dim.value in constant for dim in shape):
        return ""
    return "it is in a Scan, whose outputs are arrays of one shape, and its shape is unknown"
