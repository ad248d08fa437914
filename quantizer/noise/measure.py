"""How quantization noise travels through a model, measured: copies with rounded values run beside it.

One copy has its activations rounded and one its weights; outputs of this *noise model* are sums of squares.
In order: the rounded weights, which shapes may change, the noise model, its runs on samples, and its memory.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from threading import Lock
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
import onnxruntime as ort

from ...profiles.base.errors import DataError, ModelError
from ...profiles.instrumentation.live_memory import live_memory
from ...profiles.instrumentation.subgraphs import graph_attributes, resolved
from ...profiles.records.profile import SampleNoise, TensorNoise, fewest_digests, mean_square
from ...profiles.runner.sample_pass import map_in_threads
from ...profiles.runtime.external_weights import save_with_weights
from ...profiles.runtime.providers import (
    CPU,
    RUNTIME_ERRORS,
    first_line,
    load_refusal,
    loaded_libraries,
    new_session,
    new_session_options,
)
from ...profiles.runtime.session import run_sample
from ...profiles.samples.samples import title_of
from ...profiles.samples.values import Sample
from ..model.editing import value_names
from ..model.graph import constant_of
from ..numerics.affine import INT8, dequantize, quantize
from ..numerics.schemas import SCHEMAS, channel_params
from ..operators.table import facts_of, rule_of
from ..operators.weight_layout import WeightLayout
from .mask_fillers import reach_below
from .measuring_nodes import (
    CHANGED,
    KEEPS_SIZE,
    MAGIC,
    FloatValue,
    NodeMaker,
    error_total,
    float_value,
    rounded,
    rounding_step,
)

# Weights rounded to int8, as they are where nothing else is decided ---------------------------------------

Array = npt.NDArray[Any]


def quantizable_constants(node: ir.Node) -> Iterator[tuple[int, WeightLayout]]:
    """Yield the float constants that a node multiplies with or reads entries of, by input index.

    These are the weights of products, of recurrent operators, and embedding tables. The scale of a
    normalisation is none: where that stays float, so does its scale.
    """
    rule = rule_of(node)
    for layout in () if rule is None else rule.constants:
        if layout is (rule.weight if rule else None) and not layout.is_product:
            continue
        value = node.inputs[layout.index] if layout.index < len(node.inputs) else None
        if value is not None and value.dtype == ir.DataType.FLOAT and constant_of(value) is not None:
            yield layout.index, layout


def rounded_weight(node: ir.Node, layout: WeightLayout, weight: Array) -> Array | None:
    """Return a weight in int8 with a scale for each output channel, dequantized; None where it is not finite.

    Args:
        node: that reads it.
        layout: of the operator's weight.
        weight: float32, any shape.
    """
    if not weight.size or not np.isfinite(weight).all():
        return None
    axis = None if layout.is_stack(weight.ndim) else layout.axis(node, weight.ndim)
    params = channel_params(weight, axis, SCHEMAS["symmetric"], INT8)
    return dequantize(quantize(weight, params), params)


# Shapes that may change once values are rounded, and tensors that only compute shapes ---------------------


def compute_shapes(model: ir.Model) -> frozenset[str]:
    """Return the values of the main graph that follow from shapes and constants alone and lead to shapes.

    Such a number may be a float, as the size of a grid that Range counts up to: no plan can round it.
    """
    varying: set[ir.Value] = set(model.graph.inputs)
    nodes = list(model.graph)
    for node in nodes:
        if not facts_of(node).reads_shape_only and any(value in varying for value in values_read(node)):
            varying.update(node.outputs)
    found: set[ir.Value] = set()
    for node in reversed(nodes):
        leads = any(value in found for value in node.outputs)
        positions = range(len(node.inputs)) if leads else facts_of(node).shape_inputs or ()
        read = (node.inputs[index] for index in positions if index < len(node.inputs))
        found.update(value for value in read if value is not None and value not in varying)
    return frozenset(str(value.name) for value in found)


def shapes_at_risk(model: ir.Model, names: Collection[str]) -> frozenset[str]:
    """Return the values of the main graph whose shape may depend on rounded values.

    What an operator outside the standard does is not known: its outputs are among them where it reads any
    value that depends on rounded ones, unless their shapes are declared.

    Args:
        model: the prepared model.
        names: of the activations that are rounded.
    """
    noisy: set[ir.Value] = {v for v in model.graph.inputs if v.name in names}
    risky: set[ir.Value] = set()
    for node in model.graph:
        read = tuple(values_read(node))
        moved = any(value in noisy for value in read)
        reshaped = any(value in risky for value in read)
        if reshaped or (moved and _reshapes(node, noisy)):
            risky.update(value for value in node.outputs if not _is_fixed(value))
        if reshaped or (moved and not facts_of(node).reads_shape_only):
            noisy.update(node.outputs)
        noisy.update(value for value in node.outputs if value.name in names)
    return frozenset(str(value.name) for value in risky)


def values_read(node: ir.Node) -> Iterator[ir.Value]:
    """Yield the values that a node reads, those that its subgraphs read from outside included."""
    yield from (value for value in node.inputs if value is not None)
    for graph in graph_attributes(node):
        for inner in graph:
            yield from values_read(inner)


def _reshapes(node: ir.Node, noisy: set[ir.Value]) -> bool:
    """Whether shapes of a node's outputs may follow from values, some of which are noisy."""
    positions = facts_of(node).shape_inputs
    if positions is None or graph_attributes(node):
        return True
    return any(index < len(node.inputs) and node.inputs[index] in noisy for index in positions)


def _is_fixed(value: ir.Value) -> bool:
    """Whether the model declares all dimensions of a value."""
    return value.shape is not None and value.shape.is_static()


# The noise model: float, rounded and rounded weights side by side; its outputs are sums of squares --------


@dataclass(frozen=True)
class Copies:
    """Which copies a noise model has besides the float one.

    Attributes:
        activations: whether one has rounded activations.
        weights: whether one has rounded weights.
    """

    activations: bool = True
    weights: bool = True


@dataclass(frozen=True)
class Sums:
    """Outputs of a noise model that belong to one tensor; "" for what is 0 in every sample, None for no copy.

    Attributes:
        total: sum of squares in the float copy.
        count: number of elements, where the shape is declared, or the output that holds it.
        activations, weights: sums of the squares of the errors in the two other copies.
    """

    total: str
    count: str | int
    activations: str | None
    weights: str | None


@dataclass(frozen=True, eq=False)
class NoiseModel:
    """A noise model.

    Attributes:
        model: its graph; inputs are those of the prepared model.
        sums: name of a tensor to its outputs, in graph order.
        at_risk: those whose shape may change.
        prefix: begins the names of all that is not in the float copy.
    """

    model: ir.Model
    sums: Mapping[str, Sums]
    at_risk: frozenset[str]
    prefix: str

    def origin(self, name: str) -> str:
        """Return the activation that a value of another copy is a copy of, by their names."""
        return name.removeprefix(self.prefix).partition(":")[2]


class _Copy:
    """A copy of the main graph, in which the float nodes stand for those that compute the same."""

    def __init__(
        self, model: ir.Model, values: Mapping[str, ir.Value], at_risk: Collection[str], prefix: str
    ) -> None:
        """Clone a model.

        Args:
            model: to be cloned; `values` are those of its main graph by name.
            values: of the float graph.
            at_risk: values whose shape may differ. They are declared without one: where two have the same
                names of dimensions, onnxruntime takes them to be equally large.
            prefix: begins the names of what the nodes of the copy make.
        """
        clone = model.clone()
        clone.graph.outputs.clear()
        self._nodes = list(clone.graph)
        clone.graph.remove(self._nodes)
        own = [*clone.graph.inputs, *clone.graph.initializers.values()]
        own += [value for node in self._nodes for value in node.outputs]
        self._names = {value: value.name for value in own if value.name}
        for value in own:
            if value.name in at_risk:
                value.shape = None
        self._values, self._prefix = values, prefix
        self.current = dict(values)

    def taken(self, number: int, constants: Mapping[int, ir.Value]) -> list[ir.Node]:
        """Return the copy of a node, none where the node itself can stand for it.

        Args:
            number: of the node.
            constants: inputs that differ from those of the node.
        """
        own = self._nodes[number]
        read = {self._names[value] for value in values_read(own) if value in self._names}
        if not constants and all(self.current[name] is self._values[name] for name in read):
            return []
        for node in _with_inner(own):
            for index, value in enumerate(node.inputs):
                if value in self._names:
                    node.replace_input_with(index, self.current[self._names[value]])
        for index, value in constants.items():
            own.replace_input_with(index, value)
        own.name = f"{self._prefix}{own.name}"
        for value in own.outputs:
            if value.name:
                self.current[value.name] = value
                value.name = f"{self._prefix}{value.name}"
        return [own]


def _with_inner(node: ir.Node) -> Iterator[ir.Node]:
    yield node
    for graph in graph_attributes(node):
        for inner in graph:
            yield from _with_inner(inner)


def noise_model(model: ir.Model, names: Collection[str], copies: Copies) -> NoiseModel:
    """Return the noise model of a prepared model, which is unchanged.

    A sum that nothing can make differ from 0 has no output. The nodes of the copies follow those of the float
    graph one by one, so that few tensors are alive at a time.

    Args:
        model: the prepared model.
        names: the activations of the main graph that are rounded and measured; others are passed over, and
            so is what only computes shapes.
        copies: which ones there are.
    """
    return _Builder(model, names, copies).built()


class _Builder:
    """Puts the copies together."""

    def __init__(self, model: ir.Model, names: Collection[str], copies: Copies) -> None:
        wanted = set(names) - compute_shapes(model)
        dtypes = {str(value.name): dtype for value, dtype in resolved(model) if value.name in wanted}
        self._dtypes = {name: dtype for name, dtype in dtypes.items() if dtype in MAGIC}
        self._model = model.clone()
        graph = self._model.graph
        self._prefix = prefix = free_prefix(value_names(model))
        self._values = {str(v.name): v for v in (*graph.inputs, *graph.initializers.values())}
        self._values |= {str(v.name): v for node in graph for v in node.outputs if v.name}
        self._make = NodeMaker(f"{prefix}n")
        self._at_risk = shapes_at_risk(model, self._dtypes)
        outside = self._values, self._at_risk
        self._activations = _Copy(model, *outside, f"{prefix}a:") if copies.activations else None
        self._weights = _Copy(model, *outside, f"{prefix}w:") if copies.weights else None
        self._rounded: dict[tuple[str, int | None], ir.Value] = {}
        self._sums: dict[str, Sums] = {}
        self._outputs: list[ir.Value] = []

    def built(self) -> NoiseModel:
        """Return the noise model."""
        graph = self._model.graph
        nodes = list(graph)
        graph.outputs.clear()
        graph.remove(nodes)
        for value in graph.inputs:
            self._measure(value)
        ordered = self._make.taken()
        for number, node in enumerate(nodes):
            ordered.append(node)
            if self._activations is not None:
                ordered += self._activations.taken(number, {})
            if self._weights is not None:
                ordered += self._weights.taken(number, self._constants(node))
            for value in node.outputs:
                self._measure(value)
            ordered += self._make.taken()
        graph.extend(ordered)
        graph.outputs.extend(self._outputs)
        for constant in (*self._make.constants.values(), *self._rounded.values()):
            graph.register_initializer(constant)
        return NoiseModel(self._model, self._sums, self._at_risk & self._sums.keys(), self._prefix)

    def _constants(self, node: ir.Node) -> dict[int, ir.Value]:
        """Return the rounded weights of a node, by input index."""
        found = {}
        for index, layout in quantizable_constants(node):
            value = node.inputs[index]
            weight = constant_of(value)
            assert value is not None
            assert weight is not None
            key = str(value.name), layout.axis(node, weight.ndim)
            if key not in self._rounded:
                array = rounded_weight(node, layout, weight)
                if array is None:
                    continue
                self._rounded[key] = self._make.constant(array)
            found[index] = self._rounded[key]
        return found

    def _measure(self, value: ir.Value) -> None:
        """Measure a value in all copies, and round it in the one with rounded activations."""
        name = str(value.name)
        if name not in self._dtypes:
            return
        value.dtype = self._dtypes[name]
        singular = any(facts_of(use.node).singular(use.node, use.idx) for use in value.uses())
        signal = float_value(self._make, value, reach_below(value) is not None)
        activations = self._error(self._activations, name, signal)
        weights = self._error(self._weights, name, signal)
        count = signal.count if isinstance(signal.count, int) else self._kept(signal.count)
        self._sums[name] = Sums(self._kept(signal.total), count, activations, weights)
        if self._activations is not None:
            step = rounding_step(self._make, signal)
            noisy = self._activations.current[name]
            signs = (
                noisy if name in self._at_risk else signal.value
            )  # those of float, where shapes are the same
            self._activations.current[name] = rounded(
                self._make,
                noisy,
                step,
                signs=signs if singular else None,
                fillers_vanish=signal.ignored is not None,
            )

    def _error(self, copy: _Copy | None, name: str, signal: FloatValue) -> str | None:
        """Return the output that holds what a tensor of a copy has of error; "" where there is none."""
        if copy is None:
            return None
        value = copy.current[name]
        if value is signal.value:
            return ""
        return self._kept(error_total(self._make, value, signal, name in self._at_risk))

    def _kept(self, value: ir.Value) -> str:
        self._outputs.append(value)
        return str(value.name)


def free_prefix(taken: Collection[str]) -> str:
    """Return a text that begins none of the names."""
    prefix = "noise:"
    while any(name.startswith(prefix) for name in taken):
        prefix = f"_{prefix}"
    return prefix


# Noise models run on samples ------------------------------------------------------------------------------

MOST_WEIGHTS = 1 << 30
"""Bytes of weights from which on a model is not measured: a noise model holds them twice, besides what
onnxruntime packs of them."""

PACKED_WEIGHTS = 1 << 27
"""Bytes of weights up to which onnxruntime may pack them for its kernels, once for each copy of a node."""

SAME_SIGNAL = 1e-3
"""By how much the signal of two rows may differ where they run together: kernels add in another order."""


def unmeasurable(model: ir.Model) -> str:
    """Return why the noise of a model cannot be measured, as a clause; "" where it can."""
    for graph in model.graphs():
        for node in graph:
            if facts_of(node).random:
                return f"{node.op_type} node '{node.name}' makes other values in each run"
    if weight_bytes(model) > MOST_WEIGHTS:
        return f"its weights have more than {MOST_WEIGHTS >> 30} GiB"
    return ""


def rows_differ_together(
    model: ir.Model, names: Collection[str], samples: Callable[[], Iterable[tuple[str, Sample]]]
) -> bool:
    """Return whether rows that run as one batch have another signal than each by itself.

    So it is where the free leading dimension of the inputs counts steps in time, not samples: a row alone
    would show nothing of what noise does from step to step. Two rows of equal shapes are compared, those with
    the smallest digests, whatever the order of the samples; where there are none, they are taken to be
    samples.

    Args:
        model: the prepared model, which takes batches.
        names: of the activations that are compared.
        samples: gives batches of one row, and their digests, anew in each call.

    Raises:
        ModelError: onnxruntime refuses the model. DataError: it fails on a sample.
    """
    shapes = {digest: tuple(array.shape for array in sample.arrays.values()) for digest, sample in samples()}
    first: dict[tuple[tuple[int, ...], ...], str] = {}
    for digest in sorted(shapes):
        other = first.setdefault(shapes[digest], digest)
        if other != digest:
            again = dict(item for item in samples() if item[0] in (other, digest))
            pair = [again[name] for name in (other, digest) if name in again]  # a function may give others
            return len(pair) == 2 and _differ(model, names, *pair)
    return False


def _differ(model: ir.Model, names: Collection[str], one: Sample, other: Sample) -> bool:
    arrays = {name: np.concatenate([array, other.arrays[name]]) for name, array in one.arrays.items()}
    with noise_runs(model, names) as runs:
        alone = [runs.signals(sample) for sample in (one, other)]
        together = runs.signals(Sample(f"{one.name} and {other.name}", arrays))
    for name, (total, count) in together.items():
        expected = alone[0][name][0] + alone[1][name][0]
        if count == alone[0][name][1] + alone[1][name][1] and abs(total - expected) > SAME_SIGNAL * expected:
            return True
    return False


def weight_bytes(model: ir.Model) -> int:
    """Return the bytes of all constants of a model."""
    tensors = [v.const_value for graph in model.graphs() for v in graph.initializers.values()]
    return sum(tensor.nbytes for tensor in tensors if tensor is not None)


def measure_noise(
    model: ir.Model,
    names: Collection[str],
    samples: Iterable[tuple[str, Sample]],
    threads: int = 1,
    progress: Callable[[int], None] | None = None,
    *,
    provider: str = CPU,
) -> tuple[SampleNoise, ...]:
    """Measure how noise travels through a model, on each sample by itself.

    Args:
        model: the prepared model; unchanged.
        names: the activations that are rounded and measured, as a profile names them; those of subgraphs and
            of other types than float and double are passed over.
        samples: digests and samples, each run as it is.
        threads: samples that run at the same time; no figure depends on it.
        progress: called with the number of samples that are done.
        provider: full name of the execution provider.

    Returns:
        The noise of each sample, in order of their digests; () where it cannot be measured (`unmeasurable`).

    Raises:
        ModelError: onnxruntime refuses the noise model. DataError: the model fails on a sample.
    """
    if unmeasurable(model):
        return ()
    with noise_runs(model, names, provider) as runs:

        def work(item: tuple[str, Sample]) -> SampleNoise:
            digest, sample = item
            return runs.measured(sample, digest)

        found = []
        for noise, _ in map_in_threads(work, samples, threads, lambda: False):
            found.append(noise)
            if progress is not None:
                progress(len(found))
    return fewest_digests(found, len(found))


@dataclass(frozen=True, eq=False)
class _Loaded:
    """A noise model in a session."""

    noise: NoiseModel
    session: ort.InferenceSession

    def sums(self, sample: Sample) -> dict[str, float]:
        """Return all sums of one sample; raises DataError."""
        names = [str(value.name) for value in self.noise.model.graph.outputs]
        arrays = run_sample(self.session, names, sample)
        return {name: float(np.asarray(array)) for name, array in arrays.items()}


class NoiseRuns:
    """Runs the noise models of one model: with all copies, and with fewer where that fails on a sample.

    Several threads may run samples at the same time.
    """

    def __init__(self, model: ir.Model, names: Collection[str], folder: Path, provider: str = CPU) -> None:
        """Take the prepared model, the activations to be measured, a temporary folder, and where to run."""
        self._provider = provider
        self._model, self._names, self._folder = model, names, folder
        self._lock = Lock()
        self._loaded: dict[Copies, _Loaded] = {}

    def measured(self, sample: Sample, digest: str) -> SampleNoise:
        """Return the noise of a sample.

        Raises:
            ModelError: onnxruntime refuses the noise model. DataError: the model fails on the sample.
        """
        try:
            return self._run(Copies(), sample, digest)
        except DataError:  # rounding has led to shapes or indices that do not fit
            found = self._run(Copies(False, False), sample, digest)
        for copies in (Copies(True, False), Copies(False, True)):
            with suppress(DataError):
                found = _joined(found, self._run(copies, sample, digest))
        changed = {*found.changed_shapes, *self._loaded[Copies()].noise.at_risk}
        return replace(found, changed_shapes=tuple(name for name in found.tensors if name in changed))

    def signals(self, sample: Sample) -> dict[str, tuple[float, int]]:
        """Return the sum of squares and the number of elements of each activation; raises as `measured`."""
        loaded = self._session(Copies(False, False))
        sums = loaded.sums(sample)
        return {name: (sums[own.total], _count(own, sums)) for name, own in loaded.noise.sums.items()}

    def _run(self, copies: Copies, sample: Sample, digest: str) -> SampleNoise:
        loaded = self._session(copies)
        return _record(digest, loaded.noise, loaded.sums(sample))

    def _session(self, copies: Copies) -> _Loaded:
        with self._lock:
            if copies not in self._loaded:
                self._loaded[copies] = self._load(copies)
            return self._loaded[copies]

    def _load(self, copies: Copies) -> _Loaded:
        noise = noise_model(self._model, self._names, copies)
        return _Loaded(noise, _session(noise.model, self._folder, self._provider))


@contextmanager
def noise_runs(model: ir.Model, names: Collection[str], provider: str = CPU) -> Iterator[NoiseRuns]:
    """Yield what runs the noise models of a model; see `measure_noise`."""
    with TemporaryDirectory(prefix="qprof-", ignore_cleanup_errors=True) as folder:
        yield NoiseRuns(model, names, Path(folder), provider)


def _session(model: ir.Model, folder: Path, provider: str) -> ort.InferenceSession:
    """Open a noise model: one thread inside an operator, nodes in the order of the graph.

    That order needs the least memory. Optimisations would find little to fuse between the sums, and take
    longer than they save.
    """
    options = new_session_options()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.enable_cpu_mem_arena = options.enable_mem_pattern = False
    options.use_deterministic_compute = True
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.execution_order = ort.ExecutionOrder.PRIORITY_BASED
    options.log_severity_level = 4  # errors are raised
    if weight_bytes(model) > PACKED_WEIGHTS:
        options.add_session_config_entry("session.disable_prepacking", "1")
    place = Path(mkdtemp(dir=folder)) / "model.onnx"
    title = title_of(model)
    try:
        save_with_weights(model, place)
    except OSError as error:
        raise ModelError(
            f"{title}: its copy with rounded values cannot be saved: {first_line(error)}; make room in the "
            "temporary folder"
        ) from error
    try:
        return new_session(str(place), options, provider)
    except RUNTIME_ERRORS as error:
        raise ModelError(load_refusal(f"{title} with rounded values", error, loaded_libraries())) from error


def _record(digest: str, noise: NoiseModel, sums: Mapping[str, float]) -> SampleNoise:
    tensors, changed = {}, []
    for name, own in noise.sums.items():
        count = _count(own, sums)
        errors = [None if e is None else sums[e] if e else 0.0 for e in (own.activations, own.weights)]
        if CHANGED in errors:
            changed.append(name)
        figures = (None if e is None or e == CHANGED else mean_square(e, count) for e in errors)
        tensors[name] = TensorNoise(mean_square(sums[own.total], count), *figures)
    return SampleNoise(digest, tensors, tuple(changed))


def _count(own: Sums, sums: Mapping[str, float]) -> int:
    return own.count if isinstance(own.count, int) else int(sums[own.count])


def _joined(one: SampleNoise, other: SampleNoise) -> SampleNoise:
    """Return the records of two noise models with different copies as one."""
    tensors = {name: _with(noise, other.tensors[name]) for name, noise in one.tensors.items()}
    return SampleNoise(one.digest, tensors, (*one.changed_shapes, *other.changed_shapes))


def _with(noise: TensorNoise, other: TensorNoise) -> TensorNoise:
    pairs = (
        (noise.activation_noise, other.activation_noise),
        (noise.weight_noise, other.weight_noise),
    )
    return TensorNoise(noise.signal, *(b if a is None else a for a, b in pairs))


MARGIN = 1.2
"""What a run takes over what the sizes of its tensors say: memory of kernels, and tensors of unknown size."""


def expected_bytes(model: ir.Model, sizes: Mapping[str, int]) -> int:
    """Return the bytes that a noise model takes at most while one sample runs, its weights included.

    Args:
        model: the prepared model.
        sizes: bytes of each activation that is measured.
    """
    noise = noise_model(model, sizes, Copies())
    known = dict(sizes)
    for node in noise.model.graph:
        for value in node.outputs:
            name = str(value.name)
            if name.startswith(noise.prefix):
                known[name] = sizes.get(noise.origin(name), 0)
        if node.op_type in KEEPS_SIZE and not known.get(str(node.outputs[0].name)):
            largest = max((known.get(v.name or "", 0) for v in node.inputs if v is not None), default=0)
            known[str(node.outputs[0].name)] = largest
    peak = live_memory(noise.model, known).peak()
    return int(MARGIN * (peak + weight_bytes(noise.model) + weight_bytes(model)))
