"""How quantization noise travels through a model, measured: copies with rounded values run on samples.

One copy has rounded activations and one rounded weights; the error of a tensor in a copy is its noise. In
order: the tensors to measure and those whose shapes may change, the two copies, their runs on one sample, and
the measurement of a model (`measure_noise`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Lock
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
import onnxruntime as ort

from ...profiles.base.errors import DataError, ModelError
from ...profiles.base.output_files import temporary_folder
from ...profiles.instrumentation.subgraphs import graph_attributes, typed_activations, value_names
from ...profiles.records.profile import INJECTED, SampleNoise, TensorNoise, mean_square
from ...profiles.runner.sample_pass import map_in_threads
from ...profiles.runtime.external_weights import move_weights, save_beside, weight_bytes
from ...profiles.runtime.providers import (
    CPU,
    RUNTIME_ERRORS,
    first_line,
    load_refusal,
    loaded_libraries,
    new_session,
    new_session_options,
)
from ...profiles.runtime.session import OPTIMISATION, run_sample
from ...profiles.samples.samples import title_of
from ...profiles.samples.values import Sample
from ..model.graph import constant_of, nodes_run_by
from ..numerics.affine import INT8, QuantParams, fake_quantized
from ..numerics.schemas import SCHEMAS, channel_params
from ..operators.facts import Values
from ..operators.table import draws, facts_of, rule_of
from ..operators.weight_layout import WeightLayout
from .mask_fillers import Rows, filler_rows, without_fillers

Array = npt.NDArray[Any]

# Which tensors are measured, and whose shapes may change once values are rounded -------------------------

NEAR_OVERFLOW = {ir.DataType.FLOAT: 3e38, ir.DataType.DOUBLE: 1e308}
"""A mean square above it has overflowed: the tensor is not rounded. Fillers stay above its negative."""


@dataclass(frozen=True)
class MeasuredTensor:
    """An activation that is rounded and measured."""

    name: str
    dtype: ir.DataType
    filler_rows: Rows | None  # the axes of `mask_fillers.filler_rows`; None if no fillers vanish
    singular: bool  # one of its readers has no finite value at 0
    at_risk: bool  # its shape may change once values are rounded


def measured_tensors(model: ir.Model, names: Collection[str]) -> tuple[MeasuredTensor, ...]:
    """Return the measured activations of the main graph, in graph order: `names` in float and double."""
    wanted = set(names) - compute_shapes(model)
    dtypes = {
        value: dtype
        for value, dtype in typed_activations(model)
        if value.name in wanted and dtype in NEAR_OVERFLOW
    }
    at_risk = shapes_at_risk(model, {str(value.name) for value in dtypes})
    outputs = (value for node in model.graph for value in node.outputs)
    return tuple(
        MeasuredTensor(
            str(value.name),
            dtypes[value],
            filler_rows(value),
            any(facts_of(use.node).singular(use.node, use.idx) for use in value.uses()),
            value.name in at_risk,
        )
        for value in (*model.graph.inputs, *outputs)
        if value in dtypes
    )


def compute_shapes(model: ir.Model) -> frozenset[str]:
    """Return the values that follow only from shapes and constants and lead to shapes, as no plan rounds."""
    varying: set[ir.Value] = set(model.graph.inputs)
    nodes = list(model.graph)
    for node in nodes:
        if not facts_of(node).reads_shape_only and any(value in varying for value in values_read(node)):
            varying.update(node.outputs)
    shape_values: set[ir.Value] = set()
    for node in reversed(nodes):
        leads_to_shapes = any(value in shape_values for value in node.outputs)
        positions = range(len(node.inputs)) if leads_to_shapes else facts_of(node).shape_inputs or ()
        read = (node.inputs[index] for index in positions if index < len(node.inputs))
        shape_values.update(value for value in read if value is not None and value not in varying)
    return frozenset(str(value.name) for value in shape_values)


def sequences_read(model: ir.Model) -> frozenset[str]:
    """Return the values that recurrent nodes of the main graph read as their sequences."""
    rules = ((rule_of(node), node.inputs) for node in model.graph)
    return frozenset(str(v[0].name) for rule, v in rules if rule is not None and rule.is_recurrent and v[0])


def shapes_at_risk(model: ir.Model, names: Collection[str]) -> frozenset[str]:
    """Return the values of the main graph whose shape may depend on rounded values.

    Outputs of an operator outside the standard are among them if it reads any value that depends on rounded
    ones, unless their shapes are declared. `names` are the rounded activations.
    """
    noisy: set[ir.Value] = {v for v in model.graph.inputs if v.name in names}
    at_risk: set[ir.Value] = set()
    for node in model.graph:
        read = tuple(values_read(node))
        reads_noise = any(value in noisy for value in read)
        reads_risk = any(value in at_risk for value in read)
        positions = facts_of(node).shape_inputs
        if positions is None or graph_attributes(node):
            shape_is_noisy = reads_noise
        else:
            shape_is_noisy = any(i < len(node.inputs) and node.inputs[i] in noisy for i in positions)
        if reads_risk or shape_is_noisy:
            declared = (value.shape is not None and value.shape.is_static() for value in node.outputs)
            at_risk.update(v for v, fixed in zip(node.outputs, declared, strict=True) if not fixed)
        if reads_risk or (reads_noise and not facts_of(node).reads_shape_only):
            noisy.update(node.outputs)
        noisy.update(value for value in node.outputs if value.name in names)
    return frozenset(str(value.name) for value in at_risk)


def values_read(node: ir.Node) -> Iterator[ir.Value]:
    """Yield the values that a node reads, those that its subgraphs read from outside included."""
    yield from (value for value in node.inputs if value is not None)
    for graph in graph_attributes(node):
        for inner in graph:
            yield from values_read(inner)


# The copy with rounded activations -----------------------------------------------------------------------


def rounded_copy(
    model: ir.Model, tensors: Sequence[MeasuredTensor], prefix: str
) -> tuple[ir.Model, frozenset[str]]:
    """Return a copy of a model whose nodes read activations rounded, and the values that may differ in it.

    Each step is an input, a number (`step_input`). Rounded values in another shape or order are rounded
    already. If a reader has no finite value at 0, values that would become 0 become half a step with the sign
    of the float value: an input too (`float_input`), or the activation itself if that may have another shape.
    """
    copy, rounded = model.clone(), set[ir.Value | None]()
    outputs = (value for node in copy.graph for value in node.outputs)
    values = {str(value.name): value for value in (*copy.graph.inputs, *outputs)}
    for tensor in tensors:
        value = values[tensor.name]
        node = value.producer()
        moves = node is not None and facts_of(node).values in (Values.SAME_ORDER, Values.PERMUTED)
        is_rounded = node is not None and moves and node.inputs[0] in rounded
        if not is_rounded or tensor.singular or tensor.filler_rows is not None:
            nodes = _rounding_nodes(copy.graph, tensor, value, prefix)
            _insert(copy.graph, value, nodes)
            value = nodes[-1].outputs[0]
        rounded.add(value)
    return copy, _values_after(model, {tensor.name for tensor in tensors}, set())


def _insert(graph: ir.Graph, value: ir.Value, nodes: Sequence[ir.Node]) -> None:
    """Insert nodes behind a value; all others that use it then read the result of the last node instead."""
    for use in tuple(value.uses()):
        if use.node not in nodes:
            use.node.replace_input_with(use.idx, nodes[-1].outputs[0])
    producer = value.producer()
    if producer is not None:
        graph.insert_after(producer, nodes)
    elif len(graph):
        graph.insert_before(graph[0], nodes)
    else:
        graph.extend(nodes)


def _rounding_nodes(graph: ir.Graph, tensor: MeasuredTensor, value: ir.Value, prefix: str) -> list[ir.Node]:
    """Return the nodes that round a value, the last with the result; the graph gets inputs and constants."""
    dtype, nodes = tensor.dtype, list[ir.Node]()

    def add(op_type: str, *inputs: ir.Value, to: ir.DataType = dtype) -> ir.Value:
        node = ir.Node("", op_type, inputs, name=f"{prefix}{len(nodes)}:{tensor.name}")
        node.outputs[0].name, node.outputs[0].dtype = node.name, to
        nodes.append(node)
        return node.outputs[0]

    def add_input(name: str, shape: ir.Shape | None) -> ir.Value:
        graph.inputs.append(ir.Value(name=name, type=ir.TensorType(dtype), shape=shape))
        return graph.inputs[-1]

    def number(of: float) -> ir.Value:
        name = f"{prefix}{dtype.name}:{of}"
        if name not in graph.initializers:
            graph.register_initializer(_constant(name, np.asarray(of, dtype.numpy())))
        return graph.initializers[name]

    step = add_input(step_input(prefix, tensor.name), ir.Shape([]))
    steps = add("Round", add("Div", value, step))
    if tensor.singular:
        exact = value if tensor.at_risk else add_input(float_input(prefix, tensor.name), value.shape)
        half = add("Mul", add("Sign", exact), number(0.5))
        steps = add("Where", add("Equal", steps, number(0.0), to=ir.DataType.BOOL), half, steps)
    rounded = add("Mul", steps, step)
    if tensor.filler_rows is not None:
        # A filler has too many steps for the type; if it became -inf, Softmax would make NaN of a row of
        # fillers alone.
        add("Max", rounded, number(-NEAR_OVERFLOW[dtype]))
    return nodes


def step_input(prefix: str, name: str) -> str:
    """Return the name of a rounded copy's input for the step of an activation."""
    return f"{prefix}step:{name}"


def float_input(prefix: str, name: str) -> str:
    """Return the name of a rounded copy's input for the float value of an activation."""
    return f"{prefix}float:{name}"


# The copy with weights rounded to int8, as they are where nothing else is decided ------------------------


def quantizable_constants(node: ir.Node) -> Iterator[tuple[int, WeightLayout, ir.Value, Array]]:
    """Yield the float constants that a node multiplies with or reads entries of, each after its input index.

    The scale of a normalisation is excluded: if the normalisation stays float, so does its scale.
    """
    rule = rule_of(node)
    for layout in () if rule is None else rule.constants:
        if layout is (rule.weight if rule else None) and not layout.is_product:
            continue
        value = node.inputs[layout.index] if layout.index < len(node.inputs) else None
        weight = constant_of(value)
        if value is not None and value.dtype == ir.DataType.FLOAT and weight is not None:
            yield layout.index, layout, value, weight


def params_of_rounded_weight(node: ir.Node, layout: WeightLayout, weight: Array) -> QuantParams | None:
    """Return those of a float32 weight in int8, a scale for each output channel; None if it is not finite."""
    if not weight.size or not np.isfinite(weight).all():
        return None
    axis = None if layout.is_stack(weight.ndim) else layout.axis(node, weight.ndim)
    return channel_params(weight, axis, SCHEMAS["symmetric"], INT8)


def weight_copy(model: ir.Model, prefix: str) -> tuple[ir.Model, frozenset[str]]:
    """Return a copy of a model with rounded weights, and the values of its main graph that may differ in it.

    Weights that nodes of subgraphs read are rounded too: their effect appears in the results of the node that
    runs the subgraph.
    """
    copy, rounded, readers = model.clone(), dict[tuple[str, int | None], ir.Value](), set[ir.Node]()
    for outer in copy.graph:
        for node in nodes_run_by(outer):
            for index, layout, value, weight in quantizable_constants(node):
                key = str(value.name), layout.axis(node, weight.ndim)
                if key not in rounded:
                    params = params_of_rounded_weight(node, layout, weight)
                    if params is None:
                        continue
                    rounded[key] = _constant(f"{prefix}{len(rounded)}", fake_quantized(weight, params))
                    copy.graph.register_initializer(rounded[key])
                node.replace_input_with(index, rounded[key])
                readers.add(outer)
    return copy, _values_after(copy, set(), readers)


def _constant(name: str, array: Array) -> ir.Value:
    tensor = ir.Tensor(array, name=name)
    return ir.Value(
        name=name, type=ir.TensorType(tensor.dtype), shape=ir.Shape(array.shape), const_value=tensor
    )


def _values_after(model: ir.Model, names: set[str], nodes: set[ir.Node]) -> frozenset[str]:
    """Return the values of the main graph that follow from some of its values, or are made by some nodes."""
    after = set[str | None]()
    for node in model.graph:
        if node in nodes or any(v.name in names or v.name in after for v in values_read(node)):
            after.update(value.name for value in node.outputs)
    return frozenset(name for name in after if name)


# The model and its copies, run on one sample -------------------------------------------------------------

Errors = Mapping[str, float | None]
"""The sum of the squares of each tensor's error in one sample; None for another shape, or a failed copy."""

INFINITE_NOISE = INJECTED**-2
"""Noise over signal that stands for infinite noise, 80 dB above the signal."""

BLOCK = 8192
"""Elements whose squares are summed at a time: they stay in the cache, and BLAS takes one thread for them."""


def sum_of_squares(values: Array, exact: Array | None = None, kept: Array | None = None) -> float:
    """Return the sum of squares of a tensor, or of its differences from `exact`, over the elements `kept`."""
    flat, flat_exact = values.reshape(-1), None if exact is None else exact.reshape(-1)
    flat_kept = None if kept is None else kept.reshape(-1)
    total, buffer = 0.0, np.empty(BLOCK, values.dtype)
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        for start in range(0, flat.size, BLOCK):
            block = flat[start : start + BLOCK]
            if flat_exact is not None:
                block = np.subtract(block, flat_exact[start : start + BLOCK], out=buffer[: block.size])
            if flat_kept is not None:
                block = np.where(flat_kept[start : start + BLOCK], block, block.dtype.type(0))
            total += float(np.dot(block, block))
    return total


class FloatTensor(NamedTuple):
    """The values of a tensor in the model itself."""

    array: Array
    kept: Array | None  # which of them are no fillers of masks; None for all
    total: float  # the sum of the squares of the others

    @property
    def step(self) -> float:
        """The rounding step: its mean square step**2 / 12 is `INJECTED` times the signal; 0 if no signal."""
        return math.sqrt(12.0 * INJECTED * self.total / self.array.size) if self.array.size else 0.0

    def error(self, noisy: Array) -> float | None:
        """Return the sum of squared errors of a copy of it; None if its shape differs."""
        return sum_of_squares(noisy, self.array, self.kept) if noisy.shape == self.array.shape else None

    def recorded(self, error: float | None) -> float | None:
        """Return an error for the record: `INFINITE_NOISE` if only the copy is not finite."""
        if error is None or math.isfinite(error) or not math.isfinite(self.total):
            return error
        return INFINITE_NOISE * self.total


def _is_rounded(tensor: MeasuredTensor, own: FloatTensor) -> bool:
    """Whether an activation is rounded: its power is neither 0 nor infinite."""
    with np.errstate(over="ignore", under="ignore"):
        power = tensor.dtype.numpy().type(own.step**2)
    return bool(0.0 < power < NEAR_OVERFLOW[tensor.dtype])


OpenCopy = tuple[ort.InferenceSession | None, list[str], frozenset[str]]
"""A session of a copy, None if no measured tensor may differ; its outputs, which are those that may; its
inputs."""


MAX_STEPS = 64
"""Steps of a sequence that are kept for its recurrent nodes, at most."""


def _middle(sequence: Array) -> Array:
    """Return a copy of the middle of a sequence, whose first axis is that of its steps."""
    start = max(0, len(sequence) - MAX_STEPS) // 2
    return sequence[start : start + MAX_STEPS].copy()


class NoiseRuns:
    """Runs a model and its copies on samples; several threads may do so at the same time."""

    def __init__(self, model: ir.Model, names: Collection[str], folder: Path) -> None:
        """Take a prepared model, the activations to measure and a temporary folder for the weights."""
        self._folder, self._title = folder, title_of(model)
        self._tensors = {tensor.name: tensor for tensor in measured_tensors(model, names)}
        self._prefix, taken = "noise:", value_names(model)
        while any(name.startswith(self._prefix) for name in taken):
            self._prefix = f"_{self._prefix}"
        self._model = model.clone()
        self._model.graph.outputs.clear()
        for value in (*self._model.graph.inputs, *(v for node in self._model.graph for v in node.outputs)):
            if (tensor := self._tensors.get(str(value.name))) is not None:
                value.dtype = tensor.dtype
                value.shape = None if tensor.at_risk else value.shape
        with self._saving():  # once: the copies read them there
            move_weights(self._model, folder)
        self._lock, self._opened = Lock(), dict[object, OpenCopy]()
        self._sequences = sequences_read(model)

    def measured(self, sample: Sample, digest: str) -> SampleNoise:
        """Return the noise of a sample; ModelError for a refused model or copy, DataError for a sample."""
        exact = self.float_tensors(sample)
        weights = self._open("weights", partial(weight_copy, self._model, self._prefix))
        copies = self._activation_errors(sample, exact), self._errors(weights, sample, exact)
        tensors = {}
        for name, own in exact.items():
            totals = own.total, *(own.recorded(errors[name]) for errors in copies)
            figures = (None if total is None else mean_square(total, own.array.size) for total in totals)
            tensors[name] = TensorNoise(*figures)
        at_risk = (name for name, tensor in self._tensors.items() if tensor.at_risk)
        changed = tuple(name for name in at_risk if any(errors[name] is None for errors in copies))
        sequences = {name: _middle(exact[name].array) for name in self._sequences if name in exact}
        return SampleNoise(digest, tensors, changed, sequences)

    def float_tensors(self, sample: Sample) -> dict[str, FloatTensor]:
        """Run the model itself, and return its tensors' values, in graph order; raises as `measured`."""
        itself = self._open("float", lambda: (self._model.clone(), frozenset(self._tensors)))
        arrays, tensors = {**sample.arrays, **self._run(itself, sample)}, {}
        for name, tensor in self._tensors.items():
            array, rows = np.asarray(arrays[name]), tensor.filler_rows
            kept = None if rows is None else without_fillers(array, rows)
            kept = None if kept is None or kept.all() else kept
            tensors[name] = FloatTensor(array, kept, sum_of_squares(array, kept=kept))
        return tensors

    def _activation_errors(self, sample: Sample, exact: Mapping[str, FloatTensor]) -> Errors:
        """Return the errors of the tensors in the copy with rounded activations."""
        added_inputs = {float_input(self._prefix, name): own.array for name, own in exact.items()}
        for name, own in exact.items():
            added_inputs[step_input(self._prefix, name)] = np.asarray(own.step, own.array.dtype)
        rounded = [tensor for name, tensor in self._tensors.items() if _is_rounded(tensor, exact[name])]
        key = tuple(tensor.name for tensor in rounded)
        copy = self._open(key, partial(rounded_copy, self._model, rounded, self._prefix))
        return self._errors(copy, sample, exact, added_inputs)

    def _errors(
        self,
        copy: OpenCopy,
        sample: Sample,
        exact: Mapping[str, FloatTensor],
        added_inputs: Mapping[str, Array] = MappingProxyType({}),
    ) -> Errors:
        errors: dict[str, float | None] = dict.fromkeys(exact, 0.0)
        try:
            outputs = self._run(copy, sample, added_inputs)
        except DataError:  # rounding has led to shapes or indices that do not fit
            return dict.fromkeys(exact)
        return errors | {name: exact[name].error(noisy) for name, noisy in outputs.items()}

    def _open(self, key: object, make: Callable[[], tuple[ir.Model, frozenset[str]]]) -> OpenCopy:
        """Return a copy that was opened under a key, or make and open it."""
        with self._lock:
            if key not in self._opened:
                model, may_differ = make()
                values = {str(value.name): value for node in model.graph for value in node.outputs}
                outputs = [name for name in self._tensors if name in may_differ and name in values]
                model.graph.outputs.extend(values[name] for name in outputs)
                session = self._session(model) if outputs else None
                inputs = frozenset(str(value.name) for value in model.graph.inputs)
                self._opened[key] = session, outputs, inputs
            return self._opened[key]

    def _session(self, model: ir.Model) -> ort.InferenceSession:
        """Open a copy, with one thread. Up to four are open: the model, and those with rounded values."""
        options = new_session_options(4 * weight_bytes(model))
        options.graph_optimization_level = OPTIMISATION
        options.add_session_config_entry("session.disable_quant_qdq", "1")  # a copy is no quantized model
        options.enable_mem_pattern = False
        options.use_deterministic_compute = True
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.execution_order = ort.ExecutionOrder.PRIORITY_BASED
        options.log_severity_level = 4  # errors are raised
        path = self._folder / f"{len(self._opened)}.onnx"
        with self._saving():
            save_beside(model, path)
        try:
            return new_session(str(path), options, CPU)
        except RUNTIME_ERRORS as error:
            title = f"{self._title} with rounded values"
            raise ModelError(load_refusal(title, error, loaded_libraries())) from error

    @contextmanager
    def _saving(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise ModelError(
                f"{self._title}: its copy with rounded values cannot be saved: {first_line(error)}; make "
                "room in the temporary folder"
            ) from error

    def _run(
        self, copy: OpenCopy, sample: Sample, added_inputs: Mapping[str, Array] = MappingProxyType({})
    ) -> dict[str, Array]:
        """Return the outputs of a copy; not all of `added_inputs` need be inputs of it. Raises DataError."""
        session, names, inputs = copy
        if session is None:
            return {}
        own = {name: array for name, array in added_inputs.items() if name in inputs}
        outputs = run_sample(session, names, Sample(sample.name, {**sample.arrays, **own}))
        return {name: np.asarray(array) for name, array in outputs.items()}


@contextmanager
def noise_runs(model: ir.Model, names: Collection[str]) -> Iterator[NoiseRuns]:
    """Yield the runs of a model and its copies; see `measure_noise`."""
    with temporary_folder() as folder:
        yield NoiseRuns(model, names, Path(folder))


# A model measured on its samples -------------------------------------------------------------------------

MAX_WEIGHT_BYTES = 1 << 30
"""Bytes of weights from which on a model is not measured: the model and each copy hold them."""


def unmeasurable(model: ir.Model) -> str:
    """Return why the noise of a model cannot be measured, as a clause, or ""."""
    for graph in model.graphs():
        for node in graph:
            if draws(node):
                return f"{node.op_type} node '{node.name}' makes other values in each run"
    if weight_bytes(model) > MAX_WEIGHT_BYTES:
        return f"its weights have more than {MAX_WEIGHT_BYTES >> 30} GiB"
    return ""


def measure_noise(
    model: ir.Model, names: Collection[str], samples: Iterable[tuple[str, Sample]], threads: int = 1
) -> tuple[SampleNoise, ...]:
    """Return the noise of each sample in a model, by digest; () if it cannot be measured (`unmeasurable`).

    `names` are the activations to round and measure. `threads` samples run at the same time; no figure
    depends on it. Raises as `NoiseRuns.measured`.
    """
    if unmeasurable(model):
        return ()
    with noise_runs(model, names) as runs:

        def work(item: tuple[str, Sample]) -> SampleNoise:
            digest, sample = item
            return runs.measured(sample, digest)

        # A thread of its own would have memory of its own, which nothing else uses again.
        in_threads = map_in_threads(work, samples, threads)
        noises = map(work, samples) if threads == 1 else in_threads
        return tuple(sorted(noises, key=lambda sample: sample.digest))


MARGIN = 1.2
"""What a run takes over the sizes of its tensors: memory of kernels, and tensors of unknown size."""


def expected_bytes(model: ir.Model, sizes: Mapping[str, int]) -> int:
    """Return the most bytes that measuring takes; `sizes` are those of each measured activation."""
    return int(MARGIN * 3 * (sum(sizes.values()) + weight_bytes(model)))
