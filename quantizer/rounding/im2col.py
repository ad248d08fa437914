"""im2col: the input of a product with a constant weight as the rows of a matrix. Pure.

For each group of channels, one output element of each output channel is the product of a row with a column
of the weight. A row of a MatMul is a vector of its input; one of a convolution is what lies under the kernel
at one position (im2col), channels before taps, as `WeightAxes.blocks` has the weight.
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
"""Fractional parts of its multiples are spread evenly over 0 to 1, with no period that a feature map has."""


@dataclass(frozen=True)
class KernelWindow:
    """Where a kernel lies on its input, as ONNX Conv describes it.

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
class ProductInput:
    """How im2col rows are taken from a tensor; nodes with equal records multiply the same rows.

    Attributes:
        tensor: name of the input.
        groups: number of groups of its channels.
        columns: length of a row, in one group.
        window: of a convolution; None where the last axis holds the rows.
    """

    tensor: str
    groups: int
    columns: int
    window: KernelWindow | None = None


def product_input(graph: Graph, node: ir.Node, weight: Array) -> ProductInput | None:
    """Return how a node with a constant weight multiplies its first input; None where no rows describe that.

    None are given for stacks of matrices, a transposed input, and transposed convolutions whose kernels
    overlap.
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
            return ProductInput(name, groups, inputs) if weight.ndim == 2 else None
        case Kernel.GATHERS:
            return ProductInput(name, groups, inputs * taps, _kernel_window(node, axes.taps_shape))
        case Kernel.SCATTERS:
            window, ones = _kernel_window(node, axes.taps_shape), (1,) * len(axes.taps_shape)
            if window.strides != window.kernel or window.dilations != ones:
                return None
            # Each input position meets each tap once: the rows are its channels.
            return ProductInput(name, groups, inputs, KernelWindow(ones, ones, ones, (0,) * 2 * len(ones)))


def _kernel_window(node: ir.Node, kernel: tuple[int, ...]) -> KernelWindow:
    ones = (1,) * len(kernel)
    return KernelWindow(
        kernel,
        tuple(node.attributes.get_ints("strides", ones)),
        tuple(node.attributes.get_ints("dilations", ones)),
        tuple(node.attributes.get_ints("pads", (0,) * 2 * len(kernel))),
        node.attributes.get_string("auto_pad", "NOTSET"),
    )


def im2col_rows(array: Array, source: ProductInput, most: int) -> Floats:
    """Return rows of a tensor, float64 (groups, rows, columns): all, or about `most` evenly spread."""
    if source.window is None:
        flat = array.reshape(-1, source.columns)
        return np.asarray(flat[_chosen(flat.shape[0], most)][None], np.float64)
    window, axes = source.window, tuple(range(2, array.ndim))
    array = np.pad(array, ((0, 0), (0, 0), *_pads(window, array.shape[2:])))
    reach = tuple((k - 1) * d + 1 for k, d in zip(window.kernel, window.dilations, strict=True))
    views = np.lib.stride_tricks.sliding_window_view(array, reach, axis=axes)
    views = views[(slice(None), slice(None), *(slice(None, None, s) for s in window.strides))]
    for axis, dilation in enumerate(window.dilations, array.ndim):
        views = views[(slice(None),) * axis + (slice(None, None, dilation),)]
    places = (views.shape[0], *views.shape[2 : array.ndim])
    batch, *where = np.unravel_index(_chosen(int(np.prod(places)), most), places)
    place: Any = (batch, slice(None), *where)
    rows = np.asarray(views[place], np.float64)
    return np.ascontiguousarray(rows.reshape(rows.shape[0], source.groups, -1).transpose(1, 0, 2))


def _pads(window: KernelWindow, sizes: tuple[int, ...]) -> list[tuple[int, int]]:
    """Return the zeros before and after each spatial axis (ONNX Conv, `auto_pad`)."""
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
    """Return the indices, in order, of all rows, or of about `most` spread evenly among them."""
    if total <= most:
        return np.arange(total)
    return np.unique((np.arange(1, most + 1) * GOLDEN % 1.0 * total).astype(np.int64))
