"""A model and its simulation in quantized values as programs that samples go through a few nodes at a time.

In the simulation each quantized activation is rounded and saturates as the plan says (fake quantization: it
is divided by the scale, clipped, rounded and multiplied), and weights have the values chosen so far.
Each sample goes through a program once: what later nodes read is kept in files between two segments.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnx_ir as ir

from ...profiles.base.errors import ModelError
from ...profiles.readers.values import Sample
from ...profiles.runtime.custom_operators import new_session, new_session_options
from ...profiles.runtime.providers import CPU
from ...profiles.runtime.refusals import RUNTIME_ERRORS, first_line
from ...profiles.runtime.run_sample import Output, run_sample
from ..model.graph import Graph, name_of
from ..numerics.affine import QuantParams
from ..plan.plan import QuantPlan

Array = npt.NDArray[Any]

_ROUNDED, _EXACT = ":qprof-rounded", ":qprof-exact"
"""Added to the name of an activation: after it was rounded, and before."""

_REFUSED: tuple[type[Exception], ...] = (*RUNTIME_ERRORS, ValueError)

_INTEGER = 1.5 * 2.0**23
"""Added to a small float32 and subtracted again it leaves the nearest integer, the even one of two."""


@dataclass(frozen=True, eq=False)
class Program:
    """The nodes of a main graph as protobufs, and its constants.

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
                made_by = None if producer is None else plan.nodes.get(name_of(producer))
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
    zero = params.zero_point[0]
    numbers = (params.scale[0], params.qtype.low - zero, params.qtype.high - zero, _INTEGER)
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
