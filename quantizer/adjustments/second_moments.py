"""Second moments of the factors of a weight. Pure, and the same to the bit on any number of threads.

A linear algebra library adds in an order that depends on threads and processors. So rows are rounded to a
grid of 16 bits first: products then are integers below 2^30, and the sum of up to 2^23 of them is exact in
float64, in any order. Samples are added one after the other.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from ...profiles.base.errors import DataError
from ...profiles.base.output_files import temporary_folder
from ...profiles.base.tool import Progress
from ...profiles.instrumentation.subgraphs import graph_attributes
from ...profiles.runtime.session import (
    OptimisedGraph,
    optimised,
    run_sample,
    segment_session,
    size_name,
    size_session,
)
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
    """How im2col rows are taken from a tensor; nodes with equal records multiply the same rows."""

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
        raise DataError(f"{where}: holds NaN or Inf; leave the sample out, or repair it")
    unit = math.ldexp(1.0, math.frexp(largest)[1] - BITS)
    return np.rint(rows / unit), unit


# Second moments collected from samples --------------------------------------------------------------------

MEMORY = 128 << 20  # bytes that tensors and moments of a slice take together, unless a single one takes more

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

    The float model runs in slices, as many products at a time as fit in `MEMORY`.
    """
    if not inputs:
        return
    # The optimised model with the inputs of the products as outputs, graph inputs left out.
    copy = model.clone()
    values = {name_of(value): value for node in copy.graph for value in node.outputs}
    returned = {value.name for value in copy.graph.outputs}
    tapped = [name for name in dict.fromkeys(source.tensor for source in inputs) if name in values]
    copy.graph.outputs.extend(values[name] for name in tapped if name not in returned)
    with (
        optimised(copy, tapped, split=True, ordered=tapped) as graph,
        temporary_folder() as place,
    ):
        count, slices = _sliced(graph, inputs, samples)
        outputs = [[graph.sources.get(source.tensor, source.tensor) for source in part] for part in slices]
        runs, done = _SliceRuns(graph, outputs, Path(place)), 0
        for sources, names in zip(slices, outputs, strict=True):
            sums: dict[ProductInput, Moments] = {}
            for sample, arrays in runs.next(samples):
                for source, name in zip(sources, names, strict=True):
                    where = f"sample {sample.name}: tensor '{source.tensor}'"
                    rows = im2col_rows(np.asarray(arrays[name]), source, -(-ROWS // count))
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


class _SliceRuns:
    """Runs a graph on all samples, slice after slice, each node once; see `collect_moments`."""

    def __init__(self, graph: OptimisedGraph, slices: Sequence[Sequence[str]], folder: Path) -> None:
        """Begin before the first slice; each of `slices` names its results, and `folder` is empty."""
        self._finished = 0
        self._graph, self._slices, self._folder = graph, slices, folder
        self._nodes = list(graph.model.graph)
        self._done, self._files = set[ir.Node](), dict[str, list[Path]]()

    def next(self, samples: Iterable[Sample]) -> Iterator[tuple[Sample, dict[str, Array]]]:
        """Yield for each sample the values of the next slice, besides the inputs of the model."""
        wanted = set(self._slices[self._finished])
        nodes, read = self._nodes_before(wanted, self._files)
        from_files = sorted(self._files.keys() & read)
        # What cannot be kept in a file is computed again, and what it is computed from is kept.
        self._done |= {node for node in nodes if all(map(_can_be_kept, node.outputs))}
        made = {name_of(value) for node in nodes for value in node.outputs}
        done = {name_of(value) for node in nodes if node in self._done for value in node.outputs}
        later_slices = {name for part in self._slices[self._finished + 1 :] for name in part}
        _, read_later = self._nodes_before(later_slices, ())
        kept = done & read_later - self._files.keys()
        fetched = sorted(made & wanted - self._files.keys() | kept)
        session = segment_session(self._graph, set(nodes), from_files, fetched) if fetched else None
        for number, sample in enumerate(samples):
            arrays: dict[str, Array] = dict(sample.arrays)
            for name in from_files:
                arrays[name] = np.load(self._files[name][number], allow_pickle=False)
            if session is not None:
                outputs = run_sample(session, fetched, Sample(sample.name, arrays))
                arrays.update({name: np.asarray(array) for name, array in outputs.items()})
            for name in kept:
                self._keep(name, arrays[name])
            yield sample, arrays
        for name in self._files.keys() - read_later:
            for file in self._files.pop(name):
                file.unlink()
        self._finished += 1

    def _nodes_before(
        self, wanted: Collection[str], available: Collection[str]
    ) -> tuple[list[ir.Node], set[str]]:
        """Return the nodes still to be run that lead to values, in order, and the names of all they read."""
        names, chosen = set(wanted), list[ir.Node]()
        for node in reversed(self._nodes):
            outputs = {name_of(value) for value in node.outputs}
            if node not in self._done and not (names - set(available)).isdisjoint(outputs):
                chosen.append(node)
                for body in graph_attributes(node):
                    inner = (value for each in body.all_nodes() for value in each.inputs if value is not None)
                    names |= {name_of(value) for value in (*body.outputs, *inner)}
                names |= {name_of(value) for value in node.inputs if value is not None}
        return chosen[::-1], names

    def _keep(self, name: str, array: Array) -> None:
        files = self._files.setdefault(name, [])
        path = self._folder / f"{len(files)}-{hashlib.sha256(name.encode()).hexdigest()[:24]}.npy"
        np.save(path, array, allow_pickle=False)
        files.append(path)


def _can_be_kept(value: ir.Value) -> bool:
    """Whether a value is a tensor of a numpy type, by the declarations in its graph."""
    if not value.name:
        return True
    has_type = isinstance(value.type, ir.TensorType) and value.dtype is not None
    return has_type and value.dtype not in (ir.DataType.STRING, ir.DataType.BFLOAT16)


def _sliced(
    graph: OptimisedGraph, inputs: Sequence[ProductInput], samples: Iterable[Sample]
) -> tuple[int, list[list[ProductInput]]]:
    """Return how many samples there are, and the inputs in slices that fit in `MEMORY` for the first one."""
    first, count = None, 0
    for sample in samples:
        first, count = first or sample, count + 1
    if first is None:
        raise DataError(f"{getattr(samples, 'source', 'samples')}: there are no samples; give at least one")
    tensors = list(dict.fromkeys(source.tensor for source in inputs if source.tensor in graph.sources))
    session = size_session(graph, tensors)
    sizes = run_sample(session, [output.name for output in session.get_outputs()], first)

    slices: list[list[ProductInput]] = []
    used, held = 0, set[str]()  # bytes, and tensors, of the last slice
    for source in inputs:
        name = source.tensor
        tensor = 4 * int(np.asarray(sizes[size_name(graph.sources[name])])) if name in graph.sources else 0
        own = 8 * source.groups * sum(size * size for size in column_blocks(source.columns))
        if not slices or used + own + (0 if name in held else tensor) > MEMORY:
            slices.append([])
            used, held = 0, set()
        used += own + (0 if name in held else tensor)
        held.add(name)
        slices[-1].append(source)
    return count, slices
