"""One pass of the samples through a session: several threads run samples, and each counts what came out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime as ort

from ..instrumentation.taps import Tap
from ..records.profile import DataId, TensorProfile
from ..runtime.run_sample import run_sample
from ..samples.digest import data_id, rows_of
from ..samples.samples import Sample
from .pass_observer import Counting
from .settings import Loaded


class Pass:
    """Runs samples, and counts some of the tensors; several threads may do so at once.

    A thread takes one of the idle countings, or begins another one, so that there are as many as samples
    were under way at once, and no thread waits for another to count.
    """

    def __init__(self, run: Loaded, session: ort.InferenceSession, taps: Sequence[Tap], digest: bool) -> None:
        """Begin with nothing.

        Args:
            run: the model.
            session: gives the values in which the tensors are found.
            taps: the tensors to be counted.
            digest: whether the data are to be identified.
        """
        self._run, self._session, self._taps, self._digest = run, session, taps, digest
        sources = run.graph.sources
        self._fetched = list(dict.fromkeys(sources[tap.source] for tap in taps if tap.source is not None))
        self._inputs = [tap.name for tap in taps if tap.source is None]
        self._countings: list[Counting] = []
        self._idle: list[Counting] = []

    def count(self, sample: Sample) -> DataId:
        """Run and count one sample, and return which data it was, if that is to be found out.

        Raises:
            DataError: the model fails on the sample, an array has another shape than the model declares, or
                NaN or Inf appeared where they must not.
        """
        try:
            counting = self._idle.pop()
        except IndexError:
            counting = Counting(self._run, self._taps)
            self._countings.append(counting)
        for fed in fed_of(self._run, sample):
            # No name is kept of what comes out: its memory is wanted for the next run.
            counting.add(fed.name, run_sample(self._session, self._fetched, fed) | self._given(fed))
        self._idle.append(counting)
        return data_id(sample.feed, self._run.specs) if self._digest else DataId()

    def _given(self, sample: Sample) -> dict[str, npt.NDArray[Any]]:
        """Return the inputs that are counted."""
        return {name: np.asarray(sample.feed[name], order="C") for name in self._inputs}

    def profiles(self) -> list[dict[str, TensorProfile]]:
        """Return what was counted so far, in parts to be merged; no sample must be under way."""
        return [counting.profiles() for counting in self._countings]


def fed_of(run: Loaded, sample: Sample) -> Iterable[Sample]:
    """Return what is fed of a sample at a time."""
    return rows_of(sample, run.specs) if run.settings.by_row else (sample,)
