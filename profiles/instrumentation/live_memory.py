"""How much memory the tensors of a graph take while it runs, from their sizes alone."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from .subgraphs import graph_attributes


@dataclass(frozen=True, eq=False)
class LiveMemory:
    """The bytes of tensors at each node of the main graph where nothing is an output, and their ends.

    What a kernel takes for itself, or saves by writing over its input, is not in it, nor are graph inputs.
    """

    steps: npt.NDArray[np.int64]
    sizes: Mapping[str, int]
    ends: Mapping[str, int]

    def with_outputs(self, outputs: Collection[str]) -> npt.NDArray[np.int64]:
        """Return the bytes at each step of a run with these outputs."""
        steps = self.steps.copy()
        for name in set(outputs) & self.sizes.keys():
            steps[self.ends[name] + 1 :] += self.sizes[name]
        return steps

    def peak(self, outputs: Collection[str] = ()) -> int:
        """Return the most bytes at any step of a run with these outputs."""
        return int(self.with_outputs(outputs).max(initial=0))


def live_memory(model: ir.Model, sizes: Mapping[str, int]) -> LiveMemory:
    """Return the memory of tensors of these sizes, in bytes, while nodes run in the graph's order."""
    nodes = list(model.graph)
    numbers = {id(node): number for number, node in enumerate(nodes)}
    steps = np.zeros(len(nodes), np.int64)
    known_sizes, ends = {}, {}
    for number, node in enumerate(nodes):
        for value in node.outputs:
            if value.name not in sizes:
                continue
            # A node of a subgraph is not among the nodes here: what it reads stays to the end.
            readers = [
                numbers.get(id(user), len(nodes) - 1) for user, _ in value.uses() if not _unread(user, sizes)
            ]
            name = str(value.name)
            known_sizes[name], ends[name] = sizes[name], max(readers, default=number)
            steps[number : ends[name] + 1] += sizes[name]
    return LiveMemory(steps, known_sizes, ends)


def _unread(node: ir.Node, sizes: Mapping[str, int]) -> bool:
    """Whether a node only reorders blocks of channels for an output that is read in blocks: it is not run."""
    result = node.outputs[0]
    return node.op_type == "ReorderOutput" and not result.uses() and result.name not in sizes


def order_by_need(graph: ir.Graph) -> None:
    """Order nodes so that the newest tensors are read first; onnxruntime's order differs from run to run."""
    nodes = list(graph)
    numbers = {id(node): number for number, node in enumerate(nodes)}
    readers: list[list[int]] = [[] for _ in nodes]
    missing = [0] * len(nodes)
    for number, node in enumerate(nodes):
        makers = {id(value.producer()) for value in _read(node)} & numbers.keys()
        missing[number] = len(makers)
        for maker in makers:
            readers[numbers[maker]].append(number)
    ready = [number for number, count in enumerate(missing) if not count][::-1]
    order = []
    while ready:
        number = ready.pop()
        order.append(nodes[number])
        for reader in sorted(readers[number], key=lambda other: str(nodes[other].outputs[0].name)):
            missing[reader] -= 1
            if not missing[reader]:
                ready.append(reader)
    graph.remove(nodes)
    graph.extend(order)


def _read(node: ir.Node) -> Iterator[ir.Value]:
    """Yield the values that a node reads, those of its subgraphs included."""
    yield from filter(None, node.inputs)
    for graph in graph_attributes(node):
        for inner in graph:
            yield from _read(inner)
