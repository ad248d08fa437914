"""One pass of the samples through a session: several threads run samples, and each counts what came out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
import onnxruntime as ort

from .counting import Counting, Found
from .data_digest import data_id, rows_of
from .errors import DataError
from .loading import Loaded
from .profile import DataId, TensorProfile
from .samples import Sample
from .session import RUNTIME_ERRORS, first_line
from .taps import Tap


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


def run_sample(session: ort.InferenceSession, fetched: Sequence[str], sample: Sample) -> dict[str, Found]:
    """Return the named outputs for one sample. The arrays are onnxruntime's own memory, not copies.

    Raises:
        DataError: the model fails on it.
    """
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
