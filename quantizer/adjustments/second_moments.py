"""Second moments of what a weight is multiplied with. Pure, and the same to the bit on any number of threads.

A linear algebra library adds in an order that depends on threads and processors. So rows are rounded to a
grid of 16 bits first: products then are integers below 2^30, and the sum of up to 2^23 of them is exact in
float64, in any order. Samples are added one after the other.
"""

from __future__ import annotations

import hashlib
import math
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnx_ir as ir

from ...profiles.base.errors import DataError, ModelError
from ...profiles.base.tool import Progress
from ...profiles.instrumentation.subgraphs import graph_attributes
from ...profiles.runtime.providers import CPU, RUNTIME_ERRORS, first_line, new_session, new_session_options
from ...profiles.runtime.session import (
    OptimisedGraph,
    Output,
    optimised,
    run_sample,
    segment_session,
    size_name,
    size_session,
)
from ...profiles.samples.values import Sample
from ..model.graph import name_of
from ..numerics.affine import QuantParams
from ..operators.graph import Graph, Node
from ..operators.table import product_layout
from ..operators.weight_layout import Kernel
from ..plan.plan import QuantPlan

# im2col: the input of a product with a constant weight as the rows of a matrix ----------------------------

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


def product_input(graph: Graph, node: Node, weight: Array) -> ProductInput | None:
    """Return how a node with a constant weight multiplies its first input; None where no rows describe that.

    None are given for stacks of matrices, a transposed input, and transposed convolutions whose kernels
    overlap.
    """
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
    """Return rows of a tensor, float64 (groups, rows, columns): all, or about `most` evenly spread.

    For each group of channels, one output element of each output channel is the product of a row with a
    column of the weight. A row of a MatMul is a vector of its input; one of a convolution is what lies under
    the kernel at one position (im2col), channels before taps, as `WeightAxes.blocks` has the weight.
    """
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


COLUMNS = 4096
"""Longer rows are split into blocks; correlations between blocks are ignored."""

BITS = 15
"""Bits of a magnitude on the grid, besides its sign."""


@dataclass(frozen=True, eq=False)
class Moments:
    """Sums over rows of n columns in g groups.

    Attributes:
        rows: how many rows.
        first: sum of the rows, (g, n).
        second: for each block of the columns, sum of the products of each two of them, (g, p, p).
    """

    rows: int
    first: Floats
    second: tuple[Floats, ...]

    def added(self, other: Moments) -> Moments:
        """Return the sums over both."""
        both = zip(self.second, other.second, strict=True)
        return Moments(self.rows + other.rows, self.first + other.first, tuple(a + b for a, b in both))

    def means(self, centred: bool = False) -> tuple[Floats, ...]:
        """Return the mean products of the columns of each block; their covariance where `centred`."""
        return tuple(self.mean(block, centred) for block in range(len(self.second)))

    def mean(self, block: int, centred: bool = False) -> Floats:
        """Return the mean products of the columns of one block; their covariance where `centred`."""
        found = self.second[block] / max(1, self.rows)
        if centred:
            start = sum(second.shape[1] for second in self.second[:block])
            part = self.first[:, start : start + found.shape[1]] / max(1, self.rows)
            found -= part[:, :, None] * part[:, None, :]
        return found


@dataclass(frozen=True, eq=False)
class PairMoments:
    """Sums over rows x of the float model and x^ of the quantized one; see `Moments`.

    Attributes:
        own: those of x^.
        first: sum of x, (g, n).
        cross: for each block of the columns, sum of the products x x^', (g, p, p).
    """

    own: Moments
    first: Floats
    cross: tuple[Floats, ...]

    def added(self, other: PairMoments) -> PairMoments:
        """Return the sums over both."""
        both = tuple(a + b for a, b in zip(self.cross, other.cross, strict=True))
        return PairMoments(self.own.added(other.own), self.first + other.first, both)

    def means(self, centred: bool = False) -> tuple[tuple[Floats, Floats], ...]:
        """Return for each block the mean products x^ x^' and x x^'; covariances where `centred`."""
        count, sizes = max(1, self.own.rows), [part.shape[1] for part in self.cross]
        cross = tuple(part / count for part in self.cross)
        if centred:
            parts = (np.split(f / count, np.cumsum(sizes)[:-1], axis=1) for f in (self.first, self.own.first))
            cross = tuple(c - x[:, :, None] * y[:, None, :] for c, x, y in zip(cross, *parts, strict=True))
        return tuple(zip(self.own.means(centred), cross, strict=True))


def moments_of_pair(exact: Floats, rows: Floats, where: str) -> PairMoments:
    """Return the moments of rows of the float model with those of the quantized one; see `moments_of`."""
    (steps, unit), (others, other_unit) = _on_grid(exact, where), _on_grid(rows, where)
    cross, end = [], 0
    for size in column_blocks(rows.shape[2]):
        part = slice(end, end + size)
        products = np.matmul(steps[:, :, part].transpose(0, 2, 1), others[:, :, part])
        cross.append(products * (unit * other_unit))
        end += size
    return PairMoments(moments_of(rows, where), steps.sum(1) * unit, tuple(cross))


def moments_bytes(groups: int, columns: int) -> int:
    """Return the size of moments in bytes."""
    return 8 * groups * sum(size * size for size in column_blocks(columns))


def column_blocks(columns: int) -> list[int]:
    """Return the lengths of the blocks that a row is split into; they differ by one at most."""
    blocks = max(1, -(-columns // COLUMNS))
    return [columns // blocks + (i < columns % blocks) for i in range(blocks)]


def moments_of(rows: Floats, where: str) -> Moments:
    """Return the moments of rows (groups, rows, columns).

    Args:
        rows: of one sample.
        where: how to name them in messages.

    Raises:
        DataError: they hold NaN or Inf.
    """
    groups, _, columns = rows.shape
    zeros = tuple(np.zeros((groups, size, size)) for size in column_blocks(columns))
    return _with_rows(Moments(0, np.zeros((groups, columns)), zeros), rows, where)


def _with_rows(sums: Moments, rows: Floats, where: str) -> Moments:
    """Return moments with rows added, of which the second are the arrays of `sums`: they may be large."""
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


# A model and its simulation in quantized values, run a few nodes at a time --------------------------------

Array = npt.NDArray[Any]

_ROUNDED, _EXACT = ":qprof-rounded", ":qprof-exact"
"""Added to the name of an activation: after it was rounded, and before."""

_REFUSED: tuple[type[Exception], ...] = (*RUNTIME_ERRORS, ValueError)

_INTEGER = 1.5 * 2.0**23
"""Added to a small float32 and subtracted again it leaves the nearest integer, the even one of two."""


@dataclass(frozen=True, eq=False)
class Program:
    """The nodes of a main graph as protobufs, and its constants.

    In a simulation each quantized activation is rounded and saturates as the plan says (fake quantization: it
    is divided by the scale, clipped, rounded and multiplied), and weights have the values chosen so far. Each
    sample goes through a program once: what later nodes read is kept in files between two segments.

    Attributes:
        steps: for each node of the model, in order, what computes its results.
        constants: by name.
        opsets: version of each domain.
        aliases: (node, activation) -> what the node reads instead, where that has another name.
    """

    steps: list[list[onnx.NodeProto]]
    constants: dict[str, ir.TensorProtocol]
    opsets: Mapping[str, int]
    aliases: dict[tuple[str, str], str] = field(default_factory=dict)


def float_program(model: ir.Model) -> Program:
    """Return the program that computes what the model computes."""
    values = model.graph.initializers.items()
    constants = {name: value.const_value for name, value in values if value.const_value is not None}
    steps = [[ir.serde.serialize_node(node)] for node in model.graph]
    return Program(steps, constants, dict(model.graph.opset_imports))


def simulated_program(model: ir.Model, graph: Graph, plan: QuantPlan) -> Program:
    """Return the program whose activations are rounded as the plan has them.

    What a quantized node computes is rounded for all readers; what a float node computes, for quantized ones.

    Args:
        model: the model that is planned, with all its constants in float.
        graph: its index.
        plan: its plan.
    """
    program = float_program(model)
    rounded = {name: params for name, params in plan.tensors.items() if _is_rounded(graph, name, params)}
    inputs = [name_of(value) for value in model.graph.inputs if name_of(value) in rounded]
    before = [proto for name in inputs for proto in _rounding(name, rounded[name], program)]
    for step, node in zip(program.steps, model.graph, strict=True):
        entry = plan.nodes.get(name_of(node))
        quantized = entry is not None and entry.kind.reads_quantized
        (proto,) = step
        for position, name in enumerate(proto.input):
            if quantized and name in rounded:
                producer = graph.producer(name)
                made_by = None if producer is None else plan.nodes.get(producer.name)
                if made_by is None or not made_by.kind.reads_quantized:
                    proto.input[position] = program.aliases[name_of(node), name] = name + _ROUNDED
        for position, name in enumerate(list(proto.output)):
            if name in rounded and quantized:
                proto.output[position] = name + _EXACT
                step.extend(_rounding(name, rounded[name], program, name + _EXACT, name))
            elif name in rounded:
                step.extend(_rounding(name, rounded[name], program))
        step[:0], before = before, []
    return program


def _is_rounded(graph: Graph, name: str, params: QuantParams) -> bool:
    is_activation = name in graph.values and not graph.is_constant(name)
    return is_activation and params.axis is None and graph.dtype(name) == ir.DataType.FLOAT


def _rounding(
    name: str, params: QuantParams, program: Program, source: str = "", result: str = ""
) -> list[onnx.NodeProto]:
    """Return nodes that round `source`, by default the activation, to `result`, by default its alias."""
    zero = params.tensor_zero_point
    numbers = (params.tensor_scale, params.qtype.low - zero, params.qtype.high - zero, _INTEGER)
    scale, low, high, integer = (f"{name}:qprof-{what}" for what in ("scale", "low", "high", "integer"))
    for constant, number in zip((scale, low, high, integer), numbers, strict=True):
        program.constants[constant] = ir.tensor(np.array(number, np.float32), name=constant)
    steps = (("Div", scale), ("Max", low), ("Min", high), ("Add", integer), ("Sub", integer), ("Mul", scale))
    at, nodes = source or name, []
    for operator, constant in steps:
        end = f"{name}:qprof-{operator}" if operator != "Mul" else result or name + _ROUNDED
        nodes.append(onnx.helper.make_node(operator, [at, constant], [end]))
        at = end
    return nodes


class SegmentRuns:
    """Runs a program on all samples, segment after segment; what later segments read is kept in files."""

    def __init__(self, program: Program, samples: Iterable[Sample], folder: Path) -> None:
        """Keep the inputs of all samples.

        Args:
            program: what is run.
            samples: all of them.
            folder: for files; it is empty.
        """
        self.program = program
        self._folder, self._files = folder, 0
        self._last = {name: at for at, step in enumerate(program.steps) for p in step for name in _reads(p)}
        self._samples: list[tuple[str, dict[str, Path]]] = []
        for sample in samples:
            kept = {name: self._store(array) for name, array in sample.arrays.items() if name in self._last}
            self._samples.append((sample.name, kept))

    def __len__(self) -> int:
        return len(self._samples)

    def set_constant(self, name: str, array: Array) -> None:
        """Give a constant another value, or add one."""
        self.program.constants[name] = ir.tensor(np.ascontiguousarray(array), name=name)

    def add_to_result(self, node: int, name: str, array: Array) -> None:
        """Add a constant to a result of the node at an index, before it is rounded."""
        step, product, correction = self.program.steps[node], f"{name}:qprof-product", f"{name}:qprof-bias"
        for at, proto in enumerate(step):
            made = next((output for output in proto.output if output in (name, name + _EXACT)), None)
            if made is not None:
                proto.output[list(proto.output).index(made)] = product
                step.insert(at + 1, onnx.helper.make_node("Add", [product, correction], [made]))
                self.set_constant(correction, array)
                return

    def values(self, start: int, end: int, names: Collection[str]) -> Iterator[tuple[str, dict[str, Array]]]:
        """Yield for each sample its name, and tensors that nodes from `start` to before `end` make."""
        kept = self._samples[0][1] if self._samples else {}
        with self._session(start, end, [name for name in names if name not in kept]) as run:
            for title, files in self._samples:
                before = {name: np.load(files[name], allow_pickle=False) for name in names if name in files}
                found = {name: np.asarray(array) for name, array in run(title, files).items()}
                yield title, {**before, **found}

    def advance(self, start: int, end: int) -> None:
        """Run the nodes from `start` to before `end`, and keep what those from `end` on read."""
        made = {name for step in self.program.steps[start:end] for proto in step for name in proto.output}
        later = sorted(name for name in made if self._last.get(name, -1) >= end)
        with self._session(start, end, later) as run:
            for title, files in self._samples:
                found = run(title, files)
                for name in [name for name in files if self._last[name] < end]:
                    files.pop(name).unlink()
                files.update({name: self._store(array) for name, array in found.items()})

    def _store(self, array: Output) -> Path:
        if isinstance(array, list) or array.dtype.kind not in "biuf":
            raise ModelError(
                "rounding gptaq: nodes of the model hand on sequences, texts or numbers of a type that numpy "
                "does not have; choose another rounding"
            )
        self._files += 1
        path = self._folder / f"{self._files}.npy"
        np.save(path, array, allow_pickle=False)
        return path

    @contextmanager
    def _session(
        self, start: int, end: int, wanted: Sequence[str]
    ) -> Iterator[Callable[[str, Mapping[str, Path]], dict[str, Output]]]:
        """Yield what computes tensors of a sample from its title and files."""
        if not wanted or not self._samples:
            yield lambda title, files: {}
            return
        nodes, reads = _needed(self.program.steps[start:end], wanted)
        files = self._samples[0][1]
        types = {
            name: np.load(files[name], mmap_mode="r", allow_pickle=False).dtype
            for name in sorted(reads)
            if name in files
        }
        options = new_session_options()
        options.use_deterministic_compute = True
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 4
        try:
            session = new_session(_segment(self.program, nodes, types, wanted), options, CPU)
        except _REFUSED as error:
            raise ModelError(
                f"rounding gptaq: onnxruntime refuses a part of the model: {first_line(error)}; "
                "choose another rounding"
            ) from error

        def run(title: str, files: Mapping[str, Path]) -> dict[str, Output]:
            arrays = {name: np.load(files[name], allow_pickle=False) for name in types}
            return run_sample(session, wanted, Sample(title, arrays))

        yield run


def _reads(proto: onnx.NodeProto) -> set[str]:
    """Return the names that a node reads, and those that its subgraphs read from outside."""
    names = {name for name in proto.input if name}
    for attribute in proto.attribute:
        for graph in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
            own = {value.name for value in (*graph.input, *graph.initializer)}
            own |= {name for node in graph.node for name in node.output}
            inner = {name for node in graph.node for name in _reads(node)}
            names |= (inner | {value.name for value in graph.output}) - own
    return names


def _needed(
    steps: Sequence[Sequence[onnx.NodeProto]], wanted: Iterable[str]
) -> tuple[list[onnx.NodeProto], set[str]]:
    """Return the nodes that make the wanted tensors, in order, and the names that they read from outside."""
    names, chosen = set(wanted), list[onnx.NodeProto]()
    for proto in reversed([proto for step in steps for proto in step]):
        if names.intersection(proto.output):
            chosen.append(proto)
            names |= _reads(proto)
    return chosen[::-1], names.difference(*(proto.output for proto in chosen))


def _segment(
    program: Program,
    nodes: Sequence[onnx.NodeProto],
    types: Mapping[str, np.dtype[Any]],
    wanted: Sequence[str],
) -> bytes:
    """Return a model of some nodes, whose inputs have these types.

    Raises:
        ValueError: it is larger than a protobuf can be.
    """
    make = onnx.helper
    inputs = [
        make.make_tensor_value_info(name, make.np_dtype_to_tensor_dtype(dtype), None)
        for name, dtype in types.items()
    ]
    constants = []
    for name in sorted({name for proto in nodes for name in _reads(proto)} & program.constants.keys()):
        constants.append(ir.serde.serialize_tensor(program.constants[name]))
        constants[-1].name = name
    outputs = [onnx.ValueInfoProto(name=name) for name in wanted]
    graph = make.make_graph(list(nodes), "segment", inputs, outputs, constants)
    opsets = [make.make_opsetid(domain, version) for domain, version in program.opsets.items()]
    return bytes(make.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString())


# Second moments collected from samples --------------------------------------------------------------------

MEMORY = 128 << 20
"""Bytes that tensors and moments of a slice take together, unless a single one takes more."""

ROWS = 1 << 14
"""Rows of a tensor that all samples give together, unless there are more samples (see `im2col_rows`). Four
times as many gained nothing on two models (waifu2x, silero), and an eighth lost 0.3 and 1.4 dB."""


def collect_moments(
    model: ir.Model,
    inputs: Sequence[ProductInput],
    samples: Iterable[Sample],
    progress: Progress | None = None,
) -> Iterator[tuple[ProductInput, Moments]]:
    """Yield the moments of what products multiply, in the order of `inputs`.

    The float model runs, and the inputs of its products are observed, those of as many products at a time as
    fit in `MEMORY` with their moments. Each such slice of the model runs alone: so only its weights are in
    memory, and nodes run once for each sample, whatever the number of slices. What later slices read is kept
    in files.

    Args:
        model: the float model.
        inputs: of products, no two alike.
        samples: can be iterated more than once.
        progress: called after each run of a sample, with the number of runs and their total.

    Raises:
        DataError: there are no samples, or one cannot be run. ModelError: the model cannot be loaded.
    """
    if not inputs:
        return
    names = list(dict.fromkeys(source.tensor for source in inputs))
    with (
        _tapped(model, names) as graph,
        tempfile.TemporaryDirectory(prefix="qprof-", ignore_cleanup_errors=True) as place,
    ):
        count, slices = _sliced(graph, inputs, samples)
        wanted = [[graph.sources.get(source.tensor, source.tensor) for source in part] for part in slices]
        runs, done = _SliceRuns(graph, wanted, Path(place)), 0
        for chosen in slices:
            sums: dict[ProductInput, Moments] = {}
            for sample, arrays in runs.next(samples):
                for source, name in zip(chosen, wanted[runs.finished], strict=True):
                    where = f"sample {sample.name}: tensor '{source.tensor}'"
                    rows = im2col_rows(np.asarray(arrays[name]), source, -(-ROWS // count))
                    added = moments_of if source not in sums else partial(_with_rows, sums[source])
                    sums[source] = added(rows, where)
                done += 1
                if progress is not None:
                    progress(done, len(slices) * count)
            while sums:
                first = next(iter(sums))
                yield first, sums.pop(first)


class _SliceRuns:
    """Runs a graph on all samples, slice after slice, each node once; see `collect_moments`."""

    def __init__(self, graph: OptimisedGraph, slices: Sequence[Sequence[str]], folder: Path) -> None:
        """Begin before the first slice.

        Args:
            graph: what is run.
            slices: values of it, or inputs, that each slice gives.
            folder: for files; it is empty.
        """
        self.finished = 0
        self._graph, self._slices, self._folder = graph, slices, folder
        self._nodes = list(graph.model.graph)
        self._done, self._files = set[ir.Node](), dict[str, list[Path]]()

    def next(self, samples: Iterable[Sample]) -> Iterator[tuple[Sample, dict[str, Array]]]:
        """Yield for each sample the values of the next slice, besides the inputs of the model."""
        wanted = set(self._slices[self.finished])
        nodes, needed = self._before(wanted, self._files)
        given = sorted(self._files.keys() & needed)
        # What cannot be kept in a file is computed again, and what it is computed from is kept.
        self._done |= {node for node in nodes if all(map(_can_be_kept, node.outputs))}
        made = {name_of(value) for node in nodes for value in node.outputs}
        kept = {name_of(value) for node in nodes if node in self._done for value in node.outputs}
        later = {name for part in self._slices[self.finished + 1 :] for name in part}
        _, later = self._before(later, ())
        kept = kept & later - self._files.keys()
        fetched = sorted(made & wanted - self._files.keys() | kept)
        session = segment_session(self._graph, set(nodes), given, fetched) if fetched else None
        number = -1
        for number, sample in enumerate(samples):
            before = {name: np.load(self._files[name][number], allow_pickle=False) for name in given}
            arrays = {**sample.arrays, **before}
            if session is not None:
                found = run_sample(session, fetched, Sample(sample.name, arrays))
                arrays.update({name: np.asarray(array) for name, array in found.items()})
            for name in kept:
                self._keep(name, arrays[name])
            yield sample, arrays
        for name in self._files.keys() - later:
            for file in self._files.pop(name):
                file.unlink()
        self.finished += 1

    def _before(self, wanted: Collection[str], known: Collection[str]) -> tuple[list[ir.Node], set[str]]:
        """Return the nodes still to be run that lead to values, in order, and the names of all they read."""
        names, chosen = set(wanted), list[ir.Node]()
        for node in reversed(self._nodes):
            outputs = {name_of(value) for value in node.outputs}
            if node not in self._done and not (names - set(known)).isdisjoint(outputs):
                chosen.append(node)
                inner = {name_of(v) for part in graph_attributes(node) for v in _read_inside(part)}
                names |= inner | {name_of(value) for value in node.inputs if value is not None}
        return chosen[::-1], names

    def _keep(self, name: str, array: Array) -> None:
        files = self._files.setdefault(name, [])
        path = self._folder / f"{len(files)}-{hashlib.sha256(name.encode()).hexdigest()[:24]}.npy"
        np.save(path, array, allow_pickle=False)
        files.append(path)


def _read_inside(graph: ir.Graph) -> Iterator[ir.Value]:
    """Yield what the nodes of a subgraph read, and what it returns."""
    yield from graph.outputs
    for node in graph.all_nodes():
        yield from (value for value in node.inputs if value is not None)


def _can_be_kept(value: ir.Value) -> bool:
    """Whether a value is a tensor of a type that numpy has, as far as its graph tells."""
    if not value.name:
        return True
    known = isinstance(value.type, ir.TensorType) and value.dtype is not None
    return known and value.dtype not in (ir.DataType.STRING, ir.DataType.BFLOAT16)


@contextmanager
def _tapped(model: ir.Model, names: Sequence[str]) -> Iterator[OptimisedGraph]:
    """Yield the optimised model with these tensors as outputs, graph inputs left out."""
    copy = model.clone()
    values = {value.name: value for node in copy.graph for value in node.outputs}
    there = {value.name for value in copy.graph.outputs}
    wanted = [name for name in names if name in values]
    copy.graph.outputs.extend(values[name] for name in wanted if name not in there)
    with optimised(copy, wanted, split=True, ordered=wanted) as graph:
        yield graph


def _made(graph: OptimisedGraph, inputs: Sequence[ProductInput]) -> list[str]:
    """Return the tensors among the inputs of products that nodes make."""
    return list(dict.fromkeys(r.tensor for r in inputs if r.tensor in graph.sources))


def _sliced(
    graph: OptimisedGraph, inputs: Sequence[ProductInput], samples: Iterable[Sample]
) -> tuple[int, list[list[ProductInput]]]:
    """Return how many samples there are, and the inputs in slices that fit in `MEMORY` for the first one."""
    first, count = None, 0
    for sample in samples:
        first, count = first or sample, count + 1
    if first is None:
        raise DataError(f"{getattr(samples, 'source', 'samples')}: there are no samples; give at least one")
    made = _made(graph, inputs)
    session = size_session(graph, made)
    sizes = run_sample(session, [output.name for output in session.get_outputs()], first)
    slices: list[list[ProductInput]] = []
    used, held = 0, set[str]()
    for source in inputs:
        name = source.tensor
        tensor = 4 * int(np.asarray(sizes[size_name(graph.sources[name])])) if name in graph.sources else 0
        own = moments_bytes(source.groups, source.columns)
        if not slices or used + own + (0 if name in held else tensor) > MEMORY:
            slices.append([])
            used, held = 0, set()
        used += own + (0 if name in held else tensor)
        held.add(name)
        slices[-1].append(source)
    return count, slices
