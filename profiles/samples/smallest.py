"""The samples with the smallest digests: a choice that does not depend on order, batching or sharding.

The choice from the whole data is that from the choices of its parts, since no other sample can be among them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from threading import Lock

import numpy as np

from .samples import digest_text, rows_of, sample_digests
from .values import InputSpec, Sample, Samples

MAX_SAMPLE_BYTES = 1 << 26
"""Bytes of the arrays of a sample up to which it can be chosen: what is chosen may be held in memory."""


@dataclass(frozen=True, order=True)
class SamplePlace:
    """Where a sample is.

    Attributes:
        digest: of its data, as 32 hexadecimal digits.
        number: of the file or item, counted from 0.
        row: of the batch in it.
        rows: how many that batch has.
    """

    digest: str
    number: int
    row: int
    rows: int


class SmallestSamples:
    """Keeps those samples of a run that have the smallest digests, each row of a batch as a sample.

    Several threads may note samples. Samples that are equal count as one.
    """

    def __init__(self, count: int, specs: Sequence[InputSpec], *, hold: bool = True) -> None:
        """Begin with none.

        Args:
            count: samples that are kept at most.
            specs: inputs of the model.
            hold: whether their arrays are held in memory; if not, they are read again.
        """
        self._count, self._specs, self._hold, self._lock = count, specs, hold, Lock()
        self._kept: dict[str, tuple[SamplePlace, Sample | None]] = {}

    def note(self, number: int, sample: Sample, digests: Sequence[int]) -> None:
        """Keep the rows of a sample that are among those with the smallest digests so far.

        Args:
            number: of the sample.
            sample: what is run at a time.
            digests: of its rows, in order.
        """
        texts = [digest_text(digest) for digest in digests]
        if not self._count or not any(map(self._is_wanted, texts)):
            return
        for row, (digest, one) in enumerate(zip(texts, rows_of(sample, self._specs), strict=True)):
            if sum(array.nbytes for array in one.arrays.values()) <= MAX_SAMPLE_BYTES:
                self._keep(SamplePlace(digest, number, row, len(texts)), one if self._hold else None)

    def add(self, places: Iterable[SamplePlace]) -> None:
        """Keep the places of samples that others have noted, where they are among the smallest digests."""
        for place in places:
            self._keep(place, None)

    def _is_wanted(self, digest: str) -> bool:
        kept = list(self._kept)
        return digest not in kept and (len(kept) < self._count or digest < max(kept))

    def _keep(self, place: SamplePlace, sample: Sample | None) -> None:
        with self._lock:
            if self._is_wanted(place.digest):
                if sample is not None:
                    arrays = {name: np.array(array) for name, array in sample.arrays.items()}
                    sample = Sample(sample.name, arrays)
                self._kept[place.digest] = place, sample
                if len(self._kept) > self._count:
                    del self._kept[max(self._kept)]

    def places(self) -> tuple[SamplePlace, ...]:
        """Return where the samples are, in order of their digests."""
        return tuple(sorted(place for place, _ in self._kept.values()))

    def samples(self, source: Samples) -> Iterator[tuple[str, Sample]]:
        """Yield the digests and the samples; those that are not held are read again, one at a time.

        One that is not what it was, as functions may give others each time, is left out.

        Args:
            source: the samples that were noted.
        """
        missing = defaultdict[int, list[SamplePlace]](list)
        for place, sample in self._kept.values():
            if sample is not None:
                yield place.digest, sample
            else:
                missing[place.number].append(place)
        for number, sample in source.numbered(sorted(missing)):
            rows = list(rows_of(sample, self._specs))
            for place in missing[number]:
                if place.row < len(rows):
                    row = rows[place.row]
                    if digest_text(sum(sample_digests(row.arrays, self._specs))) == place.digest:
                        yield place.digest, row
