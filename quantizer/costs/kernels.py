"""Which kernel computes a node, and the sizes that its time depends on. Pure.

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

from ..operators.graph import Graph, Node
from .shapes import Shape

BLOCK = 16
"""Channels that onnxruntime's float convolutions compute together with AVX512."""

ALIGNED = 4
"""Channels that blocked convolutions want a multiple of."""

STRIDED = 8
"""Run of elements that takes as long to copy, for each of them, as one after the other with a step."""

VIEWS = ("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity", "Dropout")
"""Operators that move nothing: the output is the input with another shape."""

BINARY = (
    "Add",
    "Sub",
    "Mul",
    "Div",
    "Pow",
    "Max",
    "Min",
    "PRelu",
    "Where",
    "Mod",
    "Equal",
    "Less",
    "Greater",
)
POOLS = ("MaxPool", "AveragePool", "LpPool")
REDUCTIONS = (
    *(f"Reduce{name}" for name in ("Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "SumSquare")),
    *("GlobalAveragePool", "GlobalMaxPool", "ArgMax", "ArgMin"),
)
NORMALIZATIONS = ("LayerNormalization", "RMSNormalization", "InstanceNormalization", "Softmax", "LogSoftmax")
RECURRENT = {"LSTM": 4, "GRU": 3, "RNN": 1}


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
    return _WORK.get(node.op_type, _elements)(node, sizes, integer)


def saturating_works(node: Node, sizes: Sizes) -> tuple[Work, ...]:
    """Return the kernels of an activation function that is written as sums and products that saturate."""
    work = work_of(node, sizes, integer=True)
    kernels = {
        "HardSigmoid": ("Add:scalar",),
        "HardSwish": ("Add:scalar", "Mul"),
        "PRelu": (work.kernel.replace("PRelu", "Mul", 1), "Add"),
    }
    return tuple(replace(work, kernel=kernel) for kernel in kernels[node.op_type])


def filled_up(channels: int) -> int:
    """Return channels with those that fill up the last block."""
    return -(-channels // BLOCK) * BLOCK


def _elements(node: Node, sizes: Sizes, _: bool) -> Work:
    total = sum(sizes.elements(name) for name in node.outputs if name)
    return Work(node.op_type, (max(total, 1),))


def _view(node: Node, sizes: Sizes, integer: bool) -> Work:
    return replace(_elements(node, sizes, integer), kernel="Reshape")


def _binary(node: Node, sizes: Sizes, _: bool) -> Work:
    out = sizes.output(node)
    total = max(math.prod(out), 1)
    operands = [_without_ones(sizes.input(node, i)) for i in range(len(node.inputs))]
    smaller = [shape for shape in operands if math.prod(shape) < total]
    if not smaller or node.op_type == "Where":
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


def _pool(node: Node, sizes: Sizes, integer: bool) -> Work:
    taps = math.prod(int(size) for size in node.attributes.get_ints("kernel_shape", ()) or ())
    return Work(node.op_type, (taps, max(math.prod(sizes.output(node)), 1)))


def _reduction(node: Node, sizes: Sizes, _: bool) -> Work:
    before, after = sizes.input(node), sizes.output(node)
    last = bool(after) and len(after) == len(before) and after[-1] == before[-1]
    where = ":inner" if last and not node.op_type.startswith("Global") else ""
    return Work(f"{node.op_type}{where}", (max(math.prod(before), 1),))


def _normalization(node: Node, sizes: Sizes, _: bool) -> Work:
    shape = sizes.input(node)
    total = max(math.prod(shape), 1)
    if node.op_type == "InstanceNormalization":
        return Work(node.op_type, (math.prod(shape[2:]), total))
    axis = node.attributes.get_int("axis", -1) % max(len(shape), 1)
    if node.op_type.endswith("Softmax") and axis < len(shape) - 1:
        return Work(f"{node.op_type}:inner", (shape[axis], total))
    return Work(node.op_type, ((shape or (1,))[-1], total))


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


def _copy(node: Node, sizes: Sizes, _: bool) -> Work:
    """Runs of elements that are copied together, up to the last axis that is cut or joined."""
    before, after = sizes.input(node), sizes.output(node)
    total = max(sum(sizes.elements(name) for name in node.outputs if name), 1)
    if node.op_type == "Gather":
        axis = (node.attributes.get_int("axis", 0) or 0) % max(len(before), 1)
        return Work("Gather", (max(math.prod(before[axis + 1 :]), 1), total))
    if len(before) != len(after):
        return Work(node.op_type, (total, total))
    changed = [axis for axis, (a, b) in enumerate(zip(before, after, strict=True)) if a != b]
    run = math.prod(after[changed[-1] :]) if changed else total
    steps = node.constant(4) if node.op_type == "Slice" else None
    if steps is not None and (steps != 1).any():
        run = STRIDED
    return Work("Slice" if node.op_type == "Split" else node.op_type, (max(run, 1), total))


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


_WORK: dict[str, Callable[[Node, Sizes, bool], Work]] = {
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "MatMul": _matmul,
    "Gemm": _gemm,
    "Transpose": _transpose,
    "Resize": _resize,
    **dict.fromkeys(("Concat", "Slice", "Split", "Pad", "Gather"), _copy),
    **dict.fromkeys(VIEWS, _view),
    **dict.fromkeys(BINARY, _binary),
    **dict.fromkeys(POOLS, _pool),
    **dict.fromkeys(REDUCTIONS, _reduction),
    **dict.fromkeys(NORMALIZATIONS, _normalization),
    **dict.fromkeys(RECURRENT, _recurrent),
}
"""What tells the work of an operator; of the others it is the number of elements."""


# Nodes that onnxruntime makes a part of another one in float, and so cost nothing or little. Pure.
#
# Seen in the graphs that onnxruntime 1.31 executes. Each rule names the node that has the time.

AFTER_CONV = ("Relu", "Sigmoid", "Tanh", "HardSwish", "HardSigmoid", "LeakyRelu", "Clip")
"""Activation functions that a float convolution applies itself, where nothing else reads its result."""

SCALINGS = ("Mul", "Div")
ERF_GELU = ("Div", "Mul", "Erf", "Add")
NORMALIZATION = ("Sub", "Pow", "ReduceMean", "Add", "Sqrt", "Div", "Mul", "Cast")


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
        if node.name not in fused:
            kernels = dict(_found(node, graph, sizes))
            parts = (*kernels, graph.maker(node.input(0))) if len(kernels) == 1 else tuple(kernels)
            fused |= {name: Fusion(kernel, parts) for name, kernel in kernels.items()}
    return fused


def _found(node: Node, graph: Graph, sizes: Sizes) -> Iterator[tuple[str, str]]:
    """Yield the nodes that are fused where a node is found, and their kernels."""
    maker = graph.producer(node.input(0))
    alone = maker is not None and is_read_once(graph, maker.output)
    if maker is not None and alone and maker.op_type == "Conv" and _joins_convolution(node, graph, sizes):
        yield node.name, f"{node.op_type}:fused"
    elif maker is not None and alone and maker.op_type == "MatMul" and _scales(node, sizes):
        yield node.name, ""
    elif node.op_type == "Sigmoid":
        yield from _silu(node, graph)
    elif node.op_type == "Erf":
        yield from _gelu(node, graph)
    elif node.op_type == "Sqrt":
        yield from _layer_normalization(node, graph)
    elif node.op_type == "Identity":
        yield node.name, ""
    elif node.op_type == "LayerNormalization" and maker is not None and alone and _adds(maker, sizes):
        yield maker.name, ""
        yield node.name, "SkipLayerNormalization"


def fused_work(node: Node, kernel: str, sizes: Sizes) -> Work:
    """Return the work of the kernel that has the time of a fused node."""
    total = float(max(sizes.elements(node.output), 1))
    if kernel.endswith("LayerNormalization"):
        return Work(kernel, (float((sizes.output(node) or (1,))[-1]), total))
    return Work(kernel, (total,))


def is_read_once(graph: Graph, name: str) -> bool:
    """Whether one node alone reads a tensor."""
    return len(graph.consumers(name)) == 1 and not graph.is_result(name)


def _joins_convolution(node: Node, graph: Graph, sizes: Sizes) -> bool:
    if node.op_type in ("Mul", "Add"):  # by a constant for each channel: folded into weights and bias
        other = node.input(1)
        shape = sizes.shape(other)
        return graph.is_constant(other) and sizes.elements(other) == max([1, *shape[:-2][-1:]])
    return node.op_type in AFTER_CONV and all(not name or graph.is_constant(name) for name in node.inputs[1:])


def _adds(node: Node, sizes: Sizes) -> bool:
    """Whether a node adds two sequences of vectors of one shape."""
    shapes = {sizes.shape(name) for name in node.inputs}
    return node.op_type == "Add" and len(shapes) == 1 and len(sizes.output(node)) == 3


def _scales(node: Node, sizes: Sizes) -> bool:
    other = node.input(1)
    return node.op_type in SCALINGS and sizes.graph.is_constant(other) and sizes.elements(other) == 1


def _silu(node: Node, graph: Graph) -> Iterator[tuple[str, str]]:
    """x * Sigmoid(x) is one operator, QuickGelu."""
    readers = graph.consumers(node.output)
    if len(readers) == 1 and readers[0][0].op_type == "Mul":
        reader = readers[0][0]
        if node.input(0) in reader.inputs:
            yield node.name, ""
            yield reader.name, "Silu"


def _gelu(node: Node, graph: Graph) -> Iterator[tuple[str, str]]:
    """x / sqrt(2), Erf, + 1, * x, * 0.5 are one operator, Gelu, in whichever order the products are."""
    before = graph.producer(node.input(0))
    after = _only_reader(node, graph)
    if before is None or before.op_type not in SCALINGS or after is None or after.op_type != "Add":
        return
    products = []
    here: Node | None = after
    for _ in range(2):
        here = None if here is None else _only_reader(here, graph)
        if here is not None and here.op_type == "Mul":
            products.append(here)
    if products:
        yield from ((part.name, "") for part in (before, node, after, *products[:-1]))
        yield products[-1].name, "Gelu"


def _layer_normalization(node: Node, graph: Graph) -> Iterator[tuple[str, str]]:
    """The square root of a variance, and what it divides: one operator with the mean before it."""
    divide = _only_reader(node, graph)
    shifted = None if divide is None or divide.op_type != "Div" else graph.producer(divide.input(0))
    if divide is None or shifted is None or shifted.op_type != "Sub":
        return
    parts = {part.name: part for part in (node, divide, shifted)}
    here: Node | None = node
    while here is not None and here is not shifted and here.op_type in NORMALIZATION:
        parts[here.name] = here
        here = graph.producer(here.input(0))
    mean = graph.producer(shifted.input(1))
    if mean is not None and mean.op_type == "ReduceMean":
        parts[mean.name] = mean
    last = divide
    for op in ("Mul", "Add"):
        after = _only_reader(last, graph)
        if after is not None and after.op_type == op:
            last = after
    for part in (divide, _only_reader(divide, graph)):
        if part is not None and part is not last and part.op_type in NORMALIZATION:
            parts[part.name] = part
    yield from ((name, "") for name in parts if name != last.name)
    yield last.name, "LayerNormalization"


def _only_reader(node: Node, graph: Graph) -> Node | None:
    name = node.output
    return graph.consumers(name)[0][0] if is_read_once(graph, name) else None
