"""Small edits of an onnx_ir graph, and the questions about nodes and values that they depend on."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import onnx.defs
import onnx_ir as ir

from ...profiles.instrumentation.subgraphs import graph_attributes

Array = npt.NDArray[Any]


def is_standard(node: ir.Node, *types: str) -> bool:
    """Tell whether the node is of the default operator domain, and of one of these types if any are given."""
    return node.domain == "" and (not types or node.op_type in types)


def is_in_onnx(node: ir.Node) -> bool:
    """Tell whether ONNX has the operator; onnxruntime adds operators to the default domain."""
    return node.domain == "" and onnx.defs.has(node.op_type)


def has_input(node: ir.Node, index: int) -> bool:
    """Tell whether the optional input is given."""
    return index < len(node.inputs) and node.inputs[index] is not None


def is_captured(value: ir.Value) -> bool:
    """Tell whether a subgraph (of If, Loop, Scan) reads this value of the graph around it."""
    return any(use.node.graph is not value.graph for use in value.uses())


def sole_user(value: ir.Value) -> ir.Node | None:
    """Return the only node that reads the value; None for several, a graph output or a captured value."""
    uses = list(value.uses())
    if len(uses) != 1 or value.is_graph_output() or is_captured(value):
        return None
    return uses[0].node


def feeding(value: ir.Value | None, *types: str) -> ir.Node | None:
    """Return the producer of a value when it has one of these types and the value has one consumer only."""
    producer = value.producer() if value is not None else None
    if value is None or producer is None or not is_standard(producer, *types) or sole_user(value) is None:
        return None
    return producer


def static_shape(value: ir.Value | None) -> tuple[int, ...] | None:
    """Return the shape when the rank and every dimension are known."""
    if value is None or value.shape is None or not value.shape.is_static():
        return None
    return value.shape.numpy()


def rank(value: ir.Value | None) -> int | None:
    """Return the number of dimensions when known."""
    return None if value is None or value.shape is None else len(value.shape)


def free_name(wanted: str, taken: set[str]) -> str:
    """Return `wanted`, followed by a number from 2 if it is taken; add the result to `taken`."""
    name, number = wanted, 2
    while name in taken:
        name, number = f"{wanted}_{number}", number + 1
    taken.add(name)
    return name


class FreeNames:
    """Gives names as `free_name` does, each number of a name looked up once: many nodes may have one name."""

    def __init__(self, taken: set[str]) -> None:
        """Begin with the taken names; each new name is added to them."""
        self._taken, self._next = taken, dict[str, int]()

    def take(self, wanted: str) -> str:
        """Return `wanted`, followed by the lowest free number from 2 if it is taken."""
        name, number = wanted, self._next.get(wanted, 2)
        while name in self._taken:
            name, number = f"{wanted}_{number}", number + 1
        self._next[wanted] = number
        self._taken.add(name)
        return name


MIN_VIEW_BYTES = 1 << 20
"""Bytes from which a view of another array is not copied: a transposed table stays in its model's file."""


def add_initializer(graph: ir.Graph, name: str, array: Array) -> ir.Value:
    """Register a new initialiser of the graph. The name must be free."""
    array = np.asarray(array)
    if not array.flags.c_contiguous and array.nbytes < MIN_VIEW_BYTES:
        array = array.copy(order="C")  # np.ascontiguousarray would make a scalar a vector
    tensor = ir.Tensor(array, name=name)
    value = ir.Value(
        name=name, type=ir.TensorType(tensor.dtype), shape=ir.Shape(array.shape), const_value=tensor
    )
    graph.register_initializer(value)
    return value


def replace_constant(node: ir.Node, index: int, array: Array, taken: set[str]) -> None:
    """Replace the constant that a node reads as input `index`; the old name is kept unless others read it."""
    graph = node.graph
    old = node.inputs[index]
    assert graph is not None
    assert old is not None
    assert old.name is not None
    if len(old.uses()) == 1 and not old.is_graph_output() and old.graph is graph:
        node.replace_input_with(index, None)
        graph.initializers.pop(old.name)
        node.replace_input_with(index, add_initializer(graph, old.name, array))
    else:
        node.replace_input_with(
            index, add_initializer(graph, free_name(f"{old.name}_{node.name}", taken), array)
        )


def discard(node: ir.Node) -> None:
    """Remove a node whose outputs are not used; its subgraphs no longer count as users of their inputs."""
    for graph in graph_attributes(node):
        for inner in ir.traversal.RecursiveGraphIterator(graph):
            for index in range(len(inner.inputs)):
                inner.replace_input_with(index, None)
    assert node.graph is not None
    node.graph.remove(node, safe=True)


def bypass(node: ir.Node, source: ir.Value) -> bool:
    """Remove a node whose first output equals `source`; False if an output or subgraph loses its name."""
    graph, output = node.graph, node.outputs[0]
    assert graph is not None
    if is_captured(output):
        return False
    if output.is_graph_output():
        producer = source.producer()
        if producer is None or producer.graph is not graph or source.is_graph_output() or is_captured(source):
            return False
        take_over(source, output)
    else:
        if source.shape is None:
            source.shape = output.shape
        output.replace_all_uses_with(source)
    graph.remove(node, safe=True)
    return True


def take_over(source: ir.Value, output: ir.Value) -> None:
    """Replace `output` by `source` everywhere, under the name of `output`; its producer is to go."""
    name = output.name
    output.replace_all_uses_with(source, replace_graph_outputs=True)
    source.name = name
    if output.type is not None:
        source.type = output.type
    if output.shape is not None:
        source.shape = output.shape


def merge_into(node: ir.Node, follower: ir.Node) -> bool:
    """Remove `follower`, which is fused into `node`: the first output of `node` gets its output's name."""
    graph = follower.graph
    assert graph is not None
    take_over(node.outputs[0], follower.outputs[0])
    graph.remove(follower, safe=True)
    return True
