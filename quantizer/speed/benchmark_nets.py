"""The small networks on which kernels are timed: chains, so that each node finds its input as in a model.

A chain of one kernel has its activations in the layout and in the caches that they have in a model; only the
nodes in its middle are used. Sizes are a grid, in steps of 2 to 4: times are interpolated between them in log
space, where a kernel's time bends slowly. What would take longer than `MOST_PRODUCTS` at a point is left out:
from there on time grows in proportion.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from .benchmark_net import Net
from .benchmark_operators import elementwise, layouts

MOST_PRODUCTS = 300e6
"""Multiply-adds of one node: a few milliseconds."""

SIDES = (1, 3, 7, 14, 28, 56, 112)


def all_nets() -> tuple[Net, ...]:
    """Return every network, in the order in which they are measured."""
    parts = (convolutions, depthwise, other_convolutions, products, recurrent, elementwise, layouts)
    return tuple(net for part in parts for net in part())


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
    widths, heights = (32, 128, 384, 1536), (1, 4, 16, 64, 256, 1024)
    for (a, b), rows in itertools.product(itertools.combinations_with_replacement(widths, 2), heights):
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


def memory_nets() -> Iterator[Net]:
    """Products with few and many weights that no cache holds; networks of one number of rows together."""
    for rows, pairs in itertools.product((1, 2, 4, 16, 64), (1, 2, 4, 8, 16)):
        net = Net(f"weights {rows}", (rows, 384))
        for _ in range(pairs):
            net.add("MatMul", net.weight(384, 1536)).add("MatMul", net.weight(1536, 384))
        yield net


def recurrent() -> Iterator[Net]:
    """Recurrent operators, and LSTM with dynamic quantization."""
    gates = {"LSTM": 4, "GRU": 3}
    for op, hidden, features, steps in itertools.product(gates, (32, 128, 256), (32, 256), (1, 16, 64)):
        net = Net(f"{op} {hidden} {features} {steps}", (steps, 1, features), dynamic=True)
        count = gates[op] * hidden
        weights = net.weight(1, count, features), net.weight(1, count, hidden), net.weight(1, 2 * count)
        yield net.add(op, *weights, hidden_size=hidden)
