"""Which kernel computes a node, the sizes that its time depends on, and which float nodes are fused. Pure.

The operator table says of each operator which sizes these are (`Operator.kernel`); here is how each of them
follows from the shapes of the tensors, and which implementation of onnxruntime takes the node.

A kernel's name begins with the operator; words after colons say which of its implementations is meant, and
the last word whether it computes on float or on integer values. What tells implementations of onnxruntime
apart on x86-64 (read in its sources, 1.31, and seen in the graphs that it executes):

- Float convolutions of pictures work on blocks of 16 channels if the input channels are a multiple of 4 (or
  below 16: then they read the usual layout), and weight and bias are known when the model is loaded; output
  channels are filled up to a multiple of 16. Others, and those of sequences, copy windows into a matrix and
  multiply.
- Integer convolutions have special kernels if input channels are a multiple of 4 and output channels a
  multiple of 16, for depthwise ones a multiple of 16. Others copy windows into a matrix, adjacent elements at
  once: a row of the window, all channels. With one channel and a window that is one element wide this is a
  single byte, 40 times as slow as the product (512 x 1, not 1 x 512).
- Those of three dimensions copy windows element by element, in float and on integers.
- Pools have an integer kernel only in layout NHWC, beside integer convolutions.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import onnx_ir as ir

from ...profiles.base.once import computed_once
from ..operators.decompositions import decomposed_function
from ..operators.facts import AfterConvolution, Arithmetic, KernelSizes
from ..operators.functions import chain_of
from ..operators.graph import Graph, Node
from ..operators.table import CHAIN_RULE
from ..prepare.float16 import NARROW
from .shapes import Shape

PAST_KEYS = {"Attention": 4, "MultiHeadAttention": 6, "GroupQueryAttention": 3}
"""Operator of an attention -> position of the input with the keys of earlier steps: (batch, heads, steps,
elements of a head)."""

BLOCK = 16
"""Channels that onnxruntime's float convolutions compute together with AVX512."""

ALIGNED = 4
"""Channels that blocked convolutions want a multiple of."""

PRODUCTS_AS_POWERS = (2.0, 3.0)
"""Exponents with which Pow multiplies."""

STRIDED = 8
"""Run of elements that takes as long to copy, for each of them, as one after the other with a step."""


TALLEST = 11
"""Rows of the tallest window of many channels that tables have (`targets --measure`)."""


@dataclass(frozen=True)
class Work:
    """A kernel with the sizes that its time depends on."""

    kernel: str  # without the word for float or integer
    sizes: tuple[float, ...]
    repeats: float = 1.0  # for each group, or each matrix of a stack
    channels_last: tuple[float, ...] = ()  # the sizes if the channels of its input come last; () for the same
    # a table has its time; none has tall float windows on columns of single elements
    is_measured: bool = True


@dataclass(frozen=True, eq=False)
class Sizes:
    """A graph with the shapes of its tensors in one run."""

    graph: Graph
    shapes: Mapping[str, Shape]

    @computed_once
    def float_work(self, node: Node) -> Work:
        """Return `work_of` a node in float; plan after plan asks for the same."""
        return work_of(node, self, integer=False)

    def shape(self, name: str) -> Shape:
        """Return the shape of a tensor; of one of unknown rank, that of a single number."""
        return self.shapes.get(name, ())

    def elements(self, name: str) -> int:
        """Return how many elements a tensor has."""
        return math.prod(self.shape(name))

    def input(self, node: Node, position: int = 0) -> Shape:
        """Return the shape of an input, or () if it is missing."""
        return self.shape(node.input(position))

    def output(self, node: Node) -> Shape:
        """Return the shape of the first output."""
        return self.shape(node.output)


HALF_CAST = "Cast:half"
"""The kernel that makes float32 of a float of 16 bits, or the reverse."""


def is_half_cast(node: Node, graph: Graph) -> bool:
    """Whether a node is a Cast between float32 and a float of 16 bits."""
    if node.op_type != "Cast":
        return False
    types = {graph.dtype(node.input(0)), graph.dtype(node.output)}
    return ir.DataType.FLOAT in types and not types.isdisjoint(NARROW)


def work_of(node: Node, sizes: Sizes, *, integer: bool) -> Work:
    """Return the kernel of a node of a prepared model and its sizes, for integers or float."""
    operator, attributes = node.op_type, node.attributes
    read, written = sizes.input(node), sizes.output(node)
    all_read, all_written = max(math.prod(read), 1), max(math.prod(written), 1)
    of_all_outputs = max(sum(sizes.elements(name) for name in node.outputs if name), 1)
    match node.facts.kernel:
        case KernelSizes.OUTPUT_ELEMENTS if is_half_cast(node, sizes.graph):
            return Work(HALF_CAST, (of_all_outputs,))
        case KernelSizes.OUTPUT_ELEMENTS:
            return Work(operator, (of_all_outputs,))
        case KernelSizes.INPUT_ELEMENTS:
            return Work(operator, (all_read,))
        case KernelSizes.VIEW:
            return Work("Reshape", (of_all_outputs,))
        case KernelSizes.BROADCAST:
            kernel, repeated = _broadcast_kernel(node, sizes)
            exponent = node.constant(1) if operator == "Pow" else None
            is_product = exponent is None or (np.isin(exponent, PRODUCTS_AS_POWERS).all())
            kernel = kernel if is_product else f"{kernel}:power"
            return Work(kernel, (*repeated, all_written))
        case KernelSizes.WINDOW:
            taps = math.prod(int(size) for size in attributes.get_ints("kernel_shape", ()) or ())
            return Work(operator, (taps, all_written))
        case KernelSizes.REDUCTION:
            keeps_last = bool(written) and len(written) == len(read) and written[-1] == read[-1]
            return Work(f"{operator}:inner" if keeps_last else operator, (all_read,))
        case KernelSizes.ROWS:
            return Work(operator, ((read or (1,))[-1], all_read))
        case KernelSizes.SOFTMAX:
            axis = attributes.get_int("axis", -1) % max(len(read), 1)
            if axis >= len(read) - 1:
                return Work(operator, ((read or (1,))[-1], all_read))
            # The axis changes places with the last: of several axes that move, that is no transposed matrix.
            moved = sum(dim > 1 for dim in read[axis + 1 :])
            return Work(f"{operator}:{'strided' if moved > 1 else 'inner'}", (read[axis], all_read))
        case KernelSizes.PLANES:
            return Work(operator, (math.prod(read[2:]), all_read))
        case KernelSizes.RUNS:
            run = _run_length(read, written, of_all_outputs)
            joins_channels = len(read) == len(written) > 2 and read[1] != written[1]
            last = (float(read[1]), float(of_all_outputs)) if joins_channels else ()
            return Work(operator, (run, of_all_outputs), channels_last=last)
        case KernelSizes.SLICES:
            steps = node.constant(4)  # of a Slice; a Split has no such input
            strided = steps is not None and (steps != 1).any() and len(read) == len(written)
            run = STRIDED if strided else _run_length(read, written, of_all_outputs)
            parts_channels = len(read) == len(written) > 2 and read[1] != written[1] and not strided
            last = (float(written[1]), float(of_all_outputs)) if parts_channels else ()
            return Work("Slice", (run, of_all_outputs), channels_last=last)
        case KernelSizes.ENTRIES:
            axis = (attributes.get_int("axis", 0) or 0) % max(len(read), 1)
            return Work(operator, (max(math.prod(read[axis + 1 :]), 1), of_all_outputs))
        case KernelSizes.TRANSPOSE:
            order = list(attributes.get_ints("perm", range(len(read))[::-1]) or ())
            moved_axes = [axis for axis in order if axis < len(read) and read[axis] > 1]
            if moved_axes == sorted(moved_axes):
                return Work("Reshape", (all_read,))
            keeps_rows = bool(moved_axes) and moved_axes[-1] == max(moved_axes)
            return Work("Transpose:rows" if keeps_rows else "Transpose", (all_read,))
        case KernelSizes.RESIZE:
            return Work(f"Resize:{attributes.get_string('mode', 'nearest')}", (all_written,))
        case KernelSizes.CONVOLUTION:
            return _convolution_work(node, sizes, integer=integer)
        case KernelSizes.TRANSPOSED_CONVOLUTION:
            weight = sizes.input(node, 1)
            groups, batch = attributes.get_int("group", 1) or 1, float((read or (1,))[0])
            inner, columns, pixels = weight[0] // groups, math.prod(weight[1:]), math.prod(read[2:])
            return Work("ConvTranspose", (inner, columns, max(pixels, 1)), batch * groups)
        case KernelSizes.MATRIX_STACK:
            right = sizes.input(node, 1)
            rows, inner = (read[-2] if len(read) > 1 else 1), (read or (1,))[-1]
            columns = right[-1] if len(right) > 1 else 1
            stack = math.prod(written) / max(rows * columns, 1)
            if len(right) <= 2:
                return Work("MatMul", (inner, columns, rows * stack))
            constant = sizes.graph.is_constant(node.input(1))
            return Work("MatMul:stack" if constant else "MatMul:activations", (inner, columns, rows), stack)
        case KernelSizes.MATRIX:
            rows, columns = (written[0], written[-1]) if len(written) > 1 else (1, 1)
            return Work("Gemm", (math.prod(read) / max(rows, 1), columns, rows))
        case KernelSizes.ATTENTION:
            return attention_work(node, sizes)[0]
        case KernelSizes.RECURRENT:
            weight = sizes.input(node, 1)
            length, batch, features = read if len(read) == 3 else (1, 1, 1)
            directions = weight[0] if weight else 1
            kernel = f"{operator}:both" if directions == 2 else operator
            if operator == "GRU" and not attributes.get_int("linear_before_reset", 0):
                kernel = f"{kernel}:reset"
            hidden = attributes.get_int("hidden_size", 1) or 1
            return Work(kernel, (hidden, features, batch, length), float(directions))


def attention_work(node: Node, sizes: Sizes) -> tuple[Work, ...]:
    """Return the kernels that an attention consists of; attention itself has no measured times.

    They take 0.8 of its time for a prompt, and 0.4 if one token reads a cache of 2,048 (DECISIONS.md, 86).
    """
    query, key = sizes.input(node), sizes.input(node, 1)
    past = sizes.input(node, PAST_KEYS[node.op_type])
    heads = node.attributes.get_int("num_heads", 0) or node.attributes.get_int("q_num_heads", 0) or 0
    if len(query) == 4:  # (batch, heads, length, elements of a head)
        heads, length, each = query[1:]
    else:  # (batch, length, all elements), or those of queries, keys and values of each head
        length = (query or (1, 1))[1]
        each = (sizes.output(node) or (1,))[-1] // max(heads, 1)
    batch = (query or (1,))[0]
    keys = (key[-2] if len(key) in (3, 4) else length) + (past[-2] if len(past) == 4 else 0)
    stored_heads = node.attributes.get_int("kv_num_heads", 0) or heads
    scores = float(batch * heads * length * keys)
    copied = Work("Concat", (float(keys * each), float(batch * stored_heads * keys * each)))
    return (
        Work("MatMul:activations", (float(each), float(keys), float(length)), float(batch * heads)),
        Work("Softmax", (float(keys), scores)),
        Work("MatMul:activations", (float(keys), float(each), float(length)), float(batch * heads)),
        *((copied, copied) if past else ()),
    )


def _broadcast_kernel(node: Node, sizes: Sizes) -> tuple[str, tuple[float, ...]]:
    """Return the kernel of an operation on two tensors, and the elements computed at once if one repeats."""
    out = sizes.output(node)
    smaller: list[Shape] = []
    for name in node.inputs:
        shape = sizes.shape(name)
        first = next((axis for axis, dim in enumerate(shape) if dim != 1), len(shape))
        if math.prod(shape) < max(math.prod(out), 1):
            smaller.append(shape[first:])  # without leading ones
    if not smaller:
        return node.op_type, ()
    least = min(smaller, key=math.prod)
    if math.prod(least) == 1:
        return f"{node.op_type}:scalar", ()
    is_row = tuple(out[len(out) - len(least) :]) == least
    each = (*(1,) * (len(out) - len(least)), *least)
    run, kinds = 1, set[bool]()
    for size, own in zip(reversed(out), reversed(each), strict=False):  # a model may declare a wrong shape
        kinds |= {own == 1} if size > 1 else set()
        if len(kinds) > 1:
            break
        run *= size
    return f"{node.op_type}:{'row' if is_row else 'channel'}", (float(run),)


def _run_length(read: Shape, written: Shape, total: int) -> int:
    """Return how many elements that lie side by side a node copies at once."""
    if len(read) != len(written):
        return total
    changed = [axis for axis, (a, b) in enumerate(zip(read, written, strict=True)) if a != b]
    return max(math.prod(written[changed[-1] :]) if changed else total, 1)


def _convolution_work(node: Node, sizes: Sizes, *, integer: bool) -> Work:
    groups = node.attributes.get_int("group", 1) or 1
    is_known = has_known_weights(node, sizes)
    weight, read, out = sizes.input(node, 1), sizes.input(node), sizes.output(node)
    work = window_work(weight, read, out, groups, integer=integer, is_known=is_known)
    is_column = not integer and len(out) == 4 and out[-1] == 1 and weight[2] > TALLEST
    return replace(work, is_measured=not is_column)


def has_known_weights(node: Node, sizes: Sizes) -> bool:
    """Whether the weight and the bias of a convolution are known when the model is loaded."""
    return all(sizes.graph.is_constant(name) for name in node.inputs[1:] if name)


def window_work(
    weight: Shape, read: Shape, out: Shape, groups: int, *, integer: bool, is_known: bool = True
) -> Work:
    """Return the kernel of a convolution by the shapes of its weight, its input and its result."""
    batch, pixels = (out[0], max(math.prod(out[2:]), 1)) if out else (1, 1)
    outputs, inputs, taps = weight[0], weight[1], math.prod(weight[2:])  # inputs of one group
    volume = ":volume" if len(weight) > 4 and taps > 1 else ""
    if not integer and (len(weight) != 4 or not is_known):
        # For each sample and group, windows are copied into a matrix; in a picture, by its short rows.
        copied = ":picture" if len(weight) == 4 and taps > 1 else volume
        return Work(
            f"Conv:sequence{copied}", (inputs * taps, outputs // groups, pixels), float(batch * groups)
        )
    pixels *= batch
    if groups > 1 and inputs == 1 and len(read) > 1 and read[1] == outputs:
        aligned = outputs % (BLOCK if integer else ALIGNED) == 0
        kernel = "Conv:depthwise" if aligned else "Conv:depthwise:unaligned"
        return Work(kernel, (taps, outputs if integer else filled_up(outputs), pixels))
    kernel, window = ("Conv:pointwise", ()) if taps == 1 else ("Conv:window", (taps,))
    if groups > 1:
        each = outputs // groups
        if not integer and inputs % BLOCK == 0 and each % BLOCK == 0:
            return Work(kernel, (*window, inputs, each, pixels), float(groups))
        return Work("Conv:grouped", (inputs * taps, each, pixels), float(groups))
    if integer:
        aligned = inputs % ALIGNED == 0 and outputs % BLOCK == 0
        if volume or aligned or not window:
            end = volume if volume or aligned else ":unaligned"
            return Work(f"{kernel}{end}", (*window, inputs, outputs, pixels))
        row = weight[-1] * inputs  # elements side by side
        return Work(f"{kernel}:unaligned", (taps * inputs / row, row, outputs, pixels))
    if inputs < BLOCK:
        return Work("Conv:few", (inputs * taps, filled_up(outputs), pixels))
    if inputs % ALIGNED == 0:
        return Work(kernel, (*window, filled_up(inputs), filled_up(outputs), pixels))
    return Work("Conv:sequence", (inputs * taps, outputs, pixels))


def filled_up(channels: int) -> int:
    """Return channels with those that fill up the last block."""
    return -(-channels // BLOCK) * BLOCK


# Nodes that onnxruntime makes a part of another one in float, and that so cost nothing or little: seen in the
# graphs that onnxruntime 1.31 executes. Each case names the node that has the time.


Fusion = tuple[str, tuple[str, ...]]
"""The kernel that has the time of a fused float node, "" if that is another node's; the nodes that must be
float for it."""


def fused_nodes(graph: Graph, sizes: Sizes) -> Mapping[str, Fusion]:
    """Return the fusions of the float nodes that are fused, by name."""
    fused: dict[str, Fusion] = {}
    for node in graph.nodes:
        if node.facts is CHAIN_RULE:
            kernel = chain_of(node.ir_node).fused
            fused |= {node.name: (kernel, (node.name,))} if kernel else {}
        elif node.name not in fused:
            kernels = dict(_fused_kernels(node, graph, sizes))
            parts = (*kernels, graph.maker(node.input(0))) if len(kernels) == 1 else tuple(kernels)
            fused |= {name: (kernel, parts) for name, kernel in kernels.items()}
    return fused


def _fused_kernels(node: Node, graph: Graph, sizes: Sizes) -> Iterator[tuple[str, str]]:
    """Yield the nodes that are fused into a node, by name, and their kernels."""
    maker, facts = graph.producer(node.input(0)), node.facts
    reads_alone = maker is not None and graph.is_read_once(maker.output)
    maker_kernel = maker.facts.kernel if maker is not None and reads_alone else None
    function = decomposed_function(node, graph)
    if maker_kernel is KernelSizes.CONVOLUTION and _joins_convolution(node, graph, sizes):
        yield node.name, f"{node.op_type}:fused"
    elif (
        maker_kernel is KernelSizes.MATRIX_STACK
        and facts.arithmetic in (Arithmetic.PRODUCT, Arithmetic.QUOTIENT)
        and graph.is_constant(node.input(1))
        and sizes.elements(node.input(1)) == 1
    ):  # the product is scaled by one constant number
        yield node.name, ""
    elif function is not None:
        kernel, (*parts, last) = function
        yield from ((part.name, "") for part in parts)
        yield last.name, kernel
    elif facts.left_out:
        yield node.name, ""
    elif facts.joins_sum and maker is not None and reads_alone:
        # The normalisation of a sum of two sequences of vectors of one shape, as far as the model says.
        is_sum = maker.facts.arithmetic is Arithmetic.SUM and len(maker.inputs) == 2
        if is_sum and len(sizes.output(maker)) == 3 and _have_one_shape(maker.inputs, graph):
            yield maker.name, ""
            yield node.name, f"Skip{node.op_type}"


def _have_one_shape(names: Sequence[str], graph: Graph) -> bool:
    """Whether onnxruntime knows that tensors have one shape: of numbers and dimensions named in an input."""
    inputs = (graph.values[name].shape or () for name in graph.inputs)
    known = {dim.value for shape in inputs for dim in shape if not isinstance(dim, int) and dim.value}
    shapes = set()
    for name in names:
        shape = graph.values[name].shape
        if shape is None or any(not isinstance(dim, int) and dim.value not in known for dim in shape):
            return False
        shapes.add(tuple(dim if isinstance(dim, int) else str(dim.value) for dim in shape))
    return len(shapes) == 1


def _joins_convolution(node: Node, graph: Graph, sizes: Sizes) -> bool:
    """Whether a float convolution computes the node that reads it, by one factor or term for each channel."""
    after = node.facts.after_convolution
    if after is AfterConvolution.FOLDED:
        other = node.input(1)
        shape = sizes.shape(other)
        return graph.is_constant(other) and sizes.elements(other) == max([1, *shape[:-2][-1:]])
    return after is AfterConvolution.ACTIVATION and all(
        not name or graph.is_constant(name) for name in node.inputs[1:]
    )


def fused_work(node: Node, kernel: str, sizes: Sizes) -> Work:
    """Return the work of the kernel that has the time of a fused node."""
    total = float(max(sizes.elements(node.output), 1))
    if kernel.endswith("LayerNormalization"):
        return Work(kernel, (float((sizes.output(node) or (1,))[-1]), total))
    return Work(kernel, (total,))
