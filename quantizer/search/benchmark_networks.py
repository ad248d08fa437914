"""The small networks on which kernels are timed: chains, so that each node finds its input as in a model.

A chain of one kernel has its activations in the layout and in the caches that they have in a model; only the
nodes in its middle are used. Sizes are a grid, in steps of 2 to 4: times are interpolated between them in log
space, where a kernel's time bends slowly. What would take longer than `MOST_PRODUCTS` at a point is left out:
from there on time grows in proportion.
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

MOST_PRODUCTS = 300e6
"""Multiply-adds of one node: a few milliseconds."""

WIDTHS = (32, 128, 384, 1536)
"""Rows and columns of the weights of products."""

ROWS = (1, 4, 16, 64, 256, 1024)
"""Rows of their activations."""

SIDES = (1, 3, 7, 14, 28, 56, 112)

ELEMENTS = (64, 512, 4096, 32768, 262144, 1048576)
UNARY = (
    *("Relu", "Sigmoid", "Tanh", "HardSwish", "HardSigmoid", "LeakyRelu", "Elu", "Softplus", "Gelu", "Erf"),
    *("Exp", "Log", "Sqrt", "Reciprocal", "Abs", "Neg", "Sin", "Cos", "Floor"),
)


def all_nets() -> tuple[Net, ...]:
    """Return every network, in the order in which they are measured."""
    parts = (convolutions, depthwise, other_convolutions, products, recurrent, elementwise, layouts)
    return tuple(net for part in parts for net in part())


def memory_nets() -> Iterator[Net]:
    """Products with few and many weights that no cache holds; networks of one number of rows together."""
    for rows, pairs in itertools.product((1, 2, 4, 16, 64), (1, 2, 4, 8, 16)):
        net = Net(f"weights {rows}", (rows, 384))
        for _ in range(pairs):
            net.add("MatMul", net.weight(384, 1536)).add("MatMul", net.weight(1536, 384))
        yield net


@dataclass
class Net:
    """A network that is being built, whose nodes follow each other.

    Attributes:
        kernel: what is measured, for messages.
        shape: of the graph input x.
        context: ":blocked" or "" : what layout the measured nodes find.
        floats: operators that stay float in the quantized form though they need not.
        dynamic: whether products are quantized dynamically.
    """

    kernel: str
    shape: tuple[int, ...]
    context: str = ""
    floats: tuple[str, ...] = ()
    dynamic: bool = False
    here: str = "x"
    nodes: list[Any] = field(default_factory=list)
    constants: dict[str, npt.NDArray[Any]] = field(default_factory=dict)
    weights: dict[str, tuple[int, ...]] = field(default_factory=dict)
    inputs: dict[str, tuple[int, ...]] = field(default_factory=dict)
    measured: set[str] = field(default_factory=set)

    def add(self, op: str, *more: str, measure: bool = True, **attributes: Any) -> Net:
        """Append a node that reads the output of the one before it, and the names in `more`."""
        name = f"n{len(self.nodes)}"
        outputs = [f"t{len(self.nodes)}"]
        self.nodes.append(helper.make_node(op, [self.here, *more], outputs, name, **attributes))
        self.here = outputs[0]
        if measure:
            self.measured.add(name)
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
        """Append a convolution that keeps the size of the picture, with a bias."""
        pads = [k // 2 for k in kernel]
        weight, bias = self.weight(outputs, inputs // group, *kernel), self.weight(outputs)
        strides = [stride] * len(kernel)
        return self.add(
            "Conv",
            weight,
            bias,
            measure=measure,
            group=group,
            pads=[*pads, *pads],
            strides=strides,
            kernel_shape=kernel,
        )

    def model(self) -> onnx.ModelProto:
        """Return the network as a model with the result of its last node as output."""
        graph_inputs = {"x": self.shape, **self.inputs}
        rng = np.random.default_rng(0)
        constants = dict(self.constants)
        for name, shape in self.weights.items():
            fan_in = max(1.0, float(np.prod(shape[1:])))
            constants[name] = rng.standard_normal(shape, np.float32) / np.float32(fan_in**0.5)
        graph = helper.make_graph(
            self.nodes,
            "chain",
            [helper.make_tensor_value_info(n, TensorProto.FLOAT, list(s)) for n, s in graph_inputs.items()],
            [helper.make_tensor_value_info(self.here, TensorProto.FLOAT, None)],
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
    for channels, sides in ((aligned, SIDES), (unaligned, (1, 3, 7, 14, 28, 56))):
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
    if batch * a * b * np.prod(sides) * np.prod(kernel) > MOST_PRODUCTS or max(kernel) > 2 * max(sides) + 1:
        return
    net = Net(f"Conv {a}-{b} {kernel} {sides}", (batch, a, *sides)).conv(a, b, kernel, measure=False)
    for inputs, outputs in ((b, a), (a, b), (b, a), (a, b)):
        net.conv(inputs, outputs, kernel)
    yield net.conv(b, a, kernel, measure=False)


def depthwise() -> Iterator[Net]:
    """Depthwise convolutions, and grouped ones."""
    for channels, side, kernel in itertools.product((16, 64, 256, 960, 24, 72, 200), SIDES, ((3, 3), (5, 5))):
        if channels * side * side <= 2_000_000:
            net = Net(f"depthwise {channels} {side} {kernel}", (1, channels, side, side))
            first = ((1, 1), 1) if channels < 100 else ((3, 3), channels)
            net.conv(channels, channels, first[0], group=first[1], measure=False)
            for _ in range(3):
                net.conv(channels, channels, kernel, group=channels)
            yield net.conv(channels, channels, kernel, group=channels, measure=False)
    for channels, groups, side in (
        (32, 4, 28),
        (64, 8, 14),
        (128, 2, 14),
        (64, 2, 28),
        (40, 4, 14),
        (80, 4, 28),
    ):
        net = Net(f"grouped {channels}/{groups}", (1, channels, side, side)).conv(
            channels, channels, (1, 1), measure=False
        )
        for _ in range(3):
            net.conv(channels, channels, (3, 3), group=groups)
        yield net.conv(channels, channels, (1, 1), measure=False)


def other_convolutions() -> Iterator[Net]:
    """First layers, sequences, transposed convolutions."""
    for inputs, outputs, side, kernel in itertools.product((1, 3), (8, 16, 32, 64), (28, 56, 112), (3, 7)):
        net = Net(f"first {inputs}-{outputs} {kernel} {side}", (1, inputs, 2 * side, 2 * side))
        net.conv(inputs, outputs, (kernel, kernel), stride=2)
        yield net.conv(outputs, 16, (1, 1), measure=False)
    for (a, b), length, kernel in itertools.product(
        itertools.combinations_with_replacement((16, 62, 128, 258), 2),
        (1, 4, 12, 50, 200, 800, 3200),
        (1, 3, 9),
    ):
        yield from _to_and_fro(a, b, (length,), (kernel,), batch=16 if length < 50 else 1)
    for a, side, kernel in itertools.product((16, 64, 128), (14, 28, 56), (2, 4)):
        net = Net(f"ConvTranspose {a} {side} {kernel}", (1, a, side, side)).conv(a, a, (1, 1), measure=False)
        pads = [(kernel - 2) // 2] * 4
        net.add(
            "ConvTranspose",
            net.weight(a, a, kernel, kernel),
            strides=[2, 2],
            pads=pads,
            kernel_shape=[kernel] * 2,
        )
        yield net.conv(a, a, (1, 1), measure=False)


def products() -> Iterator[Net]:
    """Matrix products with a constant and with two activations."""
    for (a, b), rows in itertools.product(itertools.combinations_with_replacement(WIDTHS, 2), ROWS):
        if a * b * rows <= MOST_PRODUCTS:
            for op in ("MatMul", "Gemm"):
                net = Net(f"{op} {a}-{b} {rows}", (rows, a))
                for inputs, outputs in ((a, b), (b, a), (a, b), (b, a), (a, b), (b, a)):
                    more = [net.weight(inputs, outputs)] + ([net.weight(outputs)] if op == "Gemm" else [])
                    net.add(op, *more, measure=0 < len(net.nodes) < 5)
                yield net
            for dynamic in (False, True):
                net = Net(f"MatMul to float {a}-{b} {rows}", (rows, a), floats=("Neg",), dynamic=dynamic)
                for inputs, outputs in ((a, b), (b, a), (a, b), (b, a)):
                    net.add("MatMul", net.weight(inputs, outputs)).add("Neg", measure=False)
                yield net
    for (a, b), rows in itertools.product(
        itertools.combinations_with_replacement((32, 64, 256), 2), (16, 64, 256)
    ):
        net = Net(f"MatMul of activations {a}-{b} {rows}", (8, rows, a))
        there, back = net.input(8, a, b), net.input(8, b, a)
        for other in (there, back) * 3:
            net.add("MatMul", other, measure=0 < len(net.nodes) < 5)
        yield net


def recurrent() -> Iterator[Net]:
    """Recurrent operators, and LSTM with dynamic quantization."""
    gates = {"LSTM": 4, "GRU": 3}
    for op, hidden, features, steps in itertools.product(gates, (32, 128, 256), (32, 256), (1, 16, 64)):
        net = Net(f"{op} {hidden} {features} {steps}", (steps, 1, features), dynamic=True)
        count = gates[op] * hidden
        weights = net.weight(1, count, features), net.weight(1, count, hidden), net.weight(1, 2 * count)
        yield net.add(op, *weights, hidden_size=hidden)


def elementwise() -> Iterator[Net]:
    """Operators that take each element by itself, and those that move elements, in the usual layout."""
    for elements in ELEMENTS:
        shape = _shape(elements)
        for op in UNARY:
            yield _repeated(op, shape)
        yield from _binaries(shape)
        yield from _movers(shape)
    for length, elements in itertools.product((16, 128, 1024), (4096, 65536, 524288)):
        yield _repeated("Softmax", (elements // length, length), axis=-1)
        if length < 1024:
            yield _repeated("Softmax", (1, length, elements // length), axis=1)
            yield _repeated("Softmax", (1, length, 4, elements // length // 4), axis=1)
        net = Net(f"LayerNormalization {length} {elements}", (elements // length, length))
        for _ in range(4):
            net.add("LayerNormalization", net.weight(length), net.weight(length), axis=-1)
        yield net
        net = Net(f"SkipLayerNormalization {length} {elements}", (1, elements // length, length))
        for _ in range(3):
            net.add("Add", net.input(*net.shape), measure=False)
            net.add("LayerNormalization", net.weight(length), net.weight(length), axis=-1)
        yield net
    for timed, elements in itertools.product((8, 128, 2048), (4096, 65536, 1048576)):
        yield from _copies(timed, elements)


def _shape(elements: int) -> tuple[int, ...]:
    """Return a picture of a number of elements: 16 channels, or 64 of a large one, twice as wide as high."""
    channels = 16 if elements < 32768 else 64
    side = max(1, round((elements / channels / 2) ** 0.5))
    return (1, channels, side, elements // channels // side)


def _repeated(op: str, shape: tuple[int, ...], *more: str, **attributes: Any) -> Net:
    net = Net(f"{op} {shape}", shape)
    for _ in range(4):
        net.add(op, *more, **attributes)
    return net


def _binaries(shape: tuple[int, ...]) -> Iterator[Net]:
    for op in ("Add", "Mul", "Sub", "Div", "Max", "Pow"):
        for other in (shape, (), shape[-1:], (1, shape[1], 1, 1)):
            net = Net(f"{op} {shape} {other}", shape)
            fixed = other in ((), shape[-1:]) and other != shape
            for _ in range(4):
                if op == "Pow":
                    net.add(op, net.number(2.0))
                else:
                    net.add(op, net.constant(np.full(other, 0.7, np.float32)) if fixed else net.input(*other))
            yield net
            if op == "Pow":
                break
    net = Net(f"Clip {shape}", shape)
    for _ in range(4):
        net.add("Clip", net.number(0.1), net.number(0.9))
    yield net
    net = Net(f"PRelu {shape}", shape)
    for _ in range(4):
        net.add("PRelu", net.constant(np.full((shape[1], 1, 1), 0.2, np.float32)))
    yield net


def _movers(shape: tuple[int, ...]) -> Iterator[Net]:
    for order in ([0, 1, 3, 2], [0, 2, 1, 3]):
        net = Net(f"Transpose {order} {shape}", shape)
        for _ in range(3):  # another shape between them, or two of them would be none
            net.add("Transpose", perm=order)
            net.add("Reshape", net.integers(*shape), measure=False)
        yield net
    net = Net(f"Reshape {shape}", shape)
    for number in range(4):
        sizes = [shape[1], -1] if number % 2 else list(shape)
        net.add("Reshape", net.integers(*sizes)).add("Neg", measure=False)
    yield net
    for op in ("ReduceMean", "ReduceSum", "ReduceMax"):
        for axis in (3, 1):
            net = Net(f"{op} {axis} {shape}", shape)
            for _ in range(3):
                net.add(op, net.integers(axis), keepdims=1)
                net.add("Add", net.input(*shape), measure=False)
            yield net


def _copies(run: int, elements: int) -> Iterator[Net]:
    """Operators that copy runs of elements."""

    rows = elements // run
    net = Net(f"Concat {run} {elements}", (rows, run // 2))
    for _ in range(3):
        net.add("Concat", net.input(rows, run // 2), axis=1)
        net.add("Slice", *(net.integers(n) for n in (0, run // 2, 1)), measure=False)
    yield net
    net = Net(f"Slice {run} {elements}", (rows, run + 3))
    for number in range(3):
        net.add("Slice", *(net.integers(n) for n in (1, run + 3 - number, 1)))
    yield net
    net = Net(f"Pad {run} {elements}", (rows, run))
    for _ in range(3):
        net.add("Pad", net.integers(0, 1, 0, 0))
    yield net
    net = Net(f"Gather {run} {elements}", (rows, run))
    for _ in range(3):
        net.add("Gather", net.constant(np.arange(rows)[::-1].copy()), axis=0)
    yield net


def layouts() -> Iterator[Net]:
    """Operators between convolutions, in the layout that these have, and conversions of it."""
    # No powers of 2: channels a multiple of a page apart would fall into the same sets of a cache.
    for channels, side in ((16, 9), (32, 17), (64, 31), (64, 62), (96, 103)):
        for context in (":blocked", ""):
            yield from _in_layout(channels, side, context)
        net = Net(
            f"conversions {channels} {side}", (1, channels, side, side), "conversions", floats=("Floor",)
        )
        for _ in range(4):
            net.conv(channels, channels, (1, 1), measure=False).add("Floor", measure=False)
        yield net.conv(channels, channels, (1, 1), measure=False)


def _in_layout(channels: int, side: int, context: str) -> Iterator[Net]:
    def begun(op: str) -> Net:
        net = Net(f"{op} {channels} {side}{context}", (1, channels, side, side), context)
        return net.conv(channels, channels, (1, 1), measure=False) if context else net

    def ended(net: Net) -> Net:
        return net.conv(channels, channels, (1, 1), measure=False) if context else net

    for op, kernel in itertools.product(("MaxPool", "AveragePool"), (3, 5)):
        net = begun(op)
        for _ in range(3):
            net.add(op, kernel_shape=[kernel] * 2, pads=[kernel // 2] * 4, strides=[1, 1])
        yield ended(net)
    for mode in ("nearest", "linear"):
        net = begun(f"Resize {mode}")
        scales = net.constant(np.array([1, 1, 2, 2], np.float32))
        transform = "asymmetric" if mode == "nearest" else "half_pixel"
        rounding: dict[str, Any] = {"nearest_mode": "floor"} if mode == "nearest" else {}
        net.add("Resize", "", scales, mode=mode, coordinate_transformation_mode=transform, **rounding)
        yield ended(net)
    net = begun("GlobalAveragePool")
    yield (
        net.add("GlobalAveragePool")
        if not context
        else net.add("GlobalAveragePool").conv(channels, channels, (1, 1), measure=False)
    )
    for op in (
        "Relu",
        "Add",
        "Mul",
        "Sigmoid",
        "HardSwish",
        "Gelu",
        "LeakyRelu",
        "Concat",
        "HardSigmoid",
        "Tanh",
        "Silu",
    ):
        if context:
            yield _after_convolution(begun(op), op, channels)
    for op in ("Relu", "Sigmoid", "HardSwish", "Gelu", "Mul", "LeakyRelu", "Clip"):
        if context:
            yield ended(_between(begun(op), op))


def _after_convolution(net: Net, op: str, channels: int) -> Net:
    """Append three convolutions, each with an operator after it that may be made a part of it."""
    for _ in range(3):
        before = net.here
        net.conv(channels, channels, (1, 1), measure=False)
        if op in ("Add", "Mul"):
            net.add(op, before)
        elif op == "Concat":
            net.add(op, before, axis=1).conv(2 * channels, channels, (1, 1), measure=False)
        elif op == "Silu":
            inner = net.here
            net.add("Sigmoid").add("Mul", inner)
        else:
            net.add(op)
    for _ in range(2):  # the first of these is what the others are compared with
        net.conv(channels, channels, (1, 1), measure=False)
    return net


def _between(net: Net, op: str) -> Net:
    """Append pools, each with an operator after it, which is a part of no other."""
    for _ in range(3):
        net.add("MaxPool", kernel_shape=[2, 2], pads=[0, 0, 1, 1], strides=[1, 1], measure=False)
        if op == "Mul":
            net.add(op, net.input(1, net.shape[1], 1, 1))
        elif op == "Clip":
            net.add(op, net.number(0.1), net.number(0.9))
        else:
            net.add(op)
    return net
