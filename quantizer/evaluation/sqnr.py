"""How far a quantized tensor is from its float original: streaming sums, and what follows from them.

Nothing is kept of a sample but a few float64 sums for each channel, so that any amount of data can be judged.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

GROUP_FACTOR = 16.0
"""Channels whose peaks differ by more than this are not judged together: a shared 8-bit scale would leave the
smaller one 4 of its 8 bits."""

GROUP_FLOOR = GROUP_FACTOR**-4
"""Peaks below this fraction of the largest are not told apart any further."""


@dataclass(frozen=True)
class Difference:
    """The difference of a quantized tensor from the float one, over all samples.

    Attributes:
        sqnr: signal-to-quantization-noise ratio in dB, 10 log10(sum f**2 / sum (f - q)**2). `inf` when
            nothing differs; `-inf` when the float tensor is all zero and the other is not, or
            when `odd` is not 0.
        cosine: cosine similarity of both, in [-1, 1]; 1.0 when both are all zero, 0.0 when one is.
        largest: largest absolute difference.
        peak: largest absolute float value.
        elements: how many were compared.
        odd: elements that are NaN or Inf in one of the two and not the same in the other; they are in no sum.
    """

    sqnr: float
    cosine: float
    largest: float
    peak: float
    elements: int
    odd: int


@dataclass(frozen=True, eq=False)
class Sums:
    """What `Difference` needs, for each channel; float64 and int64 arrays of shape [channels].

    Attributes:
        signal, energy: sums of f**2 and of q**2.
        dot: sum of f * q.
        noise: sum of (f - q)**2.
        peak: largest |f|.
        largest: largest |f - q|.
        odd, elements: counts, as in `Difference`.
    """

    signal: Array
    energy: Array
    dot: Array
    noise: Array
    peak: Array
    largest: Array
    odd: npt.NDArray[np.int64]
    elements: npt.NDArray[np.int64]

    def added(self, other: Sums) -> Sums:
        """Return the sums over both sets of elements; both must have the same channels."""
        return Sums(
            self.signal + other.signal,
            self.energy + other.energy,
            self.dot + other.dot,
            self.noise + other.noise,
            np.maximum(self.peak, other.peak),
            np.maximum(self.largest, other.largest),
            self.odd + other.odd,
            self.elements + other.elements,
        )

    def difference(self, channels: npt.NDArray[np.intp] | None = None) -> Difference:
        """Return the difference over all channels, or over those with the given indices."""
        pick = slice(None) if channels is None else channels
        signal, energy, dot, noise = (
            float(a[pick].sum()) for a in (self.signal, self.energy, self.dot, self.noise)
        )
        odd = int(self.odd[pick].sum())
        return Difference(
            sqnr=-math.inf if odd else decibels(signal, noise),
            cosine=_cosine(signal, energy, dot, noise),
            largest=float(self.largest[pick].max(initial=0.0)),
            peak=float(self.peak[pick].max(initial=0.0)),
            elements=int(self.elements[pick].sum()),
            odd=odd,
        )


def decibels(signal: float, noise: float) -> float:
    """Return 10 log10(signal / noise) of two energies; inf without noise, -inf for noise without signal."""
    if noise == 0.0:
        return math.inf
    if math.isinf(noise):
        return -math.inf
    return 10.0 * (math.log10(signal) - math.log10(noise)) if signal > 0.0 else -math.inf


def _cosine(signal: float, energy: float, dot: float, noise: float) -> float:
    if noise == 0.0:
        return 1.0
    if signal == 0.0 or energy == 0.0 or math.isinf(signal) or math.isinf(energy):
        return 0.0
    return min(1.0, max(-1.0, dot / math.sqrt(signal) / math.sqrt(energy)))


def sums_along(
    floats: npt.NDArray[np.generic], quantized: npt.NDArray[np.generic], axes: tuple[int | None, ...]
) -> tuple[Sums, ...]:
    """Return the sums for each of `axes`: for every index along it, or in one channel for None.

    Args:
        floats, quantized: arrays of any real dtype and of the same shape.
        axes: which axes have channels.
    """
    f, q = np.asarray(floats, np.float64), np.asarray(quantized, np.float64)
    finite = np.isfinite(f) & np.isfinite(q)
    odd = np.zeros(f.shape, np.bool_)
    if not finite.all():
        odd = ~finite & (f != q) & ~(np.isnan(f) & np.isnan(q))
        f, q = np.where(finite, f, 0.0), np.where(finite, q, 0.0)
    with np.errstate(over="ignore"):  # float64 values beyond 1e154: the sums then say inf
        gap = f - q
        added = (f * f, q * q, f * q, gap * gap)
    tops = (np.abs(f), np.abs(gap))
    return tuple(
        Sums(
            *(_split(a, axis).sum(axis=(0, 2)) for a in added),
            *(_split(a, axis).max(axis=(0, 2), initial=0.0) for a in tops),
            *(_split(a, axis).sum(axis=(0, 2), dtype=np.int64) for a in (odd, finite)),
        )
        for axis in axes
    )


def _split(values: npt.NDArray[Any], axis: int | None) -> npt.NDArray[Any]:
    """View as [before, channels, after]."""
    if axis is None:
        return values.reshape(1, 1, -1)
    shape = values.shape
    return values.reshape(math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :]))


@dataclass(frozen=True)
class ChannelGroup:
    """Channels of about the same range, judged for themselves.

    Attributes:
        runs: their indices as (first, last) pairs, both included, ascending.
        difference: over these channels.
    """

    runs: tuple[tuple[int, int], ...]
    difference: Difference

    @property
    def text(self) -> str:
        """The indices as text, such as "0-3, 17"; a long list is cut short."""
        shown = [f"{a}-{b}" if a < b else f"{a}" for a, b in self.runs[:4]]
        return ", ".join(shown) + (", ..." if len(self.runs) > 4 else "")


@dataclass(frozen=True)
class Channels:
    """One output, channel by channel.

    Attributes:
        axis: which axis has the channels.
        count: how many.
        worst: index of the channel with the lowest SQNR (the first of equals).
        worst_difference: that channel alone.
        groups: channels grouped by range, widest first; more than one only where the ranges differ by more
            than GROUP_FACTOR. There the total says little about the small channels.
    """

    axis: int
    count: int
    worst: int
    worst_difference: Difference
    groups: tuple[ChannelGroup, ...]


def channels_of(sums: Sums, axis: int) -> Channels:
    """Return the judgement of each channel that `sums` were taken for."""
    odd = sums.odd > 0
    scores = [
        -math.inf if o else decibels(s, n) for s, n, o in zip(sums.signal, sums.noise, odd, strict=True)
    ]
    worst = int(np.argmin(scores))
    groups = tuple(
        ChannelGroup(_runs(members), sums.difference(members)) for members in range_groups(sums.peak)
    )
    return Channels(axis, len(scores), worst, sums.difference(np.array([worst], np.intp)), groups)


def range_groups(peaks: Array) -> list[npt.NDArray[np.intp]]:
    """Return the indices of channels in groups of similar peak, widest first.

    A group starts at its largest peak and takes every channel that is at most GROUP_FACTOR times smaller.
    """
    floored = np.maximum(peaks, peaks.max() * GROUP_FLOOR)
    order = np.argsort(-floored, kind="stable")
    return [np.sort(np.array(members, np.intp)) for members in _chain(floored, order)]


def _chain(peaks: Array, order: npt.NDArray[np.intp]) -> Iterator[list[int]]:
    members: list[int] = []
    for index in order.tolist():
        if members and peaks[index] * GROUP_FACTOR < peaks[members[0]]:
            yield members
            members = []
        members.append(index)
    yield members


def _runs(indices: npt.NDArray[np.intp]) -> tuple[tuple[int, int], ...]:
    cuts = np.flatnonzero(np.diff(indices) != 1) + 1
    return tuple((int(part[0]), int(part[-1])) for part in np.split(indices, cuts))


def spread(peaks: Array) -> float:
    """Return how many times the largest peak is the smallest (at most 1 / GROUP_FLOOR); 1.0 for no signal."""
    top = float(peaks.max(initial=0.0))
    return 1.0 if top == 0.0 else top / max(float(peaks.min()), top * GROUP_FLOOR)
