"""In which layout onnxruntime keeps each tensor, and where it has to change it. Pure.

On x86-64 float convolutions compute in blocks of channels (NCHWc) and integer ones with the channels last
(NHWC); onnxruntime keeps these layouts over the operators that can work in them (`Operator.layout`), and
changes them before the others.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import dataclass

from ..operators.facts import ChannelLayout, KernelSizes
from ..operators.graph import Graph, Node
from .kernels import Sizes, work_of

PLAIN_CONVOLUTIONS = ("Conv:sequence", "Conv:grouped", "Conv:depthwise:unaligned")
"""Those of float that compute in the usual layout."""

SEVERAL_BLOCKS = (ChannelLayout.COMBINES_BLOCKS, ChannelLayout.JOINS_BLOCKS)
"""Of operators that keep blocks where all that they read is in blocks."""


@dataclass(frozen=True)
class Change:
    """A change of layout.

    Attributes:
        tensor: what is changed, once for all its readers that want it so.
        kernel: the operator that does it.
        reader: the first node that wants it, "" for the graph's output.
    """

    tensor: str
    kernel: str
    reader: str


@dataclass(frozen=True)
class Layouts:
    """The layouts of a model.

    Attributes:
        blocked: tensors in blocks of channels.
        last: tensors with the channels last.
        changes: where one becomes another.
        absorbed: names of Transpose nodes that undo a change of layout: neither is executed.
    """

    blocked: frozenset[str]
    last: frozenset[str]
    changes: tuple[Change, ...]
    absorbed: frozenset[str] = frozenset()


def layouts_of(
    graph: Graph, sizes: Sizes, quantized: Container[str], fused: Container[str], plain: Container[str] = ()
) -> Layouts:
    """Return the layouts of a model.

    Args:
        graph: the prepared model.
        sizes: the shapes of its tensors.
        quantized: names of the nodes that compute on integers.
        fused: names of the float nodes that are parts of others.
        plain: names of the nodes that are written so that they keep no blocks (`PLAIN_LAYOUT`).
    """
    blocked: set[str] = set()
    for node in graph.nodes:
        keeps = node.name not in plain and _keeps_blocks(node, sizes, blocked, quantized, fused)
        if keeps or makes_blocks(node, sizes, quantized):
            blocked.add(node.output)
    last = _channels_last(graph, quantized, blocked)
    changes = list(_changes(graph, sizes, quantized, (blocked, last)))
    undone = {change: nodes for change in changes if (nodes := _undone_by(change, graph))}
    return Layouts(
        frozenset(blocked),
        frozenset(last),
        tuple(change for change in changes if change not in undone),
        frozenset(name for nodes in undone.values() for name in nodes),
    )


def _undone_by(change: Change, graph: Graph) -> tuple[str, ...]:
    """Return the Transpose nodes that do the contrary of a change between NCHW and NHWC."""
    if change.kernel != "Layout":
        return ()
    maker = graph.producer(change.tensor)
    readers = [node for node, _ in graph.consumers(change.tensor)]
    if maker is not None and moves_channels(maker, first=True) and len(readers) == 1:
        return (maker.name,)
    if len(readers) == 1 and moves_channels(readers[0], first=False):
        return (readers[0].name,)
    return ()


def moves_channels(node: Node, *, first: bool) -> bool:
    """Whether a node is a Transpose from NHWC to NCHW (`first`), or back."""
    is_transpose = node.facts.kernel is KernelSizes.TRANSPOSE
    order = list(node.attributes.get_ints("perm", ()) or ()) if is_transpose else []
    rank = len(order)
    wanted = [0, rank - 1, *range(1, rank - 1)] if first else [0, *range(2, rank), 1]
    return rank > 2 and order == wanted


def _channels_last(graph: Graph, quantized: Container[str], blocked: Container[str]) -> set[str]:
    """Return the tensors with the channels last: from one integer convolution to another.

    Where none follows, onnxruntime changes the layout right after the convolution.
    """
    reached: set[str] = set()
    for node in graph.nodes:
        if is_channels_last(node, quantized) or (_is_open(node) and _reads(node, reached)):
            reached.update(name for name in node.outputs if name and name not in blocked)
    wanted: set[str] = set()
    for node in reversed(graph.nodes):
        if is_channels_last(node, quantized):
            wanted.add(node.input(0))
        elif _is_open(node) and any(name in wanted for name in node.outputs):
            wanted.update(node.inputs)
    return reached & wanted


def _is_open(node: Node) -> bool:
    """Whether a node works on channels in any place."""
    return node.facts.layout not in (ChannelLayout.CHANNELS_FIRST, ChannelLayout.CONVOLUTION)


def is_convolution(node: Node) -> bool:
    """Whether a node wants a layout of its own."""
    return node.facts.layout is ChannelLayout.CONVOLUTION


def is_channels_last(node: Node, quantized: Container[str]) -> bool:
    """Whether a node wants, and makes, the channels last."""
    return is_convolution(node) and node.name in quantized


def makes_blocks(node: Node, sizes: Sizes, quantized: Container[str]) -> bool:
    """Whether a node is a float convolution that computes in blocks."""
    if not is_convolution(node) or node.name in quantized or len(sizes.input(node, 1)) != 4:
        return False
    return work_of(node, sizes, integer=False).kernel not in PLAIN_CONVOLUTIONS


def _reads(node: Node, names: Container[str]) -> bool:
    return any(name in names for name in node.inputs if name)


def _keeps_blocks(
    node: Node, sizes: Sizes, blocked: set[str], quantized: Container[str], fused: Container[str]
) -> bool:
    if node.name in quantized or node.input(0) not in blocked:
        return False
    layout = node.facts.layout
    if node.name in fused or layout is ChannelLayout.KEEPS_BLOCKS:
        return True
    if layout not in SEVERAL_BLOCKS:
        return False
    alike = layout is ChannelLayout.JOINS_BLOCKS or len({sizes.shape(name) for name in node.inputs}) == 1
    return alike and all(name in blocked for name in node.inputs)


def _changes(
    graph: Graph, sizes: Sizes, quantized: Container[str], layouts: tuple[set[str], set[str]]
) -> Iterator[Change]:
    blocked, last = layouts
    for name in graph.values:
        if graph.is_constant(name) or len(sizes.shape(name)) < 3:
            continue
        readers = [node for node, _ in graph.consumers(name)]
        if name in blocked:
            rest = [n for n in readers if not _takes_blocks(n, name, sizes, blocked)]
            if rest or graph.is_result(name):
                yield Change(name, "ReorderOutput", rest[0].name if rest else "")
        else:
            wanting = [n for n in readers if _wants_blocks(n, name, sizes, quantized)]
            if wanting:
                yield Change(name, "ReorderInput", wanting[0].name)
        maker = graph.producer(name)
        made = maker is not None and (
            is_channels_last(maker, quantized) or (_is_open(maker) and _reads(maker, last))
        )
        wanting = [n for n in readers if is_channels_last(n, quantized) and n.input(0) == name]
        wanting += [n for n in readers if not is_channels_last(n, quantized) and n.output in last]
        others = [n for n in readers if n not in wanting]
        if (made and (others or graph.is_result(name))) or (wanting and not made):
            first = wanting if wanting and not made else others
            yield Change(name, "Layout", first[0].name if first else "")


def _takes_blocks(node: Node, name: str, sizes: Sizes, blocked: Container[str]) -> bool:
    """Whether a node reads a tensor in blocks as it is."""
    if node.output not in blocked or node.input(0) != name:
        return node.output in blocked and node.facts.layout in SEVERAL_BLOCKS
    return not is_convolution(node) or work_of(node, sizes, integer=False).kernel != "Conv:few"


def _wants_blocks(node: Node, name: str, sizes: Sizes, quantized: Container[str]) -> bool:
    """Whether a node reads a tensor in blocks; a convolution of few channels reads the usual layout."""
    if node.input(0) != name or not makes_blocks(node, sizes, quantized):
        return False
    return work_of(node, sizes, integer=False).kernel != "Conv:few"
