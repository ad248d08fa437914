"""The layout of each tensor in onnxruntime, and the changes of layout. Pure.

On x86-64 float convolutions compute in blocks of channels (NCHWc) and integer ones with the channels last
(NHWC); onnxruntime keeps these layouts over the operators that can work in them (`Operator.layout`), and
changes them before the others.
"""

from __future__ import annotations

from collections.abc import Collection, Container
from dataclasses import dataclass

from ..operators.facts import ChannelLayout, KernelSizes
from ..operators.graph import Graph, Node
from .kernels import Sizes

PLAIN_CONVOLUTIONS = ("Conv:sequence", "Conv:sequence:picture", "Conv:grouped", "Conv:depthwise:unaligned")
"""Those of float that compute in the usual layout."""

SEVERAL_BLOCKS = (ChannelLayout.COMBINES_BLOCKS, ChannelLayout.JOINS_BLOCKS)
"""Layout of operators that keep blocks if all inputs are in blocks."""


Change = tuple[str, str, str]
"""A change of layout: the tensor, changed once for all that want it so; the operator that does it; and the
first node that wants it, "" for the graph's output."""


@dataclass(frozen=True)
class Layouts:
    """The layouts of a model."""

    blocked: frozenset[str]  # tensors in blocks of channels
    last: frozenset[str]  # tensors with the channels last
    changes: tuple[Change, ...]
    # Transpose nodes that undo a change of layout: neither is executed
    absorbed: frozenset[str] = frozenset()
    # tensors that lead from integer convolutions, and to them
    reached: frozenset[str] = frozenset()
    wanted: frozenset[str] = frozenset()

    def changed(self, before: Layouts, graph: Graph) -> list[str]:
        """Return the nodes of a part around tensors with another layout, or that lead to another one."""
        tensors = (self.blocked ^ before.blocked) | (self.reached ^ before.reached)
        tensors |= self.wanted ^ before.wanted
        return [node.name for node in graph.nodes if not tensors.isdisjoint((*node.inputs, *node.outputs))]


UNKNOWN = Layouts(frozenset(), frozenset(), ())


def layouts_of(
    graph: Graph, sizes: Sizes, quantized: Container[str], fused: Container[str], before: Layouts = UNKNOWN
) -> Layouts:
    """Return the layouts of a prepared model; of a part of it, with those `before` around the part, and only
    its own changes."""
    float_kernels = {
        node.name: sizes.float_work(node).kernel
        for node in graph.nodes
        if is_convolution(node) and node.name not in quantized and len(sizes.input(node, 1)) == 4
    }
    block_convolutions = {name for name, kernel in float_kernels.items() if kernel not in PLAIN_CONVOLUTIONS}
    blocked = set(before.blocked.difference(*(node.outputs for node in graph.nodes)))
    for node in graph.nodes:
        keeps = (
            node.name not in quantized
            and node.input(0) in blocked
            and _keeps_blocks(node, sizes, blocked, fused)
        )
        if keeps or node.name in block_convolutions:
            blocked.add(node.output)
    reached, wanted = _channels_last(graph, quantized, blocked, before)
    last = reached & wanted
    near = _near_convolutions(graph, last) | blocked
    changes: list[Change] = []
    absorbed: list[str] = []
    for name in graph.values:
        if name not in near or graph.is_constant(name) or len(sizes.shape(name)) < 3:
            continue
        readers = [node for node, _ in graph.consumers(name)]
        # Between blocks of channels and the layout of the model, which a convolution of few channels reads.
        taking = [
            node
            for node in readers
            if node.name in block_convolutions
            and node.input(0) == name
            and float_kernels[node.name] != "Conv:few"
        ]
        if name in blocked:
            rest = [
                node for node in readers if node not in taking and not _passes_blocks(node, name, blocked)
            ]
            if rest or graph.is_result(name):
                changes.append((name, "ReorderOutput", rest[0].name if rest else ""))
        elif taking:
            changes.append((name, "ReorderInput", taking[0].name))
        # Between channels first and channels last.
        maker = graph.producer(name)
        is_last = maker is not None and (
            _is_integer_convolution(maker, quantized) or (_is_open(maker) and _reads_any(maker, last))
        )
        wanting = [n for n in readers if _is_integer_convolution(n, quantized) and n.input(0) == name]
        wanting += [n for n in readers if not _is_integer_convolution(n, quantized) and n.output in last]
        others = [n for n in readers if n not in wanting]
        if (is_last and (others or graph.is_result(name))) or (wanting and not is_last):
            undone_by = _undoing_transpose(maker, readers)
            if undone_by is not None:
                absorbed.append(undone_by.name)
                continue
            first = wanting if wanting and not is_last else others
            changes.append((name, "Layout", first[0].name if first else ""))
    sets = map(frozenset, (absorbed, reached, wanted))
    return Layouts(frozenset(blocked), frozenset(last), tuple(changes), *sets)


def is_convolution(node: Node) -> bool:
    """Whether a node wants a special layout."""
    return node.facts.layout is ChannelLayout.CONVOLUTION


def _is_integer_convolution(node: Node, quantized: Container[str]) -> bool:
    """Whether a node wants, and makes, the channels last."""
    return is_convolution(node) and node.name in quantized


def _is_open(node: Node) -> bool:
    """Whether a node works on channels in any place."""
    return node.facts.layout not in (ChannelLayout.CHANNELS_FIRST, ChannelLayout.CONVOLUTION)


def _reads_any(node: Node, names: Container[str]) -> bool:
    return any(name in names for name in node.inputs if name)


def _keeps_blocks(node: Node, sizes: Sizes, blocked: set[str], fused: Container[str]) -> bool:
    """Whether a float node that reads blocks makes blocks."""
    layout = node.facts.layout
    if node.name in fused or layout is ChannelLayout.KEEPS_BLOCKS:
        return True
    if layout not in SEVERAL_BLOCKS:
        return False
    alike = layout is ChannelLayout.JOINS_BLOCKS or len({sizes.shape(name) for name in node.inputs}) == 1
    return alike and all(name in blocked for name in node.inputs)


def _passes_blocks(node: Node, name: str, blocked: set[str]) -> bool:
    """Whether a node that is no convolution reads a tensor in blocks unchanged."""
    if node.output not in blocked:
        return False
    if node.input(0) != name:
        return node.facts.layout in SEVERAL_BLOCKS
    return not is_convolution(node)


def _channels_last(
    graph: Graph, quantized: Container[str], blocked: Container[str], before: Layouts
) -> tuple[set[str], set[str]]:
    """Return the tensors that lead from integer convolutions, and to some: both are channels last."""
    if before is UNKNOWN and not any(_is_integer_convolution(node, quantized) for node in graph.nodes):
        return set(), set()
    reached = set(before.reached.difference(*(node.outputs for node in graph.nodes)))
    for node in graph.nodes:
        if _is_integer_convolution(node, quantized) or (_is_open(node) and _reads_any(node, reached)):
            reached.update(name for name in node.outputs if name and name not in blocked)
    inside = {node.name for node in graph.nodes}
    activations = (name for name in graph.values if not graph.is_constant(name))
    beyond = {r for name in activations for r, _ in graph.consumers(name) if r.name not in inside}
    wanted = set(before.wanted.difference(graph.values))
    for node in (*beyond, *reversed(graph.nodes)):
        known = before.wanted if node in beyond else wanted
        if _is_integer_convolution(node, quantized):
            wanted.add(node.input(0))
        elif _is_open(node) and any(name in known for name in node.outputs):
            wanted.update(name for name in node.inputs if name and not graph.is_constant(name))
    return reached, wanted


def _near_convolutions(graph: Graph, last: Collection[str]) -> set[str]:
    """Return the tensors around convolutions, and beside tensors with the channels last."""
    near: set[str] = set()
    for node in graph.nodes:
        if is_convolution(node) or _reads_any(node, last) or node.output in last:
            near.update(node.inputs, node.outputs)
    if last:  # a node may read others inside of graphs that are its attributes
        near.update(n for n in graph.values if any(position < 0 for _, position in graph.consumers(n)))
    return near


def _undoing_transpose(maker: Node | None, readers: list[Node]) -> Node | None:
    """Return the Transpose beside a tensor that does the contrary of its change between NCHW and NHWC."""
    if len(readers) != 1:
        return None
    for node, is_to_first in ((maker, True), (readers[0], False)):
        if node is None or node.facts.kernel is not KernelSizes.TRANSPOSE:
            continue
        order = list(node.attributes.get_ints("perm", ()) or ())
        rank = len(order)
        contrary = [0, rank - 1, *range(1, rank - 1)] if is_to_first else [0, *range(2, rank), 1]
        if rank > 2 and order == contrary:
            return node

    return None
