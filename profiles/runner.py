"""The calibration runner: streams samples through a model and records what flows through its tensors."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
import onnxruntime as ort

from .accumulator import Accumulator
from .checkpoint import Checkpoint, Keeper, RunId
from .data_digest import data_id, rows_of
from .errors import ConfigError, DataError
from .instrument import declared_shape, dtype_name
from .loading import Loaded, Settings, loaded
from .memory import MemoryPlan, one_pass, plan_memory, used_bytes
from .profile import DataId, ModelId, Profile, TensorProfile, merged_shape
from .samples import Sample, Samples, fixed_shapes
from .session import CPU, RUNTIME_ERRORS, block_channels, first_line, measuring, opened, size_name
from .side_by_side import side_by_side
from .taps import Tap

Progress = Callable[[int, int | None], None]
"""Called with the number of samples done and, where known, their total."""


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
    accumulators = _accumulators(run, before.profile)
    total = getattr(samples, "total", None)
    for number in range(before.passes, len(plan.passes)):
        done = before.feeds if number == before.passes else 0
        names = set(plan.passes[number])
        taps = [tap for tap in run.read if tap.name in names]
        with opened(run.graph, [tap.source for tap in taps if tap.source is not None]) as session:
            work = _work(run, session, taps, accumulators, number == 0)
            for found, quiet in side_by_side(work, _from(samples, done), plan.threads, keeper.is_due):
                data = data.merged(found)
                done += 1
                if progress is not None:
                    passes = len(plan.passes)
                    progress(number * (total or 0) + done, None if total is None else total * passes)
                if quiet and keeper.is_due():
                    counted = {name: a.profile() for name, a in accumulators.items()}
                    keeper.save(number, done, Profile(model_id, data, counted))
    if data.samples == 0:
        source = getattr(samples, "source", "samples")
        raise NoSamplesError(f"{source}: there are no samples; give at least one")
    return Profile(model_id, data, _named(run, accumulators), tool=tool_name())


def tool_name() -> str:
    """Return name and version of this program, as files record them; no version when it is not installed."""
    try:
        return f"qprof {version('qprof-onnx')}"
    except PackageNotFoundError:
        return "qprof"


def _accumulators(run: Loaded, before: Profile | None) -> dict[str, Accumulator]:
    def anew(tap: Tap) -> Accumulator:
        return Accumulator(dtype_name(tap.dtype), axis=tap.axis, channels=tap.channels)

    if before is None:
        return {tap.name: anew(tap) for tap in run.read}
    return {
        tap.name: Accumulator.of(before[tap.name])
        if before[tap.name].shape is not None or before[tap.name].count
        else anew(tap)
        for tap in run.read
    }


def _named(run: Loaded, accumulators: Mapping[str, Accumulator]) -> dict[str, TensorProfile]:
    """Return the profiles of all tensors that were asked for, in graph order."""
    wanted = run.settings.tensors
    found = {}
    for tap in run.taps:
        if wanted is None or tap.name in wanted:
            profile = accumulators[tap.same_as or tap.name].profile()
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


def _work(
    run: Loaded,
    session: ort.InferenceSession,
    taps: Sequence[Tap],
    accumulators: Mapping[str, Accumulator],
    digest: bool,
) -> Callable[[Sample], DataId]:
    """Return what runs and counts one sample, and says which data it was (where `digest` asks for it)."""
    sources = run.graph.sources
    fetched = list(dict.fromkeys(sources[tap.source] for tap in taps if tap.source is not None))
    readers = {
        name: [t for t in taps if t.source is not None and sources[t.source] == name] for name in fetched
    }
    inputs = [tap for tap in taps if tap.source is None]

    declared = {tap.name: declared_shape(tap.shape) for tap in taps}
    in_blocks = {tap.name for tap in taps if tap.source is not None and sources[tap.source] != tap.source}
    blocks = {tap.name: block_channels() for tap in taps if tap.name in in_blocks and tap.axis is not None}
    fixed_inputs = fixed_shapes(run.specs)

    def count(sample: Sample, tap: Tap, array: npt.NDArray[Any]) -> None:
        fixed = declared[tap.name]
        if fixed is None and tap.stacked is None:
            # Any dimension may hang on a free one of the inputs: on the batch, say.
            fixed = array.shape if fixed_inputs else (None,) * array.ndim
        # A body may not run at all: what is seen of its tensors must not show.
        shape = fixed if tap.stacked is not None else merged_shape(fixed, array.shape)
        if tap.axis is not None and _channels_of(array, tap) != tap.channels:
            raise _other_shape(sample.name, tap, array)
        nan, inf = accumulators[tap.name].add(array, shape, blocks.get(tap.name, 1))
        if (nan or inf) and run.settings.non_finite == "error":
            raise _not_finite(sample.name, tap, nan, inf, array.size)

    def work(sample: Sample) -> DataId:
        for fed in _fed(run, sample):
            arrays = _run(session, fetched, fed)
            for tap in inputs:
                count(fed, tap, fed.feed[tap.name])
            for name in fetched:
                array = arrays.pop(name)
                for tap in readers[name]:
                    for part in _parts(array, tap):
                        count(fed, tap, part)
        return data_id(sample.feed, run.specs) if digest else DataId()

    return work


def _channels_of(array: npt.NDArray[Any], tap: Tap) -> int | None:
    """Return how many channels an array of a tensor has; None when it has another number of axes."""
    same = tap.axis is not None and tap.shape is not None and array.ndim == len(tap.shape)
    return array.shape[tap.axis] if same and tap.axis is not None else None


def _parts(found: npt.NDArray[Any] | list[npt.NDArray[Any]], tap: Tap) -> Iterator[npt.NDArray[Any]]:
    """Yield the arrays of a tensor, of which a body may have made many, or none."""
    for array in found if isinstance(found, list) else [found]:
        if tap.stacked:
            own = array.shape[tap.stacked :]
            yield from array.reshape(math.prod(array.shape[: tap.stacked]), *own)
        else:
            yield array


def _fed(run: Loaded, sample: Sample) -> Iterable[Sample]:
    """Return what is fed of a sample at a time."""
    return rows_of(sample, run.specs) if run.settings.by_row else (sample,)


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
        elements = _run(session, [output.name for output in session.get_outputs()], largest)
        base = used_bytes()

    def size(tap: Tap) -> int:
        if tap.source is None:
            return 0
        source = run.graph.sources[tap.source]
        if source in elements:  # a sequence
            return sum(array.nbytes for array in elements[source])
        return int(elements[size_name(source)]) * int(tap.dtype.itemsize)

    sizes = {tap.name: size(tap) for tap in run.read}
    return plan_memory(sizes, settings.threads, base, settings.memory_limit)


def _largest(run: Loaded, samples: Samples | Iterable[Sample]) -> Sample | None:
    """Return what is fed with the most bytes in its inputs; the first where all are alike, None for none."""
    if fixed_shapes(run.specs):
        return next(iter(samples), None)
    every = (fed for sample in samples for fed in _fed(run, sample))
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


def _run(
    session: ort.InferenceSession, fetched: Sequence[str], sample: Sample
) -> dict[str, npt.NDArray[Any]]:
    """Return the named outputs for one sample. The arrays are onnxruntime's own memory, not copies."""
    if not fetched:  # onnxruntime would take an empty list for all outputs
        return {}
    try:
        feed = {name: _feedable(array) for name, array in sample.feed.items()}
        return dict(zip(fetched, session.run(list(fetched), feed), strict=True))
    except RUNTIME_ERRORS as error:
        raise DataError(
            f"sample {sample.name}: the model fails on it: {first_line(error)}; "
            "compare the sample with what the model was made for"
        ) from error


def _feedable(array: npt.NDArray[Any]) -> Any:
    """Return what onnxruntime takes; for bfloat16, which it does not know as a numpy type, its bits."""
    if array.dtype.name != "bfloat16":
        return array
    bits = np.ascontiguousarray(array).view(np.uint16)
    return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(bits, int(ir.DataType.BFLOAT16))


def _other_shape(sample: str, tap: Tap, array: npt.NDArray[Any]) -> DataError:
    return DataError(
        f"sample {sample}: tensor '{tap.name}' ({tap.maker}) has shape {array.shape}, but the model declares "
        f"{declared_shape(tap.shape)}; repair the model's shapes, or leave out channels with --channels off"
    )


def _not_finite(sample: str, tap: Tap, nan: int, inf: int, size: int) -> DataError:
    found = " and ".join(f"{number} {what}" for number, what in ((nan, "NaN"), (inf, "Inf")) if number)
    return DataError(
        f"sample {sample}: tensor '{tap.name}' ({tap.maker}) holds {found} among {size} elements; "
        "repair the sample or the model, or count such values and leave them out with --non-finite skip"
    )
