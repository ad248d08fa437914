"""How many bytes a model takes as planned; those of its graph are an estimate."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import onnx_ir as ir

from ..numerics.schemas import SCHEMAS
from ..operators.graph import Graph, Node
from ..plan.plan import RUNTIME_WEIGHTS, Implementation, Kind, QuantPlan, unblocked_size
from ..targets.weight_formats import WeightFormat
from .facts import PlanningFacts
from .stored_weights import Storage

NODE_BYTES = 500
"""That a packed weight adds to the graph: names and shapes of what is read in its place, attributes."""

METADATA_BYTES = 2000
"""Of the records in a written model's metadata."""

SCALE_BYTES = 4

ZERO_POINT_BYTES = 80
"""That zero points of blocks add to the graph, a name in three places; weights in 8 bits have none."""


def estimated_size(facts: PlanningFacts, plan: QuantPlan, sizes: Mapping[str, float] | None = None) -> float:
    """Return about how many bytes the model takes as planned, with some constants of other `sizes`.

    `Known.size_error` is left out.
    """
    graph, bare = facts.graph, facts.prepared.model.clone()
    for part in bare.graphs():
        part.initializers.clear()
    packed = sum(node.kind is Kind.WEIGHT_ONLY for node in plan.nodes.values())
    size = float(METADATA_BYTES + NODE_BYTES * packed + ir.to_proto(bare).ByteSize())
    ways = ways_of(graph, plan)
    twins = twins_of(graph, ways)
    for name, value in graph.values.items():
        tensor = value.const_value
        if not graph.is_constant(name) or tensor is None or name in twins:
            continue
        params = plan.tensors.get(name)
        if sizes and name in sizes:
            size += sizes[name]
        elif params is None:
            size += float_bytes(facts, name)
        else:
            schema = SCHEMAS["symmetric"]
            usual = 0 if params.qtype.signed else 1 << (params.qtype.bits - 1)
            if np.any(params.zero_point != usual):
                schema = SCHEMAS["asymmetric"]
            own = WeightFormat(params.qtype, params.block_size or 0, schema)
            size += stored_bytes(
                constant_shape(graph, name), Storage(own, params.axis, ways.get(name, Implementation.USUAL))
            )
    return size


def stored_constants(node: Node, plan: QuantPlan) -> list[str]:
    """Return the constants of a node that are stored quantized."""
    entry, rule = plan.nodes[node.name], node.rule
    if entry.kind is not Kind.WEIGHT_ONLY or rule is None:
        return []
    return [name for w in rule.constants if (name := node.input(w.index)) in plan.tensors]


def constant_shape(graph: Graph, name: str) -> tuple[int, ...]:
    """Return the shape of a constant of a graph."""
    tensor = graph.values[name].const_value
    assert tensor is not None
    return tuple(tensor.shape.numpy())


def ways_of(graph: Graph, plan: QuantPlan) -> dict[str, str]:
    """Return the constants that are stored quantized, each with its last reader's implementation."""
    entries = ((node, plan.nodes[node.name].implementation) for node in graph.nodes)
    return {name: way for node, way in entries for name in stored_constants(node, plan)}


def twins_of(graph: Graph, ways: Mapping[str, str]) -> dict[str, str]:
    """Return the matrices that are stored as others transposed: a table -> the weight of the last product.

    DequantizeLinear before a product cannot read a table.
    """
    matrices = {name: graph.constant(name) for name, way in ways.items() if way != Implementation.USUAL}
    arrays = {name: array for name, array in matrices.items() if array is not None and array.ndim == 2}
    by_shape: dict[tuple[int, ...], list[str]] = {}
    for name, array in arrays.items():
        by_shape.setdefault(array.shape, []).append(name)
    twins: dict[str, str] = {}
    for shape, alike in by_shape.items():
        for name in alike:
            for other in by_shape.get(shape[::-1], ()):
                if other == name or name in twins.values():
                    continue
                array, turned = arrays[name], arrays[other].T
                if np.array_equal(array[:1], turned[:1]) and np.array_equal(array, turned):
                    twins.setdefault(name, other)
    return twins


def float_bytes(facts: PlanningFacts, name: str) -> float:
    """Return the bytes of a constant that is not quantized."""
    tensor = facts.graph.values[name].const_value
    assert tensor is not None
    narrow = facts.config.is_float16 and tensor.dtype is ir.DataType.FLOAT
    return tensor.nbytes / 2.0 if narrow else float(tensor.nbytes)


def stored_bytes(shape: Sequence[int], storage: Storage) -> float:
    """Return the bytes of a constant, with those of its scales and zero points."""
    qtype, block, axis = storage.format.qtype, storage.format.block_size, storage.axis
    elements, bits = math.prod(shape), qtype.bits
    if axis is None:
        return elements * bits / 8.0 + SCALE_BYTES
    if not block and storage.implementation not in RUNTIME_WEIGHTS:
        return elements * bits / 8.0 + SCALE_BYTES * shape[axis]
    # Blocks, of which the last is filled up; a packed weight has them in any case, along its other axis.
    size = shape[axis] if block else elements // shape[axis]
    block = block or unblocked_size(size)
    rows, blocks = elements / size, -(-size // block)
    scale_bytes = SCALE_BYTES if qtype.scales is None else 1
    values = rows * blocks * (block * bits / 8.0 + scale_bytes)
    has_points = not storage.format.schema.symmetric and not qtype.is_float
    return values + (ZERO_POINT_BYTES + rows * -(-blocks * bits // 8) if has_points else 0)
