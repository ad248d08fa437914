"""Ways through a graph on which values stay what they are: moved, joined, clipped, or resized. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import onnx_ir as ir

from ..model.graph import Graph, input_name, name_of
from ..operators.table import PRODUCTS, Constraint, is_clip, rule_of

SELECTING = ("ReduceMax", "ReduceMin", "MaxPool", "GlobalMaxPool", "TopK", "Compress")
"""Operators that keep values and choose which by the values themselves."""


def moves_values(node: ir.Node) -> bool:
    """Whether the first output holds values of the first input as they are, at places fixed beforehand."""
    rule = rule_of(node)
    if node.op_type in ("Identity", "Dropout", "Cast"):
        return True
    return rule is not None and rule.constraint is Constraint.SAME and node.op_type not in SELECTING


def maker_of(graph: Graph, name: str) -> ir.Node | None:
    """Return the node that computes the values of a tensor, before what only moves or clips them."""
    node = graph.producer(name)
    while node is not None and (moves_values(node) or is_clip(node)):
        node = graph.producer(input_name(node, 0))
    return node


def before_move(graph: Graph, name: str) -> str | None:
    """Return the one activation that a tensor is made of place by place: moved, clipped, or each value by
    itself with constants; None where it is computed from several or otherwise."""
    node = graph.producer(name)
    rule = None if node is None else rule_of(node)
    if node is None or not (moves_values(node) or (rule is not None and (rule.unary or rule.elementwise))):
        return None
    names = {n for n in graph.inputs_of(node) if n and not graph.is_constant(n) and graph.is_float(n)}
    return names.pop() if len(names) == 1 else None


def parts_of(graph: Graph, name: str) -> tuple[str, ...]:
    """Return the tensors that a tensor is put together from by Concat, in its order; itself where it is
    not."""
    found: dict[str, None] = {}
    waiting, seen = [name], set()
    while waiting:
        part = waiting.pop(0)
        if part in seen:
            continue
        seen.add(part)
        node = graph.producer(part)
        if node is not None and node.op_type == "Concat":
            waiting = [*(n for n in graph.inputs_of(node) if n), *waiting]
        elif node is not None and moves_values(node):
            waiting = [input_name(node, 0), *waiting]
        else:
            found[part] = None
    return tuple(found)


def upstream(graph: Graph, names: Iterable[str]) -> Iterator[ir.Node]:
    """Yield the nodes that tensors depend on, each once, the nearest first."""
    waiting, seen = list(names), set()
    while waiting:
        node = graph.values[waiting[0]].producer() if waiting[0] in graph.values else None
        del waiting[0]
        if node is not None and node not in seen:
            seen.add(node)
            yield node
            waiting += [name for name in graph.inputs_of(node) if name]


def nearest_product(graph: Graph, name: str) -> ir.Node | None:
    """Return the convolution or matrix product that is nearest before a tensor, None where none is."""
    return next((node for node in upstream(graph, [name]) if node.op_type in PRODUCTS), None)


def downstream(graph: Graph, names: Iterable[str]) -> Iterator[tuple[ir.Node, int]]:
    """Yield the uses of tensors and of what is made of them, each once, the nearest first."""
    waiting, seen = list(names), set()
    while waiting:
        for node, index in graph.consumers(waiting.pop(0)):
            if (node, index) not in seen:
                seen.add((node, index))
                yield node, index
                waiting += [name_of(value) for value in node.outputs if value.name]
