"""The small networks for operators other than products: by elements, by runs that are copied, by layout."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

from .benchmark_net import Net

ELEMENTS = (64, 512, 4096, 32768, 262144, 1048576)
UNARY = (
    *("Relu", "Sigmoid", "Tanh", "HardSwish", "HardSigmoid", "LeakyRelu", "Elu", "Softplus", "Gelu", "Erf"),
    *("Exp", "Log", "Sqrt", "Reciprocal", "Abs", "Neg", "Sin", "Cos", "Floor"),
)


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
        net = Net(f"LayerNormalization {length} {elements}", (elements // length, length))
        for _ in range(4):
            net.add("LayerNormalization", net.weight(length), net.weight(length), axis=-1)
        yield net
        net = Net(f"SkipLayerNormalization {length} {elements}", (1, elements // length, length))
        for _ in range(3):
            net.add("Add", net.input(*net.shape), measure=False)
            net.add("LayerNormalization", net.weight(length), net.weight(length), axis=-1)
        yield net
    for run, elements in itertools.product((8, 128, 2048), (4096, 65536, 1048576)):
        yield from _copies(run, elements)


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
