"""The calibration runner: runs samples through a model and records statistics of its tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import count, islice

import onnx_ir as ir

from ..base.errors import DataError
from ..base.seconds import clocked
from ..base.tool import Progress
from ..instrumentation.input_facts import input_facts
from ..instrumentation.observations import Observation
from ..instrumentation.subgraphs import declared_shape
from ..records.histogram import Histogram
from ..records.profile import DataId, InputProfile, ModelId, Profile, TensorProfile
from ..runtime.providers import profiled_by
from ..runtime.session import session_for
from ..samples.samples import id_of_digests, sample_digests
from ..samples.smallest import SmallestSamples
from ..samples.values import Sample, Samples
from .sample_pass import (
    ProfilingModel,
    SamplePass,
    Statistics,
    map_in_threads,
    profiling_model,
    tensor_observer,
)
from .settings import RunSettings


class NoSamplesError(DataError):
    """There were no samples; a shard may be empty even if the whole is not."""


@clocked("run and record")
def calibrate(
    model: ir.Model,
    samples: Samples | Sequence[Sample],
    model_id: ModelId,
    settings: RunSettings | None = None,
    progress: Progress | None = None,
    *,
    smallest: SmallestSamples | None = None,
) -> Profile:
    """Run the model on all samples and return the profile of its floating-point activations.

    The profile is the same to the byte for any order, grouping and threads, and merged profiles of
    shards equal that of all. Some kernels of the runtime compute a row to other bits in another batch: for
    them there is `by_row`. Values can differ in the last bits between kinds of processors, and if other
    `tensors` are profiled.

    `tensors` and `channels` in `settings` are names and axes, "all" and "off". `smallest` stores samples.
    """
    settings = settings or RunSettings(channels="off")
    if not isinstance(samples, Samples):
        given = samples
        samples = Samples("samples", None, lambda part: islice(given, part.start, part.stop, part.step))
    if settings.limit is not None:
        samples = samples.drawn(settings.limit)
    with profiling_model(model, settings) as ready:
        return profile_samples(ready, samples, model_id, progress, smallest)


def profile_samples(
    model: ProfilingModel,
    samples: Samples,
    model_id: ModelId,
    progress: Progress | None = None,
    smallest: SmallestSamples | None = None,
) -> Profile:
    """Return the profile of these samples, all of them; see `calibrate`."""
    # All samples run, several at a time, and the observers count.
    data, runs = DataId(), 0
    outputs = [o.source for o in model.observations if o.source is not None]
    sample_pass = SamplePass(model, session_for(model.graph, outputs), model.observations)
    work = partial(_count_sample, sample_pass, model, smallest)
    # Unlike `enumerate`, `map` keeps no sample after it was yielded.
    numbered = map(lambda *pair: pair, count(), samples)
    results = map_in_threads(work, numbered, model.settings.samples_at_once)
    for done, (identity, model_runs) in enumerate(results, 1):
        data, runs = data.merged(identity), runs + model_runs
        if progress is not None:
            progress(done, samples.total)
    if data.samples == 0:
        raise NoSamplesError(f"{samples.source}: there are no samples; give at least one")

    statistics = sample_pass.statistics()
    tensors, inputs = _tensors_and_inputs(model, statistics, samples)
    return Profile(
        model_id,
        data,
        tensors,
        tool=profiled_by(model.settings.provider),
        non_finite=statistics.non_finite,
        runs=runs,
        inputs=inputs,
    )


def _count_sample(
    sample_pass: SamplePass,
    model: ProfilingModel,
    smallest: SmallestSamples | None,
    numbered: tuple[int, Sample],
) -> tuple[DataId, int]:
    """Count a sample; return identity and number of runs."""
    number, sample = numbered
    rows = model.runs_of(sample)
    digests = [digest for row in rows for digest in sample_digests(row.arrays, model.specs)]
    sample_pass.count(sample)
    if smallest is not None:
        smallest.note(number, sample, digests)
    return id_of_digests(digests), len(digests) if model.settings.by_row else 1


def _tensors_and_inputs(
    model: ProfilingModel, statistics: Statistics, samples: Samples
) -> tuple[dict[str, TensorProfile], dict[str, InputProfile]]:
    """Return the profiles of the tensors, and of all inputs; `samples` may name states."""

    def profile_of(observation: Observation) -> TensorProfile:
        profile = statistics.tensors.get(observation.name)
        if profile is None:  # no array came
            profile = tensor_observer(observation).profile()
        if observation.scan_axes is None:
            return profile
        return replace(profile, shape=declared_shape(observation.shape))

    by_name = {o.name: o for o in model.observations}
    tensors = {o.name: profile_of(o) for o in model.observations if not o.input_only}
    input_values = {value.name: value for value in model.model.graph.inputs}
    inputs = {}
    for spec in model.specs:
        tensor = tensors.get(spec.name)
        if tensor is None and spec.name in by_name:
            tensor = profile_of(by_name[spec.name])
        elif tensor is None:  # its elements are no numbers on a line, such as strings
            dims = spec.shape
            shape = None if dims is None else tuple(dim if isinstance(dim, int) else None for dim in dims)
            dtype = "string" if spec.dtype.kind == "O" else spec.dtype.name
            tensor = TensorProfile(dtype, shape, 0.0, 0.0, 0, 0, 0, 0, Histogram.empty())
        inputs[spec.name] = InputProfile(
            tensor,
            statistics.sizes.get(spec.name),
            *input_facts(input_values[spec.name]),
            fed_by=samples.state.get(spec.name),
            rate=samples.rates.get(spec.name, 0),
        )
    return tensors, inputs
