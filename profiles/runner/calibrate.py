"""The calibration runner: streams samples through a model and records what flows through its tensors."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from itertools import islice

import numpy as np
import onnx_ir as ir
import onnxruntime as ort

from ..base.errors import ConfigError, DataError
from ..base.tool import Progress, tool_name
from ..instrumentation.activations import declared_shape
from ..instrumentation.taps import Tap
from ..records.profile import DataId, ModelId, Profile, TensorProfile
from ..runtime.machine import used_bytes
from ..runtime.profiling_session import CPU, measuring, opened, size_name
from ..runtime.run_sample import run_sample
from ..samples.samples import Sample, Samples, fixed_shapes
from .checkpoint import Checkpoint, Keeper, RunId
from .memory_plan import MemoryPlan, one_pass, plan_memory
from .pass_observer import empty_accumulator, merged_profiles
from .sample_pass import Pass, fed_of
from .settings import Loaded, Settings, loaded
from .thread_pool import side_by_side


class NoSamplesError(DataError):
    """There were no samples; a shard may be empty where the whole is not."""


def calibrate(
    model: ir.Model,
    samples: Samples | Iterable[Sample],
    model_id: ModelId,
    *,
    non_finite: str = "error",
    threads: int = 0,
    tensors: Collection[str] | None = None,
    provider: str = CPU,
    memory_limit: int | None = None,
    channels: Mapping[str, int] | None = None,
    by_row: bool = False,
    checkpoint: Checkpoint | None = None,
    progress: Progress | None = None,
) -> Profile:
    """Run the model on all samples and return the profile of its floating-point activations.

    The activations are outputs of one onnxruntime session; each is counted where it lies and then
    forgotten. Threads run samples side by side, and each computes and counts one at a time. Order, grouping
    and number of the samples between calls do not matter, nor do threads and passes: the profile is the same
    to the byte, and merged profiles of shards equal the profile of all. Shapes may differ between samples.
    How rows are batched does not matter either, where the runtime computes a row to the same bits in every
    batch; some of its kernels do not (sums over all but the batch, for one), and for them there is `by_row`.

    onnxruntime optimises the graph for the machine as it does for plain inference. So the values can differ
    in the last bits from those of the graph as it is written, between kinds of processors, and between
    runs that profile different `tensors`.

    Args:
        model: the prepared model; unchanged.
        samples: checked feeds, as `open_samples` gives them.
        model_id: identity of the model, to be recorded.
        non_finite, threads, tensors, provider, memory_limit, channels, by_row: see `Settings`.
        checkpoint: where progress is kept, so that a run that was killed goes on where it was; None for
            nowhere.
        progress: called after each sample.

    Raises:
        ConfigError: a setting is not allowed.
        ModelError: onnxruntime cannot load the model.
        DataError: there are no samples, one makes the model fail, or (with "error") NaN or Inf appeared.
        ProfileError: the checkpoint belongs to another run.
    """
    chosen = None if tensors is None else frozenset(tensors)
    settings = Settings(non_finite, threads, chosen, provider, memory_limit, channels or {}, by_row)
    with loaded(model, settings) as run:
        return profile_samples(run, samples, model_id, checkpoint, progress)


def profile_samples(
    run: Loaded,
    samples: Samples | Iterable[Sample],
    model_id: ModelId,
    checkpoint: Checkpoint | None = None,
    progress: Progress | None = None,
) -> Profile:
    """Return the profile of these samples; see `calibrate`."""
    plan = _plan(run, samples)
    keeper = Keeper(checkpoint, _run_id(run, samples, plan, model_id))
    before = keeper.load()
    data = before.profile.data if before.profile is not None else DataId()
    counted = _seen(before.profile)
    total = getattr(samples, "total", None)
    for number in range(before.passes, len(plan.passes)):
        done = before.feeds if number == before.passes else 0
        names = set(plan.passes[number])
        taps = [tap for tap in run.read if tap.name in names]
        with opened(run.graph, [tap.source for tap in taps if tap.source is not None]) as session:
            work = Pass(run, session, taps, number == 0)
            for found, quiet in side_by_side(work.count, _from(samples, done), plan.threads, keeper.is_due):
                data = data.merged(found)
                done += 1
                if progress is not None:
                    passes = len(plan.passes)
                    progress(number * (total or 0) + done, None if total is None else total * passes)
                if quiet and keeper.is_due():
                    so_far = _counted(run, merged_profiles(counted, *work.profiles()))
                    keeper.save(number, done, Profile(model_id, data, so_far))
        counted = merged_profiles(counted, *work.profiles())
    if data.samples == 0:
        source = getattr(samples, "source", "samples")
        raise NoSamplesError(f"{source}: there are no samples; give at least one")
    return Profile(model_id, data, _named(run, _counted(run, counted)), tool=tool_name())


def _seen(before: Profile | None) -> dict[str, TensorProfile]:
    """Return what an earlier run has counted."""
    tensors = {} if before is None else before.tensors
    return {name: tensor for name, tensor in tensors.items() if tensor.shape is not None or tensor.count}


def _counted(run: Loaded, found: Mapping[str, TensorProfile]) -> dict[str, TensorProfile]:
    """Return what was counted of every tensor, in graph order; nothing where there was no array."""
    return {tap.name: found.get(tap.name) or empty_accumulator(tap).profile() for tap in run.read}


def _named(run: Loaded, counted: Mapping[str, TensorProfile]) -> dict[str, TensorProfile]:
    """Return the profiles of all tensors that were asked for, in graph order."""
    wanted = run.settings.tensors
    found = {}
    for tap in run.taps:
        if wanted is None or tap.name in wanted:
            profile = counted[tap.same_as or tap.name]
            if tap.same_as is not None:
                profile = _of_twin(profile, tap)
            elif tap.stacked is not None:
                profile = replace(profile, shape=declared_shape(tap.shape))
            found[tap.name] = profile
    return found


def _of_twin(profile: TensorProfile, tap: Tap) -> TensorProfile:
    """Return the profile of a tensor whose elements were counted in another one."""
    channels = profile.channels
    if channels is not None:
        channels = None if tap.axis is None else replace(channels, axis=tap.axis)
    return replace(profile, shape=declared_shape(tap.shape), channels=channels)


def _from(samples: Samples | Iterable[Sample], start: int) -> Iterable[Sample]:
    if isinstance(samples, Samples):
        return samples.part(start)
    return islice(samples, start, None)


def _plan(run: Loaded, samples: Samples | Iterable[Sample]) -> MemoryPlan:
    settings = run.settings
    if settings.memory_limit is None:
        return one_pass([tap.name for tap in run.read], settings.threads)
    if iter(samples) is samples:
        raise ConfigError("memory limit: the samples may have to be read again; give a list or a folder")
    largest = _largest(run, samples)
    if largest is None:
        return one_pass([tap.name for tap in run.read], 1)
    sources = {tap.name: tap.source for tap in run.read if tap.source is not None}
    with measuring(run.graph, list(sources.values())) as session:
        elements = run_sample(session, [output.name for output in session.get_outputs()], largest)
        base = used_bytes()

    def size(tap: Tap) -> int:
        if tap.source is None:
            return 0
        source = run.graph.sources[tap.source]
        sequence = elements.get(source)
        if isinstance(sequence, list):
            return sum(array.nbytes for array in sequence)
        (number,) = np.ravel(elements[size_name(source)])
        return int(number) * int(tap.dtype.itemsize)

    sizes = {tap.name: size(tap) for tap in run.read}
    return plan_memory(sizes, settings.threads, base, settings.memory_limit)


def _largest(run: Loaded, samples: Samples | Iterable[Sample]) -> Sample | None:
    """Return what is fed with the most bytes in its inputs; the first where all are alike, None for none."""
    if fixed_shapes(run.specs):
        return next(iter(samples), None)
    every = (fed for sample in samples for fed in fed_of(run, sample))
    return max(every, key=lambda fed: sum(array.nbytes for array in fed.feed.values()), default=None)


def _run_id(run: Loaded, samples: Samples | Iterable[Sample], plan: MemoryPlan, model_id: ModelId) -> RunId:
    return RunId(
        model_id,
        getattr(samples, "source", "samples"),
        getattr(samples, "total", None),
        {
            "tensors": [tap.name for tap in run.read],
            "passes": list(map(list, plan.passes)),
            "non_finite": run.settings.non_finite,
            "channels": [[tap.name, tap.axis] for tap in run.read if tap.axis is not None],
            "by_row": run.settings.by_row,
            "provider": run.settings.provider,
            "onnxruntime": ort.__version__,
            "tool": tool_name(),
        },
    )
