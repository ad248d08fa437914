"""Where the factors of an activation's channels can go: constants upstream and weights downstream.

Upstream every operator of a path must be linear or positively homogeneous in each channel (Nagel et al.,
"Data-Free Quantization Through Weight Equalization and Bias Correction", 2019, section 4.1): f(s x) = s f(x)
for s > 0. Nothing else may read what lies on the path.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import onnx_ir as ir

from ..model.graph import Graph, Use, in_main, input_name
from ..operators.table import product_layout

HOMOGENEOUS = ("Relu", "LeakyRelu", "PRelu", "MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool")
"""Positively homogeneous operators that keep channel axis 1 apart; the first three keep every axis apart."""

SAME_RANGE = ("Relu", "MaxPool", "GlobalMaxPool", "Transpose", "Reshape")
"""Operators whose input needs no codes outside the range of the output: cutting it off changes nothing."""

ANY_AXIS = ("Relu", "LeakyRelu", "PRelu")

ARITHMETIC = ("Add", "Sub", "Mul", "Div")
WRITTEN_OUT = ("Erf", "Tanh", "Clip")
"""What Gelu, with Erf or Tanh, and HardSwish have in them where exporters write them in small operators."""


@dataclass(frozen=True, eq=False)
class Site:
    """A constant that takes the factors.

    Attributes:
        node: the node that reads it.
        index: position of the input.
        shape: shape that the vector of factors gets to be multiplied with the constant.
        divide: whether the constant is divided by the divisors of the activation, else multiplied.
    """

    node: ir.Node
    index: int
    shape: tuple[int, ...]
    divide: bool = True


@dataclass(frozen=True, eq=False)
class Upstream:
    """What divides the channels of an activation.

    Attributes:
        sites: constants that take the factors.
        inner: activations between them and the activation, each with the operator that reads it.
    """

    sites: tuple[Site, ...]
    inner: tuple[tuple[str, str], ...] = ()


def upstream(graph: Graph, name: str, axis: int, size: int) -> Upstream | None:
    """Return what divides an activation's channels, None where something stands in the way.

    Args:
        graph: the model.
        name: the activation; the caller answers for all of its readers.
        axis: of the channels, counted from the front.
        size: number of channels.
    """
    node = graph.producer(name)
    rank = _rank(graph, name)
    if node is None or rank is None or node.domain != "" or graph.is_result(name) or not in_main(graph, node):
        return None
    along = (size, *(1,) * (rank - axis - 1))
    match node.op_type:
        case "Conv" | "ConvTranspose" | "Gemm" | "MatMul":
            return _linear(graph, node, axis, size, rank)
        case "LayerNormalization" if axis == rank - 1 and not any(v.name for v in node.outputs[1:]):
            return _constants(graph, node, (1, 2), (size,))
        case "InstanceNormalization" if axis == 1:
            return _constants(graph, node, (1, 2), (size,))
        case "Mul":
            return _either(graph, node, axis, along)
        case "Div":
            first = _factor_side(graph, node, 0, axis, along)
            if first is not None:
                return first
            second = _constant_site(graph, node, 1, along)
            return None if second is None else Upstream((replace(second, divide=False),))
        case "Add" | "Sub":
            sides = [_factor_side(graph, node, i, axis, along) for i in (0, 1)]
            return _joined(sides)
        case "Transpose":
            order = node.attributes.get_ints("perm", tuple(reversed(range(rank))))
            return _further(graph, node, 0, order[axis], size)
        case "Reshape" if axis == rank - 1:
            return _heads(graph, node, size)
    if node.op_type in HOMOGENEOUS and (axis == 1 or node.op_type in ANY_AXIS):
        if node.op_type == "MaxPool" and len(node.outputs) > 1 and node.outputs[1].name:
            return None
        return _further(graph, node, 0, axis, size)
    return None


def takes_factors(graph: Graph, use: Use, axis: int) -> bool:
    """Whether a reader can multiply its constant weight by factors of the channels that it reads."""
    node, index = use
    layout, rank = product_layout(node), _rank(graph, input_name(node, 0))
    if layout is None or layout.data_axis is None or index != 0 or rank is None:
        return False
    weight = graph.constant(input_name(node, layout.index))
    if weight is None or weight.dtype != np.float32 or layout.reads_transposed(node):
        return False
    return axis == layout.data_axis % rank


def _rank(graph: Graph, name: str) -> int | None:
    shape = graph.shape(name)
    return None if shape is None else len(shape)


def _linear(graph: Graph, node: ir.Node, axis: int, size: int, rank: int) -> Upstream | None:
    layout = product_layout(node)
    assert layout is not None
    assert layout.result_axis is not None
    weight = graph.constant(input_name(node, layout.index))
    if weight is None or weight.dtype != np.float32 or axis != layout.result_axis % rank:
        return None
    along = layout.axis(node, weight.ndim)
    if along is None:
        return None
    sites = [Site(node, layout.index, tuple(size if i == along else 1 for i in range(weight.ndim)))]
    if layout.bias is not None and input_name(node, layout.bias):
        bias = graph.constant(input_name(node, layout.bias))
        if bias is None or (bias.ndim > 1 and bias.shape[0] != 1):
            return None
        sites.append(Site(node, layout.bias, (size,)))
    return Upstream(tuple(sites))


def _constants(
    graph: Graph, node: ir.Node, indices: tuple[int, ...], shape: tuple[int, ...]
) -> Upstream | None:
    """Return sites at the given inputs that are present; None when one is not a vector of `shape`."""
    sites = []
    for index in indices:
        if not input_name(node, index):
            continue
        constant = graph.constant(input_name(node, index))
        if constant is None or constant.shape != shape or constant.dtype != np.float32:
            return None
        sites.append(Site(node, index, shape))
    return Upstream(tuple(sites))


def _constant_site(graph: Graph, node: ir.Node, index: int, along: tuple[int, ...]) -> Site | None:
    """Return the site of a constant operand whose product with a vector `along` the axis grows no larger.

    A single number may become a vector, unless a runtime knows a function by it (`_is_written_out`).
    """
    constant = graph.constant(input_name(node, index))
    other = _rank(graph, input_name(node, 1 - index))
    if constant is None or constant.dtype != np.float32 or other is None or constant.ndim > other:
        return None
    made = np.broadcast_shapes(constant.shape, along)
    if len(made) > other or int(np.prod(made)) > max(constant.size, along[0]):
        return None
    if constant.size == 1 and _is_written_out(graph, node):
        return None
    return Site(node, index, along)


def _is_written_out(graph: Graph, node: ir.Node) -> bool:
    """Whether a product may be part of a function that runtimes know by its numbers, and run as one operator.

    MiniLM's six Gelu, with vectors in the place of 0.5, took 4 % more of onnxruntime's time.
    """
    readers = [reader for reader, _ in graph.consumers(node.outputs[0].name or "") if reader.op_type == "Mul"]
    near = [node, *readers]
    for _ in range(3):  # 0.5 * (x * (1 + erf(x / sqrt 2))): three steps from the last product to Erf
        makers = [graph.producer(value.name or "") for n in near for value in n.inputs if value is not None]
        near = [maker for maker in makers if maker is not None]
        if any(maker.op_type in WRITTEN_OUT for maker in near):
            return True
        near = [maker for maker in near if maker.op_type in ARITHMETIC]
    return False


def _factor_side(
    graph: Graph, node: ir.Node, index: int, axis: int, along: tuple[int, ...]
) -> Upstream | None:
    """Return what divides one operand: its own elements when it is constant, else what makes it."""
    if graph.is_constant(input_name(node, index)):
        site = _constant_site(graph, node, index, along)
        return None if site is None else Upstream((site,))
    return _further(graph, node, index, axis, along[0])


def _either(graph: Graph, node: ir.Node, axis: int, along: tuple[int, ...]) -> Upstream | None:
    """Return what divides a product: one operand, a constant before an activation."""
    order = sorted((0, 1), key=lambda i: not graph.is_constant(input_name(node, i)))
    for index in order:
        found = _factor_side(graph, node, index, axis, along)
        if found is not None:
            return found
    return None


def _further(graph: Graph, node: ir.Node, index: int, axis: int, size: int) -> Upstream | None:
    """Return what divides an input that no one else reads and that has the channels of the output."""
    name, output = input_name(node, index), node.outputs[0].name or ""
    if not name or not _has_one_reader(graph, name):
        return None
    shape, rank = graph.shape(name), _rank(graph, output)
    if shape is None or len(shape) != rank or shape[axis] != size:
        return None
    found = upstream(graph, name, axis, size)
    return None if found is None else Upstream(found.sites, ((name, node.op_type), *found.inner))


def _has_one_reader(graph: Graph, name: str) -> bool:
    """Whether one node alone reads the values; whoever wants the shape may read that."""
    return sum(reader.op_type != "Shape" for reader, _ in graph.consumers(name)) == 1


def _heads(graph: Graph, node: ir.Node, size: int) -> Upstream | None:
    """Return what divides the heads of attention, which a Reshape has merged: the projection of their values.

    Attention sums values over positions, each channel of a head by itself, so that factors go through it
    (SmoothQuant, Xiao et al. 2022, does the same between these two layers). The two axes of head and depth
    are followed up to the Reshape that made them from the last axis; in memory both lie as channels there.
    """
    reader, name = node, input_name(node, 0)
    rank, inner = _rank(graph, name) or 0, list[tuple[str, str]]()
    head, depth = rank - 2, rank - 1
    while True:
        shape, maker = graph.shape(name), graph.producer(name)
        if shape is None or maker is None or maker.domain != "" or not in_main(graph, maker):
            return None
        sizes = (shape[head], shape[depth]) if 0 <= head < len(shape) and depth < len(shape) else (None, None)
        if graph.is_result(name) or not _has_one_reader(graph, name) or not _multiply_to(sizes, size):
            return None
        inner.append((name, reader.op_type))
        reader, position = maker, 0
        match maker.op_type:
            case "Transpose":
                order = maker.attributes.get_ints("perm", tuple(reversed(range(len(shape)))))
                head, depth = order[head], order[depth]
            case "MatMul" if depth == len(shape) - 1 and head < depth - 1:
                position = 1
                if _rank(graph, input_name(maker, 1)) != len(shape):
                    return None
            case "Reshape" if (head, depth) == (len(shape) - 2, len(shape) - 1):
                source = input_name(maker, 0)
                wide = graph.shape(source)
                if not wide or wide[-1] != size or not _has_one_reader(graph, source):
                    return None
                found = upstream(graph, source, len(wide) - 1, size)
                between = (*inner, (source, maker.op_type))
                return None if found is None else Upstream(found.sites, (*between, *found.inner))
            case _:
                return None
        name = input_name(maker, position)


def _multiply_to(sizes: tuple[int | None, int | None], product: int) -> bool:
    return sizes[0] is not None and sizes[1] is not None and sizes[0] * sizes[1] == product


def _joined(sides: list[Upstream | None]) -> Upstream | None:
    """Return both operands of a sum together; None when one cannot be divided."""
    found = [side for side in sides if side is not None]
    if len(found) != len(sides):
        return None
    return Upstream(tuple(s for f in found for s in f.sites), tuple(i for f in found for i in f.inner))
