"""The cheapest assignment of the nodes of a graph to two sides: a minimum cut. Pure.

Each node has a cost on either side, and an edge costs when its ends are on different sides. Goldschmidt and
Hochbaum, and Boykov and Kolmogorov, describe the reduction; the flow is that of Dinic's algorithm (1970).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass, field
from itertools import pairwise

Node = Hashable
SOURCE, SINK = ("source",), ("sink",)
NEVER = float("inf")
GRAIN = 1e-9
"""Capacities below this count as used up: sums of float64 costs leave such remainders."""


@dataclass
class Network:
    """Capacities of directed edges; `edge` adds to them."""

    _left: dict[Node, dict[Node, float]] = field(default_factory=dict)

    def edge(self, start: Node, end: Node, capacity: float) -> None:
        """Charge `capacity` when `start` is on the side of SOURCE and `end` on that of SINK."""
        forward, backward = self._left.setdefault(start, {}), self._left.setdefault(end, {})
        forward[end] = forward.get(end, 0.0) + capacity
        backward.setdefault(start, 0.0)

    def source_side(self) -> set[Node]:
        """Return the nodes on the side of SOURCE in the minimum cut with the most nodes there."""
        left = {node: dict(ends) for node, ends in self._left.items()}
        while SINK in (level := _levels(left)):
            edges = {node: list(ends) for node, ends in left.items()}
            while _push(left, level, edges):
                pass
        return left.keys() - _reaching_sink(left)


def _levels(left: dict[Node, dict[Node, float]]) -> dict[Node, int]:
    """Return the distance of each node that can still be reached from the source."""
    levels: dict[Node, int] = {SOURCE: 0}
    waiting: deque[Node] = deque([SOURCE])
    while waiting:
        node = waiting.popleft()
        for end, capacity in left.get(node, {}).items():
            if capacity > GRAIN and end not in levels:
                levels[end] = levels[node] + 1
                waiting.append(end)
    return levels


def _reaching_sink(left: dict[Node, dict[Node, float]]) -> set[Node]:
    """Return the nodes from which more could flow to the sink, the sink included."""
    reaching: set[Node] = {SINK}
    waiting: deque[Node] = deque([SINK])
    while waiting:
        node = waiting.popleft()
        for start in left.get(node, {}):  # each edge has its reverse here
            if left[start][node] > GRAIN and start not in reaching:
                reaching.add(start)
                waiting.append(start)
    return reaching


def _push(left: dict[Node, dict[Node, float]], level: dict[Node, int], edges: dict[Node, list[Node]]) -> bool:
    """Send flow along one shortest path; False when there is none left. Dead ends leave `edges`."""
    path: list[Node] = [SOURCE]
    while path and path[-1] != SINK:
        node = path[-1]
        while edges[node]:
            end = edges[node][-1]
            if left[node][end] > GRAIN and level.get(end) == level[node] + 1:
                path.append(end)
                break
            edges[node].pop()
        else:
            path.pop()
            if path:
                edges[path[-1]].pop()
    if not path:
        return False
    steps = list(pairwise(path))
    amount = min(left[a][b] for a, b in steps)
    for a, b in steps:
        left[a][b] -= amount
        left[b][a] += amount
    return True
