"""In which layout onnxruntime keeps each tensor, and where it has to change it. Pure.

On x86-64 float convolutions compute in blocks of channels (NCHWc) and integer ones with the channels last
(NHWC); onnxruntime keeps these layouts over the operators that can work in them, and changes them before the
others. Which these are was seen in the graphs that onnxruntime 1.31 executes: a float operator between two
convolutions has its reorders or has none, an integer one likewise.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import dataclass

import onnx_ir as ir

from ..model.graph import Graph, input_name, name_of, output_name
from .kernels import Sizes, work_of

PLAIN_CONVOLUTIONS = ("Conv:sequence", "Conv:grouped", "Conv:depthwise:unaligned")
"""Those of float that compute in the usual layout."""

POOLS = ("MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool")
KEEP_BLOCKS = (*POOLS, "Relu", "Sigmoid", "Tanh", "HardSigmoid", "HardSwish", "Gelu", "Identity", "Resize")
JOIN_BLOCKS = ("Add", "Mul", "Concat", "Sum")
"""These keep blocks where all that they read is in blocks, and of one shape or joined along the channels."""

NEED_CHANNELS_FIRST = (
    *("Reshape", "Flatten", "MatMul", "Gemm", "DepthToSpace", "SpaceToDepth", "ConvTranspose"),
    *("InstanceNormalization", "LayerNormalization", "BatchNormalization", "LSTM", "GRU", "RNN", "PRelu"),
    *("Einsum", "ScatterND", "GatherND", "Gather", "TopK", "GridSample"),
)
"""The others work on channels in any place, once their attributes are changed."""


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


def layouts_of(graph: Graph, sizes: Sizes, quantized: Container[str], fused: Container[str]) -> Layouts:
    """Return the layouts of a model.

    Args:
        graph: the prepared model.
        sizes: the shapes of its tensors.
        quantized: names of the nodes that compute on integers.
        fused: names of the float nodes that are parts of others.
    """
    blocked: set[str] = set()
    for node in graph.nodes:
        if makes_blocks(node, sizes, quantized) or _keeps_blocks(node, sizes, blocked, quantized, fused):
            blocked.add(output_name(node))
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
        return (name_of(maker),)
    if len(readers) == 1 and moves_channels(readers[0], first=False):
        return (name_of(readers[0]),)
    return ()


def moves_channels(node: ir.Node, *, first: bool) -> bool:
    """Whether a node is a Transpose from NHWC to NCHW (`first`), or back."""
    order = list(node.attributes.get_ints("perm", ()) or ()) if node.op_type == "Transpose" else []
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
            reached.update(value.name for value in node.outputs if value.name not in blocked and value.name)
    wanted: set[str] = set()
    for node in reversed(graph.nodes):
        if is_channels_last(node, quantized):
            wanted.add(input_name(node, 0))
        elif _is_open(node) and any(value.name in wanted for value in node.outputs):
            wanted.update(name_of(value) for value in node.inputs)
    return reached & wanted


def _is_open(node: ir.Node) -> bool:
    """Whether a node works on channels in any place."""
    return node.op_type not in NEED_CHANNELS_FIRST and node.op_type not in ("Conv", "Shape")


def is_channels_last(node: ir.Node, quantized: Container[str]) -> bool:
    """Whether a node wants, and makes, the channels last."""
    return node.op_type == "Conv" and name_of(node) in quantized


def makes_blocks(node: ir.Node, sizes: Sizes, quantized: Container[str]) -> bool:
    """Whether a node is a float convolution that computes in blocks."""
    if node.op_type != "Conv" or name_of(node) in quantized or len(sizes.input(node, 1)) != 4:
        return False
    return work_of(node, sizes, integer=False).kernel not in PLAIN_CONVOLUTIONS


def _reads(node: ir.Node, names: Container[str]) -> bool:
    return any(value is not None and value.name in names for value in node.inputs)


def _keeps_blocks(
    node: ir.Node, sizes: Sizes, blocked: set[str], quantized: Container[str], fused: Container[str]
) -> bool:
    if name_of(node) in quantized or input_name(node, 0) not in blocked:
        return False
    if name_of(node) in fused or node.op_type in KEEP_BLOCKS:
        return True
    if node.op_type not in JOIN_BLOCKS:
        return False
    names = [name_of(value) for value in node.inputs]
    alike = node.op_type == "Concat" or len({sizes.shape(name) for name in names}) == 1
    return alike and all(name in blocked for name in names)


def _changes(
    graph: Graph, sizes: Sizes, quantized: Container[str], layouts: tuple[set[str], set[str]]
) -> Iterator[Change]:
    blocked, last = layouts
    for name in graph.values:
        if graph.is_constant(name) or len(sizes.shape(name)) < 3:
            continue
        readers = [node for node, _ in graph.consumers(name)]
        if name in blocked:
            rest = [n for n in readers if output_name(n) not in blocked]
            if rest or graph.is_result(name):
                yield Change(name, "ReorderOutput", name_of(rest[0]) if rest else "")
        else:
            wanting = [n for n in readers if _wants_blocks(n, name, sizes, quantized)]
            if wanting:
                yield Change(name, "ReorderInput", name_of(wanting[0]))
        maker = graph.producer(name)
        made = maker is not None and (
            is_channels_last(maker, quantized) or (_is_open(maker) and _reads(maker, last))
        )
        wanting = [n for n in readers if is_channels_last(n, quantized) and input_name(n, 0) == name]
        wanting += [n for n in readers if not is_channels_last(n, quantized) and output_name(n) in last]
        others = [n for n in readers if n not in wanting]
        if (made and (others or graph.is_result(name))) or (wanting and not made):
            first = wanting if wanting and not made else others
            yield Change(name, "Layout", name_of(first[0]) if first else "")


def _wants_blocks(node: ir.Node, name: str, sizes: Sizes, quantized: Container[str]) -> bool:
    """Whether a node reads a tensor in blocks; a convolution of few channels reads the usual layout."""
    if input_name(node, 0) != name or not makes_blocks(node, sizes, quantized):
        return False
    return work_of(node, sizes, integer=False).kernel != "Conv:few"
