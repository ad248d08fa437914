"""Paths through a graph: those that only move, join or clip values, and all others. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ..model.graph import subgraphs
from ..operators.facts import Values
from ..operators.graph import Graph, Node
from ..operators.table import PRODUCTS, Constraint, is_clip


def maker_of(graph: Graph, name: str) -> Node | None:
    """Return the node that computes the values of a tensor, before nodes that only move or clip them."""
    node = graph.producer(name)
    while node is not None and (node.facts.moves_values or is_clip(node)):
        node = graph.producer(node.input(0))
    return node


def holds_values(node: Node, index: int) -> bool:
    """Whether a node's results consist of values of one input: moved, chosen, clipped or joined."""
    rule, facts = node.rule, node.facts
    if index < 0 or facts.picks_by_condition:
        return index > 0
    if facts.joins_inputs:
        return True
    if rule is not None and rule.constraint is Constraint.ALL_SAME:
        return index in rule.activations(node)
    return index == 0 and (facts.moves_values or facts.values is Values.CHOSEN or is_clip(node))


def before_move(graph: Graph, name: str) -> str | None:
    """Return the one activation that a tensor is made of, place by place: moved, clipped, computed."""
    node = graph.producer(name)
    rule = None if node is None else node.rule
    by_itself = rule is not None and (rule.unary or rule.elementwise)
    if node is None or not (node.facts.moves_values or by_itself):
        return None
    names = {n for n in node.inputs if n and not graph.is_constant(n) and graph.is_float(n)}
    return names.pop() if len(names) == 1 else None


def parts_of(graph: Graph, name: str) -> tuple[str, ...]:
    """Return the tensors that a tensor is joined of: by Concat, or of branches; else the tensor itself."""
    parts: dict[str, None] = {}
    waiting, visited = [name], set()
    while waiting:
        part = waiting.pop(0)
        if part in visited:
            continue
        visited.add(part)
        node = graph.producer(part)
        if node is not None and node.facts.joins_inputs:
            waiting = [*(n for n in node.inputs if n), *waiting]
        elif node is not None and node.facts.moves_values:
            waiting = [node.input(0), *waiting]
        elif node is not None and (bodies := subgraphs(node.ir_node)):
            at = node.outputs.index(part) - len(node.outputs)  # a Loop's body has its condition in front
            waiting = [*(str(body.outputs[at].name) for body in bodies), *waiting]
        else:
            parts[part] = None
    return tuple(parts)


def upstream(graph: Graph, names: Iterable[str]) -> Iterator[Node]:
    """Yield the nodes that tensors depend on, each once, the nearest first."""
    waiting, visited = list(names), set()
    while waiting:
        node = graph.producer(waiting.pop(0))
        if node is not None and node not in visited:
            visited.add(node)
            yield node
            waiting += [name for name in node.inputs if name]


def nearest_product(graph: Graph, name: str) -> Node | None:
    """Return the nearest convolution or matrix product before a tensor, or None."""
    return next((node for node in upstream(graph, [name]) if node.op_type in PRODUCTS), None)


def downstream(graph: Graph, names: Iterable[str]) -> Iterator[tuple[Node, int]]:
    """Yield the uses of tensors and of their results, each once, the nearest first."""
    waiting, visited = list(names), set()
    while waiting:
        for node, index in graph.consumers(waiting.pop(0)):
            if (node, index) not in visited:
                visited.add((node, index))
                yield node, index
                waiting += [name for name in node.outputs if name]
