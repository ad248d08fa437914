"""Where the equalization scales of an activation's channels can go: constants upstream, weights downstream.

Upstream every operator of a path must be linear or positively homogeneous in each channel (Nagel et al.,
"Data-Free Quantization Through Weight Equalization and Bias Correction", 2019, section 4.1): f(s x) = s f(x)
for s > 0. No other node may read tensors on the path. The operator table lists these operators, and how each
passes the scales of its output to its inputs (`Rule.scaling`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ..operators.graph import Graph, Node, Use, in_main_graph
from ..operators.table import OPERAND_SCALING, ChannelScaling, Constraint, channel_layout, product_layout
from ..operators.weight_layout import Kernel, WeightLayout


@dataclass(frozen=True, eq=False)
class ScalableConstant:
    """A constant that takes equalization scales."""

    node: Node
    index: int
    shape: tuple[int, ...]  # shape that the vector of scales gets to be multiplied with the constant
    divide: bool = True  # whether the constant is divided by the scales, as the activation is


@dataclass(frozen=True, eq=False)
class EqualizationPath:
    """The nodes and constants that divide the channels of an activation."""

    constants: tuple[ScalableConstant, ...]  # those that take the scales
    # Activations between them and the activation, nearest first; True if cutting one off at the range of its
    # reader's result changes nothing.
    tensors: tuple[tuple[str, bool], ...] = ()

    def continued(self, name: str, reader: Node) -> EqualizationPath:
        """Return the path of the output of `reader`, this being the path of its input."""
        rule = reader.rule
        keeps = rule is not None and rule.constraint in (Constraint.SAME, Constraint.CLAMP)
        return EqualizationPath(self.constants, ((name, keeps), *self.tensors))


def absorbs_scales(graph: Graph, use: Use, axis: int) -> bool:
    """Whether a reader can multiply its constant weight by the scales of the channels that it reads."""
    node, index = use
    layout = channel_layout(node)
    if layout is None or layout.data_axis is None or index != 0:
        return False
    rank = _rank(graph, node.input(0))
    if rank is None:
        return False
    weight = graph.constant(node.input(layout.index))
    if weight is None or weight.dtype != np.float32 or layout.reads_transposed(node):
        return False
    return axis == layout.data_axis % rank


@dataclass(frozen=True, eq=False)
class _Output:
    """The output of a node of the main graph, with its rank and the axis and size of its channels."""

    graph: Graph
    node: Node
    axis: int
    size: int
    rank: int


def find_path(graph: Graph, name: str, axis: int, size: int) -> EqualizationPath | None:
    """Return the path that divides an activation's channels, or None; the caller checks its readers."""
    node, rank = _maker(graph, name), _rank(graph, name)
    rule = None if node is None else node.rule
    if node is None or rule is None or rank is None or any(node.outputs[1:]):
        return None
    output = _Output(graph, node, axis, size, rank)
    if rule.weight is not None:
        return _through_weight(output, rule.weight)
    match rule.scaling:
        case ChannelScaling.ELEMENTS:  # positively homogeneous in every element
            return _through_input(output, 0, axis)
        case ChannelScaling.POOLED:  # homogeneous in each channel of axis 1
            return _through_input(output, 0, axis) if axis == 1 else None
        case ChannelScaling.PERMUTED:
            return _through_input(output, 0, _permutation(node, rank)[axis])
        case ChannelScaling.EITHER_OPERAND:  # a factor: a constant rather than an activation
            constant = [graph.is_constant(node.input(index)) for index in (0, 1)]
            order = (1, 0) if constant[1] and not constant[0] else (0, 1)
            paths = (_through_operand(output, index) for index in order)
            return next((path for path in paths if path is not None), None)
        case ChannelScaling.QUOTIENT:  # the dividend, or the constant divisor, which is multiplied instead
            dividend = _through_operand(output, 0)
            if dividend is not None:
                return dividend
            divisor = _scalable_operand(output, 1)
            return None if divisor is None else EqualizationPath((replace(divisor, divide=False),))
        case ChannelScaling.BOTH_OPERANDS:  # the terms of a sum
            first, second = (_through_operand(output, index) for index in (0, 1))
            if first is None or second is None:
                return None
            return EqualizationPath(first.constants + second.constants, first.tensors + second.tensors)
        case ChannelScaling.MERGED:
            return _through_attention(output)
        case _:
            return None


def _through_weight(output: _Output, layout: WeightLayout) -> EqualizationPath | None:
    """Return the weight and the bias of a product, or the scale and bias of a normalisation."""
    graph, node, axis, size = output.graph, output.node, layout.result_axis, output.size
    if axis is None or output.axis != axis % output.rank:
        return None
    constants = []
    if not layout.is_product:  # scale and bias are vectors of the channels
        for index in (layout.index, layout.bias):
            if index is None or not node.input(index):
                continue
            vector = node.constant(index)
            if vector is None or vector.shape != (size,) or vector.dtype != np.float32:
                return None
            constants.append(ScalableConstant(node, index, (size,)))
        return EqualizationPath(tuple(constants))
    weight = graph.constant(node.input(layout.index))
    along = None if weight is None else layout.axis(node, weight.ndim)
    if weight is None or weight.dtype != np.float32 or along is None:
        return None
    shape = tuple(size if i == along else 1 for i in range(weight.ndim))
    constants.append(ScalableConstant(node, layout.index, shape))
    if layout.bias is not None and node.input(layout.bias):
        bias = graph.constant(node.input(layout.bias))
        if bias is None or (bias.ndim > 1 and bias.shape[0] != 1):
            return None
        constants.append(ScalableConstant(node, layout.bias, (size,)))
    return EqualizationPath(tuple(constants))


def _through_input(output: _Output, index: int, axis: int) -> EqualizationPath | None:
    """Return the path through an input that nobody else reads and whose channels are those of the output."""
    graph, name = output.graph, output.node.input(index)
    if not name or not _has_one_reader(graph, name):
        return None
    shape = graph.shape(name)
    if shape is None or len(shape) != output.rank or shape[axis] != output.size:
        return None
    path = find_path(graph, name, axis, output.size)
    return None if path is None else path.continued(name, output.node)


# Factors and terms ----------------------------------------------------------------------------------------

GELU_DEPTH = 3  # steps from the last product of 0.5 * (x * (1 + erf(x / sqrt 2))) up to Erf


def _through_operand(output: _Output, index: int) -> EqualizationPath | None:
    """Return the path through one operand: its own elements when it is constant, else its producer's."""
    if not output.graph.is_constant(output.node.input(index)):
        return _through_input(output, index, output.axis)
    constant = _scalable_operand(output, index)
    return None if constant is None else EqualizationPath((constant,))


def _scalable_operand(output: _Output, index: int) -> ScalableConstant | None:
    """Return a constant operand whose product with a vector along the channels grows no larger than both."""
    graph, node = output.graph, output.node
    along = (output.size, *(1,) * (output.rank - output.axis - 1))  # one number for each channel
    constant = node.constant(index)
    other = _rank(graph, node.input(1 - index))
    if constant is None or constant.dtype != np.float32 or other is None or constant.ndim > other:
        return None
    product = np.broadcast_shapes(constant.shape, along)
    if len(product) > other or int(np.prod(product)) > max(constant.size, along[0]):
        return None
    if constant.size == 1 and _is_written_out(graph, node):
        return None
    return ScalableConstant(node, index, along)


def _is_written_out(graph: Graph, node: Node) -> bool:
    """Whether an operator may be part of a function that runtimes recognise by its numbers, such as Gelu."""
    readers = [reader for reader, _ in graph.consumers(node.output)]
    nodes = [node, *(r for r in readers if _scaling(r) is ChannelScaling.EITHER_OPERAND)]
    for _ in range(GELU_DEPTH):
        makers = [graph.producer(name) for n in nodes for name in n.inputs if name]
        nodes = [maker for maker in makers if maker is not None]
        if any((rule := maker.rule) is not None and rule.in_decompositions for maker in nodes):
            return True
        nodes = [maker for maker in nodes if _scaling(maker) in OPERAND_SCALING]
    return False


def _scaling(node: Node) -> ChannelScaling:
    rule = node.rule
    return ChannelScaling.NONE if rule is None else rule.scaling


# Attention ------------------------------------------------------------------------------------------------


def _through_attention(output: _Output) -> EqualizationPath | None:
    """Return the path to the heads of attention, merged by a Reshape: the projection of their values.

    Attention sums values over positions, each channel by itself, so that scales pass through it.
    """
    if output.axis != output.rank - 1:
        return None
    name = output.node.input(0)
    rank = _rank(output.graph, name) or 0
    return _through_heads(output, name, (rank - 2, rank - 1), output.node)


def _through_heads(
    output: _Output, name: str, axes: tuple[int, int], reader: Node
) -> EqualizationPath | None:
    """Return the path that divides the channels of a tensor, read only by `reader`.

    Its channels are on two axes: heads, and channels of a head (its depth).
    """
    graph, size = output.graph, output.size
    maker, shape = _maker(graph, name), graph.shape(name)
    rule = None if maker is None else maker.rule
    if maker is None or rule is None or shape is None or not _has_one_reader(graph, name):
        return None
    if not (0 <= axes[0] < len(shape) and axes[1] < len(shape)):
        return None
    heads, depth = shape[axes[0]], shape[axes[1]]
    if not isinstance(heads, int) or not isinstance(depth, int) or heads * depth != size:
        return None
    last = len(shape) - 1
    path = None
    if rule.scaling is ChannelScaling.MERGED and axes == (last - 1, last):
        # A Reshape splits the last axis of its input into heads.
        source = maker.input(0)
        before = graph.shape(source)
        if before and before[-1] == size and _has_one_reader(graph, source):
            path = find_path(graph, source, len(before) - 1, size)
            path = None if path is None else path.continued(source, maker)
    else:
        further = _heads_before(graph, maker, axes, rank=len(shape))
        path = None if further is None else _through_heads(output, *further, maker)
    return None if path is None else path.continued(name, reader)


def _heads_before(
    graph: Graph, maker: Node, axes: tuple[int, int], *, rank: int
) -> tuple[str, tuple[int, int]] | None:
    """Return the input of a tensor's maker and its axes of heads and depth; None if it mixes channels."""
    rule, layout, (head, depth) = maker.rule, product_layout(maker), axes
    if rule is not None and rule.scaling is ChannelScaling.PERMUTED:
        order = _permutation(maker, rank)
        return maker.input(0), (order[head], order[depth])
    if layout is None or layout.kernel is not Kernel.NONE:
        return None
    values = maker.input(layout.index)  # attention times values: a sum over positions
    is_stacked = depth == rank - 1 and head < depth - 1 and _rank(graph, values) == rank
    return (values, axes) if is_stacked else None


# Tensors and their readers --------------------------------------------------------------------------------


def _maker(graph: Graph, name: str) -> Node | None:
    """Return the standard operator of the main graph that makes a tensor which only nodes read."""
    node = graph.producer(name)
    if node is None or node.domain != "" or graph.is_result(name) or not in_main_graph(graph, node):
        return None
    return node


def _rank(graph: Graph, name: str) -> int | None:
    shape = graph.shape(name)
    return None if shape is None else len(shape)


def _permutation(node: Node, rank: int) -> tuple[int, ...]:
    """Return for each axis of the output of a Transpose the axis of its input."""
    return tuple(node.attributes.get_ints("perm", tuple(reversed(range(rank)))))


def _has_one_reader(graph: Graph, name: str) -> bool:
    """Whether only one node reads the values; a Shape may read them too."""
    return sum(not reader.facts.reads_shape_only for reader, _ in graph.consumers(name)) == 1
