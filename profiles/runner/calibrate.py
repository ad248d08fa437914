"""The calibration runner: runs samples through a model and records statistics of its tensors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import count, islice
from pathlib import Path

import onnx_ir as ir
import onnxruntime as ort

from ..base.errors import ConfigError, DataError
from ..base.tool import Progress, tool_name
from ..instrumentation.observations import Observation
from ..instrumentation.subgraphs import declared_shape
from ..records.histogram import Histogram
from ..records.profile import (
    DataId,
    Extremes,
    InputProfile,
    ModelId,
    NonFinite,
    Profile,
    Sizes,
    TensorProfile,
)
from ..runtime.providers import profiled_by
from ..runtime.session import session_for
from ..samples.samples import id_of_digests
from ..samples.smallest import SmallestSamples
from ..samples.values import Sample, Samples
from .checkpoint import CheckpointWriter, RunId, RunProgress, SampleDigests
from .memory_plan import plan_run
from .sample_pass import (
    ProfilingModel,
    SamplePass,
    both_sizes,
    digests_of,
    empty_profile,
    map_in_threads,
    merged_profiles,
    profiling_model,
)
from .settings import RunSettings


class NoSamplesError(DataError):
    """There were no samples; a shard may be empty where the whole is not."""


def calibrate(
    model: ir.Model,
    samples: Samples | Iterable[Sample],
    model_id: ModelId,
    settings: RunSettings | None = None,
    progress: Progress | None = None,
    *,
    smallest: SmallestSamples | None = None,
) -> Profile:
    """Run the model on all samples and return the profile of its floating-point activations.

    The activations are outputs of one onnxruntime session; the observers read each in onnxruntime's memory
    and keep nothing of it. Threads run several samples at the same time, and each computes and counts one.
    Order, grouping and number of the samples between calls do not matter, nor do threads and passes: the
    profile is the same to the byte, and merged profiles of shards equal the profile of all. Shapes may differ
    between samples. How rows are batched does not matter either, where the runtime computes a row to the same
    bits in every batch; some of its kernels do not (sums over all axes but the batch, for one), and for them
    there is `by_row`.

    onnxruntime optimises the graph for the machine as it does for plain inference. So the values can differ
    in the last bits from those of the graph as it is written, between kinds of processors, and between
    runs that profile different `tensors`.

    Args:
        model: the prepared model; unchanged.
        samples: checked samples, as `open_samples` gives them.
        model_id: identity of the model, to be recorded.
        settings: of the run; `tensors` and `channels` as names and axes, "all" and "off". None for all
            tensors without channels.
        progress: called after each sample.
        smallest: keeps the samples with the smallest digests; None for nothing.

    Raises:
        ConfigError: a setting is not allowed.
        ModelError: onnxruntime cannot load the model.
        DataError: there are no samples, one makes the model fail, or (with "error") NaN or Inf appeared.
        ProfileError: the checkpoint belongs to another run.
    """
    settings = settings or RunSettings(channels="off")
    if settings.scheduler is not None:
        raise ConfigError(
            "scheduler: its workers open the samples themselves; call dump_profile with a folder or "
            "module:function"
        )
    if settings.limit is not None:
        if isinstance(samples, Samples):
            samples = samples.drawn(settings.limit)
        else:  # those of an iterator can still be iterated only once
            first = islice(samples, settings.limit)
            samples = first if iter(samples) is samples else list(first)
    with profiling_model(model, settings) as ready:
        return profile_samples(ready, samples, model_id, progress, smallest)


def profile_samples(
    model: ProfilingModel,
    samples: Samples | Iterable[Sample],
    model_id: ModelId,
    progress: Progress | None = None,
    smallest: SmallestSamples | None = None,
) -> Profile:
    """Return the profile of these samples, all of them; see `calibrate`."""
    run = _CalibrationRun(model, samples, model_id, progress)
    for read in run.passes():
        outputs = [observation.source for observation in read if observation.source is not None]
        with session_for(model.graph, outputs, frugal=model.settings.memory_limit is not None) as session:
            sample_pass = SamplePass(model, session, read)
            work = partial(_counted, sample_pass, model, run.counted, smallest)
            for counted, idle in map_in_threads(work, _numbered(samples), run.threads, run.waits):
                run.note(*counted, sample_pass if idle else None)
        run.finish(sample_pass)
    return run.profile()


def _numbered(samples: Iterable[Sample]) -> Iterator[tuple[int, Sample]]:
    """Yield the samples with their numbers; unlike `enumerate`, keep none after it was yielded."""
    iterator = iter(samples)
    for number in count():
        try:
            yield number, next(iterator)
        except StopIteration:
            return


def _counted(
    sample_pass: SamplePass,
    model: ProfilingModel,
    before: int,
    smallest: SmallestSamples | None,
    item: tuple[int, Sample],
) -> tuple[str, DataId, int]:
    """Count a sample, unless it is one of the first, which the checkpoint holds.

    Return its name, its identity, and how many times the model runs on it.
    """
    number, sample = item
    digests = digests_of(model, sample)
    if number >= before:
        sample_pass.count(sample, digests)
    if smallest is not None:
        smallest.note(number, sample, digests)
    return sample.name, id_of_digests(digests), len(digests) if model.settings.by_row else 1


class _CalibrationRun:
    """The state of a run: counts passes and samples, reports progress, writes checkpoints.

    Attributes:
        counted: samples of this pass that the checkpoint holds: they are read and compared, not run.
        threads: samples that run at the same time.
    """

    def __init__(
        self,
        model: ProfilingModel,
        samples: Samples | Iterable[Sample],
        model_id: ModelId,
        progress: Progress | None,
    ) -> None:
        """Begin, or resume what the checkpoint holds."""
        self._model, self._samples, self._model_id = model, samples, model_id
        self._progress, self._total = progress, getattr(samples, "total", None)
        checkpoint, every = model.settings.checkpoint, model.settings.every
        path = None if checkpoint is None else Path(checkpoint)
        self._writer = CheckpointWriter(path, every, _run_id(model, samples, model_id))
        before = self._writer.load()
        self._plan = plan_run(model, samples, self._writer.planned_before(before))
        self._writer.check_passes(before, self._plan)
        self.threads, self.counted = self._plan.threads, before.samples
        self._pass, self._done = before.passes, 0
        nothing = Profile(model_id, DataId(), {})
        counted = nothing if before.profile is None else before.profile
        self._data, self._runs, self._non_finite = counted.data, counted.runs, counted.non_finite
        # Of a tensor of which no array came the checkpoint has an empty profile.
        tensors = {name: given.tensor for name, given in counted.inputs.items()} | dict(counted)
        self._profiles = {name: t for name, t in tensors.items() if t.shape is not None or t.count}
        self._sizes = {name: given.sizes for name, given in counted.inputs.items()}
        self._digests = SampleDigests(path, before, path is not None or len(self._plan.passes) > 1)

    def passes(self) -> Iterator[list[Observation]]:
        """Yield the tensors of each pass that is not complete."""
        while self._pass < len(self._plan.passes):
            names = set(self._plan.passes[self._pass])
            yield [o for o in self._model.read if o.name in names]

    def waits(self) -> bool:
        """Return whether no more samples are to be begun: memory is short, or a checkpoint is due."""
        return not self._plan.ahead or (self._done >= self.counted and self._writer.is_due())

    def note(self, name: str, data: DataId, runs: int, idle: SamplePass | None) -> None:
        """Count one more sample.

        Args:
            name: of the sample.
            data: its identity.
            runs: how many times the model runs on it.
            idle: the pass, where no sample is under way: a checkpoint can be written then.

        Raises:
            ProfileError, DataError: it is not the sample that was counted in its place before.
        """
        first = self._pass == 0
        self._digests.note(self._done, name, data, first)
        if first and self._done >= self.counted:
            self._data, self._runs = self._data.merged(data), self._runs + runs
        self._done += 1
        if self._progress is not None:
            before = self._pass * (self._total or 0)
            total = None if self._total is None else self._total * len(self._plan.passes)
            self._progress(before + self._done, total)
        if idle is not None and self._done > self.counted and self._writer.is_due():
            counted = self._tensors(merged_profiles(self._profiles, *idle.profiles()))
            profile = self._profile_of(
                {o.name: counted[o.name] for o in self._model.read if not o.input_only},
                counted,
                self._non_finite.merged(idle.non_finite()),
                both_sizes(self._sizes, idle.sizes()),
            )
            self._writer.save(RunProgress(self._pass, self._done, profile, self._plan, bytes(self._digests)))

    def finish(self, sample_pass: SamplePass) -> None:
        """Take what a complete pass has counted."""
        self._digests.check_end(self._done)
        self._profiles = merged_profiles(self._profiles, *sample_pass.profiles())
        self._non_finite = self._non_finite.merged(sample_pass.non_finite())
        self._sizes = both_sizes(self._sizes, sample_pass.sizes())
        self._pass, self._done, self.counted = self._pass + 1, 0, 0

    def profile(self) -> Profile:
        """Return the profile of all samples.

        Raises:
            NoSamplesError: there were none.
        """
        if self._data.samples == 0:
            source = getattr(self._samples, "source", "samples")
            raise NoSamplesError(f"{source}: there are no samples; give at least one")
        counted, names = self._tensors(self._profiles), self._model.settings.names
        wanted = {
            o.name: _as_declared(counted[o.same_as or o.name], o)
            for o in self._model.observations
            if not o.input_only and (names is None or o.name in names)
        }
        profile = self._profile_of(wanted, counted, self._non_finite, self._sizes)
        return replace(profile, tool=profiled_by(self._model.settings.provider))

    def _profile_of(
        self,
        tensors: dict[str, TensorProfile],
        counted: Mapping[str, TensorProfile],
        non_finite: NonFinite,
        sizes: Mapping[str, Sizes | None],
    ) -> Profile:
        """Return the profile of these tensors, and of the inputs as they were counted."""
        state = self._samples.state if isinstance(self._samples, Samples) else {}
        inputs = _input_profiles(self._model, tensors, counted, sizes, state)
        return Profile(
            self._model_id, self._data, tensors, non_finite=non_finite, runs=self._runs, inputs=inputs
        )

    def _tensors(self, counted: Mapping[str, TensorProfile]) -> dict[str, TensorProfile]:
        """Return the profiles of all tensors that are read, in graph order; empty where no array came."""
        return {o.name: counted.get(o.name) or empty_profile(o) for o in self._model.read}


def _input_profiles(
    model: ProfilingModel,
    tensors: Mapping[str, TensorProfile],
    counted: Mapping[str, TensorProfile],
    sizes: Mapping[str, Sizes | None],
    state: Mapping[str, str],
) -> dict[str, InputProfile]:
    """Return the records of the inputs, in order; those that are among the tensors have the same record.

    Args:
        model: as it is profiled.
        tensors: the profile's.
        counted: what was counted of each tensor that was read.
        sizes: of the arrays of each input.
        state: see `Samples`.
    """
    observed = {o.name: o for o in model.observations}
    inputs = {}
    for spec in model.specs:
        tensor = tensors.get(spec.name)
        if tensor is None and (o := observed.get(spec.name)) is not None:
            tensor = _as_declared(counted[o.same_as or o.name], o)
        elif tensor is None:  # its elements are no numbers on a line, such as strings
            dims = spec.shape
            shape = None if dims is None else tuple(dim if isinstance(dim, int) else None for dim in dims)
            dtype = "string" if spec.dtype.kind == "O" else spec.dtype.name
            empty = Histogram.empty()
            tensor = TensorProfile(dtype, shape, 0.0, 0.0, 0, 0, 0, 0, empty, extremes=Extremes())
        facts = model.facts[spec.name]
        inputs[spec.name] = InputProfile(
            tensor,
            sizes.get(spec.name),
            facts.normalised,
            facts.transposed,
            state.get(spec.name),
        )
    return inputs


def _as_declared(profile: TensorProfile, observation: Observation) -> TensorProfile:
    """Return the profile of a tensor, which may have been read in another one with the same elements."""
    shape, channels = declared_shape(observation.shape), profile.channels
    if observation.same_as is not None:
        if channels is not None:
            channels = None if observation.axis is None else replace(channels, axis=observation.axis)
        return replace(profile, shape=shape, channels=channels)
    return profile if observation.scan_axes is None else replace(profile, shape=shape)


def _run_id(model: ProfilingModel, samples: Samples | Iterable[Sample], model_id: ModelId) -> RunId:
    settings = model.settings
    return RunId(
        model_id,
        getattr(samples, "place", "") or getattr(samples, "source", "samples"),
        getattr(samples, "total", None),
        {
            "tensors": [o.name for o in model.read],
            "limit": settings.limit,
            "non_finite": settings.non_finite,
            "channels": [[o.name, o.axis] for o in model.read if o.axis is not None],
            "by_row": settings.by_row,
            "provider": settings.provider,
            "onnxruntime": ort.__version__,
            "tool": tool_name(),
        },
        settings.memory_limit,
    )
