"""The small networks on which kernels are timed: chains, so that each node finds its input as in a model.

A chain of one kernel has its activations in the same layout and caches as in a model; only the nodes in its
middle are used. Sizes are a grid, in steps of 2 to 4: times are interpolated between them in log space, in
which a kernel's time is smooth. Points with more than `MOST_PRODUCTS` are skipped: beyond them time grows in
proportion.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET = 21

MOST_PRODUCTS = 300e6  # multiply-adds of one node: a few milliseconds
WIDTHS = (32, 128, 384, 1536)  # rows and columns of the weights of products
ROWS = (1, 4, 16, 64, 256, 1024)  # rows of their activations

STATES = (32, 128, 256, 384, 512, 1024)
"""Elements of the state of recurrent operators. Weights of 256 are in a cache, those of 384 are not."""

SIDES = (1, 3, 7, 14, 28, 56, 112)  # height and width of pictures

ELEMENTS = (64, 512, 4096, 32768, 262144, 1048576)
"""Elements of the activations of operators that take each element by itself, or move it."""

BEYOND_CACHE = 4194304  # elements of activations that no cache near a core holds

UNARY = (
    *("Relu", "Sigmoid", "Tanh", "HardSwish", "HardSigmoid", "LeakyRelu", "Elu", "Softplus", "Gelu", "Erf"),
    *("Exp", "Log", "Sqrt", "Reciprocal", "Abs", "Neg", "Sin", "Cos", "Floor", "Mish"),
)


BINARY = ("Add", "Mul", "Sub", "Div", "Max")


def all_nets() -> tuple[Net, ...]:
    """Return the networks whose nodes the profiler times, in the order of measurement."""
    return (
        *convolutions(),
        *depthwise_convolutions(),
        *other_convolutions(),
        *windows(),
        *unknown_weights(),
        *joined_channels(),
        *products(),
        *elementwise(),
        *repeated_operands(),
        *moves_and_reductions(),
        *softmax_and_normalization(),
        *copies(),
        *layouts(),
        *conversions(),
    )


MEMORY_ROWS = (1, 2, 4, 16, 64)  # of products whose weights no cache holds


def memory_nets(rows: int) -> Iterator[Net]:
    """Yield products of some rows with few and with many weights, which no cache holds."""
    for pairs in (1, 2, 4, 8, 16, 32, 64):
        net = Net((rows, 384))
        for _ in range(pairs):
            net.add("MatMul", net.weight(384, 1536)).add("MatMul", net.weight(1536, 384))
        yield net


def product_net(rows: int, inner: int, columns: int, copies: int, *, dynamic: bool = False) -> Net:
    """Return products with one weight, each with its own input."""
    net = Net((rows, inner), dynamic=dynamic)
    weight = net.weight(inner, columns)
    for _ in range(copies):
        net.add("MatMul", weight).output = net.input(rows, inner)
    return net


@dataclass
class Net:
    """A network that is being built, whose nodes follow each other."""

    shape: tuple[int, ...]  # of the graph input x
    context: str = ""  # ":blocked" if measured nodes find blocks of channels; part of their kernels' names
    float_operators: tuple[str, ...] = ()  # that stay float in the quantized form though they need not
    dynamic: bool = False
    measures_conversions: bool = False  # whether the conversions between its nodes are measured, and no node
    output: str = "x"  # name of the tensor that the last node computes
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: dict[str, npt.NDArray[Any]] = field(default_factory=dict)
    weights: dict[str, tuple[int, ...]] = field(default_factory=dict)  # shapes of random constants
    inputs: dict[str, tuple[int, ...]] = field(default_factory=dict)  # besides x
    measured_nodes: set[str] = field(default_factory=set)  # names of the nodes whose times are used

    def add(self, op: str, *more: str, measure: bool = True, **attributes: Any) -> Net:
        """Append a node that reads the output of the one before it, and the names in `more`."""
        name, output = f"n{len(self.nodes)}", f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, [self.output, *more], [output], name, **attributes))
        self.output = output
        if measure:
            self.measured_nodes.add(name)
        return self

    def weight(self, *shape: int) -> str:
        """Return the name of a new random constant."""
        name = f"w{len(self.weights)}"
        self.weights[name] = shape
        return name

    def number(self, value: float) -> str:
        """Return the name of a new constant, a single number."""
        return self.constant(np.asarray(value, np.float32))

    def integers(self, *values: int) -> str:
        """Return the name of a new constant list of integers."""
        return self.constant(np.array(values, np.int64))

    def constant(self, array: npt.NDArray[Any]) -> str:
        """Return the name of a new constant."""
        name = f"c{len(self.constants)}"
        self.constants[name] = array
        return name

    def input(self, *shape: int) -> str:
        """Return the name of a further graph input."""
        name = f"x{len(self.inputs)}"
        self.inputs[name] = shape
        return name

    def conv(
        self,
        inputs: int,
        outputs: int,
        kernel: Sequence[int],
        *,
        group: int = 1,
        stride: int = 1,
        measure: bool = True,
    ) -> Net:
        """Append a convolution with a bias; with stride 1 it keeps the size of the picture."""
        pads = [k // 2 for k in kernel]
        return self.add(
            "Conv",
            self.weight(outputs, inputs // group, *kernel),
            self.weight(outputs),
            measure=measure,
            group=group,
            pads=[*pads, *pads],
            strides=[stride] * len(kernel),
            kernel_shape=kernel,
        )

    def model(self, dtype: int = TensorProto.FLOAT) -> onnx.ModelProto:
        """Return the network as a model; its outputs, of a type, are the results that no node reads."""
        read = {name for node in self.nodes for name in node.input}
        results = [name for node in self.nodes for name in node.output if name not in read]
        graph_inputs = {"x": self.shape, **{n: s for n, s in self.inputs.items() if n in read}}
        rng = np.random.default_rng(0)
        constants = dict(self.constants)
        for name, shape in self.weights.items():
            fan_in = max(1.0, float(np.prod(shape[1:])))
            constants[name] = rng.standard_normal(shape, np.float32) / np.float32(fan_in**0.5)
        graph = helper.make_graph(
            self.nodes,
            "chain",
            [helper.make_tensor_value_info(n, TensorProto.FLOAT, list(s)) for n, s in graph_inputs.items()],
            [helper.make_tensor_value_info(name, dtype, None) for name in results],
            [numpy_helper.from_array(array, name) for name, array in constants.items()],
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=10)

    def sample(self) -> Mapping[str, npt.NDArray[np.float32]]:
        """Return random inputs between 0 and 1."""
        rng = np.random.default_rng(0)
        return {n: rng.random(s, np.float32) for n, s in {"x": self.shape, **self.inputs}.items()}


def convolutions() -> Iterator[Net]:
    """Dense convolutions in chains that go to and fro between two numbers of channels."""
    aligned, unaligned = (16, 32, 64, 128, 256, 512), (8, 24, 40, 72, 120, 200)
    for channels, sides in ((aligned, SIDES), (unaligned, SIDES[:-1])):
        for (a, b), side, kernel in itertools.product(
            itertools.combinations_with_replacement(channels, 2), sides, ((1, 1), (3, 3))
        ):
            yield from _to_and_fro(a, b, (side, side), kernel)
    for (a, b), side, kernel in itertools.product(
        ((16, 16), (16, 64), (64, 64), (8, 8), (8, 24), (24, 24)), (14, 28, 56), ((1, 3), (5, 5), (7, 7))
    ):
        yield from _to_and_fro(a, b, (side, side), kernel)
    for (a, b), side, kernel in itertools.product(
        ((4, 4), (4, 12), (12, 12)), (28, 112), ((1, 1), (1, 3), (3, 3), (5, 5), (7, 7))
    ):
        yield from _to_and_fro(a, b, (side, side), kernel)


def _to_and_fro(
    a: int, b: int, sides: tuple[int, ...], kernel: tuple[int, ...], batch: int = 1
) -> Iterator[Net]:
    """Yield convolutions from `a` to `b` channels and back."""
    if batch * a * b * np.prod(sides) * np.prod(kernel) > MOST_PRODUCTS or max(kernel) > 2 * max(sides) + 1:
        return
    net = Net((batch, a, *sides)).conv(a, b, kernel, measure=False)
    for inputs, outputs in ((b, a), (a, b), (b, a), (a, b)):
        net.conv(inputs, outputs, kernel)
    yield net.conv(b, a, kernel, measure=False)


def depthwise_convolutions() -> Iterator[Net]:
    """Depthwise convolutions, and grouped ones."""
    for channels, side, kernel in itertools.product((16, 64, 256, 960, 24, 72, 200), SIDES, ((3, 3), (5, 5))):
        if channels * side * side <= 2_000_000:
            net = Net((1, channels, side, side))
            if channels < 100:
                net.conv(channels, channels, (1, 1), measure=False)
            else:
                net.conv(channels, channels, (3, 3), group=channels, measure=False)
            for _ in range(3):
                net.conv(channels, channels, kernel, group=channels)
            yield net.conv(channels, channels, kernel, group=channels, measure=False)
    grouped = (
        *((32, 4, 28), (64, 8, 14), (128, 2, 14), (64, 2, 28), (40, 4, 14), (80, 4, 28)),
        *((128, 8, 28), (256, 8, 14), (64, 4, 56), (512, 32, 7), (256, 32, 28)),
    )
    for channels, groups, side in grouped:
        net = Net((1, channels, side, side)).conv(channels, channels, (1, 1), measure=False)
        for _ in range(3):
            net.conv(channels, channels, (3, 3), group=groups)
        yield net.conv(channels, channels, (1, 1), measure=False)


def windows() -> Iterator[Net]:
    """Convolutions that copy windows: wide ones, those of few channels, large pictures, volumes."""
    wide = (
        *itertools.product(((1, 3), (3, 1), (1, 11), (3, 11), (11, 11)), (1, 3), (8, 32), (256, 4096)),
        *itertools.product(((1, 39), (3, 39), (3, 5)), (1, 8), (1, 8, 32), (1024, 8192)),
        *itertools.product(((1, 65), (65, 1), (1, 513), (513, 1)), (1, 2), (16, 128), (256, 1024)),
        *itertools.product(((1, 3), (3, 3)), (32,), (1, 4), (256, 4096)),
    )
    few_channels = (
        *itertools.product(((1, 3), (3, 3), (5, 5), (3, 11)), (4, 8, 12), (16, 32, 64), (256, 4096, 16384)),
        *itertools.product(((3, 3), (3, 11)), (24, 32, 48), (32, 64, 128), (256, 4096, 16384)),
        *itertools.product(((1, 1),), (4, 8, 12), (16, 64), (256, 4096, 16384)),
        *itertools.product(((1, 1),), (256, 512), (16, 32), (256, 4096)),
        *itertools.product(((3, 39),), (8,), (1, 8), (40000,)),
        *itertools.product(((3, 3),), (1, 4, 8), (4, 8, 16), (4096, 40000)),
        *itertools.product(((5, 5),), (8,), (1, 8), (4096, 40000)),
        *itertools.product(((3, 3),), (16, 32, 64), (1, 4), (40000,)),
        *itertools.product(((3, 3),), (12,), (12,), (4096, 40000)),
        *itertools.product(((3, 5),), (32, 64), (4, 8), (4096,)),
    )
    volumes = itertools.product(
        ((3, 3, 3), (1, 3, 3), (1, 11, 11)),
        ((1, 16), (1, 64), (3, 16), (3, 64), (16, 16), (16, 64), (64, 64)),
        (4, 8, 16),
    )
    places: list[tuple[tuple[int, ...], int, int, tuple[int, ...]]] = [
        *((kernel, a, b, _plane(kernel, pixels, 6)) for kernel, a, b, pixels in wide),
        *((kernel, a, b, _plane(kernel, pixels, 2)) for kernel, a, b, pixels in few_channels),
        *((kernel, a, b, (side, 2 * side, 2 * side)) for kernel, (a, b), side in volumes),
    ]
    for kernel, inputs, outputs, sides in places:
        if inputs * outputs * np.prod(sides) * np.prod(kernel) > MOST_PRODUCTS:
            continue
        net = Net((1, inputs, *sides))
        for _ in range(2):
            net.conv(inputs, outputs, kernel)
            net.conv(outputs, inputs, (1,) * len(kernel), measure=False)
        yield net


def _plane(kernel: tuple[int, int], pixels: int, windows: int) -> tuple[int, ...]:
    """Return the sides of a picture of some pixels that is a number of windows wide at least."""
    along = pixels if max(kernel) > 39 else max(round(pixels**0.5), windows * max(kernel))
    sides = (round(pixels / along) or 1, along)
    return sides if kernel[1] >= kernel[0] else sides[::-1]


def unknown_weights() -> Iterator[Net]:
    """Convolutions of pictures whose weights are known only when they run: they have no blocks."""
    for (a, b), side in itertools.product(
        itertools.combinations_with_replacement((4, 16, 32, 64, 128, 256), 2), (3, 7, 14, 28, 56)
    ):
        if a * b * side * side * 9 > MOST_PRODUCTS:
            continue
        net = Net((1, a, side, side), float_operators=("Conv",))
        for inputs, outputs in ((a, b), (b, a)) * 2:
            weight = net.input(outputs, inputs, 3, 3)
            net.add("Conv", weight, net.input(outputs), pads=[1] * 4, kernel_shape=[3, 3])
        yield net


TWICE = np.array([1, 1, 2, 2], np.float32)  # factors of a Resize
DIRECT = ":direct"  # context of a Resize that is the runtime's own operator on integers


def joined_channels() -> Iterator[Net]:
    """Concat of pictures with few channels, between convolutions."""
    for channels, side in itertools.product((8, 24, 48, 128), (8, 32, 64)):
        net = Net((1, channels, side, side), ":blocked").conv(channels, channels, (1, 1), measure=False)
        for _ in range(2):
            before = net.output
            net.conv(channels, channels, (1, 1), measure=False)
            net.add("Concat", before, axis=1).conv(2 * channels, channels, (1, 1), measure=False)
        yield net


def other_convolutions() -> Iterator[Net]:
    """First layers, convolutions of sequences, transposed convolutions."""
    for inputs, outputs, side, kernel in itertools.product((1, 3), (8, 16, 32, 64), (28, 56, 112), (3, 7)):
        net = Net((1, inputs, 2 * side, 2 * side)).conv(inputs, outputs, (kernel, kernel), stride=2)
        yield net.conv(outputs, 16, (1, 1), measure=False)
    for (a, b), length, kernel in itertools.product(
        itertools.combinations_with_replacement((16, 62, 128, 258), 2),
        (1, 4, 12, 50, 200, 800, 3200),
        (1, 3, 9),
    ):
        yield from _to_and_fro(a, b, (length,), (kernel,), batch=16 if length < 50 else 1)
    for a, side, kernel in itertools.product((16, 64, 128), (14, 28, 56), (2, 4)):
        net = Net((1, a, side, side)).conv(a, a, (1, 1), measure=False)
        net.add(
            "ConvTranspose",
            net.weight(a, a, kernel, kernel),
            strides=[2, 2],
            pads=[(kernel - 2) // 2] * 4,
            kernel_shape=[kernel] * 2,
        )
        yield net.conv(a, a, (1, 1), measure=False)


def products() -> Iterator[Net]:
    """Matrix products with a constant and with two activations."""
    for (a, b), rows in itertools.product(itertools.combinations_with_replacement(WIDTHS, 2), ROWS):
        if a * b * rows > MOST_PRODUCTS:
            continue
        for op in ("MatMul", "Gemm"):
            net = Net((rows, a))
            for inputs, outputs in ((a, b), (b, a)) * 3:
                constants = [net.weight(inputs, outputs)]
                constants += [net.weight(outputs)] if op == "Gemm" else []
                net.add(op, *constants, measure=0 < len(net.nodes) < 5)
            yield net
        for dynamic in (False, True):  # products whose results are float
            net = Net((rows, a), float_operators=("Neg",), dynamic=dynamic)
            for inputs, outputs in ((a, b), (b, a)) * 2:
                net.add("MatMul", net.weight(inputs, outputs)).add("Neg", measure=False)
            yield net
    for (a, b), rows in itertools.product(
        itertools.combinations_with_replacement((32, 64, 256), 2), (16, 64, 256)
    ):
        net = Net((8, rows, a))
        for other in (net.input(8, a, b), net.input(8, b, a)) * 3:
            net.add("MatMul", other, measure=0 < len(net.nodes) < 5)
        yield net


def recurrent_nets() -> Iterator[Net]:
    """Yield single recurrent operators: in one direction and in both, a GRU with either place of its
    reset."""
    kinds: tuple[tuple[str, int, dict[str, Any]], ...] = (
        ("LSTM", 4, {}),
        ("GRU", 3, {"linear_before_reset": 1}),
        ("GRU", 3, {}),
        ("RNN", 1, {}),
    )
    for (op, gates, attributes), direction, hidden, features, batch, steps in itertools.product(
        kinds, ("forward", "bidirectional"), STATES, (32, 256, 1024), (1, 4, 16), (1, 16, 64)
    ):
        rows, directions = gates * hidden, 2 if direction == "bidirectional" else 1
        if directions * rows * (features + hidden) * batch * steps > MOST_PRODUCTS:
            continue
        net = Net((steps, batch, features), dynamic=True)
        weights = [net.weight(directions, rows, size) for size in (features, hidden)]
        weights.append(net.weight(directions, 2 * rows))
        yield net.add(op, *weights, hidden_size=hidden, direction=direction, **attributes)


def elementwise() -> Iterator[Net]:
    """Operators that take each element by itself, in the usual layout."""
    for shape in map(_picture, ELEMENTS):
        for op in UNARY:
            yield _repeated(op, shape)
        for op, other in itertools.product(BINARY, (shape, ())):
            yield _with_operand(op, shape, other)
        power, root, clip, prelu = Net(shape), Net(shape), Net(shape), Net(shape)
        for _ in range(4):
            power.add("Pow", power.number(2.0))
            root.add("Pow", root.number(0.5))
            clip.add("Clip", clip.number(0.1), clip.number(0.9))
            prelu.add("PRelu", prelu.constant(np.full((shape[1], 1, 1), 0.2, np.float32)))
        yield from (power, root, clip, prelu)
    for op in BINARY:
        yield _with_operand(op, _picture(BEYOND_CACHE), _picture(BEYOND_CACHE))


def _with_operand(op: str, shape: tuple[int, ...], other: tuple[int, ...]) -> Net:
    """Return four nodes of an operator whose other operand has a shape, or is a number if the shape is ()."""
    net = Net(shape)
    for _ in range(4):
        net.add(op, net.input(*other) if other else net.number(0.7))
    return net


def repeated_operands() -> Iterator[Net]:
    """Operators on two tensors, one repeated: a row, or a number for each channel."""
    for run, elements, op in itertools.product((4, 32, 384, 3072), (4096, 32768, 262144, 1048576), BINARY):
        rows = max(elements // run, 2)
        row, channel = Net((rows, run)), Net((1, rows, 1, run))
        for _ in range(4):
            row.add(op, row.constant(np.full(run, 0.7, np.float32)))
            channel.add(op, channel.input(1, rows, 1, 1))
        yield from (row, channel)


def moves_and_reductions() -> Iterator[Net]:
    """Operators that move elements or reduce an axis, in the usual layout."""
    for shape in map(_picture, ELEMENTS):
        for order in ([0, 1, 3, 2], [0, 2, 1, 3]):
            net = Net(shape)
            for _ in range(3):  # another shape between them, or two of them would be none
                net.add("Transpose", perm=order)
                net.add("Reshape", net.integers(*shape), measure=False)
            yield net
        net = Net(shape)
        for _ in range(2):
            net.add("Reshape", net.integers(*shape)).add("Neg", measure=False)
            net.add("Reshape", net.integers(shape[1], -1)).add("Neg", measure=False)
        yield net
        for op, axis in itertools.product(("ReduceMean", "ReduceSum", "ReduceMax"), (3, 1)):
            net = Net(shape)
            for _ in range(3):
                net.add(op, net.integers(axis), keepdims=1)
                net.add("Add", net.input(*shape), measure=False)
            yield net


def _picture(elements: int) -> tuple[int, ...]:
    """Return the shape of a picture of some elements: 16 channels, 64 if large, twice as wide as high."""
    channels = 16 if elements < 32768 else 64
    side = max(1, round((elements / channels / 2) ** 0.5))
    return (1, channels, side, elements // channels // side)


def _repeated(op: str, shape: tuple[int, ...], **attributes: Any) -> Net:
    """Return four nodes of an operator that has no other inputs."""
    net = Net(shape)
    for _ in range(4):
        net.add(op, **attributes)
    return net


def softmax_and_normalization() -> Iterator[Net]:
    """Operators over rows of activations, along the last axis or another one."""
    for length, elements in itertools.product((16, 128, 1024), (4096, 65536, 524288)):
        rows = elements // length
        yield _repeated("Softmax", (rows, length), axis=-1)
        if length < 1024:
            yield _repeated("Softmax", (1, length, rows), axis=1)
            yield _repeated("Softmax", (1, length, 4, rows // 4), axis=1)
        net = Net((rows, length))
        for _ in range(4):
            net.add("LayerNormalization", net.weight(length), net.weight(length), axis=-1)
        yield net
        net = Net((1, rows, length))  # onnxruntime makes SkipLayerNormalization of it
        for _ in range(3):
            net.add("Add", net.input(*net.shape), measure=False)
            net.add("LayerNormalization", net.weight(length), net.weight(length), axis=-1)
        yield net


def copies() -> Iterator[Net]:
    """Operators that copy runs of elements, of some lengths."""
    for length, elements in itertools.product((8, 128, 2048), (4096, 65536, 1048576, BEYOND_CACHE)):
        rows, half = elements // length, length // 2
        net = Net((rows, half))
        for _ in range(3):
            net.add("Concat", net.input(rows, half), axis=1)
            net.add("Slice", net.integers(0), net.integers(half), net.integers(1), measure=False)
        yield net
        net = Net((rows, length + 3))
        for number in range(3):
            net.add("Slice", net.integers(1), net.integers(length + 3 - number), net.integers(1))
        yield net
        net = Net((rows, length))
        for _ in range(3):
            net.add("Pad", net.integers(0, 1, 0, 0))
        yield net
        net = Net((rows, length))
        for _ in range(3):
            net.add("Gather", net.constant(np.arange(rows)[::-1].copy()), axis=0)
        yield net


LAYOUT_SHAPES = ((16, 9), (32, 17), (64, 31), (64, 62), (96, 103))
"""Channels and sides of pictures between convolutions. No powers of 2: channels a multiple of a page apart
would fall into the same sets of a cache."""


def conversions() -> Iterator[Net]:
    """Conversions between convolutions and an operator that stays float."""
    for channels, side in (*LAYOUT_SHAPES, (96, 209)):
        net = Net((1, channels, side, side), float_operators=("Floor",), measures_conversions=True)
        for _ in range(4):
            net.conv(channels, channels, (1, 1), measure=False).add("Floor", measure=False)
        yield net.conv(channels, channels, (1, 1), measure=False)


def layouts() -> Iterator[Net]:
    """Operators between convolutions, in the layout that these have, and conversions of it."""
    for channels, side in LAYOUT_SHAPES:
        shape = (1, channels, side, side)

        def pointwise(net: Net, channels: int = channels) -> Net:
            return net.conv(channels, channels, (1, 1), measure=False)

        # Pools and resizing, between convolutions and without them.
        for op, kernel in itertools.product(("MaxPool", "AveragePool"), (3, 5)):
            for net in (pointwise(Net(shape, ":blocked")), Net(shape)):
                for _ in range(3):
                    net.add(op, kernel_shape=[kernel] * 2, pads=[kernel // 2] * 4, strides=[1, 1])
                yield pointwise(net) if net.context else net
        nearest: dict[str, Any] = {
            "mode": "nearest",
            "coordinate_transformation_mode": "asymmetric",
            "nearest_mode": "floor",
        }
        linear: dict[str, Any] = {"mode": "linear", "coordinate_transformation_mode": "half_pixel"}
        for attributes in (nearest, linear):
            if attributes is nearest:
                net = pointwise(Net(shape, DIRECT))
                yield pointwise(net.add("Resize", "", net.constant(TWICE), **attributes))
            for net in (pointwise(Net(shape, ":blocked")), Net(shape)):
                net.add("Resize", "", net.constant(TWICE), **attributes)
                yield pointwise(net) if net.context else net
        for net in (pointwise(Net(shape, ":blocked")), Net(shape)):
            net.add("GlobalAveragePool")
            yield pointwise(net) if net.context else net

        # Convolutions, each with an operator after it that may be made a part of it.
        for op in (
            *("Relu", "Add", "Mul", "Sigmoid", "HardSwish", "Gelu", "LeakyRelu", "Concat", "HardSigmoid"),
            *("Tanh", "Silu"),
        ):
            net = pointwise(Net(shape, ":blocked"))
            for _ in range(3):
                before = net.output
                pointwise(net)
                if op in ("Add", "Mul"):
                    net.add(op, before)
                elif op == "Concat":
                    net.add(op, before, axis=1).conv(2 * channels, channels, (1, 1), measure=False)
                elif op == "Silu":
                    convolved = net.output
                    net.add("Sigmoid").add("Mul", convolved)
                else:
                    net.add(op)
            yield pointwise(pointwise(net))  # the first of these is what the others are compared with

        # Pools, each with an operator after it that is a part of no other.
        for op in ("Relu", "Sigmoid", "HardSwish", "Gelu", "Mul", "LeakyRelu", "Clip"):
            net = pointwise(Net(shape, ":blocked"))
            for _ in range(3):
                net.add("MaxPool", kernel_shape=[2, 2], pads=[0, 0, 1, 1], strides=[1, 1], measure=False)
                if op == "Mul":
                    net.add(op, net.input(1, channels, 1, 1))
                elif op == "Clip":
                    net.add(op, net.number(0.1), net.number(0.9))
                else:
                    net.add(op)
            yield pointwise(net)
