"""The samples that a run keeps: those with the smallest digests, and the extreme ones.

Neither choice depends on order, batching or sharding: the choice from the whole data is that from the choices
of its parts, since no other sample can be among them.
"""

from __future__ import annotations

from bisect import insort
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from threading import Lock

import numpy as np

from ..records.check_samples import (
    EXTREME_BYTES,
    SampleSize,
    digest_count,
    extreme_digests,
    size_of,
    smallest_digests,
)
from .samples import digest_text, rows_of, sample_digests
from .values import InputSpec, Sample, Samples

MAX_SAMPLE_BYTES = 1 << 26
"""Largest bytes of a sample that can be chosen, because chosen samples may be kept in memory."""


@dataclass(frozen=True, order=True)
class SamplePlace:
    """Where a sample is: its file or item, its row of so many, and the size by which it is extreme."""

    digest: str
    number: int
    row: int
    rows: int
    size: SampleSize


class SmallestSamples:
    """Stores the samples of a run with the smallest digests, and the extreme ones; thread-safe."""

    def __init__(
        self, specs: Sequence[InputSpec], count: int, alone: Callable[[Sample], bool], *, hold: bool = True
    ) -> None:
        """Store `count` rows, or samples if rows do not stand `alone`; without `hold` they are read again."""
        self._count, self._alone = count, alone
        self._by_row: bool | None = None  # not known yet
        self._specs, self._hold, self._lock = specs, hold, Lock()
        self._kept: dict[str, tuple[SamplePlace, Sample | None]] = {}
        self._smallest: list[str] = []  # of their digests, in order
        self._extreme: tuple[str, ...] = ()
        self._no_room = ""  # the smallest digest that there was no room for

    def note(self, number: int, sample: Sample, digests: Sequence[int]) -> None:
        """Store what is among the chosen ones so far of a sample; `digests` are those of its rows."""
        if not self._count:
            return
        parts = self._parts(sample)
        each = digests if len(parts) == len(digests) else [sum(digests)]
        for row, (digest, one) in enumerate(zip(map(digest_text, each), parts, strict=True)):
            size = sum(array.nbytes for array in one.arrays.values())
            if size <= MAX_SAMPLE_BYTES and (size <= EXTREME_BYTES or self._is_small(digest)):
                place = SamplePlace(digest, number, row, len(digests), size_of(one.arrays))
                self._keep(place, one if self._hold else None)

    def _parts(self, sample: Sample) -> list[Sample]:
        """Return the rows of a batch, or the sample; the first batch decides."""
        rows = list(rows_of(sample, self._specs))
        with self._lock:
            if len(rows) > 1 and self._by_row is None:
                self._by_row = self._alone(sample)
        return [sample] if self._by_row is False else rows

    def add(self, places: Iterable[SamplePlace]) -> None:
        """Store those places of samples, noted by others, that are among the chosen ones."""
        for place in places:
            self._keep(place, None)

    def _is_small(self, digest: str) -> bool:
        return not self._no_room or digest < self._no_room

    def _keep(self, place: SamplePlace, sample: Sample | None) -> None:
        with self._lock:
            digest = place.digest
            if digest in self._kept:
                return
            sizes = {name: self._kept[name][0].size for name in self._extreme} | {digest: place.size}
            extreme = extreme_digests(sizes, self._count)
            if not self._is_small(digest) and digest not in extreme:
                return
            arrays = (
                None if sample is None else {name: np.array(array) for name, array in sample.arrays.items()}
            )
            self._kept[digest] = place, None if sample is None else Sample(sample.name, arrays or {})
            insort(self._smallest, digest)
            sizes_of_all = {name: self._kept[name][0].size.bytes for name in self._smallest}
            smallest = smallest_digests(sizes_of_all, digest_count(self._count))
            if len(smallest) < len(self._smallest):
                self._no_room = min(self._no_room or "~", self._smallest[len(smallest)])
            self._smallest, self._extreme = list(smallest), extreme
            for name in self._kept.keys() - {*smallest, *extreme}:
                del self._kept[name]

    def places(self) -> tuple[SamplePlace, ...]:
        """Return the places of the samples, in order of their digests."""
        return tuple(sorted(place for place, _ in self._kept.values()))

    def samples(self, source: Samples) -> Iterator[tuple[str, Sample]]:
        """Yield the digests and the samples, read again if need be, but for those that have changed."""
        missing = defaultdict[int, list[SamplePlace]](list)
        for digest in sorted(self._kept):
            place, sample = self._kept[digest]
            if sample is not None:
                yield place.digest, sample
            else:
                missing[place.number].append(place)
        for number, sample in source.numbered(sorted(missing)):
            rows = self._parts(sample)
            for place in missing[number]:
                if place.row < len(rows):
                    row = rows[place.row]
                    if digest_text(sum(sample_digests(row.arrays, self._specs))) == place.digest:
                        yield place.digest, row
