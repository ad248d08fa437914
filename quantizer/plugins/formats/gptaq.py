"""GPTAQ for the weights of a plan: each is rounded for the inputs that the quantized model has.

The model and its simulation in quantized values are programs that run on all samples a few nodes at a time.
The graph is cut into stages, in none of which a product depends on another. For each stage the inputs of its
products are computed in float and in the simulation, its weights are rounded, and both go on.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from ....profiles.base.errors import DataError, ModelError
from ....profiles.base.output_files import temporary_folder
from ....profiles.base.tool import Progress
from ....profiles.instrumentation.subgraphs import graph_attributes
from ....profiles.runtime.providers import CPU, RUNTIME_ERRORS, first_line, new_session, new_session_options
from ....profiles.runtime.session import Output, run_sample
from ....profiles.samples.values import Sample
from ...adjustments.checkpoint import RoundingCheckpoint
from ...adjustments.gptq import columns_of, flattened, gptaq, offsets_of
from ...adjustments.rounded_weights import Weight, params_digest, quantized_weights
from ...adjustments.second_moments import (
    ROWS,
    PairMoments,
    ProductInput,
    im2col_rows,
    moments_of_pair,
    product_input,
)
from ...model.graph import name_of
from ...numerics.affine import QuantParams, dequantize, quantize
from ...operators.graph import Graph
from ...operators.table import product_layout
from ...operators.weight_layout import Array, Kernel
from ...plan.plan import QuantPlan, RoundingOffsets
from ...plan.store import dumps

# A model and its simulation in quantized values, run a few nodes at a time --------------------------------

_ROUNDED, _EXACT = ":qprof-rounded", ":qprof-exact"
"""Added to the name of an activation: after it was rounded, and before."""

_REFUSED: tuple[type[Exception], ...] = (*RUNTIME_ERRORS, ValueError)

_INTEGER = 1.5 * 2.0**23
"""Added to a small float32 and subtracted again it leaves the nearest integer, the even one of two."""


@dataclass(frozen=True, eq=False)
class Program:
    """The nodes of a main graph as protobufs, and its constants."""

    steps: list[list[onnx.NodeProto]]  # for each node of the model, in order, what computes its results
    constants: dict[str, ir.TensorProtocol]
    opsets: Mapping[str, int]  # version of each domain
    # (node, activation) -> what the node reads instead, if that has another name
    aliases: dict[tuple[str, str], str] = field(default_factory=dict)


def float_program(model: ir.Model) -> Program:
    """Return the program that computes the outputs of the model."""
    values = model.graph.initializers.items()
    constants = {name: value.const_value for name, value in values if value.const_value is not None}
    steps = [[ir.serde.serialize_node(node)] for node in model.graph]
    return Program(steps, constants, dict(model.graph.opset_imports))


def simulated_program(model: ir.Model, graph: Graph, plan: QuantPlan) -> Program:
    """Return the program whose activations are rounded by the plan, with all constants in float."""
    program = float_program(model)
    rounded = {
        name: params
        for name, params in plan.tensors.items()
        if name in graph.values
        and not graph.is_constant(name)
        and params.axis is None
        and graph.dtype(name) == ir.DataType.FLOAT
    }
    inputs = [name_of(value) for value in model.graph.inputs if name_of(value) in rounded]
    before = [
        proto
        for name in inputs
        for proto in _rounding_nodes(name, rounded[name], program, (name, name + _ROUNDED))
    ]
    for step, node in zip(program.steps, model.graph, strict=True):
        entry = plan.nodes.get(name_of(node))
        is_quantized = entry is not None and entry.kind.reads_quantized
        (proto,) = step
        for position, name in enumerate(proto.input):
            if is_quantized and name in rounded:
                maker = plan.nodes.get(graph.maker(name))
                if maker is None or not maker.kind.reads_quantized:
                    proto.input[position] = program.aliases[name_of(node), name] = name + _ROUNDED
        for position, name in enumerate(list(proto.output)):
            if name in rounded:
                ends = (name + _EXACT, name) if is_quantized else (name, name + _ROUNDED)
                proto.output[position] = ends[0]
                step.extend(_rounding_nodes(name, rounded[name], program, ends))
        step[:0], before = before, []
    return program


def _rounding_nodes(
    name: str, params: QuantParams, program: Program, ends: tuple[str, str]
) -> list[onnx.NodeProto]:
    """Return nodes that round the first of two tensors to the second, by the parameters of an activation."""
    zero = params.tensor_zero_point
    numbers = (params.tensor_scale, params.qtype.low - zero, params.qtype.high - zero, _INTEGER)
    scale, low, high, integer = (f"{name}:qprof-{what}" for what in ("scale", "low", "high", "integer"))
    for constant, number in zip((scale, low, high, integer), numbers, strict=True):
        program.constants[constant] = ir.tensor(np.array(number, np.float32), name=constant)
    steps = (("Div", scale), ("Max", low), ("Min", high), ("Add", integer), ("Sub", integer), ("Mul", scale))
    (at, result), nodes = ends, []
    for operator, constant in steps:
        end = f"{name}:qprof-{operator}" if operator != "Mul" else result
        nodes.append(onnx.helper.make_node(operator, [at, constant], [end]))
        at = end
    return nodes


class SegmentRuns:
    """Runs a program on all samples, segment after segment; inputs of later segments are kept in files."""

    def __init__(self, program: Program, samples: Iterable[Sample], folder: Path) -> None:
        """Store the inputs of all samples in files of the empty `folder`."""
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
        """Run the nodes from `start` to before `end`, and store the inputs of those from `end` on."""
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
        """Yield a function that computes tensors of a sample from its title and files."""
        if not wanted or not self._samples:
            yield lambda title, files: {}
            return
        files = self._samples[0][1]
        known = {n: np.load(f, mmap_mode="r", allow_pickle=False).dtype for n, f in files.items()}
        model, reads = _segment(self.program, start, end, wanted, known)
        options = new_session_options()
        options.use_deterministic_compute = True
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 4
        try:
            session = new_session(model.SerializeToString(), options, CPU)
        except _REFUSED as error:
            raise ModelError(
                f"rounding gptaq: onnxruntime refuses a part of the model: {first_line(error)}; "
                "choose another rounding"
            ) from error

        def run(title: str, files: Mapping[str, Path]) -> dict[str, Output]:
            arrays = {name: np.load(files[name], allow_pickle=False) for name in reads}
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


def _segment(
    program: Program, start: int, end: int, wanted: Sequence[str], known: Mapping[str, np.dtype[Any]]
) -> tuple[onnx.ModelProto, list[str]]:
    """Return a model of the nodes in a range that make tensors, and which known tensors it reads."""
    names, nodes = set(wanted), list[onnx.NodeProto]()
    for proto in reversed([proto for step in program.steps[start:end] for proto in step]):
        if names.intersection(proto.output):
            nodes.insert(0, proto)
            names |= _reads(proto)
    reads = sorted(names.difference(*(proto.output for proto in nodes)) & known.keys())
    make = onnx.helper
    inputs = [make.make_tensor_value_info(n, make.np_dtype_to_tensor_dtype(known[n]), None) for n in reads]
    constants = []
    for name in sorted({name for proto in nodes for name in _reads(proto)} & program.constants.keys()):
        constants.append(ir.serde.serialize_tensor(program.constants[name]))
        constants[-1].name = name
    outputs = [onnx.ValueInfoProto(name=name) for name in wanted]
    graph = make.make_graph(nodes, "segment", inputs, outputs, constants)
    opsets = [make.make_opsetid(domain, version) for domain, version in program.opsets.items()]
    return make.make_model(graph, opset_imports=opsets, ir_version=10), reads


# The weights of a plan, stage after stage --------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Stage:
    """Nodes that are next to each other, and the weights among them that are rounded together."""

    start: int  # from this node to before that one
    end: int
    weights: Mapping[ProductInput, list[tuple[int, Weight]]]  # each with the index of its node


def stages_of(graph: Graph, model: ir.Model, plan: QuantPlan) -> list[Stage]:
    """Return the stages of a model, in order: each as long as its products do not depend on each other."""
    weights = {weight.node.name: weight for weight in quantized_weights(graph, plan)}
    stages: list[Stage] = []
    start, rounded, results = 0, dict[ProductInput, list[tuple[int, Weight]]](), set[str]()
    for at, node in enumerate(model.graph):
        weight = weights.get(name_of(node))
        reading = None if weight is None else product_input(graph, weight.node, weight.array)
        if weight is not None and reading is not None:
            if reading.tensor in results:
                stages.append(Stage(start, at, rounded))
                start, rounded, results = at, {}, set()
            rounded.setdefault(reading, []).append((at, weight))
        inner = {name_of(v) for part in graph_attributes(node) for n in part.all_nodes() for v in n.inputs}
        if reading is not None or not results.isdisjoint({*map(name_of, node.inputs), *inner}):
            results |= {name_of(value) for value in node.outputs}
    return [*stages, Stage(start, len(model.graph), rounded)]


def find_asymmetric_roundings(
    model: ir.Model,
    graph: Graph,
    plan: QuantPlan,
    samples: Iterable[Sample],
    *,
    progress: Progress | None = None,
    checkpoint: RoundingCheckpoint | None = None,
) -> dict[str, RoundingOffsets]:
    """Return the offsets with the least error at their nodes' outputs, by node name; the rest is corrected by
    biases."""
    stages = stages_of(graph, model, plan)
    checkpoint = checkpoint or RoundingCheckpoint()
    if not any(stage.weights for stage in stages):
        return {}
    offsets: dict[str, RoundingOffsets] = {}
    with temporary_folder() as folder:
        # The float model, and its simulation, which begins with all weights rounded to the nearest.
        programs = {"float": float_program(model), "quantized": simulated_program(model, graph, plan)}
        for name in programs:
            (folder / name).mkdir()
        exact, simulated = (
            SegmentRuns(program, samples, folder / name) for name, program in programs.items()
        )
        if not len(exact):
            source = getattr(samples, "source", "samples")
            raise DataError(f"{source}: there are no samples; give at least one")
        for weight in quantized_weights(graph, plan):
            nearest = dequantize(quantize(weight.array, weight.params), weight.params)
            simulated.set_constant(name_of(weight.value), nearest)
        # What a stage is rounded to depends on the plan, and on all that was rounded before.
        digest = hashlib.sha256(dumps(replace(plan, findings=())).encode())
        corrected = plan.adjustments.biases
        for number, stage in enumerate(stages):
            for at, weight, rounding in _rounded(stage, (exact, simulated), corrected, digest, checkpoint):
                steps = rounding[: weight.array.size]
                offsets[weight.node.name] = RoundingOffsets(steps, params_digest(weight.params))
                _apply(rounding, at, weight, simulated)
            if number + 1 < len(stages):
                for runs in (exact, simulated):
                    runs.advance(stage.start, stage.end)
            if progress is not None:
                progress(number + 1, len(stages))
    return {name: entry for name, entry in offsets.items() if any(entry.offsets)}


def _rounded(
    stage: Stage,
    runs: tuple[SegmentRuns, SegmentRuns],
    corrected: Collection[str],
    digest: hashlib._Hash,
    checkpoint: RoundingCheckpoint,
) -> list[tuple[int, Weight, bytes]]:
    """Return what `_rounding` gives for a stage: from the checkpoint, or new ones, which it gets."""
    placed = [(reading, at, weight) for reading, weights in stage.weights.items() for at, weight in weights]
    keys = []
    for reading, _, weight in placed:
        digest.update(repr((weight.node.name, reading, params_digest(weight.params))).encode())
        digest.update(np.ascontiguousarray(weight.array).data)
        keys.append(digest.digest())
    roundings = [content for key in keys if (content := checkpoint.get(key)) is not None]
    if len(roundings) < len(keys):
        moments, roundings = _moments(stage, *runs), []
        for (reading, _, weight), key in zip(placed, keys, strict=True):
            roundings.append(_rounding(weight, moments[reading], weight.node.name in corrected))
            checkpoint.add(key, roundings[-1])
    return [(at, weight, content) for (_, at, weight), content in zip(placed, roundings, strict=True)]


def _moments(stage: Stage, exact: SegmentRuns, simulated: SegmentRuns) -> dict[ProductInput, PairMoments]:
    """Return the moments of the inputs of a stage's products, in float with quantized."""
    most = -(-ROWS // len(exact))
    aliases = {
        reading: simulated.program.aliases.get((weights[0][1].node.name, reading.tensor), reading.tensor)
        for reading, weights in stage.weights.items()
    }
    names = list(dict.fromkeys(reading.tensor for reading in aliases))
    runs = (
        exact.values(stage.start, stage.end, names),
        simulated.values(stage.start, stage.end, list(dict.fromkeys(aliases.values()))),
    )
    moments: dict[ProductInput, PairMoments] = {}
    for (title, x), (_, y) in zip(*runs, strict=True):
        for reading, alias in aliases.items():
            rows = (im2col_rows(x[reading.tensor], reading, most), im2col_rows(y[alias], reading, most))
            of_sample = moments_of_pair(*rows, f"sample {title}: tensor '{reading.tensor}'")
            moments[reading] = moments[reading].added(of_sample) if reading in moments else of_sample
    return moments


def _rounding(weight: Weight, moments: PairMoments, centred: bool) -> bytes:
    """Return GPTAQ's offsets of a weight (int8); if `centred`, and corrections of biases (float32)."""
    pairs = moments.means(centred)
    ends = np.cumsum([second.shape[1] for second, _ in pairs])[:-1]
    blocks = zip(*(np.split(part, ends, axis=2) for part in flattened(weight)), pairs, strict=True)
    steps = [
        gptaq(part, scale, low, high, second, cross=cross)[0]
        for part, scale, low, high, (second, cross) in blocks
    ]
    offsets = offsets_of(weight, np.concatenate(steps, 2))
    if not centred:
        return bytes(offsets.tobytes())
    error = np.asarray(weight.array, np.float64) - _values(weight, offsets)
    mean = moments.first / max(1, moments.own.rows)
    lost = np.matmul(columns_of(weight.node, error), mean[:, :, None])
    return bytes(offsets.tobytes() + lost.astype(np.float32).tobytes())


def _apply(rounding: bytes, at: int, weight: Weight, side: SegmentRuns) -> None:
    """Use the rounded weight in the simulation, with its bias corrected."""
    size = weight.array.size
    offsets = np.frombuffer(rounding[:size], np.int8).reshape(weight.array.shape)
    side.set_constant(name_of(weight.value), _values(weight, offsets))
    layout = product_layout(weight.node)
    if len(rounding) == size or layout is None or layout.kernel is Kernel.SCATTERS:
        return
    correction = np.frombuffer(rounding[size:], np.float32)
    if layout.kernel is Kernel.GATHERS:
        correction = correction.reshape(-1, *[1] * (weight.array.ndim - 2))
    side.add_to_result(at, weight.node.output, correction)


def _values(weight: Weight, offsets: Array) -> Array:
    """Return the float values of the quantized values that offsets lead to."""
    return dequantize(quantize(weight.array, weight.params).astype(np.int64) + offsets, weight.params)
