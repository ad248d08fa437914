"""Which kernel computes a node, the sizes that its time depends on, and which float nodes are fused. Pure.

The operator table says of each operator which sizes these are (`Operator.kernel`); here is how each of them
follows from the shapes of the tensors, and which implementation of onnxruntime takes the node.

A kernel's name begins with the operator; words after colons say which of its implementations is meant, and
the last word whether it computes on float or on integer values. What tells implementations of onnxruntime
apart on x86-64 (read in its sources, 1.31, and seen in the graphs that it executes):

- Float convolutions of pictures work on blocks of 16 channels where the input channels are a multiple of 4
  (or below 16: then they read the usual layout); output channels are filled up to a multiple of 16. Others,
  and those of sequences, copy windows into a matrix and multiply.
- Integer convolutions have kernels of their own where input channels are a multiple of 4 and output channels
  one of 16, for depthwise ones a multiple of 16. Others copy windows into a matrix.
- Pools have no integer kernel but in layout NHWC, where the integer convolutions are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from ..operators.decompositions import is_read_once, written_out
from ..operators.facts import AfterConvolution, Arithmetic, KernelSizes
from ..operators.functions import chain_of
from ..operators.graph import Graph, Node
from ..operators.table import CHAIN_RULE
from .shapes import Shape

BLOCK = 16
"""Channels that onnxruntime's float convolutions compute together with AVX512."""

ALIGNED = 4
"""Channels that blocked convolutions want a multiple of."""

STRIDED = 8
"""Run of elements that takes as long to copy, for each of them, as one after the other with a step."""


@dataclass(frozen=True)
class Work:
    """What a kernel has to do.

    Attributes:
        kernel: its name, without the word for float or integer.
        sizes: what its time depends on; how many there are follows from the kernel.
        repeats: how often this is done: for each group, or each matrix of a stack.
    """

    kernel: str
    sizes: tuple[float, ...]
    repeats: float = 1.0


@dataclass(frozen=True, eq=False)
class Sizes:
    """A graph with the shapes of its tensors in one run."""

    graph: Graph
    shapes: Mapping[str, Shape]

    def shape(self, name: str) -> Shape:
        """Return the shape of a tensor; of one of unknown rank, that of a single number."""
        return self.shapes.get(name, ())

    def elements(self, name: str) -> int:
        """Return how many elements a tensor has."""
        return math.prod(self.shape(name))

    def input(self, node: Node, position: int = 0) -> Shape:
        """Return the shape of an input; () where the node has none there."""
        return self.shape(node.input(position))

    def output(self, node: Node) -> Shape:
        """Return the shape of the first output."""
        return self.shape(node.output)


def work_of(node: Node, sizes: Sizes, *, integer: bool) -> Work:
    """Return the kernel of a node and its sizes.

    Args:
        node: of a prepared model.
        sizes: the shapes of its tensors.
        integer: whether it computes on integers.
    """
    return _WORK[node.facts.kernel](node, sizes, integer)


def filled_up(channels: int) -> int:
    """Return channels with those that fill up the last block."""
    return -(-channels // BLOCK) * BLOCK


def _made(node: Node, sizes: Sizes) -> int:
    """Return how many elements a node makes, at least 1."""
    return max(sum(sizes.elements(name) for name in node.outputs if name), 1)


def _output_elements(node: Node, sizes: Sizes, _: bool) -> Work:
    return Work(node.op_type, (_made(node, sizes),))


def _view(node: Node, sizes: Sizes, _: bool) -> Work:
    return Work("Reshape", (_made(node, sizes),))


def _broadcast(node: Node, sizes: Sizes, _: bool) -> Work:
    out = sizes.output(node)
    total = max(math.prod(out), 1)
    operands = [_without_ones(sizes.input(node, i)) for i in range(len(node.inputs))]
    smaller = [shape for shape in operands if math.prod(shape) < total]
    if not smaller:
        return Work(node.op_type, (total,))
    least = min(smaller, key=math.prod)
    if math.prod(least) == 1:
        return Work(f"{node.op_type}:scalar", (total,))
    if tuple(out[len(out) - len(least) :]) == least:
        return Work(f"{node.op_type}:row", (total,))
    return Work(f"{node.op_type}:channel", (total,))


def _without_ones(shape: Shape) -> Shape:
    """Return a shape without leading ones."""
    first = next((axis for axis, dim in enumerate(shape) if dim != 1), len(shape))
    return shape[first:]


def _window(node: Node, sizes: Sizes, integer: bool) -> Work:
    taps = math.prod(int(size) for size in node.attributes.get_ints("kernel_shape", ()) or ())
    return Work(node.op_type, (taps, max(math.prod(sizes.output(node)), 1)))


def _input_elements(node: Node, sizes: Sizes, _: bool) -> Work:
    return Work(node.op_type, (max(math.prod(sizes.input(node)), 1),))


def _reduction(node: Node, sizes: Sizes, integer: bool) -> Work:
    before, after = sizes.input(node), sizes.output(node)
    work = _input_elements(node, sizes, integer)
    keeps_last = bool(after) and len(after) == len(before) and after[-1] == before[-1]
    return replace(work, kernel=f"{node.op_type}:inner") if keeps_last else work


def _rows(node: Node, sizes: Sizes, _: bool) -> Work:
    shape = sizes.input(node)
    return Work(node.op_type, ((shape or (1,))[-1], max(math.prod(shape), 1)))


def _softmax(node: Node, sizes: Sizes, integer: bool) -> Work:
    shape = sizes.input(node)
    axis = node.attributes.get_int("axis", -1) % max(len(shape), 1)
    if axis < len(shape) - 1:
        # The axis changes places with the last one: of several axes that move, that is no transposed matrix.
        moved = sum(dim > 1 for dim in shape[axis + 1 :])
        kernel = f"{node.op_type}:{'strided' if moved > 1 else 'inner'}"
        return Work(kernel, (shape[axis], max(math.prod(shape), 1)))
    return _rows(node, sizes, integer)


def _planes(node: Node, sizes: Sizes, _: bool) -> Work:
    shape = sizes.input(node)
    return Work(node.op_type, (math.prod(shape[2:]), max(math.prod(shape), 1)))


def _transpose(node: Node, sizes: Sizes, _: bool) -> Work:
    before = sizes.input(node)
    order = list(node.attributes.get_ints("perm", range(len(before))[::-1]) or ())
    moved = [axis for axis in order if axis < len(before) and before[axis] > 1]
    total = max(math.prod(before), 1)
    if moved == sorted(moved):
        return Work("Reshape", (total,))
    kept = bool(moved) and moved[-1] == max(moved)
    return Work("Transpose:rows" if kept else "Transpose", (total,))


def _resize(node: Node, sizes: Sizes, _: bool) -> Work:
    mode = node.attributes.get_string("mode", "nearest")
    return Work(f"Resize:{mode}", (max(math.prod(sizes.output(node)), 1),))


def _entries(node: Node, sizes: Sizes, _: bool) -> Work:
    before = sizes.input(node)
    axis = (node.attributes.get_int("axis", 0) or 0) % max(len(before), 1)
    return Work(node.op_type, (max(math.prod(before[axis + 1 :]), 1), _made(node, sizes)))


def _runs(node: Node, sizes: Sizes, _: bool) -> Work:
    before, after = sizes.input(node), sizes.output(node)
    total = _made(node, sizes)
    if len(before) != len(after):
        return Work(node.op_type, (total, total))
    changed = [axis for axis, (a, b) in enumerate(zip(before, after, strict=True)) if a != b]
    run = math.prod(after[changed[-1] :]) if changed else total
    return Work(node.op_type, (max(run, 1), total))


def _slices(node: Node, sizes: Sizes, integer: bool) -> Work:
    work = _runs(node, sizes, integer)
    steps = node.constant(4)  # of a Slice; a Split has no such input
    if steps is not None and (steps != 1).any() and len(sizes.input(node)) == len(sizes.output(node)):
        return Work("Slice", (STRIDED, work.sizes[1]))
    return replace(work, kernel="Slice")


def _matmul(node: Node, sizes: Sizes, _: bool) -> Work:
    left, right = sizes.input(node, 0), sizes.input(node, 1)
    rows, inner = (left[-2] if len(left) > 1 else 1), (left or (1,))[-1]
    columns = right[-1] if len(right) > 1 else 1
    stack = math.prod(sizes.output(node)) / max(rows * columns, 1)
    if len(right) <= 2:
        return Work("MatMul", (inner, columns, rows * stack))
    constant = sizes.graph.is_constant(node.input(1))
    return Work("MatMul:stack" if constant else "MatMul:activations", (inner, columns, rows), stack)


def _gemm(node: Node, sizes: Sizes, _: bool) -> Work:
    out, left = sizes.output(node), sizes.input(node, 0)
    rows, columns = (out[0], out[-1]) if len(out) > 1 else (1, 1)
    return Work("Gemm", (math.prod(left) / max(rows, 1), columns, rows))


def _recurrent(node: Node, sizes: Sizes, _: bool) -> Work:
    sequence, weight = sizes.input(node, 0), sizes.input(node, 1)
    steps, features = (sequence[0], sequence[-1]) if sequence else (1, 1)
    hidden = node.attributes.get_int("hidden_size", 1) or 1
    directions = weight[0] if weight else 1
    return Work(node.op_type, (hidden, features, steps), float(directions))


def _conv(node: Node, sizes: Sizes, integer: bool) -> Work:
    weight, out = sizes.input(node, 1), sizes.output(node)
    groups = node.attributes.get_int("group", 1) or 1
    batch, pixels = (out[0], max(math.prod(out[2:]), 1)) if out else (1, 1)
    window = _Window(weight[1], weight[0], math.prod(weight[2:]), batch * pixels)
    if len(weight) != 4 and not integer:
        return _sequence(replace(window, pixels=pixels), groups, batch)
    read = sizes.input(node)
    if groups > 1 and window.inputs == 1 and len(read) > 1 and read[1] == window.outputs:
        return _depthwise(window, integer)
    if groups > 1:
        return _grouped(window, groups, integer)
    return _dense_integer(window) if integer else _dense_float(window)


@dataclass(frozen=True)
class _Window:
    """A convolution: input channels of a group, output channels, taps, and pixels of all samples."""

    inputs: int
    outputs: int
    taps: int
    pixels: int

    @property
    def kernel(self) -> str:
        return "Conv:pointwise" if self.taps == 1 else "Conv:window"

    def sizes(self, inputs: int, outputs: int) -> tuple[float, ...]:
        """Return what its time depends on, with numbers of channels that may be filled up."""
        return (*([self.taps] if self.taps > 1 else []), inputs, outputs, self.pixels)


def _sequence(window: _Window, groups: int, batch: int) -> Work:
    """Return what copies windows into a matrix for each sample and group."""
    sizes = (window.inputs * window.taps, window.outputs // groups, window.pixels)
    return Work("Conv:sequence", sizes, float(batch * groups))


def _depthwise(window: _Window, integer: bool) -> Work:
    channels = window.outputs
    aligned = channels % (BLOCK if integer else ALIGNED) == 0
    kernel = "Conv:depthwise" if aligned else "Conv:depthwise:unaligned"
    return Work(kernel, (window.taps, channels if integer else filled_up(channels), window.pixels))


def _grouped(window: _Window, groups: int, integer: bool) -> Work:
    each = window.outputs // groups
    if not integer and window.inputs % BLOCK == 0 and each % BLOCK == 0:
        return Work(window.kernel, window.sizes(window.inputs, each), float(groups))
    return Work("Conv:grouped", (window.inputs * window.taps, each, window.pixels), float(groups))


def _dense_integer(window: _Window) -> Work:
    aligned = window.inputs % ALIGNED == 0 and window.outputs % BLOCK == 0
    kernel = window.kernel if aligned else f"{window.kernel}:unaligned"
    return Work(kernel, window.sizes(window.inputs, window.outputs))


def _dense_float(window: _Window) -> Work:
    if window.inputs < BLOCK:
        return Work("Conv:few", (window.inputs * window.taps, filled_up(window.outputs), window.pixels))
    if window.inputs % ALIGNED == 0:
        sizes = window.sizes(filled_up(window.inputs), filled_up(window.outputs))
        return Work(window.kernel, sizes)
    return _sequence(window, 1, 1)


def _conv_transpose(node: Node, sizes: Sizes, _: bool) -> Work:
    weight, before = sizes.input(node, 1), sizes.input(node, 0)
    groups = node.attributes.get_int("group", 1) or 1
    pixels, batch = math.prod(before[2:]), float((before or (1,))[0])
    inner, columns = weight[0] // groups, math.prod(weight[1:])
    return Work("ConvTranspose", (inner, columns, max(pixels, 1)), batch * groups)


_WORK: dict[KernelSizes, Callable[[Node, Sizes, bool], Work]] = {
    KernelSizes.OUTPUT_ELEMENTS: _output_elements,
    KernelSizes.INPUT_ELEMENTS: _input_elements,
    KernelSizes.VIEW: _view,
    KernelSizes.BROADCAST: _broadcast,
    KernelSizes.WINDOW: _window,
    KernelSizes.REDUCTION: _reduction,
    KernelSizes.ROWS: _rows,
    KernelSizes.SOFTMAX: _softmax,
    KernelSizes.PLANES: _planes,
    KernelSizes.RUNS: _runs,
    KernelSizes.SLICES: _slices,
    KernelSizes.ENTRIES: _entries,
    KernelSizes.TRANSPOSE: _transpose,
    KernelSizes.RESIZE: _resize,
    KernelSizes.CONVOLUTION: _conv,
    KernelSizes.TRANSPOSED_CONVOLUTION: _conv_transpose,
    KernelSizes.MATRIX_STACK: _matmul,
    KernelSizes.MATRIX: _gemm,
    KernelSizes.RECURRENT: _recurrent,
}
"""The function that tells the work of a node, by what its entry in the operator table says of its kernel."""


# Nodes that onnxruntime makes a part of another one in float, and that so cost nothing or little: seen in the
# graphs that onnxruntime 1.31 executes. Each case names the node that has the time.


@dataclass(frozen=True)
class Fusion:
    """What becomes of a float node that is fused with others.

    Attributes:
        kernel: the kernel that has its time; "" for nothing: the time is another node's.
        parts: names of the nodes that must be float for that.
    """

    kernel: str
    parts: tuple[str, ...]


def fused_nodes(graph: Graph, sizes: Sizes) -> Mapping[str, Fusion]:
    """Return what becomes of the float nodes that are fused, by name."""
    fused: dict[str, Fusion] = {}
    for node in graph.nodes:
        if node.facts is CHAIN_RULE:
            kernel = chain_of(node.ir_node).fused
            fused |= {node.name: Fusion(kernel, (node.name,))} if kernel else {}
        elif node.name not in fused:
            kernels = dict(_fused_kernels(node, graph, sizes))
            parts = (*kernels, graph.maker(node.input(0))) if len(kernels) == 1 else tuple(kernels)
            fused |= {name: Fusion(kernel, parts) for name, kernel in kernels.items()}
    return fused


def _fused_kernels(node: Node, graph: Graph, sizes: Sizes) -> Iterator[tuple[str, str]]:
    """Yield the nodes that are fused where a node is looked at, by name, and their kernels."""
    maker = graph.producer(node.input(0))
    facts, alone = node.facts, maker is not None and is_read_once(graph, maker.output)
    of_maker = maker.facts.kernel if maker is not None and alone else None
    function = written_out(node, graph)
    if of_maker is KernelSizes.CONVOLUTION and _joins_convolution(node, graph, sizes):
        yield node.name, f"{node.op_type}:fused"
    elif of_maker is KernelSizes.MATRIX_STACK and _scales(node, sizes):
        yield node.name, ""
    elif function is not None:
        yield from ((part.name, "") for part in function.nodes[:-1])
        yield function.nodes[-1].name, function.kernel
    elif facts.left_out:
        yield node.name, ""
    elif facts.joins_sum and maker is not None and alone and _adds(maker, sizes):
        yield maker.name, ""
        yield node.name, f"Skip{node.op_type}"


def fused_work(node: Node, kernel: str, sizes: Sizes) -> Work:
    """Return the work of the kernel that has the time of a fused node."""
    total = float(max(sizes.elements(node.output), 1))
    if kernel.endswith("LayerNormalization"):
        return Work(kernel, (float((sizes.output(node) or (1,))[-1]), total))
    return Work(kernel, (total,))


def _joins_convolution(node: Node, graph: Graph, sizes: Sizes) -> bool:
    after = node.facts.after_convolution
    if after is AfterConvolution.FOLDED:
        other = node.input(1)
        shape = sizes.shape(other)
        return graph.is_constant(other) and sizes.elements(other) == max([1, *shape[:-2][-1:]])
    return after is AfterConvolution.ACTIVATION and all(
        not name or graph.is_constant(name) for name in node.inputs[1:]
    )


def _adds(node: Node, sizes: Sizes) -> bool:
    """Whether a node adds two sequences of vectors of one shape."""
    shapes = {sizes.shape(name) for name in node.inputs}
    is_sum = node.facts.arithmetic is Arithmetic.SUM and len(node.inputs) == 2
    return is_sum and len(shapes) == 1 and len(sizes.output(node)) == 3


def _scales(node: Node, sizes: Sizes) -> bool:
    """Whether a node multiplies with one constant number, or divides by it."""
    other = node.input(1)
    scaling = node.facts.arithmetic in (Arithmetic.PRODUCT, Arithmetic.QUOTIENT)
    return scaling and sizes.graph.is_constant(other) and sizes.elements(other) == 1
