"""Noise models run on samples."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from threading import Lock

import numpy as np
import onnx_ir as ir
import onnxruntime as ort

from ...profiles.base.errors import DataError, ModelError
from ...profiles.noise.measurements import SampleNoise, TensorNoise, fewest_digests, mean_square
from ...profiles.readers.values import Sample
from ...profiles.runner.thread_pool import map_in_threads
from ...profiles.runtime.custom_operators import loaded_libraries, new_session, new_session_options
from ...profiles.runtime.external_weights import save_with_weights
from ...profiles.runtime.providers import CPU
from ...profiles.runtime.refusals import RUNTIME_ERRORS, first_line, load_refusal
from ...profiles.runtime.run_sample import run_sample
from ...profiles.samples.model_title import title_of
from .noise_model import Copies, NoiseModel, Sums, noise_model
from .statistics import CHANGED

MOST_WEIGHTS = 1 << 30
"""Bytes of weights from which on a model is not measured: a noise model holds them twice, besides what
onnxruntime packs of them."""

PACKED_WEIGHTS = 1 << 27
"""Bytes of weights up to which onnxruntime may pack them for its kernels, once for each copy of a node."""

SAME_SIGNAL = 1e-3
"""By how much the signal of two rows may differ where they run together: kernels add in another order."""

RANDOM = (
    "RandomNormal",
    "RandomNormalLike",
    "RandomUniform",
    "RandomUniformLike",
    "Multinomial",
    "Bernoulli",
)
"""Operators whose values differ between two copies, and between two runs."""


def unmeasurable(model: ir.Model) -> str:
    """Return why the noise of a model cannot be measured, as a clause; "" where it can."""
    for graph in model.graphs():
        for node in graph:
            if node.op_type in RANDOM:
                return f"{node.op_type} node '{node.name}' makes other values in each run"
    if weight_bytes(model) > MOST_WEIGHTS:
        return f"its weights have more than {MOST_WEIGHTS >> 30} GiB"
    return ""


def rows_differ_together(
    model: ir.Model, names: Collection[str], samples: Iterable[tuple[str, Sample]]
) -> bool:
    """Return whether rows that run as one batch have another signal than each by itself.

    So it is where the free leading dimension of the inputs counts steps in time, not samples: a row alone
    would show nothing of what noise does from step to step. Two rows of equal shapes are compared; where
    there are none, they are taken to be samples.

    Args:
        model: the prepared model, which takes batches.
        names: of the activations that are compared.
        samples: batches of one row, and their digests.

    Raises:
        ModelError: onnxruntime refuses the model. DataError: it fails on a sample.
    """
    shapes: dict[tuple[tuple[int, ...], ...], Sample] = {}
    for _, sample in samples:
        own = tuple(array.shape for array in sample.arrays.values())
        if own in shapes:
            return _differ(model, names, shapes[own], sample)
        shapes[own] = sample
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
