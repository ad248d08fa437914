"""Second moments of the factors of a weight. Pure, and the same to the bit on any number of threads.

A linear algebra library adds in an order that depends on threads and processors. So rows are rounded to a
grid of 16 bits first: products then are integers below 2^30, and the sum of up to 2^23 of them is exact in
float64, in any order. Samples are added one after the other.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from ...profiles.base.errors import DataError
from ...profiles.base.tool import Progress
from ...profiles.runtime.session import optimised, run_sample, session_for
from ...profiles.samples.values import Sample
from ..model.graph import name_of
from ..operators.graph import Graph, Node
from ..operators.table import product_layout
from ..operators.weight_layout import Kernel

# im2col: the input of a product with a constant weight as the rows of a matrix ----------------------------

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]

GOLDEN = (5.0**0.5 - 1.0) / 2.0
"""Fractional parts of its multiples are spread evenly over 0 to 1, with no period that a feature map has."""


@dataclass(frozen=True)
class KernelWindow:
    """Where a kernel lies on its input, as ONNX Conv describes it."""

    kernel: tuple[int, ...]  # one for each spatial axis
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[int, ...]  # begins, then ends
    auto_pad: str = "NOTSET"  # "NOTSET" (`pads` holds), "VALID", "SAME_UPPER" or "SAME_LOWER"


@dataclass(frozen=True)
class ProductInput:
    """The im2col rows of a tensor; nodes with equal records multiply the same rows."""

    tensor: str
    groups: int
    columns: int  # length of a row, in one group
    window: KernelWindow | None = None  # of a convolution; None where the last axis holds the rows


def product_input(graph: Graph, node: Node, weight: Array) -> ProductInput | None:
    """Return the input rows that a node multiplies by a constant weight, or None if it has no such rows."""
    name = node.inputs[0]
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


def _kernel_window(node: Node, kernel: tuple[int, ...]) -> KernelWindow:
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
        return np.asarray(flat[_spread_rows(flat.shape[0], most)][None], np.float64)
    window, axes = source.window, tuple(range(2, array.ndim))
    array = np.pad(array, ((0, 0), (0, 0), *_pads(window, array.shape[2:])))
    reach = tuple((k - 1) * d + 1 for k, d in zip(window.kernel, window.dilations, strict=True))
    # Every place of the kernel as a view, then those that strides reach, then the taps that dilations leave.
    views = np.lib.stride_tricks.sliding_window_view(array, reach, axis=axes)
    views = views[(slice(None), slice(None), *(slice(None, None, s) for s in window.strides))]
    for axis, dilation in enumerate(window.dilations, array.ndim):
        views = views[(slice(None),) * axis + (slice(None, None, dilation),)]
    places = (views.shape[0], *views.shape[2 : array.ndim])
    batch, *where = np.unravel_index(_spread_rows(int(np.prod(places)), most), places)
    positions: Any = (batch, slice(None), *where)
    rows = np.asarray(views[positions], np.float64)
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


def _spread_rows(total: int, most: int) -> npt.NDArray[np.int64]:
    """Return the indices, in order, of all rows, or of about `most` spread evenly among them."""
    if total <= most:
        return np.arange(total)
    return np.unique((np.arange(1, most + 1) * GOLDEN % 1.0 * total).astype(np.int64))


COLUMNS = 4096  # longer rows are split into blocks; correlations between blocks are ignored
BITS = 15  # bits of a magnitude on the grid, besides its sign


@dataclass(frozen=True, eq=False)
class Moments:
    """Sums over rows of n columns in g groups."""

    rows: int
    first: Floats  # sum of the rows, (g, n)
    second: tuple[Floats, ...]  # by block of columns: sum of the products of each two, (g, p, p)

    def mean(self, block: int, centred: bool = False) -> Floats:
        """Return the mean products of the columns of one block; their covariance if `centred`."""
        products = self.second[block] / max(1, self.rows)
        if centred:
            start = sum(second.shape[1] for second in self.second[:block])
            mean = self.first[:, start : start + products.shape[1]] / max(1, self.rows)
            products -= mean[:, :, None] * mean[:, None, :]
        return products


def column_blocks(columns: int) -> list[int]:
    """Return the lengths of the blocks that a row is split into; they differ by one at most."""
    blocks = max(1, -(-columns // COLUMNS))
    return [columns // blocks + (i < columns % blocks) for i in range(blocks)]


def moments_of(rows: Floats, where: str) -> Moments:
    """Return the moments of a sample's rows (groups, rows, columns); raise DataError for NaN or Inf."""
    groups, _, columns = rows.shape
    zeros = tuple(np.zeros((groups, size, size)) for size in column_blocks(columns))
    return _with_rows(Moments(0, np.zeros((groups, columns)), zeros), rows, where)


def _with_rows(sums: Moments, rows: Floats, where: str) -> Moments:
    """Return moments with rows added, the second moments in the arrays of `sums`, for they may be large."""
    steps, unit = _on_grid(rows, where)
    end = 0
    for second in sums.second:
        part = steps[:, :, end : end + second.shape[1]]
        products = np.matmul(part.transpose(0, 2, 1), part)
        products *= unit**2
        np.add(second, products, out=second)
        end += second.shape[1]
    return Moments(sums.rows + rows.shape[1], sums.first + steps.sum(1) * unit, sums.second)


def _on_grid(rows: Floats, where: str) -> tuple[Floats, float]:
    """Return rows as multiples of a power of two, and that."""
    largest = float(np.abs(rows).max(initial=0.0))
    if not math.isfinite(largest):
        raise DataError(f"{where}: contains NaN or Inf; leave the sample out, or repair it")
    unit = math.ldexp(1.0, math.frexp(largest)[1] - BITS)
    return np.rint(rows / unit), unit


# Second moments collected from samples --------------------------------------------------------------------

MEMORY = 1 << 30  # bytes that the moments of a slice take together, unless a single one takes more

ROWS = 1 << 14
"""Rows of a tensor that all samples give together, unless there are more samples (see `im2col_rows`). Four
times as many gained nothing on two models, and an eighth lost 0.3 and 1.4 dB."""


def collect_moments(
    model: ir.Model,
    inputs: Sequence[ProductInput],
    samples: Iterable[Sample],
    progress: Progress | None = None,
) -> Iterator[tuple[ProductInput, Moments]]:
    """Yield the moments of the inputs of products, in the order of `inputs`, which all differ.

    The float model runs once for each slice: as many products at a time as fit in `MEMORY`.
    """
    if not inputs:
        return
    count = sum(1 for _ in samples)
    if not count:
        raise DataError(f"{getattr(samples, 'source', 'samples')}: there are no samples; give at least one")
    # The optimised model with the inputs of the products as outputs, graph inputs left out.
    copy = model.clone()
    values = {name_of(value): value for node in copy.graph for value in node.outputs}
    returned = {value.name for value in copy.graph.outputs}
    tapped = [name for name in dict.fromkeys(source.tensor for source in inputs) if name in values]
    copy.graph.outputs.extend(values[name] for name in tapped if name not in returned)
    slices, done = _sliced(inputs), 0
    with optimised(copy, tapped, split=True, ordered=tapped) as graph:
        for sources in slices:
            made = [name for name in dict.fromkeys(source.tensor for source in sources) if name in values]
            session, names = session_for(graph, made) if made else None, [graph.sources[n] for n in made]
            sums: dict[ProductInput, Moments] = {}
            for sample in samples:
                outputs = {} if session is None else run_sample(session, names, sample)
                for source in sources:
                    array = np.asarray(
                        {**sample.arrays, **outputs}[graph.sources.get(source.tensor, source.tensor)]
                    )
                    where = f"sample {sample.name}: tensor '{source.tensor}'"
                    rows = im2col_rows(array, source, -(-ROWS // count))
                    if source in sums:
                        sums[source] = _with_rows(sums[source], rows, where)
                    else:
                        sums[source] = moments_of(rows, where)
                done += 1
                if progress is not None:
                    progress(done, len(slices) * count)
            while sums:
                first = next(iter(sums))
                yield first, sums.pop(first)


def _sliced(inputs: Sequence[ProductInput]) -> list[list[ProductInput]]:
    """Return the inputs in slices whose moments fit in `MEMORY`."""
    slices: list[list[ProductInput]] = []
    used = 0  # bytes of the last slice
    for source in inputs:
        own = 8 * source.groups * sum(size * size for size in column_blocks(source.columns))
        if not slices or used + own > MEMORY:
            slices.append([])
            used = 0
        used += own
        slices[-1].append(source)
    return slices
