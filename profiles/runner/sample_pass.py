"""One pass of the samples through a session: several threads run samples, and each observes the outputs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime as ort

from ..checks.inputs import Sizes
from ..instrumentation.input_facts import countable
from ..instrumentation.observations import Observation
from ..readers.values import Sample
from ..records.profile import NonFinite, TensorProfile
from ..runtime.run_sample import run_sample
from ..samples.digest import DIGESTS, rows_of, sample_digests
from .profiling_model import ProfilingModel
from .sample_observer import SampleObserver, both_sizes


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
