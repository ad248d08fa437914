"""The caches of a decoder in standard operators: a Concat appends new values to an input of the model, and
its result is an output. They are found by structure; names decide nothing.

    past_key_values.0.key ─┐
                           ├─► Concat along steps ─► present.0.key, and what reads all keys
                new keys ──┘

Decoders exported by optimum have this form. If it merged two of them into one, the Concat is in a branch of
an If, and the other branch only gives new keys. Keys and values of an encoder, to which nothing is appended,
stay float.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from ...model.graph import subgraphs
from ...operators.graph import Graph, Node


@dataclass(frozen=True, eq=False)
class ConcatCache:
    """Keys, or values, that go from step to step through an input and an output of the model."""

    past: str  # the input
    present: str  # the output
    growth: int  # axis along which it grows, from the end
    appends: tuple[Node, ...]  # Concat nodes that append to it, one in each branch
    sources: tuple[str, ...]  # whose values it holds: what is appended, the whole without a past, the input

    @property
    def channels(self) -> int:
        """The axis of the elements of a head, from the end: the last that does not grow."""
        return -2 if self.growth == -1 else -1


class _Ends:
    """The values that become an output of the model, straight or through branches of an If."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self.outputs: dict[str, str] = {}
        for name in graph.outputs:
            self._add(name, name)

    def _add(self, value: str, output: str) -> None:
        self.outputs[value] = output
        maker = self._graph.producer(value)
        if maker is None or maker.op_type != "If" or maker.domain:
            return
        for branch in subgraphs(maker.ir_node):
            self._add(str(branch.outputs[maker.outputs.index(value)].name), output)

    def of(self, output: str) -> Iterator[str]:
        """Yield the values of an output that no If returns, one for each path of branches, without constants.
        A constant stands for an output that a branch lacks."""
        for value, end in self.outputs.items():
            maker = self._graph.producer(value)
            is_given = maker is not None and maker.op_type == "If" and not maker.domain
            inputs = (value,) if maker is None else maker.inputs
            if end == output and not is_given and not all(map(self._graph.is_constant, inputs)):
                yield value


def concat_caches(graph: Graph) -> tuple[ConcatCache, ...]:
    """Return the caches of a model in float32, in the order of the nodes that append."""
    ends = _Ends(graph)
    appends: dict[tuple[str, str], list[Node]] = {}
    for node in graph.nodes:
        past = _grown_input(node, graph)
        if past and node.output in ends.outputs:
            appends.setdefault((past, ends.outputs[node.output]), []).append(node)
    caches = []
    for (past, present), nodes in appends.items():
        rank = len(graph.shape(past) or ())
        made = {node.output for node in nodes}
        new = [name for node in nodes for name in node.inputs if name != past]
        whole = [name for name in ends.of(present) if name not in made]
        growth = _axis(nodes[0], rank) - rank
        sources = tuple(dict.fromkeys([*new, *whole, past]))
        caches.append(ConcatCache(past, present, growth, tuple(nodes), sources))
    return tuple(caches)


def _grown_input(node: Node, graph: Graph) -> str:
    """Return the float32 model input that a node appends to along an axis of any size, or ""."""
    if node.op_type != "Concat" or node.domain or len(node.inputs) < 2:
        return ""
    past = node.inputs[0]
    shape = graph.shape(past)
    if past not in graph.inputs or graph.dtype(past) is not ir.DataType.FLOAT or not shape:
        return ""
    is_whole = node.inputs.count(past) == 1 and shape[_axis(node, len(shape))] is None
    return past if is_whole else ""


def _axis(node: Node, rank: int) -> int:
    return node.attributes.get_int("axis", 0) % rank


# What reads them ------------------------------------------------------------------------------------------


CacheProduct = tuple[Node, bool, tuple[Node, ...]]
"""A MatMul whose second input is a cache; whether it sums over the steps of the cache, as of values, not over
the elements of a head; the nodes that move the cache before it is read."""


def cache_product(graph: Graph, node: Node, position: int, growth: int) -> CacheProduct | None:
    """Return the MatMul whose second input is a cache at `position` of the node, or None for other readers.

    The path may have Transpose, and heads repeated by Unsqueeze, Expand and Reshape. `growth` is the axis
    along which the cache grows, from the end: -1 or -2.
    """
    shape = graph.shape(node.input(position))
    if shape is None or len(shape) < 2 or growth not in (-1, -2):
        return None
    rank, elements, name, between = len(shape), shape[-3 - growth], node.input(position), list[Node]()
    while node.op_type != "MatMul":
        if node.op_type == "Transpose":
            order = list(node.attributes.get_ints("perm", ()))
            if {*order[-2:]} != {rank - 2, rank - 1}:
                return None
            growth = order.index(rank + growth) - rank
        elif node.op_type == "Unsqueeze" and growth == -2:
            for following in ("Expand", "Reshape"):
                reader = graph.only_reader(node.output)
                if reader is None or reader.op_type != following or reader.input(0) != node.output:
                    return None
                between.append(node)
                node = reader
            repeated = graph.shape(node.output)
            if repeated is None or len(repeated) != rank or repeated[-1] != elements:
                return None
        else:
            return None
        following_node, name = graph.only_reader(node.output), node.output
        if following_node is None:
            return None
        between.append(node)
        node = following_node
    is_second = node.input(1) == name and node.input(0) != name
    if not is_second or graph.is_result(node.output):
        return None
    return node, growth == -2, tuple(between)


# Keys that positions turn -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Turning:
    """How positions turn pairs of elements of keys by any angle: both become as large as the pair is long."""

    size: int  # how many elements, the first of each head, are turned
    interleaved: bool = False  # whether neighbours are a pair; else the first half with the second
    source: str = ""  # the tensor that is turned; "" if it has more elements, or is not known

    def envelope(self, magnitudes: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Return the largest magnitude that each element (last axis) may have, given those that were seen."""
        found = np.array(magnitudes, np.float64)
        turned = found[..., : self.size]
        first, second = turned[..., 0::2], turned[..., 1::2]
        if not self.interleaved:
            first, second = np.split(turned, 2, axis=-1)
        first[...] = second[...] = np.hypot(first, second)
        return found


def turning_of(graph: Graph, name: str, elements: int) -> Turning | None:
    """Return how positions have turned new keys (elements of a head last), or None if not, or not known.

    Known are RotaryEmbedding, and x * cos + concat(-second half, first half) * sin, also written by halves
    and with elements beside it that are not turned. `elements` counts those of a head.
    """
    node = graph.producer(name)
    if node is None:
        return None
    if node.op_type == "RotaryEmbedding":
        size = node.attributes.get_int("rotary_embedding_dim", 0) or elements
        return Turning(size, bool(node.attributes.get_int("interleaved", 0)), node.input(0))
    if node.op_type == "Concat":
        if [_operator(graph, part) for part in node.inputs] == ["Sub", "Add"]:
            return Turning(elements)  # of halves: a * cos - b * sin, b * cos + a * sin
        shape = graph.shape(node.inputs[0])
        turned_size = shape[-1] if shape else None
        turning = None if turned_size is None else turning_of(graph, node.inputs[0], turned_size)
        return None if turning is None else replace(turning, source="")
    if node.op_type != "Add" or elements % 2:
        return None
    for product in map(graph.producer, node.inputs):
        for tensor in () if product is None or product.op_type != "Mul" else product.inputs:
            turned = graph.producer(tensor)
            parts = () if turned is None or turned.op_type != "Concat" else turned.inputs
            if [_operator(graph, part) == "Neg" for part in parts] == [True, False]:
                half = graph.producer(parts[1])
                return Turning(elements, source="" if half is None else half.input(0))
    return None


def _operator(graph: Graph, name: str) -> str:
    maker = graph.producer(name)
    return "" if maker is None else maker.op_type
