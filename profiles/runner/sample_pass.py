"""One pass of the samples through a session: several threads run samples, and each observes the outputs."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
import onnxruntime as ort

from ..base.errors import DataError, NaturalKey, natural_key
from ..instrumentation.input_facts import InputFacts, countable, input_facts, input_observations
from ..instrumentation.live_memory import order_by_need
from ..instrumentation.observations import Observation, observations
from ..instrumentation.subgraphs import declared_shape, dtype_name
from ..instrumentation.tensor_outputs import with_outputs
from ..observers.channel_counter import ArraySlice, accumulate_channels
from ..observers.extreme_tracker import ExtremeTracker
from ..observers.histogram_counter import Ranges, count_histograms, empty_ranges
from ..observers.tensor_observer import TensorObserver
from ..records.non_finite import counted
from ..records.profile import (
    Dim,
    Extremes,
    FirstNonFinite,
    NonFinite,
    Sizes,
    TensorProfile,
    merged_shape,
    merged_sizes,
    sizes_of,
)
from ..runtime.providers import load_custom_operators
from ..runtime.session import OptimisedGraph, Output, block_channels, optimised, run_sample
from ..samples.samples import DIGESTS, fixed_shapes, input_specs, rows_of, sample_digests
from ..samples.values import InputSpec, Sample
from .settings import RunSettings

# Work for samples on several threads, its results in order.

Item = TypeVar("Item")
Result = TypeVar("Result")


def map_in_threads(
    work: Callable[[Item], Result], items: Iterable[Item], threads: int, pause: Callable[[], bool]
) -> Iterator[tuple[Result, bool]]:
    """Do the work for several samples at the same time and yield its results, in the order of the samples.

    Each result comes with whether no work is under way. While `pause` returns true, no work is begun until
    that is so. Of several samples that fail, the first in order raises, whichever failed first.
    """
    pending: deque[Future[Result]] = deque()
    pool = ThreadPoolExecutor(threads)
    try:
        for item in items:
            pending.append(pool.submit(work, item))
            del item  # a sample can be large: none is kept while the next one is read
            while pending and (len(pending) > threads or pause()):
                result = pending.popleft().result()
                yield result, not pending
        while pending:
            result = pending.popleft().result()
            yield result, not pending
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


# A model made ready for calibration: what onnxruntime runs, with the observed tensors as outputs.


@dataclass(frozen=True, eq=False)
class ProfilingModel:
    """A model that is ready to be profiled on one set of samples after another.

    Attributes:
        model: the prepared model.
        settings: of the run, checked.
        graph: what onnxruntime runs.
        observations: every observed tensor, in graph order.
        specs: inputs of the model.
        facts: what the model does with each of them first.
    """

    model: ir.Model
    settings: RunSettings
    graph: OptimisedGraph
    observations: tuple[Observation, ...]
    specs: tuple[InputSpec, ...]
    facts: Mapping[str, InputFacts]

    @property
    def read(self) -> tuple[Observation, ...]:
        """The tensors that are read; the others have the same elements as one of these."""
        return tuple(observation for observation in self.observations if observation.same_as is None)


@contextmanager
def profiling_model(model: ir.Model, settings: RunSettings) -> Iterator[ProfilingModel]:
    """Yield a prepared model, made ready with these settings; raises as `calibrate` does."""
    settings = settings.checked()
    load_custom_operators(*settings.custom_ops)
    copy, observed = with_outputs(model, observations(model, settings.names, settings.axes))
    outputs = [observation.source for observation in observed if observation.source is not None]
    # Blocks of channels are read as they are, unless channels of another axis are recorded.
    ordered = {o.source for o in observed if o.axis is not None and not o.blocks_keep_channels}
    split = settings.memory_limit is not None
    with optimised(copy, outputs, settings.provider, split, ordered) as graph:
        if split:
            order_by_need(graph.model.graph)
        observed = (*observed, *input_observations(model, observed))
        facts = {str(value.name): input_facts(value) for value in model.graph.inputs}
        yield ProfilingModel(model, settings, graph, observed, tuple(input_specs(model)), facts)


# The observer of samples: counts the elements of all small arrays of a sample in one compiled call.

Array = npt.NDArray[Any]
Shapes = tuple[tuple[int, ...], ...]

LARGE = 1 << 16
"""Elements from which on an array is counted in a call of its own, in slices: the call costs little then."""

PLANS = 64
"""Counting plans that are kept, by the shapes of a sample's arrays; samples seldom come in more shapes."""


class CountingPlan(NamedTuple):
    """How the arrays of a sample of certain shapes are counted. Numbers are indices of the observed tensors.

    Attributes:
        small: arrays that are counted in one call.
        places: the same numbers.
        large: those that are counted one by one.
        with_channels: those of the small ones whose channels are recorded.
        slices: where these channels are.
    """

    small: list[int]
    places: npt.NDArray[np.intp]
    large: list[int]
    with_channels: list[int]
    slices: list[ArraySlice]


class SampleObserver:
    """Observes the tensors of a pass, for one thread at a time; each has a `TensorObserver`.

    Attributes:
        sizes: of the inputs of all samples so far, by name.
    """

    def __init__(self, model: ProfilingModel, observations: Sequence[Observation]) -> None:
        """Begin with nothing.

        Args:
            model: the model.
            observations: the tensors to be counted.
        """
        sources = model.graph.sources
        self._skip = model.settings.non_finite == "skip"
        self._fixed_inputs = fixed_shapes(model.specs)
        self._main = [o for o in observations if o.scan_axes is None]
        self._inner = [o for o in observations if o.scan_axes is not None]
        self._keys = {o.name: o.name if o.source is None else sources[o.source] for o in observations}
        in_blocks = [
            o for o in observations if o.axis is not None and o.source not in (None, self._keys[o.name])
        ]
        self._blocks = {o.name: block_channels() for o in in_blocks}
        self._observers = [tensor_observer(o) for o in self._main]
        self._inner_observers = [tensor_observer(o) for o in self._inner]
        self._extremes = ExtremeTracker(len(self._main) + len(self._inner))
        self._plans: dict[Shapes, CountingPlan] = {}
        self._position = {o.name: number for number, o in enumerate(model.observations)}
        self._non_finite_samples: set[str] = set()
        self._first: FirstNonFinite | None = None
        self.sizes: dict[str, Sizes | None] = {}

    def add(self, sample: Sample, digest: int, outputs: Mapping[str, Output]) -> None:
        """Count the arrays of one sample.

        Args:
            sample: what was run.
            digest: of its data.
            outputs: the arrays by the name of the value that holds them, contiguous; not copied.

        Raises:
            DataError: an array has another shape than the model declares, or NaN or Inf appeared where they
                must not.
        """
        arrays: list[Any] = [outputs[self._keys[o.name]] for o in self._main]
        shapes = tuple([array.shape for array in arrays])
        plan = self._plans.get(shapes) or self._planned(sample.name, shapes)
        ranges = empty_ranges(len(self._main) + len(self._inner))
        non_finite = self._count(arrays, plan, ranges)
        for number in sorted(non_finite):
            self._note_non_finite(sample.name, self._main[number], non_finite[number], arrays[number].size)
        inner = zip(self._inner, self._inner_observers, strict=True)
        for number, (observation, observer) in enumerate(inner, len(self._main)):
            for array in _iterations(outputs[self._keys[observation.name]], observation):
                _check_channels(sample.name, observation, array.shape)
                # The subgraph may not run at all, so record the declared shape, not the observed one.
                counts = observer.add(array, declared_shape(observation.shape), ranges[number : number + 1])
                self._note_non_finite(sample.name, observation, counts, array.size)
        self._extremes.note(sample.name, digest, ranges)
        own = {name: sizes_of(array.shape) for name, array in sample.arrays.items()}
        if own != self.sizes:
            self.sizes = both_sizes(self.sizes, own)

    def profiles(self) -> dict[str, TensorProfile]:
        """Return the profiles of the tensors of which there was an array."""
        observers = self._observers + self._inner_observers
        found = zip(self._main + self._inner, observers, self._extremes.extremes(), strict=True)
        return {
            o.name: replace(observer.profile(), extremes=extremes)
            for o, observer, extremes in found
            if observer.has_shape
        }

    def non_finite(self) -> NonFinite:
        """Return the samples that made NaN or Inf, and the first of them."""
        return NonFinite(frozenset(self._non_finite_samples), self._first)

    def _count(self, arrays: list[Array], plan: CountingPlan, ranges: Ranges) -> dict[int, tuple[int, int]]:
        """Count arrays, and return the numbers of NaN and of infinite elements of those that may have any.

        The ranges, one for each tensor, are widened to the finite elements.
        """
        observers = self._observers
        non_finite = {}
        small = [arrays[i] for i in plan.small]
        found = empty_ranges(len(small))
        for remainder in count_histograms(small, [observers[i].bins for i in plan.small], found):
            number = plan.small[remainder.number]
            non_finite[number] = observers[number].finish(arrays[number].reshape(-1), remainder)
        ranges[plan.places] = found
        accumulate_channels([arrays[i] for i in plan.with_channels], plan.slices)
        for number in plan.large:
            block = self._blocks.get(self._main[number].name, 1)
            non_finite[number] = observers[number].count(arrays[number], block, ranges[number : number + 1])
        return non_finite

    def _planned(self, sample: str, shapes: Shapes) -> CountingPlan:
        """Return how arrays of these shapes are counted, and note the shapes."""
        plan = CountingPlan([], np.zeros(0, np.intp), [], [], [])
        for number, (observation, shape) in enumerate(zip(self._main, shapes, strict=True)):
            _check_channels(sample, observation, shape)
            observer = self._observers[number]
            observer.note_shape(self._recorded_shape(observation, shape))
            if math.prod(shape) >= LARGE:
                plan.large.append(number)
                continue
            plan.small.append(number)
            array_slice = observer.channel_slice(shape, self._blocks.get(observation.name, 1))
            if array_slice is not None:
                plan.with_channels.append(number)
                plan.slices.append(array_slice)
        if len(self._plans) == PLANS:
            self._plans.clear()
        self._plans[shapes] = plan = plan._replace(places=np.array(plan.small, np.intp))
        return plan

    def _recorded_shape(self, observation: Observation, shape: tuple[int, ...]) -> tuple[Dim, ...] | None:
        """Return the shape that a profile records for an array."""
        declared = declared_shape(observation.shape)
        if declared is None:
            # Any dimension may depend on a free one of the inputs, such as the batch.
            declared = shape if self._fixed_inputs else (None,) * len(shape)
        return merged_shape(declared, shape)

    def _note_non_finite(
        self, sample: str, observation: Observation, counts: tuple[int, int], size: int
    ) -> None:
        """Remember NaN and infinite elements, or raise an error where there must be none."""
        if not any(counts):
            return
        found = FirstNonFinite(
            sample, self._position[observation.name], observation.name, observation.producer, *counts, size
        )
        if not self._skip:
            raise DataError(
                f"sample {sample}: tensor '{found.tensor}' ({found.producer}) holds {counted(*counts)} among "
                f"{size} elements; repair the sample or the model, or leave such values out of the profile "
                "with --non-finite skip"
            )
        self._non_finite_samples.add(sample)
        self._first = found if self._first is None else min(self._first, found, key=_order)


def _order(found: FirstNonFinite) -> tuple[NaturalKey, int]:
    return natural_key(found.sample), found.position


def tensor_observer(observation: Observation) -> TensorObserver:
    """Return an observer of a tensor that has seen nothing yet."""
    return TensorObserver(dtype_name(observation.dtype), axis=observation.axis, channels=observation.channels)


def empty_profile(observation: Observation) -> TensorProfile:
    """Return the profile of a tensor of which there was no array."""
    return replace(tensor_observer(observation).profile(), extremes=Extremes())


def merged_profiles(*several: Mapping[str, TensorProfile]) -> dict[str, TensorProfile]:
    """Return the profiles of all tensors, each merged from the mappings that have it."""
    merged: dict[str, TensorProfile] = {}
    for profiles in several:
        for name, profile in profiles.items():
            merged[name] = merged[name].merged(profile) if name in merged else profile
    return merged


def both_sizes(*several: Mapping[str, Sizes | None]) -> dict[str, Sizes | None]:
    """Return the sizes of all inputs, each merged from the mappings that have it."""
    merged: dict[str, Sizes | None] = {}
    for sizes in several:
        for name, size in sizes.items():
            merged[name] = merged_sizes(merged[name], size) if name in merged else size
    return merged


def _iterations(output: Output, observation: Observation) -> Iterator[Array]:
    """Yield the arrays of a tensor of a subgraph: one for each time that it ran."""
    for array in output if isinstance(output, list) else [output]:
        if observation.scan_axes:
            own = array.shape[observation.scan_axes :]
            yield from array.reshape(math.prod(array.shape[: observation.scan_axes]), *own)
        else:
            yield array


def _check_channels(sample: str, observation: Observation, shape: tuple[int, ...]) -> None:
    """Check that an array has the channels that the model declares, if they are to be recorded."""
    if observation.axis is None:
        return
    declared = observation.shape
    if declared is None or len(shape) != len(declared) or shape[observation.axis] != observation.channels:
        raise DataError(
            f"sample {sample}: tensor '{observation.name}' ({observation.producer}) has shape {shape}, "
            f"but the model declares {declared_shape(declared)}; "
            "repair the model's shapes, or leave out channels with --channels off"
        )


class SamplePass:
    """Runs samples, and counts the elements of some of the tensors; several threads may do so at once.

    A thread takes an idle observer, or makes another one. So there are as many observers as samples ran at
    the same time, and no thread waits for another to count.
    """

    def __init__(
        self,
        model: ProfilingModel,
        session: ort.InferenceSession,
        observations: Sequence[Observation],
    ) -> None:
        """Begin with nothing.

        Args:
            model: the model.
            session: has the observed tensors among its outputs.
            observations: the tensors to be counted.
        """
        self._model, self._session, self._observations = model, session, observations
        sources = model.graph.sources
        self._fetched = list(dict.fromkeys(sources[o.source] for o in observations if o.source is not None))
        self._inputs = [o.name for o in observations if o.source is None]
        self._observers: list[SampleObserver] = []
        self._idle: list[SampleObserver] = []

    def count(self, sample: Sample, digests: Sequence[int]) -> None:
        """Run one sample and count the observed tensors.

        Args:
            sample: what is run at a time.
            digests: of its rows, see `digests_of`.

        Raises:
            DataError: the model fails on the sample, an array has another shape than the model declares, or
                NaN or Inf appeared where they must not.
        """
        try:
            observer = self._idle.pop()
        except IndexError:
            observer = SampleObserver(self._model, self._observations)
            self._observers.append(observer)
        whole = [sum(digests) % DIGESTS]
        runs = runs_of(self._model, sample)
        for run, digest in zip(runs, digests if self._model.settings.by_row else whole, strict=True):
            # No variable keeps the outputs: onnxruntime reuses their memory in the next run.
            observer.add(run, digest, run_sample(self._session, self._fetched, run) | self._input_arrays(run))
        self._idle.append(observer)

    def _input_arrays(self, sample: Sample) -> dict[str, npt.NDArray[Any]]:
        """Return the graph inputs that are observed, contiguous and aligned, as the observers take them."""
        arrays = {name: countable(sample.arrays[name]) for name in self._inputs}
        return {name: np.require(array, requirements=("C", "A")) for name, array in arrays.items()}

    def profiles(self) -> list[dict[str, TensorProfile]]:
        """Return the profiles of all observers, to be merged; no sample must be under way."""
        return [observer.profiles() for observer in self._observers]

    def sizes(self) -> dict[str, Sizes | None]:
        """Return the sizes of the inputs; no sample must be under way."""
        return both_sizes(*(observer.sizes for observer in self._observers))

    def non_finite(self) -> NonFinite:
        """Return what all observers remember of NaN and Inf; no sample must be under way."""
        return reduce(NonFinite.merged, (observer.non_finite() for observer in self._observers), NonFinite())


def runs_of(model: ProfilingModel, sample: Sample) -> Iterable[Sample]:
    """Return what is run of a sample at a time: the whole, or each row of its batch."""
    return rows_of(sample, model.specs) if model.settings.by_row else (sample,)


def digests_of(model: ProfilingModel, sample: Sample) -> list[int]:
    """Return the digests of what is run of a sample: of its rows, where they run alone."""
    return [digest for run in runs_of(model, sample) for digest in sample_digests(run.arrays, model.specs)]
