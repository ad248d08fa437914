"""A graph network trained here: a function's syntax tree with some nodes hidden -> what kind each of them is.

The functions are those of Python's library; no module is in two splits. Nodes are what `ast` has, with a
bucket for their name; edges lead from parent to child, from a node to the next of its siblings, from a name
to where it was used last, and back.
"""

from __future__ import annotations

import ast
import sysconfig
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from record import Counts, Feed, Outputs, by_name, per_feed, split_remainders
from trained import trained_model

CLASSES = (ast.mod, ast.stmt, ast.expr, ast.operator, ast.unaryop, ast.boolop, ast.cmpop)
OTHERS = ("arguments", "arg", "keyword", "alias", "withitem", "ExceptHandler", "comprehension")
SKIPPED = ("Load", "Store", "Del", "Num", "Str", "Bytes", "NameConstant", "Ellipsis", "Suite")
KINDS = (
    *sorted({kind.__name__ for base in CLASSES for kind in base.__subclasses__()} - set(SKIPPED)),
    *OTHERS,
)
HIDDEN = len(KINDS)  # stands for the kind of a hidden node
NAMES, RELATIONS = 1024, 6
SMALLEST, LARGEST, SHARE = 60, 400, 0.1  # nodes of a function; share of its nodes that is hidden
PARTS = split_remainders(14, 15, 17, 20)


@dataclass(frozen=True)
class Graph:
    """A function: kinds and names of nodes, int64 (nodes,); edges, int64 (3, edges): from, to, relation."""

    kinds: np.ndarray
    names: np.ndarray
    edges: np.ndarray


def _name(node: ast.AST) -> str:
    for field in ("id", "attr", "arg", "name"):
        value = getattr(node, field, None)
        if isinstance(value, str):
            return value
    return type(node.value).__name__ if isinstance(node, ast.Constant) else ""


def _graph(function: ast.AST) -> Graph | None:
    """Return the graph of a function; None if it is too small or too large."""
    nodes, edges, last = [function], [], dict[str, int]()
    for place, node in enumerate(nodes):  # grows while it is read
        if len(nodes) > LARGEST:
            return None
        text = _name(node)
        if text and text in last and not isinstance(node, ast.Constant):
            edges += [(last[text], place, 4), (place, last[text], 5)]
        last[text] = place
        children = [child for child in ast.iter_child_nodes(node) if type(child).__name__ in KINDS]
        first = len(nodes)
        nodes += children
        for child in range(first, len(nodes)):
            edges += [(place, child, 0), (child, place, 1)]
            if child > first:
                edges += [(child - 1, child, 2), (child, child - 1, 3)]
    if not SMALLEST <= len(nodes) <= LARGEST:
        return None
    texts = [_name(node) for node in nodes]
    names = [1 + zlib.crc32(text.encode()) % (NAMES - 1) if text else 0 for text in texts]
    kinds = [KINDS.index(type(node).__name__) for node in nodes]
    return Graph(np.array(kinds), np.array(names), np.array(edges).T)


@cache
def _graphs(part: str) -> tuple[Graph, ...]:
    """Return the functions of a split's modules."""
    root = Path(sysconfig.get_path("stdlib"))
    files = [file for top in ("*.py", "*/*.py", "*/*/*.py") for file in sorted(root.glob(top))]
    found = []
    for file in files:
        inside = file.relative_to(root).as_posix()
        if {"site-packages", "test", "tests", "lib2to3", "pydoc_data"} & set(inside.split("/")):
            continue
        if zlib.crc32(inside.encode()) % 20 not in PARTS[part]:
            continue
        tree = ast.parse(file.read_bytes())
        functions = [
            node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        ]
        found += [graph for function in functions if (graph := _graph(function)) is not None]
    return tuple(found)


def samples(
    rng: np.random.Generator, part: str, count: int
) -> Iterator[tuple[Graph, np.ndarray, np.ndarray]]:
    """Yield functions whose hidden nodes have no kind and no name; which nodes these are, and their kinds."""
    graphs = _graphs(part)
    order = rng.permutation(len(graphs))
    for place in range(count):
        graph = graphs[order[place % len(graphs)]]
        hidden = 1 + rng.permutation(len(graph.kinds) - 1)[: max(1, int(SHARE * len(graph.kinds)))]
        kinds, names = graph.kinds.copy(), graph.names.copy()
        kinds[hidden], names[hidden] = HIDDEN, 0
        # The edges of names would tell that a hidden node has one.
        shown = (graph.edges[2] < 4) | ~np.isin(graph.edges[:2], hidden).any(axis=0)
        yield Graph(kinds, names, graph.edges[:, shown]), hidden, graph.kinds[hidden]


def _pairs(seed: int, part: str, count: int) -> Iterator[tuple[Feed, list[list[int]]]]:
    for graph, hidden, kinds in samples(np.random.default_rng(seed), part, count):
        source, target, relation = graph.edges
        feed = {"kinds": graph.kinds, "names": graph.names, "source": source, "target": target}
        yield {**feed, "relation": relation}, [hidden.tolist(), kinds.tolist()]


@per_feed
def count(values: Outputs, label: Sequence[Sequence[int]]) -> Counts:
    """Hidden nodes of each function whose kind has the largest logit, of how many."""
    hidden, kinds = label
    return (values[0][hidden].argmax(axis=1) == kinds).sum(), len(kinds)


MODEL = trained_model(
    name="syntax-graph",
    data="Python's library",
    kind="graph network (GatedGCN)",
    task="400 functions of Python's library: share of the tree's hidden nodes whose kind is told right",
    samples=_pairs,
    splits=by_name(321, 48, 200, 400),
    count=count,
)
