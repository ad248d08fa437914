"""One pass of the samples through a session: several threads run samples, and each observes the outputs."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
import onnxruntime as ort

from ..base.errors import DataError
from ..instrumentation.input_facts import countable, input_observations
from ..instrumentation.observations import Observation, observations
from ..instrumentation.subgraphs import declared_shape
from ..instrumentation.tensor_outputs import with_outputs
from ..observers.channel_counter import ArraySlice, accumulate_channels
from ..observers.histogram_counter import Ranges, count_histograms, empty_ranges
from ..observers.tensor_observer import TensorObserver
from ..records.profile import (
    FirstNonFinite,
    Sizes,
    TensorProfile,
    first_of,
    merged_shape,
    merged_sizes,
    sizes_of,
)
from ..runtime.providers import load_custom_operators
from ..runtime.session import OptimisedGraph, Output, block_channels, optimised, run_sample
from ..samples.samples import fixed_shapes, input_specs, rows_of
from ..samples.values import InputSpec, Sample
from .settings import RunSettings

Item = TypeVar("Item")
Result = TypeVar("Result")


def map_in_threads(work: Callable[[Item], Result], items: Iterable[Item], threads: int) -> Iterator[Result]:
    """Yield the results of several samples at a time, in order; the first of several errors is raised."""
    pending: deque[Future[Result]] = deque()
    pool = ThreadPoolExecutor(threads)
    try:
        for item in items:
            pending.append(pool.submit(work, item))
            del item  # a sample can be large: none is kept while the next one is read
            if len(pending) > threads:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


# The model as onnxruntime runs it, with the observed tensors as outputs -------------------------------------


@dataclass(frozen=True, eq=False)
class ProfilingModel:
    """A model that is ready to be profiled on one set of samples after another; settings are checked."""

    model: ir.Model
    settings: RunSettings
    graph: OptimisedGraph
    observations: tuple[Observation, ...]
    specs: tuple[InputSpec, ...]

    def runs_of(self, sample: Sample) -> Iterable[Sample]:
        """Return the parts of a sample that are run at a time: the whole, or each row of its batch."""
        return rows_of(sample, self.specs) if self.settings.by_row else (sample,)


@contextmanager
def profiling_model(model: ir.Model, settings: RunSettings) -> Iterator[ProfilingModel]:
    """Yield a prepared model, made ready with these settings; raises as `calibrate` does."""
    settings = settings.checked()
    load_custom_operators(*settings.custom_ops)
    copy, observed = with_outputs(model, observations(model, settings.names, settings.axes))
    outputs = [observation.source for observation in observed if observation.source is not None]
    # Blocks of channels are read as they are, unless channels of another axis are recorded.
    ordered = {o.source for o in observed if o.axis is not None and not o.blocks_keep_channels}
    with optimised(copy, outputs, settings.provider, ordered=ordered) as graph:
        observed = (*observed, *input_observations(model, observed))
        yield ProfilingModel(model, settings, graph, observed, input_specs(model))


# What is counted -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Statistics:
    """The counts of some samples: tensors with an array, sizes of inputs, NaN and Inf."""

    tensors: Mapping[str, TensorProfile] = field(default_factory=dict)
    sizes: Mapping[str, Sizes | None] = field(default_factory=dict)
    non_finite: FirstNonFinite | None = None

    def merged(self, other: Statistics) -> Statistics:
        """Return the statistics of both sets of samples together: exact, in any order."""
        return Statistics(
            _merged_by_name(self.tensors, other.tensors, TensorProfile.merged),
            _merged_by_name(self.sizes, other.sizes, merged_sizes),
            first_of(self.non_finite, other.non_finite),
        )


def _merged_by_name(
    a: Mapping[str, Result], b: Mapping[str, Result], merge: Callable[[Result, Result], Result]
) -> dict[str, Result]:
    return {**a, **b, **{name: merge(a[name], b[name]) for name in a if name in b}}


class SamplePass:
    """Runs samples and counts tensors; several threads may do so, each with an idle observer or a new one."""

    def __init__(
        self, model: ProfilingModel, session: ort.InferenceSession, observations: Sequence[Observation]
    ) -> None:
        """Begin with nothing; `session` has the observed tensors among its outputs."""
        self._model, self._session, self._observations = model, session, observations
        sources = model.graph.sources
        self._fetched = list(dict.fromkeys(sources[o.source] for o in observations if o.source is not None))
        self._inputs = [o.name for o in observations if o.source is None]
        self.observers: list[SampleObserver] = []
        self._idle: list[SampleObserver] = []

    def count(self, sample: Sample) -> None:
        """Run one sample, or its rows, and count the observed tensors."""
        try:
            observer = self._idle.pop()
        except IndexError:
            observer = SampleObserver(self._model, self._observations)
            self.observers.append(observer)
        for run in self._model.runs_of(sample):
            # No variable keeps the outputs: onnxruntime reuses their memory in the next run.
            observer.add(run, run_sample(self._session, self._fetched, run) | self._input_arrays(run))
        self._idle.append(observer)

    def _input_arrays(self, sample: Sample) -> dict[str, npt.NDArray[Any]]:
        """Return the graph inputs that are observed, contiguous and aligned, as the observers take them."""
        arrays = {name: countable(sample.arrays[name]) for name in self._inputs}
        return {name: np.require(array, requirements=("C", "A")) for name, array in arrays.items()}

    def statistics(self) -> Statistics:
        """Return the counts of all observers; no sample must be under way."""
        return reduce(Statistics.merged, (o.statistics() for o in self.observers), Statistics())


def tensor_observer(observation: Observation, ranges: Ranges | None = None) -> TensorObserver:
    """Return an observer of a tensor that has seen nothing yet."""
    dtype, axis = observation.dtype.name.lower(), observation.axis
    return TensorObserver(dtype, axis=axis, channels=observation.channels, ranges=ranges)


# One sample counted: all of its arrays in one compiled call -------------------------------------------------

Array = npt.NDArray[Any]
Shapes = tuple[tuple[int, ...], ...]

PLANS = 64
"""Counting plans that are kept, by the shapes of a sample's arrays; samples seldom come in more shapes."""


CountingPlan = tuple[list[int], list[ArraySlice]]
"""Which arrays of certain shapes are counted by channel as well, by number, and their slices."""


class SampleObserver:
    """Observes the tensors of a pass, for one thread at a time; each has a `TensorObserver`."""

    def __init__(self, model: ProfilingModel, observations: Sequence[Observation]) -> None:
        """Begin with nothing."""
        sources = model.graph.sources
        self._fixed_inputs = fixed_shapes(model.specs)
        self._main = [o for o in observations if o.scan_axes is None]
        self._inner = [o for o in observations if o.scan_axes is not None]
        # The value of the graph that holds each tensor. Where it is not the output itself, it is in blocks.
        self._values = {o.name: o.name if o.source is None else sources[o.source] for o in observations}
        self._blocks = [
            block_channels() if o.axis is not None and o.source not in (None, self._values[o.name]) else 1
            for o in self._main
        ]
        self._ranges = empty_ranges(len(self._main))
        self._observers = list(map(tensor_observer, self._main, self._ranges[:, None]))
        self._inner_observers = [tensor_observer(o) for o in self._inner]
        self._plans: dict[Shapes, CountingPlan] = {}
        self._position = {o.name: number for number, o in enumerate(model.observations)}
        self._sizes: dict[str, Sizes | None] = {}
        self._first_non_finite: FirstNonFinite | None = None

    def add(self, sample: Sample, outputs: Mapping[str, Output]) -> None:
        """Count the arrays of one sample; `outputs` are contiguous and not copied."""
        observers = self._observers
        arrays: list[Any] = [outputs[self._values[o.name]] for o in self._main]
        shapes = tuple([array.shape for array in arrays])
        plan = self._plans.get(shapes) or self._counting_plan(sample.name, shapes)
        with_channels, slices = plan

        # Tensors of the main graph: all arrays in one call, and their channels in one.
        for remainder in count_histograms(arrays, [o.bins for o in observers], self._ranges):
            number = remainder.number
            counts = observers[number].finish(arrays[number].reshape(-1), remainder)
            self._note_non_finite(sample.name, self._main[number], counts, arrays[number].size)
        accumulate_channels([arrays[i] for i in with_channels], slices)

        # Tensors of subgraphs: an array for each time that the subgraph ran.
        for observation, observer in zip(self._inner, self._inner_observers, strict=True):
            for array in _iterations(outputs[self._values[observation.name]], observation):
                _check_channels(sample.name, observation, array.shape, observer.channels)
                # The subgraph may not run at all, so record the declared shape, not the observed one.
                counts = observer.add(array, declared_shape(observation.shape))
                self._note_non_finite(sample.name, observation, counts, array.size)

        sizes: dict[str, Sizes | None] = {
            name: sizes_of(array.shape) for name, array in sample.arrays.items()
        }
        if sizes != self._sizes:
            self._sizes = _merged_by_name(self._sizes, sizes, merged_sizes)

    def _counting_plan(self, sample: str, shapes: Shapes) -> CountingPlan:
        """Return how arrays of these shapes are counted, and note the shapes for the profiles."""
        plan: CountingPlan = ([], [])
        for number, (observation, shape) in enumerate(zip(self._main, shapes, strict=True)):
            _check_channels(sample, observation, shape, self._observers[number].channels)
            declared = declared_shape(observation.shape)
            if declared is None:
                # Any dimension may depend on a free one of the inputs, such as the batch.
                declared = shape if self._fixed_inputs else (None,) * len(shape)
            observer = self._observers[number]
            observer.note_shape(merged_shape(declared, shape))
            array_slice = observer.channel_slice(shape, self._blocks[number])
            if array_slice is not None:
                plan[0].append(number)
                plan[1].append(array_slice)
        if len(self._plans) == PLANS:
            self._plans.clear()
        self._plans[shapes] = plan
        return plan

    def _note_non_finite(
        self, sample: str, observation: Observation, counts: tuple[int, int], size: int
    ) -> None:
        """Note NaN and infinite elements, if there are any."""
        if not any(counts):
            return
        here = FirstNonFinite(
            sample, self._position[observation.name], observation.name, observation.producer, *counts, size
        )
        self._first_non_finite = first_of(self._first_non_finite, here)

    def statistics(self) -> Statistics:
        """Return the counts so far."""
        counted_tensors = zip(self._main + self._inner, self._observers + self._inner_observers, strict=True)
        tensors = {
            observation.name: observer.profile()
            for observation, observer in counted_tensors
            if observer.has_shape
        }
        return Statistics(tensors, dict(self._sizes), self._first_non_finite)


def _iterations(output: Output, observation: Observation) -> Iterator[Array]:
    """Yield the arrays of a tensor of a subgraph: one for each time that it ran."""
    for array in output if isinstance(output, list) else [output]:
        if observation.scan_axes:
            own = array.shape[observation.scan_axes :]
            yield from array.reshape(math.prod(array.shape[: observation.scan_axes]), *own)
        else:
            yield array


def _check_channels(sample: str, observation: Observation, shape: tuple[int, ...], channels: int) -> None:
    """Check that an array has the channels to be recorded, as many as the arrays before (0 for none yet)."""
    axis, declared = observation.axis, declared_shape(observation.shape)
    if axis is None:
        return
    has_axis = -len(shape) <= axis < len(shape) and len(shape) == len(declared or shape)
    if not has_axis or shape[axis] != (channels or shape[axis]):
        expected = f"the model declares {declared}"
        if has_axis and not observation.channels:
            expected = f"other samples have {channels} channels on axis {axis}"
        raise DataError(
            f"sample {sample}: tensor '{observation.name}' ({observation.producer}) has shape {shape}, "
            f"but {expected}; repair the model's shapes, or leave out channels with --channels off"
        )
