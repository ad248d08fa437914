"""What a product with a constant weight multiplies: the rows of a matrix, taken from its input. Pure.

For each group of channels, one output element of each output channel is the product of a row with a column
of the weight. A row of a MatMul is a vector of its input; one of a convolution is what lies under the kernel
at one place (im2col), channels before taps, as `WeightAxes.blocks` has the weight.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from ..model.graph import Graph
from ..operators.table import product_layout
from ..operators.weight_layout import Array, Kernel

Floats = npt.NDArray[np.float64]

GOLDEN = (5.0**0.5 - 1.0) / 2.0
"""Multiples of it, without their whole parts, lie evenly in 0 to 1 and in step with no width of a map."""


@dataclass(frozen=True)
class Window:
    """A kernel, as ONNX Conv describes it.

    Attributes:
        kernel, strides, dilations: one for each spatial axis.
        pads: begins, then ends.
        auto_pad: "NOTSET" (`pads` holds), "VALID", "SAME_UPPER" or "SAME_LOWER".
    """

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[int, ...]
    auto_pad: str = "NOTSET"


@dataclass(frozen=True)
class Reading:
    """How rows are taken from a tensor; nodes with equal readings multiply the same rows.

    Attributes:
        tensor: the input.
        groups: of its channels.
        columns: length of a row, in one group.
        window: of a convolution; None where the last axis holds the rows.
    """

    tensor: str
    groups: int
    columns: int
    window: Window | None = None


def reading_of(graph: Graph, node: ir.Node, weight: Array) -> Reading | None:
    """Return how a node with a constant weight reads its first input; None where that is not told here.

    Not told are stacks of matrices, a transposed input, and transposed convolutions whose kernels overlap.
    """
    name = (node.inputs[0].name or "") if node.inputs[0] is not None else ""
    if not graph.is_float(name) or graph.is_constant(name) or weight.ndim < 2:
        return None
    layout = product_layout(node)
    if layout is None or layout.reads_transposed(node):
        return None
    axes = layout.axes(node, weight.shape)
    groups, _, inputs, taps = axes.block_shape
    match layout.kernel:
        case Kernel.NONE:
            return Reading(name, groups, inputs) if weight.ndim == 2 else None
        case Kernel.GATHERS:
            return Reading(name, groups, inputs * taps, _window(node, axes.taps_shape))
        case Kernel.SCATTERS:
            window, ones = _window(node, axes.taps_shape), (1,) * len(axes.taps_shape)
            if window.strides != window.kernel or window.dilations != ones:
                return None
            # Each place of the input meets each tap once: the rows are its channels.
            return Reading(name, groups, inputs, Window(ones, ones, ones, (0,) * 2 * len(ones)))


def _window(node: ir.Node, kernel: tuple[int, ...]) -> Window:
    ones = (1,) * len(kernel)
    return Window(
        kernel,
        tuple(node.attributes.get_ints("strides", ones)),
        tuple(node.attributes.get_ints("dilations", ones)),
        tuple(node.attributes.get_ints("pads", (0,) * 2 * len(kernel))),
        node.attributes.get_string("auto_pad", "NOTSET"),
    )


def rows_of(array: Array, reading: Reading, most: int) -> Floats:
    """Return rows of a tensor, float64 (groups, rows, columns): all, or `most` that lie evenly in it."""
    if reading.window is None:
        flat = array.reshape(-1, reading.columns)
        return np.asarray(flat[_chosen(flat.shape[0], most)][None], np.float64)
    window, axes = reading.window, tuple(range(2, array.ndim))
    array = np.pad(array, ((0, 0), (0, 0), *_pads(window, array.shape[2:])))
    reach = tuple((k - 1) * d + 1 for k, d in zip(window.kernel, window.dilations, strict=True))
    views = np.lib.stride_tricks.sliding_window_view(array, reach, axis=axes)
    views = views[(slice(None), slice(None), *(slice(None, None, s) for s in window.strides))]
    for axis, dilation in enumerate(window.dilations, array.ndim):
        views = views[(slice(None),) * axis + (slice(None, None, dilation),)]
    places = (views.shape[0], *views.shape[2 : array.ndim])
    batch, *where = np.unravel_index(_chosen(int(np.prod(places)), most), places)
    place: Any = (batch, slice(None), *where)
    found = np.asarray(views[place], np.float64)
    return np.ascontiguousarray(found.reshape(found.shape[0], reading.groups, -1).transpose(1, 0, 2))


def _pads(window: Window, sizes: tuple[int, ...]) -> list[tuple[int, int]]:
    """Return the zeros before and behind each spatial axis (ONNX Conv, `auto_pad`)."""
    if window.auto_pad == "NOTSET":
        return [(window.pads[i], window.pads[i + len(sizes)]) for i in range(len(sizes))]
    if window.auto_pad == "VALID":
        return [(0, 0)] * len(sizes)
    pads = []
    steps = zip(sizes, window.kernel, window.strides, window.dilations, strict=True)
    for size, kernel, stride, dilation in steps:
        total = max(0, (-(-size // stride) - 1) * stride + (kernel - 1) * dilation + 1 - size)
        less, more = total // 2, total - total // 2
        pads.append((less, more) if window.auto_pad == "SAME_UPPER" else (more, less))
    return pads


def _chosen(total: int, most: int) -> npt.NDArray[np.int64]:
    """Return the places, in order, of all rows, or of about `most` that lie evenly among them."""
    if total <= most:
        return np.arange(total)
    return np.unique((np.arange(1, most + 1) * GOLDEN % 1.0 * total).astype(np.int64))
