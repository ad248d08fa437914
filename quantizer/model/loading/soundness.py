"""What must hold of a model file before it is converted; what cannot be run is refused with the place."""

from __future__ import annotations

import math
from collections import Counter

import onnx

from ....profiles.base.errors import ModelError
from .protobuf import Block, subgraphs_of, tensors_in
from .tensor_data import check_sparse, check_tensor

MOST_INPUT_ELEMENTS = 1 << 38
"""An input with more elements, in its fixed dimensions, is in no sample: 2^38 float32 values take 1 TiB."""


_MESSAGES = {
    onnx.AttributeProto.TENSOR: "t",
    onnx.AttributeProto.GRAPH: "g",
    onnx.AttributeProto.SPARSE_TENSOR: "sparse_tensor",
    onnx.AttributeProto.TYPE_PROTO: "tp",
}
"""Types of attributes whose value is a message, and its field."""


def check_proto(proto: onnx.ModelProto, where: str) -> None:
    """Check what conversion and the steps after it rely on.

    Args:
        proto: as `read_proto` gives it: its text is UTF-8.
        where: the file, for messages.

    Raises:
        ModelError: a tensor has another amount of data than its type and dimensions take, a name is made
            twice, an input is no tensor of a known type, a Constant has no value, or an output of a subgraph
            is made outside of it.
    """
    if not proto.graph.output:
        raise ModelError(f"{where}: the graph has no outputs; export it with at least one")
    for block in (proto.graph, *proto.functions):
        _check_block(block, frozenset(), where)
    initializers = {tensor.name for tensor in proto.graph.initializer}
    for value in proto.graph.input:
        if value.name not in initializers:
            _check_input(value, where)


def _check_block(block: Block, outer: frozenset[str], where: str) -> None:
    """Check a graph or function and the graphs inside; `outer` are the names that it sees from outside."""
    for tensor in tensors_in(block):
        check_tensor(tensor, where)
    for sparse in () if isinstance(block, onnx.FunctionProto) else block.sparse_initializer:
        check_sparse(sparse, where)
    made = _made_names(block)
    twice = next((name for name, count in made.items() if count > 1), None)
    if twice is not None:
        makers = ", ".join(f"'{n.name}' ({n.op_type})" for n in block.node if twice in n.output)
        raise ModelError(
            f"{where}: '{twice}' in graph '{block.name}' is made more than once"
            f"{f', by node {makers}' if makers else ''}; give each value a name of its own and export again"
        )
    names = outer.union(made, {""})
    for node in block.node:
        _check_node(node, names, f"{where}: node '{node.name}' ({node.op_type})")
    results = (
        block.output if isinstance(block, onnx.FunctionProto) else [value.name for value in block.output]
    )
    for name in results:
        if not name or name not in names:
            raise ModelError(
                f"{where}: output '{name}' of graph '{block.name}' is made by no node; export it again"
            )


def _made_names(block: Block) -> Counter[str]:
    """Return how often each name is made in a graph. An initialiser may be an input too."""
    made = Counter(name for node in block.node for name in node.output if name)
    if isinstance(block, onnx.FunctionProto):
        made.update(block.input)
        return made
    inputs = [value.name for value in block.input]
    made.update(inputs)
    constants = {tensor.name for tensor in block.initializer}
    made.update(constants.union(sparse.values.name for sparse in block.sparse_initializer) - {"", *inputs})
    return made


def _check_node(node: onnx.NodeProto, names: frozenset[str], where: str) -> None:
    for name in node.input:
        if name not in names:
            raise ModelError(f"{where}: reads '{name}', which nothing in the model makes; export it again")
    for attribute in node.attribute:
        if not attribute.type and not attribute.ref_attr_name:
            raise ModelError(f"{where}: attribute '{attribute.name}' has no type; export it again")
        field = _MESSAGES.get(attribute.type)
        if field is not None and not attribute.ref_attr_name and not attribute.HasField(field):
            raise ModelError(f"{where}: attribute '{attribute.name}' has no value; export it again")
        if attribute.HasField("sparse_tensor"):
            check_sparse(attribute.sparse_tensor, where)
    if node.op_type == "Constant" and node.domain in ("", "ai.onnx") and len(node.attribute) != 1:
        raise ModelError(
            f"{where}: has {len(node.attribute)} attributes and needs the one with its value; export it again"
        )
    for graph in subgraphs_of(node):
        made = _made_names(graph)
        for value in graph.output:
            if value.name not in made:
                raise ModelError(
                    f"{where}: output '{value.name}' of its graph '{graph.name}' is made outside of it; put "
                    "an Identity between"
                )
        _check_block(graph, names, where.partition(": node ")[0])


def _check_input(value: onnx.ValueInfoProto, where: str) -> None:
    """Raise for an input of the main graph of which no sample can be given; onnxruntime refuses these too."""
    where, kind = f"{where}: input '{value.name}'", value.type
    if kind.HasField("map_type"):
        raise ModelError(f"{where}: is a map; export the model with tensors as inputs")
    if kind.WhichOneof("value") is None or (kind.HasField("tensor_type") and not kind.tensor_type.elem_type):
        raise ModelError(f"{where}: has no type; export the model with typed inputs")
    if not kind.HasField("tensor_type"):
        return
    if kind.tensor_type.elem_type not in onnx.TensorProto.DataType.values():
        raise ModelError(
            f"{where}: is of type {kind.tensor_type.elem_type}, which ONNX does not have; export it again"
        )
    dims = [dim.dim_value for dim in kind.tensor_type.shape.dim if dim.dim_value > 0]
    if math.prod(dims) > MOST_INPUT_ELEMENTS:
        raise ModelError(
            f"{where}: has the dimensions {dims}, {math.prod(dims)} elements: no sample of it fits into "
            "memory; export it with smaller or free dimensions"
        )
