"""Which samples made the extremes of many tensors, kept up to date in a few numpy operations for each sample.

Values at both ends are compared as keys of which the smaller is the more extreme: minima as they are, maxima
with the other sign. Most samples are among the two best of few tensors; many are equal to the best of some,
as of every tensor after a Relu, so that equal keys are ordered by digests in numpy as well.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..base.errors import natural_key
from ..records.profile import Extreme, Extremes
from .histogram_counter import Ranges

_SIGNS = np.array([1.0, -1.0])


@dataclass(eq=False)
class _Place:
    """One of the two best of each tensor and end: keys, infinite for none, and digests as bytes."""

    keys: npt.NDArray[np.float64]
    digests: npt.NDArray[np.bytes_]

    @staticmethod
    def empty(size: int) -> _Place:
        return _Place(np.full(size, np.inf), np.zeros(size, "S16"))

    def put(self, at: npt.NDArray[np.intp], keys: npt.NDArray[np.float64], digests: object) -> None:
        """Set some of the places."""
        self.keys[at], self.digests[at] = keys, digests


class ExtremeTracker:
    """Tracks the extremes of a number of tensors; for one thread at a time."""

    def __init__(self, tensors: int) -> None:
        """Begin with nothing."""
        self._first, self._second = _Place.empty(2 * tensors), _Place.empty(2 * tensors)
        self._names: dict[bytes, str] = {}

    def note(self, name: str, digest: int, ranges: Ranges) -> None:
        """Note one sample's ranges: smallest and largest finite element of each tensor (`empty_ranges`)."""
        first, second = self._first, self._second
        keys = (ranges * _SIGNS).reshape(-1)
        own = digest.to_bytes(16, "big")
        first_name = self._names.get(own, name)
        if name != first_name and natural_key(name) < natural_key(first_name):
            self._names[own] = name
        at = np.flatnonzero(keys <= second.keys)
        here = keys[at]
        # Of equal keys the smaller digest is better; where there is no sample yet, none is smaller.
        among = (here < second.keys[at]) | (own < second.digests[at])
        if own in self._names:
            among &= (here < first.keys[at]) | (first.digests[at] != own)
        at = at[among]
        if at.size:
            self._names.setdefault(own, name)
            self._insert(at, keys[at], own)

    def _insert(self, at: npt.NDArray[np.intp], keys: npt.NDArray[np.float64], own: bytes) -> None:
        """Put a sample among the two best at the places for which it is one of them."""
        first = self._first
        before, digests = first.keys[at], first.digests[at]
        best = (keys < before) | ((keys == before) & (own < digests))
        moved = best & (digests != own)
        self._second.put(at[moved], before[moved], digests[moved])
        first.put(at[best], keys[best], own)
        self._second.put(at[~best], keys[~best], own)

    def extremes(self) -> list[Extremes]:
        """Return the extremes of each tensor."""
        places = (self._first, self._second)
        keys = np.stack([place.keys for place in places], axis=1).tolist()
        digests = np.stack([place.digests for place in places], axis=1).tolist()
        ends = [
            tuple(
                self._extreme(key if end % 2 == 0 else -key, digest)
                for key, digest in zip(keys[end], digests[end], strict=True)
                if key < np.inf
            )
            for end in range(len(keys))
        ]
        return [Extremes(*pair) for pair in zip(ends[::2], ends[1::2], strict=True)]

    def _extreme(self, value: float, digest: bytes) -> Extreme:
        whole = digest.ljust(16, b"\0")  # numpy drops zeros at the end
        return Extreme(value + 0.0, whole.hex(), self._names[whole])
